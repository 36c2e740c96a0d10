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

/// What both tell as the async one does.
macro_rules! tells {
    ($($name:ident -> $answer:ty;)*) => {
        $(
            #[doc = concat!("As [`crate::Guard::", stringify!($name), "`].")]
            #[must_use]
            pub fn $name(&self) -> $answer {
                self.guard.$name()
            }
        )*
    };
}

/// What both have of the async one.
macro_rules! views {
    () => {
        tells! {
            token -> Token;
            resource -> &Resource;
            owner_id -> OwnerId;
            mode -> Mode;
            is_valid -> bool;
            state -> HoldState;
            expires_in -> Duration;
            lease -> Duration;
            hold_count -> usize;
            watcher -> Watcher;
        }

        /// As [`crate::Guard::check`].
        pub fn check(&self) -> Result<(), Lost> {
            self.guard.check()
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

    /// Another guard of the same hold. If another thread asks for one, the hold belongs to both, and no thread re-enters it any more.
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

macro_rules! pass {
    ($($guard:ident)*) => {
        $(
            /// Its locker counts what is refused.
            impl Pass for $guard {
                fn token(&self) -> Token {
                    Self::token(self)
                }

                fn refused(&self) {
                    self.note_stale();
                }
            }
        )*
    };
}
pass!(Guard SendGuard);
