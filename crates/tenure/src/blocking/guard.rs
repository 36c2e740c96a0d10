//! A hold of a thread, and one that may go to another thread.

use std::marker::PhantomData;
use std::sync::MutexGuard;
use std::thread::ThreadId;
use std::time::Duration;

use super::block_on;
use crate::backend::Mode;
use crate::engine::guard::{HoldState, Watcher};
use crate::error::Result;
use crate::fence::Pass;
use crate::lost::Lost;
use crate::name::{OwnerId, Resource, Token};

/// As [`crate::Guard`], for the thread that has it: nested calls of that thread re-enter while it is alive.
///
/// So it is not `Send`: a thread whose guard had gone elsewhere would still re-enter, and two would hold one lock.
/// [`into_send`](Self::into_send) makes one that may go, and ends re-entry.
///
/// ```compile_fail
/// let locker = tenure::blocking::Locker::connect("memory:").unwrap();
/// let guard = locker.mutex("stock:1001").lock().unwrap();
/// std::thread::spawn(move || drop(guard));
/// ```
#[derive(Debug)]
#[must_use = "dropping the guard gives the lock back at once"]
pub struct Guard {
    guard: crate::Guard,
    thread: ThreadId,
    /// As std's guards: not `Send`, but `Sync`.
    stays: PhantomData<MutexGuard<'static, ()>>,
}

/// A hold that no thread re-enters, and that may go from thread to thread. See [`Guard::into_send`].
#[derive(Debug)]
#[must_use = "dropping the guard gives the lock back at once"]
pub struct SendGuard {
    guard: crate::Guard,
}

/// What both have of the async one.
macro_rules! views {
    () => {
        /// As [`crate::Guard::token`].
        #[must_use]
        pub fn token(&self) -> Token {
            self.guard.token()
        }

        /// As [`crate::Guard::resource`].
        #[must_use]
        pub fn resource(&self) -> &Resource {
            self.guard.resource()
        }

        /// As [`crate::Guard::owner_id`].
        #[must_use]
        pub fn owner_id(&self) -> OwnerId {
            self.guard.owner_id()
        }

        /// As [`crate::Guard::mode`].
        #[must_use]
        pub fn mode(&self) -> Mode {
            self.guard.mode()
        }

        /// As [`crate::Guard::is_valid`].
        #[must_use]
        pub fn is_valid(&self) -> bool {
            self.guard.is_valid()
        }

        /// As [`crate::Guard::check`].
        pub fn check(&self) -> Result<(), Lost> {
            self.guard.check()
        }

        /// As [`crate::Guard::state`].
        #[must_use]
        pub fn state(&self) -> HoldState {
            self.guard.state()
        }

        /// As [`crate::Guard::expires_in`].
        #[must_use]
        pub fn expires_in(&self) -> Duration {
            self.guard.expires_in()
        }

        /// As [`crate::Guard::lease`].
        #[must_use]
        pub fn lease(&self) -> Duration {
            self.guard.lease()
        }

        /// As [`crate::Guard::hold_count`].
        #[must_use]
        pub fn hold_count(&self) -> usize {
            self.guard.hold_count()
        }

        /// As [`crate::Guard::watcher`].
        #[must_use]
        pub fn watcher(&self) -> Watcher {
            self.guard.watcher()
        }

        /// Waits until the lock is lost.
        pub fn lost(&self) -> Result<Lost> {
            block_on(async { Ok(self.guard.lost().await) })
        }

        /// As [`crate::Guard::release`].
        pub fn release(self) -> Result<()> {
            block_on(self.guard.release())
        }

        pub(crate) fn note_stale(&self) {
            self.guard.note_stale();
        }
    };
}

impl Guard {
    pub(super) fn new(guard: crate::Guard) -> Self {
        Self { guard, thread: std::thread::current().id(), stays: PhantomData }
    }

    pub(super) fn into_inner(self) -> crate::Guard {
        self.guard
    }

    views!();

    /// Another guard of the same hold. If another thread asks for one, the hold belongs to both, and nobody re-enters it any more.
    pub fn reenter(&self) -> Result<Self, Lost> {
        let again = self.guard.reenter()?;
        if std::thread::current().id() != self.thread {
            self.guard.end_reentry();
        }
        Ok(Self::new(again))
    }

    /// A guard of the same hold that may go to another thread, or out of a job on a pool of threads. Nobody re-enters the hold
    /// from then on: this thread waits for it as any other does, also if it keeps other guards of the same hold.
    ///
    /// ```
    /// let locker = tenure::blocking::Locker::connect("memory:")?;
    /// let guard = locker.mutex("stock:1001").lock()?.into_send();
    /// assert!(locker.mutex("stock:1001").try_lock()?.is_none(), "held, and not by this thread");
    /// std::thread::spawn(move || guard.release()).join().unwrap()?;
    /// # Ok::<(), tenure::Error>(())
    /// ```
    pub fn into_send(self) -> SendGuard {
        self.guard.end_reentry();
        SendGuard { guard: self.guard }
    }
}

impl SendGuard {
    views!();
}

/// Its locker counts what is refused.
impl Pass for Guard {
    fn token(&self) -> Token {
        Self::token(self)
    }

    fn refused(&self) {
        self.note_stale();
    }
}

/// Its locker counts what is refused.
impl Pass for SendGuard {
    fn token(&self) -> Token {
        Self::token(self)
    }

    fn refused(&self) {
        self.note_stale();
    }
}
