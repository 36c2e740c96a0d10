//! The primitives, for threads.

use std::time::Duration;

use super::{Guard, block_on, this_thread};
use crate::backend::{Broken, State};
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

/// As [`crate::Latch`], for threads.
#[derive(Debug, Clone)]
#[must_use = "a latch does nothing by itself"]
pub struct Latch(pub(super) crate::Latch);

/// What all locks have in common.
macro_rules! common {
    ($name:ident) => {
        #[doc = concat!("As [`crate::", stringify!($name), "::lease`].")]
        pub fn lease(self, lease: Duration) -> Self {
            Self(self.0.lease(lease))
        }

        #[doc = concat!("As [`crate::", stringify!($name), "::lease_fixed`].")]
        pub fn lease_fixed(self, lease: Duration) -> Self {
            Self(self.0.lease_fixed(lease))
        }

        #[doc = concat!("As [`crate::", stringify!($name), "::max_hold`].")]
        pub fn max_hold(self, max_hold: Duration) -> Self {
            Self(self.0.max_hold(max_hold))
        }

        #[doc = concat!("As [`crate::", stringify!($name), "::note`].")]
        pub fn note(self, note: impl Into<String>) -> Self {
            Self(self.0.note(note))
        }

        #[doc = concat!("As [`crate::", stringify!($name), "::inspect`].")]
        pub fn inspect(&self) -> Result<State> {
            block_on(self.0.inspect())
        }

        #[doc = concat!("As [`crate::", stringify!($name), "::break_hold`].")]
        pub fn break_hold(&self) -> Result<Option<Broken>> {
            block_on(self.0.break_hold())
        }
    };
}

pub(super) fn guard(acquired: impl Future<Output = Result<crate::Guard>>) -> Result<Guard> {
    block_on(acquired).map(Guard::new)
}

pub(super) fn if_any(acquired: impl Future<Output = Result<Option<crate::Guard>>>) -> Result<Option<Guard>> {
    Ok(block_on(acquired)?.map(Guard::new))
}

impl Mutex {
    common!(Mutex);

    /// As [`crate::Mutex::fair`].
    pub fn fair(self) -> Self {
        Self(self.0.fair())
    }

    /// Waits until the lock is held.
    pub fn lock(&self) -> Result<Guard> {
        guard(self.of_this_thread().lock())
    }

    /// Waits for a limited time. `None`: somebody else had the lock all the time.
    pub fn try_lock_for(&self, wait: Duration) -> Result<Option<Guard>> {
        if_any(self.of_this_thread().try_lock_for(wait))
    }

    /// Asks once. `None`: somebody else has the lock.
    pub fn try_lock(&self) -> Result<Option<Guard>> {
        if_any(self.of_this_thread().try_lock())
    }

    fn of_this_thread(&self) -> crate::Mutex {
        self.0.clone().owner(&this_thread())
    }
}

impl RwLock {
    common!(RwLock);

    /// Waits until it may be read.
    pub fn read(&self) -> Result<Guard> {
        guard(self.of_this_thread().read())
    }

    /// Waits for a limited time. `None`: it was busy all the time.
    pub fn try_read_for(&self, wait: Duration) -> Result<Option<Guard>> {
        if_any(self.of_this_thread().try_read_for(wait))
    }

    /// Asks once. `None`: somebody writes, or waits to, also if nobody holds it at this moment.
    pub fn try_read(&self) -> Result<Option<Guard>> {
        if_any(self.of_this_thread().try_read())
    }

    /// Waits until nobody else reads or writes.
    pub fn write(&self) -> Result<Guard> {
        guard(self.of_this_thread().write())
    }

    /// Waits for a limited time. `None`: it was busy all the time.
    pub fn try_write_for(&self, wait: Duration) -> Result<Option<Guard>> {
        if_any(self.of_this_thread().try_write_for(wait))
    }

    /// Asks once. `None`: somebody else reads or writes.
    pub fn try_write(&self) -> Result<Option<Guard>> {
        if_any(self.of_this_thread().try_write())
    }

    /// As [`crate::RwLock::downgrade`].
    pub fn downgrade(&self, writer: Guard) -> Result<Guard> {
        guard(self.0.downgrade(writer.into_inner()))
    }

    fn of_this_thread(&self) -> crate::RwLock {
        self.0.clone().owner(&this_thread())
    }
}

impl Semaphore {
    common!(Semaphore);

    /// Waits for a permit.
    pub fn acquire(&self) -> Result<Guard> {
        guard(self.0.acquire())
    }

    /// Waits for a limited time. `None`: there was none all the time.
    pub fn try_acquire_for(&self, wait: Duration) -> Result<Option<Guard>> {
        if_any(self.0.try_acquire_for(wait))
    }

    /// Asks once. `None`: none is free.
    pub fn try_acquire(&self) -> Result<Option<Guard>> {
        if_any(self.0.try_acquire())
    }

    /// As [`crate::Semaphore::acquire_many`].
    pub fn acquire_many(&self, permits: u32) -> Result<Guard> {
        guard(self.0.acquire_many(permits))
    }

    /// As [`crate::Semaphore::try_acquire_many_for`].
    pub fn try_acquire_many_for(&self, permits: u32, wait: Duration) -> Result<Option<Guard>> {
        if_any(self.0.try_acquire_many_for(permits, wait))
    }

    /// As [`crate::Semaphore::resize`].
    pub fn resize(&self, permits: u32) -> Result<()> {
        block_on(self.0.resize(permits))
    }
}

impl Latch {
    /// As [`crate::Latch::set`].
    pub fn set(&self, count: u32) -> Result<bool> {
        block_on(self.0.set(count))
    }

    /// As [`crate::Latch::count_down`].
    pub fn count_down(&self) -> Result<u64> {
        block_on(self.0.count_down())
    }

    /// Waits until the count is zero.
    pub fn wait(&self) -> Result<()> {
        block_on(self.0.wait())
    }

    /// Waits for a limited time. Whether the count is zero.
    pub fn wait_for(&self, wait: Duration) -> Result<bool> {
        block_on(self.0.wait_for(wait))
    }

    /// As [`crate::Latch::count`].
    pub fn count(&self) -> Result<u64> {
        block_on(self.0.count())
    }

    /// As [`crate::Latch::remove`].
    pub fn remove(&self) -> Result<()> {
        block_on(self.0.remove())
    }
}
