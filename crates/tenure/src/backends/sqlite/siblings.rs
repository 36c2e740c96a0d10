//! The clients of one process. SQLite shares one index of a file's log among all of a process's connections, so one that
//! goes on with an index that was removed holds all the others to it, also while it has nothing to do.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::jobs::Job;
use super::seat::Outbox;

static ALL: Mutex<Vec<Weak<Outbox>>> = Mutex::new(Vec::new());

/// Until it is dropped, a client is told to look at its file.
pub(super) fn join(client: &Arc<Outbox>) {
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|other| other.strong_count() > 0);
    all.push(Arc::downgrade(client));
}

/// Has every client let go of what is not in its place any more.
pub(super) fn look() {
    let all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    for client in all.iter().filter_map(Weak::upgrade) {
        // Gone if it was closed.
        drop(client.send(Job::Look));
    }
}
