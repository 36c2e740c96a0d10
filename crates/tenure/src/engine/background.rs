//! Where a locker's background work runs: by default on one thread of its own for the whole process.
//!
//! Renewals, releases of dropped guards and losses must not depend on the user's runtime: it may be starved by blocking
//! code, be shut down while guards are alive, or not be tokio's.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use tokio::runtime::{Builder, EnterGuard, Handle, Runtime};
use tokio::sync::Notify;

use crate::caller;
use crate::error::{Error, Result};
use crate::own_thread;

static BACKGROUND: LazyLock<std::io::Result<Runtime>> = LazyLock::new(|| {
    let mut threads = Builder::new_multi_thread();
    threads.worker_threads(1).thread_name("tenure").on_thread_start(own_thread::mark).enable_all().build()
});

/// The process's background runtime.
pub(crate) fn handle() -> Result<Handle> {
    match &*BACKGROUND {
        Ok(runtime) => Ok(runtime.handle().clone()),
        Err(e) => {
            Err(Error::config("the background thread", format!("could not be started: {e}"), "a system that can start threads"))
        }
    }
}

/// The runtime of one locker.
#[derive(Debug, Clone)]
pub(crate) struct Background(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    runtime: Handle,
    ended: AtomicBool,
    /// Tell waiters that there is nothing to wait for any more. Several, so that not all waiters share one lock.
    closing: [Notify; BELLS],
    pace: Pace,
}

/// A thread that has a step of a call to take.
pub(crate) struct Entered<'a> {
    _runtime: EnterGuard<'a>,
    _step: Option<caller::Step>,
}

/// As many as threads that are likely to meet.
const BELLS: usize = 8;

/// How often the runtime wakes by itself while calls are made.
const BEAT: Duration = Duration::from_millis(20);
/// After so many without a call it sleeps again.
const IDLE_BEATS: u32 = 5;

/// Keeps a timer of the runtime due soon while calls are made.
///
/// Every call has a time limit, which is a timer of this runtime. A timer that is due before all others wakes the runtime's thread:
/// that would be a change of threads per call. Beside a timer that is due sooner still, it does not.
#[derive(Debug, Default)]
struct Pace {
    beats: AtomicBool,
    called: AtomicBool,
}

impl Background {
    pub(crate) fn new(runtime: Handle) -> Self {
        Self(Arc::new(Inner { runtime, ended: AtomicBool::new(false), closing: Default::default(), pace: Pace::default() }))
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.0.runtime
    }

    /// Does this to its end, also without a caller.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        drop(self.0.runtime.spawn(work));
    }

    /// Lends its timers and connections to this thread. `None` while the thread ends, when it can have none.
    pub(crate) fn enter(&self) -> Option<Entered<'_>> {
        let caller = match Handle::try_current() {
            Err(error) if error.is_thread_local_destroyed() => return None,
            // Inside of another call the caller is known.
            caller => caller.ok().filter(|caller| caller.id() != self.0.runtime.id()),
        };
        Some(Entered { _runtime: self.0.runtime.enter(), _step: caller.map(caller::takes_a_step) })
    }

    /// A call is about to wait for its answer, with a time limit.
    pub(crate) fn begin_wait(&self) {
        let Pace { beats, called } = &self.0.pace;
        // Read first: most calls need not write what all share.
        if !called.load(Ordering::Relaxed) && !called.swap(true, Ordering::SeqCst) && !beats.swap(true, Ordering::SeqCst) {
            let inner = Arc::downgrade(&self.0);
            self.spawn(async move {
                let mut idle = 0;
                while idle < IDLE_BEATS {
                    tokio::time::sleep(BEAT).await;
                    let Some(inner) = inner.upgrade() else { return };
                    let Pace { beats, called } = &inner.pace;
                    idle = if called.swap(false, Ordering::AcqRel) { 0 } else { idle + 1 };
                    if idle == IDLE_BEATS {
                        beats.store(false, Ordering::SeqCst);
                        // A call in this moment has found that it still beats.
                        if called.load(Ordering::SeqCst) && !beats.swap(true, Ordering::SeqCst) {
                            idle = 0;
                        }
                    }
                }
            });
        }
    }

    /// Notes that the runtime has ended under the locker: its timers must not be touched any more.
    pub(crate) fn end(&self) {
        self.0.ended.store(true, Ordering::Release);
        self.close();
    }

    /// Tells waiters that the locker closes.
    pub(crate) fn close(&self) {
        self.0.closing.iter().for_each(Notify::notify_waiters);
    }

    /// Resolves when there is nothing to wait for any more. The number spreads waiters over the bells.
    pub(crate) async fn closing(&self, number: u64, is_closed: impl Fn() -> bool) {
        let bell = usize::try_from(number).unwrap_or(0) % BELLS;
        let mut closing = std::pin::pin!(self.0.closing[bell].notified());
        closing.as_mut().enable();
        if !is_closed() && !self.has_ended() {
            closing.await;
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.0.ended.load(Ordering::Acquire)
    }
}
