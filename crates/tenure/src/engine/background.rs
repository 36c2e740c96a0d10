//! Where a locker's background work runs: by default on one thread of its own for the whole process.
//!
//! Renewals, releases of dropped guards and losses must not depend on the user's runtime: it may be starved by blocking
//! code, be shut down while guards are alive, or not be tokio's.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use tokio::runtime::{Builder, EnterGuard, Handle, Runtime};

use crate::error::{Error, Result};

static BACKGROUND: LazyLock<std::io::Result<Runtime>> =
    LazyLock::new(|| Builder::new_multi_thread().worker_threads(1).thread_name("tenure").enable_all().build());

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
}

impl Background {
    pub(crate) fn new(runtime: Handle) -> Self {
        Self(Arc::new(Inner { runtime, ended: AtomicBool::new(false) }))
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.0.runtime
    }

    /// Does this to its end, whatever becomes of the one who wanted it.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        drop(self.0.runtime.spawn(work));
    }

    /// Lends its timers and connections to this thread. `None` for a thread in its last moment, which can have none.
    pub(crate) fn enter(&self) -> Option<EnterGuard<'_>> {
        let is_ending = Handle::try_current().is_err_and(|error| error.is_thread_local_destroyed());
        (!is_ending).then(|| self.0.runtime.enter())
    }

    /// Notes that the runtime has ended under the locker: its timers must not be touched any more.
    pub(crate) fn end(&self) {
        self.0.ended.store(true, Ordering::Release);
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.0.ended.load(Ordering::Acquire)
    }
}
