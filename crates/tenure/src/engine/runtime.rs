//! Where a locker's background work runs: by default on one thread of its own for the whole process.
//!
//! Renewals must not depend on the user's runtime: it may be starved by blocking code, be shut down while guards
//! are alive, or not be tokio's.

use std::sync::LazyLock;

use tokio::runtime::{Builder, Handle, Runtime};

use crate::error::{Error, Result};

static BACKGROUND: LazyLock<std::io::Result<Runtime>> =
    LazyLock::new(|| Builder::new_multi_thread().worker_threads(1).thread_name("tenure").enable_all().build());

/// The process's background runtime.
pub(crate) fn background() -> Result<Handle> {
    match &*BACKGROUND {
        Ok(runtime) => Ok(runtime.handle().clone()),
        Err(e) => {
            Err(Error::config("the background thread", format!("could not be started: {e}"), "a system that can start threads"))
        }
    }
}
