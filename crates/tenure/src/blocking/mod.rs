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
//! A call inside of async code is an error instead of a deadlock; `tokio::task::spawn_blocking` is fine. A guard belongs to its
//! thread: [`Guard::into_send`] lets a job return it to its caller, and ends re-entry.

mod builder;
mod facade;
mod groups;
mod guard;
mod locks;
#[cfg(feature = "once")]
mod once;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use tokio::runtime::Handle;
use tokio::task::coop;

pub use self::builder::Builder;
use self::facade::facade;
pub use self::groups::{Election, Multi, MultiGuard, Striped};
pub use self::guard::{Guard, SendGuard};
pub use self::locks::{AnyLock, Latch, Mutex, RwLock, Semaphore};
#[cfg(feature = "once")]
pub use self::once::{Ledger, Once};
use crate::backend::{Capabilities, Mode, State};
use crate::engine::background;
use crate::engine::owner::Owner;
use crate::error::{Error, Result};
use crate::name::ClientId;
use crate::stats::Stats;

thread_local! {
    static THIS_THREAD: Owner = Owner::new();
}

/// As [`crate::Locker`], for threads.
#[derive(Debug, Clone)]
pub struct Locker(crate::Locker);

impl Locker {
    /// As [`crate::Locker::connect`].
    pub fn connect(url: &str) -> Result<Self> {
        block_on(crate::Locker::connect(url)).map(Self)
    }

    /// A locker with other options than the defaults.
    pub fn builder() -> Builder {
        Builder(crate::Locker::builder())
    }

    /// The same client of the same store, for async code.
    #[must_use]
    pub fn as_async(&self) -> &crate::Locker {
        &self.0
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

    /// As [`crate::Locker::any_lock`].
    pub fn any_lock(&self, name: impl AsRef<str>, mode: Mode) -> AnyLock {
        AnyLock(self.0.any_lock(name, mode))
    }

    /// As [`crate::Locker::latch`].
    pub fn latch(&self, name: impl AsRef<str>) -> Latch {
        Latch(self.0.latch(name))
    }

    /// As [`crate::Locker::multi`].
    pub fn multi<N: AsRef<str>>(&self, names: impl IntoIterator<Item = N>) -> Multi {
        Multi::of(names.into_iter().map(|name| self.mutex(name)))
    }

    /// As [`crate::Locker::striped`].
    pub fn striped(&self, name: impl AsRef<str>, count: u32) -> Striped {
        Striped(self.0.striped(name, count))
    }

    /// As [`crate::Locker::election`].
    pub fn election(&self, name: impl AsRef<str>) -> Election {
        Election(self.0.election(name))
    }
    fn asked(&self) -> &crate::Locker {
        &self.0
    }
}

facade! { Locker:
    get capabilities() -> &Capabilities;
    get stats() -> Stats;
    get client_id() -> ClientId;
    wait list(prefix: &str) -> Vec<State>;
    wait close() -> ();
}

impl From<crate::Locker> for Locker {
    fn from(locker: crate::Locker) -> Self {
        Self(locker)
    }
}

/// This thread, as an owner for re-entry. While the thread ends, it does not re-enter what it held before.
fn this_thread() -> Owner {
    THIS_THREAD.try_with(Owner::clone).unwrap_or_default()
}

fn block_on<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    if inside_async_code() {
        let fix = "the async API, or a thread of its own (spawn_blocking)";
        return Err(Error::misuse("a blocking call", "was made inside of async code, which it would stop", fix));
    }
    park_on(&background::handle()?, future)
}

/// Sees a future to its end on this thread. Unlike tokio's own way it never panics, wherever it is called.
fn park_on<T>(runtime: &Handle, future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    // Records of once-only work may use timers. A thread in its last moment cannot enter.
    let is_ending = Handle::try_current().is_err_and(|error| error.is_thread_local_destroyed());
    let _entered = (!is_ending).then(|| runtime.enter());
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(done) => return done,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// Whether a task is being polled on this thread. A runtime's handle alone does not tell: `spawn_blocking` has one too,
/// and may block.
fn inside_async_code() -> bool {
    Handle::try_current().is_ok() && (has_budget() || on_scheduler())
}

/// Only tasks have a budget of steps that runs out.
fn has_budget() -> bool {
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

/// Tasks that are `unconstrained` have no budget. But a task that yields is woken at once, unless a scheduler runs on this thread:
/// that wakes it later.
fn on_scheduler() -> bool {
    struct Woken(AtomicBool);
    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let woken = Arc::new(Woken(AtomicBool::new(false)));
    let waker = Waker::from(Arc::clone(&woken));
    let yielded = pin!(tokio::task::yield_now()).poll(&mut Context::from_waker(&waker));
    yielded.is_pending() && !woken.0.load(Ordering::Relaxed)
}
