//! The primitives, for threads.

use std::time::Duration;

use super::facade::facade;
use super::{Guard, this_thread};
use crate::backend::{Broken, Mode, State};
use crate::error::Result;

/// As [`crate::Mutex`], for threads.
#[derive(Debug, Clone)]
#[must_use = "a mutex does nothing until it is locked"]
pub struct Mutex(pub(super) crate::Mutex);

/// As [`crate::RwLock`], for threads. A thread that reads is refused to write, instead of waiting for itself.
#[derive(Debug, Clone)]
#[must_use = "a lock does nothing until it is taken"]
pub struct RwLock(pub(super) crate::RwLock);

/// As [`crate::Semaphore`], for threads.
#[derive(Debug, Clone)]
#[must_use = "a semaphore does nothing until a permit is taken"]
pub struct Semaphore(pub(super) crate::Semaphore);

/// As [`crate::AnyLock`], for threads.
#[derive(Debug, Clone)]
#[must_use = "a lock does nothing until it is acquired"]
pub struct AnyLock(pub(super) crate::AnyLock);

/// As [`crate::Latch`], for threads.
#[derive(Debug, Clone)]
#[must_use = "a latch does nothing by itself"]
pub struct Latch(pub(super) crate::Latch);

/// What all locks have in common.
macro_rules! lock {
    ($of:ident: $($own:tt)*) => {
        facade! { $of:
            set lease(lease: Duration);
            set lease_fixed(lease: Duration);
            set max_hold(max_hold: Duration);
            set note(note: impl Into<String>);
            wait inspect() -> State;
            wait break_hold() -> Option<Broken>;
            $($own)*
        }
    };
}

lock! { Mutex:
    set fair();
    hold lock();
    try_hold try_lock_for(wait: Duration);
    try_hold try_lock();
}

lock! { RwLock:
    hold read();
    try_hold try_read_for(wait: Duration);
    try_hold try_read();
    hold write();
    try_hold try_write_for(wait: Duration);
    try_hold try_write();
}

lock! { Semaphore:
    hold acquire();
    try_hold try_acquire_for(wait: Duration);
    try_hold try_acquire();
    hold acquire_many(permits: u32);
    try_hold try_acquire_many_for(permits: u32, wait: Duration);
    wait resize(permits: u32) -> ();
}

lock! { AnyLock:
    get mode() -> Mode;
    hold acquire();
    try_hold try_acquire_for(wait: Duration);
    try_hold try_acquire();
}

facade! { Latch:
    wait set(count: u32) -> bool;
    wait count_down() -> u64;
    wait wait() -> ();
    wait wait_for(wait: Duration) -> bool;
    wait count() -> u64;
    wait remove() -> ();
}

impl Mutex {
    fn asked(&self) -> crate::Mutex {
        self.0.clone().owner(&this_thread())
    }
}

impl RwLock {
    /// As [`crate::RwLock::downgrade`].
    pub fn downgrade(&self, writer: Guard) -> Result<Guard> {
        super::block_on(self.0.downgrade(writer.into_inner())).map(Guard::new)
    }

    fn asked(&self) -> crate::RwLock {
        self.0.clone().owner(&this_thread())
    }
}

impl Semaphore {
    fn asked(&self) -> &crate::Semaphore {
        &self.0
    }
}

impl AnyLock {
    fn asked(&self) -> crate::AnyLock {
        self.0.clone().owner(&this_thread())
    }
}

impl Latch {
    fn asked(&self) -> &crate::Latch {
        &self.0
    }
}
