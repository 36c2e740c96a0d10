//! [`Mutex`]: one holder at any time.

use std::sync::Arc;
use std::time::Duration;

use super::wanted::{Named, Wanted, options};
use crate::backend::{Broken, Mode, State};
use crate::engine::Engine;
use crate::engine::acquire::Patience;
use crate::engine::guard::Guard;
use crate::engine::owner::Owner;
use crate::error::{Error, Result};
use crate::name::Resource;

/// A lock that one owner at a time can hold, re-entrant by [`Owner`].
///
/// [`lock`](Self::lock), [`try_lock_for`](Self::try_lock_for) and [`try_lock`](Self::try_lock) keep the lock alive until
/// the guard is dropped, unless [`lease_fixed`](Self::lease_fixed) was called. That somebody else has the lock is a
/// value, not an error. The futures own what they need: they can be spawned.
#[derive(Debug, Clone)]
#[must_use = "a mutex does nothing until it is locked"]
pub struct Mutex {
    pub(crate) wanted: Wanted,
    mode: Mode,
}

impl Mutex {
    pub(crate) fn new(engine: Arc<Engine>, resource: Named) -> Self {
        Self { wanted: Wanted::new(engine, resource), mode: Mode::Exclusive }
    }

    options!();

    /// Whose nested calls re-enter; otherwise the owner of the [scope](Owner::scope), if there is one.
    pub fn owner(mut self, owner: &Owner) -> Self {
        self.wanted.owner = Some(owner.clone());
        self
    }

    /// Each hold is granted by the store, under a token that all can see.
    pub(crate) fn never_handed_over(mut self) -> Self {
        self.wanted.alone = true;
        self
    }

    /// First come, first served, across all processes: each call has its own place in line at the store, and nobody is
    /// passed over while it lives. Slower than without: a hold is never handed over inside the process. All who use the
    /// name should do so; those who do not come in between.
    ///
    /// ```
    /// # async fn example() -> tenure::Result<()> {
    /// let locker = tenure::Locker::connect("memory:").await?;
    /// let guard = locker.mutex("ticket counter").fair().lock().await?;
    /// guard.release().await?;
    /// # locker.close().await
    /// # }
    /// # fn main() -> tenure::Result<()> { tokio::runtime::Runtime::new().unwrap().block_on(example()) }
    /// ```
    pub fn fair(mut self) -> Self {
        self.mode = Mode::Fair;
        self
    }

    /// Waits until the lock is held. Fails when the store is unavailable for longer than the retry policy allows.
    ///
    /// # Cancel safety
    /// Safe: dropping the future leaves neither a lock nor a place in line behind.
    pub fn lock(&self) -> impl Future<Output = Result<Guard>> + Send + use<> {
        let asked = self.clone();
        async move { asked.acquire(Patience::Endless).await?.ok_or(Error::Closed) }
    }

    /// As [`lock`](Self::lock), for a limited time. `None`: somebody else had the lock all the time. Zero asks once, as
    /// [`try_lock`](Self::try_lock) does.
    ///
    /// # Cancel safety
    /// As [`lock`](Self::lock).
    pub fn try_lock_for(&self, wait: Duration) -> impl Future<Output = Result<Option<Guard>>> + Send + use<> {
        let asked = self.clone();
        async move { asked.acquire(asked.wanted.patience(wait)).await }
    }

    /// Asks once. `None`: somebody else has the lock. An unavailable store is reported at once.
    ///
    /// # Cancel safety
    /// As [`lock`](Self::lock).
    pub fn try_lock(&self) -> impl Future<Output = Result<Option<Guard>>> + Send + use<> {
        let asked = self.clone();
        async move { asked.acquire(Patience::None).await }
    }

    /// Who holds the lock and how many wait.
    ///
    /// # Cancel safety
    /// Safe: it only reads.
    pub fn inspect(&self) -> impl Future<Output = Result<State>> + Send + use<> {
        self.wanted.clone().inspect()
    }

    /// Ends the hold of whoever has the lock, and raises the fence above its token in the same step: the broken holder
    /// is told by the store, or at its next renewal at the latest, and a storage that checks tokens refuses it as soon as the next holder has written.
    /// `None` if nobody held it.
    ///
    /// # Cancel safety
    /// The break may or may not have happened.
    pub fn break_hold(&self) -> impl Future<Output = Result<Option<Broken>>> + Send + use<> {
        self.wanted.clone().break_hold()
    }

    pub(crate) async fn acquire(&self, patience: Patience) -> Result<Option<Guard>> {
        self.wanted.acquire(self.mode, patience).await
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.wanted.engine
    }

    pub(crate) fn resource(&self) -> Result<&Resource> {
        self.wanted.resource.as_ref().map_err(|e| e.clone().into())
    }
}
