//! What is done once a transaction is committed.

use std::fs::File;
use std::sync::Arc;

use super::message::Message;
use super::peers::Peers;
use super::watches::Watch;
use crate::name::{ClientId, OwnerId};

#[derive(Debug, Default)]
pub(super) struct PostCommit {
    fire: Vec<String>,
    send: Vec<(ClientId, Vec<u8>)>,
    watch: Vec<(String, Vec<(ClientId, File)>)>,
    dead: Vec<ClientId>,
    lost: Vec<OwnerId>,
}

impl PostCommit {
    /// Wakes the waiters of this client at a key.
    pub(super) fn fire(&mut self, key: String) {
        if !self.fire.contains(&key) {
            self.fire.push(key);
        }
    }

    /// Sends a message to another client, once.
    pub(super) fn send(&mut self, client: ClientId, message: &Message) {
        let message = (client, message.encode());
        if !self.send.contains(&message) {
            self.send.push(message);
        }
    }

    pub(super) fn watch(&mut self, key: String, clients: Vec<(ClientId, File)>) {
        self.watch.push((key, clients));
    }

    /// Tells this client that a hold of its own was taken away.
    pub(super) fn lost(&mut self, owner: OwnerId) {
        self.lost.push(owner);
    }

    /// Removes the pipes of a dead client.
    pub(super) fn remove(&mut self, client: ClientId) {
        self.dead.push(client);
    }

    /// Before the callers are answered: others wait for it.
    pub(super) fn run(self, peers: &Arc<Peers>) {
        for (client, message) in self.send {
            peers.send(client, &message);
        }
        for owner in self.lost {
            peers.notify.losses.suspect(owner);
        }
        for key in self.fire {
            peers.notify.hub.fire(&key);
        }
        for (key, clients) in self.watch {
            peers.watch(&key, clients, Watch::Alone);
        }
        // After the rows are gone: a missing pipe says nothing, so a row must not outlive the pipe of a dead client.
        for client in self.dead {
            peers.remove(client);
        }
    }
}
