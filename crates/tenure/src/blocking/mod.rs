//! The facade for threads: the same verbs, and re-entry per thread as `java.util.concurrent`'s lock does it.
//!
//! ```
//! let locker = tenure::blocking::Locker::connect("memory:")?;
//! let guard = locker.mutex("stock:1001").lock()?;
//! let again = locker.mutex("stock:1001").lock()?; // the same thread: does not block itself
//! assert_eq!(guard.token(), again.token());
//! # Ok::<(), tenure::Error>(())
//! ```
//!
//! A call inside of async code is an error instead of a deadlock; `tokio::task::spawn_blocking` is fine.

mod locks;
#[cfg(feature = "once")]
mod once;

use std::ops::Deref;
use std::task::{Context, Poll, Waker};

use tokio::runtime::Handle;
use tokio::task::coop;

pub use self::locks::{Latch, Mutex, RwLock, Semaphore};
#[cfg(feature = "once")]
pub use self::once::{Ledger, Once};
use crate::backend::State;
use crate::error::{Error, Result};
use crate::guard::Lost;
use crate::owner::Owner;
use crate::runtime;

thread_local! {
    static THIS_THREAD: Owner = Owner::new();
}

/// As [`crate::Locker`], for threads.
#[derive(Debug, Clone)]
pub struct Locker(crate::Locker);

/// As [`crate::Guard`], for threads.
#[derive(Debug)]
#[must_use = "dropping the guard gives the lock back at once"]
pub struct Guard(crate::Guard);

impl Locker {
    /// As [`crate::Locker::connect`].
    pub fn connect(url: &str) -> Result<Self> {
        block_on(crate::Locker::connect(url)).map(Self)
    }

    /// As [`crate::Locker::mutex`].
    pub fn mutex(&self, name: impl AsRef<str>) -> Mutex {
        Mutex(self.0.mutex(name))
    }

    /// As [`crate::Locker::rwlock`].
    pub fn rwlock(&self, name: impl AsRef<str>) -> RwLock {
        RwLock(self.0.rwlock(name))
    }

    /// As [`crate::Locker::semaphore`].
    pub fn semaphore(&self, name: impl AsRef<str>, permits: u32) -> Semaphore {
        Semaphore(self.0.semaphore(name, permits))
    }

    /// As [`crate::Locker::latch`].
    pub fn latch(&self, name: impl AsRef<str>) -> Latch {
        Latch(self.0.latch(name))
    }

    /// As [`crate::Locker::list`].
    pub fn list(&self, prefix: &str) -> Result<Vec<State>> {
        block_on(self.0.list(prefix))
    }

    /// As [`crate::Locker::close`].
    pub fn close(&self) -> Result<()> {
        block_on(self.0.close())
    }
}

impl From<crate::Locker> for Locker {
    fn from(locker: crate::Locker) -> Self {
        Self(locker)
    }
}

impl Deref for Locker {
    type Target = crate::Locker;

    /// The async one, for what does not wait.
    fn deref(&self) -> &crate::Locker {
        &self.0
    }
}

/// This thread, as one who re-enters.
fn this_thread() -> Owner {
    THIS_THREAD.with(Owner::clone)
}

impl Guard {
    /// As [`crate::Guard::release`].
    pub fn release(self) -> Result<()> {
        block_on(self.0.release())
    }

    /// Another guard of the same hold.
    pub fn reenter(&self) -> Result<Self, Lost> {
        self.0.reenter().map(Self)
    }

    /// Waits until the lock is lost.
    pub fn lost(&self) -> Result<Lost> {
        block_on(async { Ok(self.0.lost().await) })
    }
}

impl Deref for Guard {
    type Target = crate::Guard;

    /// The async one, for what does not wait: token, validity, count.
    fn deref(&self) -> &crate::Guard {
        &self.0
    }
}

fn block_on<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    if inside_async_code() {
        let fix = "the async API, or a thread of its own (spawn_blocking)";
        return Err(Error::config("a blocking call", "was made inside of async code, which it would stop", fix));
    }
    runtime::background()?.block_on(future)
}

/// Whether a task is being polled on this thread. A runtime's handle alone does not tell: `spawn_blocking` has one too,
/// and may block. But only tasks have a budget of steps that runs out.
fn inside_async_code() -> bool {
    if Handle::try_current().is_err() {
        return false;
    }
    let mut context = Context::from_waker(Waker::noop());
    let mut steps = Vec::new();
    let limited = (0..256).any(|_| match coop::poll_proceed(&mut context) {
        Poll::Ready(step) => {
            steps.push(step);
            false
        }
        Poll::Pending => true,
    });
    // Each step gives back what it took, the last one first.
    while steps.pop().is_some() {}
    limited
}
