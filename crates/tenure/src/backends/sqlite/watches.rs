//! Whose death wakes which waiters.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::net::unix::pipe;
use tokio::task::AbortHandle;

use super::peers::{Peers, until_closed};
use crate::name::ClientId;

/// The most clients that one key watches, each by an open file. The death of others is noticed by polling.
const MOST: usize = 32;

/// Per key of the hub the clients that its waiters wait for, and one task per such client.
#[derive(Debug, Clone, Default)]
pub(super) struct Watches(Arc<Mutex<Watched>>);

#[derive(Debug, Default)]
struct Watched {
    before: HashMap<String, Vec<ClientId>>,
    tasks: HashMap<ClientId, AbortHandle>,
}

impl Watches {
    fn lock(&self) -> MutexGuard<'_, Watched> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The key has no waiter any more.
    pub(super) fn forget(&self, key: &str) {
        let mut watched = self.lock();
        let before = watched.before.remove(key);
        watched.drop_unwanted(&before.unwrap_or_default());
    }

    pub(super) fn forget_all(&self) {
        let mut watched = self.lock();
        watched.before.clear();
        for (_, task) in watched.tasks.drain() {
            task.abort();
        }
    }
}

impl Watched {
    fn drop_unwanted(&mut self, clients: &[ClientId]) {
        for client in clients {
            if !self.before.values().any(|wanted| wanted.contains(client))
                && let Some(task) = self.tasks.remove(client)
            {
                task.abort();
            }
        }
    }
}

/// What happens to the clients that a key has watched before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Watch {
    /// They are watched no longer.
    Alone,
    /// They are watched, too.
    Too,
}

impl Peers {
    /// Wakes the waiters at a key when one of the clients dies. One task per client, however many locks it holds.
    pub(super) fn watch(self: &Arc<Self>, key: &str, clients: Vec<(ClientId, File)>, how: Watch) {
        let mut watched = self.notify.watches.lock();
        let before = if how == Watch::Alone { watched.before.remove(key) } else { None };
        for (client, alive) in clients {
            let before = watched.before.entry(key.to_owned()).or_default();
            if before.len() < MOST && !before.contains(&client) {
                before.push(client);
                self.spawn_watch(&mut watched, client, alive);
            }
        }
        watched.drop_unwanted(&before.unwrap_or_default());
        drop(watched);
        self.forget_unless_waited_for(key);
    }

    /// The waiter may have left before its watch was noted.
    fn forget_unless_waited_for(&self, key: &str) {
        if !self.notify.hub.listens(key) {
            self.notify.watches.forget(key);
        }
    }

    fn spawn_watch(self: &Arc<Self>, watched: &mut Watched, client: ClientId, alive: File) {
        if let Entry::Vacant(task) = watched.tasks.entry(client) {
            let _entered = self.notify.runtime.enter();
            if let Ok(pipe) = pipe::Receiver::from_file_unchecked(alive) {
                task.insert(self.notify.runtime.spawn(Arc::clone(self).until_death(client, pipe)).abort_handle());
            }
        }
    }

    async fn until_death(self: Arc<Self>, client: ClientId, pipe: pipe::Receiver) {
        until_closed(&pipe).await;
        let mut watched = self.notify.watches.lock();
        watched.tasks.remove(&client);
        let mut keys = Vec::new();
        for (key, before) in &mut watched.before {
            if let Some(at) = before.iter().position(|c| *c == client) {
                before.swap_remove(at);
                keys.push(key.clone());
            }
        }
        drop(watched);
        for key in keys {
            self.notify.hub.fire(&key);
        }
    }
}
