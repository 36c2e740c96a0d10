//! What is made of several locks, and elections, for threads.

use std::marker::PhantomData;
use std::sync::MutexGuard;
use std::time::Duration;

use super::facade::facade;
use super::{Guard, Mutex, block_on, this_thread};
use crate::error::Result;
use crate::lost::Lost;
use crate::name::Token;
use crate::primitives::election::Leader;

/// As [`crate::Multi`], for threads. A thread re-enters those of the names that it holds.
#[derive(Debug, Clone)]
#[must_use = "nothing is locked yet"]
pub struct Multi(Vec<crate::Mutex>);

impl Multi {
    /// As [`crate::Multi::of`].
    pub fn of(mutexes: impl IntoIterator<Item = Mutex>) -> Self {
        Self(mutexes.into_iter().map(|mutex| mutex.0).collect())
    }

    /// Waits until all are held.
    pub fn lock(&self) -> Result<MultiGuard> {
        block_on(self.of_this_thread().lock()).map(MultiGuard::new)
    }

    /// Waits for a limited time in all. `None`: one of them was busy.
    pub fn try_lock_for(&self, wait: Duration) -> Result<Option<MultiGuard>> {
        Ok(block_on(self.of_this_thread().try_lock_for(wait))?.map(MultiGuard::new))
    }

    /// Asks for each once. `None`: one of them is busy.
    pub fn try_lock(&self) -> Result<Option<MultiGuard>> {
        Ok(block_on(self.of_this_thread().try_lock())?.map(MultiGuard::new))
    }

    fn of_this_thread(&self) -> crate::Multi {
        let owner = this_thread();
        crate::Multi::of(self.0.iter().map(|mutex| mutex.clone().owner(&owner)))
    }
}

/// As [`crate::MultiGuard`], for the thread that has it.
#[derive(Debug)]
#[must_use = "dropping the guard gives all locks back at once"]
pub struct MultiGuard {
    guard: crate::MultiGuard,
    /// As [`Guard`]: not `Send`, but `Sync`.
    stays: PhantomData<MutexGuard<'static, ()>>,
}

impl MultiGuard {
    fn new(guard: crate::MultiGuard) -> Self {
        Self { guard, stays: PhantomData }
    }

    /// As [`crate::MultiGuard::token`].
    #[must_use]
    pub fn token(&self, name: &str) -> Option<Token> {
        self.guard.token(name)
    }

    /// As [`crate::MultiGuard::is_valid`].
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.guard.is_valid()
    }

    /// As [`crate::MultiGuard::check`].
    pub fn check(&self) -> Result<(), Lost> {
        self.guard.check()
    }

    /// Waits until one of them is lost.
    pub fn lost(&self) -> Result<Lost> {
        block_on(async { Ok(self.guard.lost().await) })
    }

    /// As [`crate::MultiGuard::release`].
    pub fn release(self) -> Result<()> {
        block_on(self.guard.release())
    }
}

/// As [`crate::Striped`], for threads.
#[derive(Debug, Clone)]
#[must_use = "nothing is locked yet"]
pub struct Striped(pub(super) crate::Striped);

facade! { Striped:
    set lease(lease: Duration);
    get count() -> u32;
    get index(key: impl AsRef<[u8]>) -> u32;
}

impl Striped {
    /// As [`crate::Striped::of`].
    pub fn of(&self, key: impl AsRef<[u8]>) -> Mutex {
        Mutex(self.0.of(key))
    }

    /// As [`crate::Striped::stripe`].
    pub fn stripe(&self, index: u32) -> Option<Mutex> {
        self.0.stripe(index).map(Mutex)
    }

    /// Waits until any of them is held. Each call has one of its own: none is re-entered.
    pub fn lock_any(&self) -> Result<(u32, Guard)> {
        let (index, guard) = block_on(self.0.lock_any())?;
        Ok((index, Guard::new(guard)))
    }

    /// As [`lock_any`](Self::lock_any), for a limited time. `None`: others had all of them.
    pub fn try_lock_any_for(&self, wait: Duration) -> Result<Option<(u32, Guard)>> {
        Ok(block_on(self.0.try_lock_any_for(wait))?.map(|(index, guard)| (index, Guard::new(guard))))
    }

    /// Asks for each once. `None`: others have all of them.
    pub fn try_lock_any(&self) -> Result<Option<(u32, Guard)>> {
        Ok(block_on(self.0.try_lock_any())?.map(|(index, guard)| (index, Guard::new(guard))))
    }
}

/// As [`crate::Election`], for threads.
#[derive(Debug, Clone)]
#[must_use = "it is not a candidate yet"]
pub struct Election(pub(super) crate::Election);

facade! { Election:
    set lease(lease: Duration);
    hold campaign(value: &str);
    try_hold try_campaign_for(value: &str, wait: Duration);
    try_hold try_campaign(value: &str);
    wait leader() -> Option<Leader>;
}

impl Election {
    fn asked(&self) -> &crate::Election {
        &self.0
    }
}
