//! The clients of one file as processes: which are alive, and how one wakes another.
//!
//! Every client has two pipes beside the file. It keeps `<client>.alive` open while it lives: a reader sees its end at the moment of its
//! death. It reads `<client>.wake`, into which others write messages. A client without pipes has nothing but its leases.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::OFlags;
use rustix::io::Errno;
use tokio::net::unix::pipe;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use super::calm::Stamp;
use super::message::Message;
use super::pipes::{PipeKind, PipeName, Pipes};
use super::watches::{Watch, Watches};
use crate::backend::Losses;
use crate::name::ClientId;
use crate::signal::Hub;

/// What is known of a peer.
pub(super) enum Life {
    /// It lives; the file ends when it dies.
    Alive(File),
    Dead,
    /// It has no pipe, or one that may not be opened: its leases decide.
    Unknown,
}

/// Whether a peer listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reachable {
    Yes,
    /// Its pipe will never be read.
    Gone,
    /// Its pipe is another user's: it polls.
    Refused,
}

/// How this client hears of its peers.
#[derive(Debug, Clone)]
pub(super) struct Notifiers {
    /// Wakes waiters. Tells `watches` when a key has no waiter any more.
    pub(super) hub: Hub,
    pub(super) watches: Watches,
    pub(super) losses: Losses,
    pub(super) runtime: Handle,
}

/// The peers of one file.
#[derive(Debug)]
pub(super) struct Peers {
    pub(super) pipes: Pipes,
    pub(super) notify: Notifiers,
}

impl Peers {
    /// Whether a peer lives. Only a pipe without its writer proves a death: a missing one may just have been closed.
    pub(super) fn look(&self, client: ClientId) -> Life {
        self.life(PipeName::of(client, PipeKind::Alive))
    }

    fn life(&self, name: PipeName) -> Life {
        let Ok(mut alive) = self.pipes.open(name, OFlags::RDONLY) else { return Life::Unknown };
        match alive.read(&mut [0_u8; 8]) {
            // One that was taken away after it was opened is missing too: its client removes it, and only then lets go of it.
            Ok(0) if rustix::fs::fstat(&alive).is_ok_and(|stat| stat.st_nlink > 0) => Life::Dead,
            Ok(0) => Life::Unknown,
            Err(e) if e.kind() != ErrorKind::WouldBlock => Life::Unknown,
            _ => Life::Alive(alive),
        }
    }

    /// Whether a peer cannot be looked at for want of files or memory, so that it may live.
    pub(super) fn is_blinded(&self, client: ClientId) -> bool {
        let short = [Errno::MFILE, Errno::NFILE, Errno::NOMEM].map(|e| Some(e.raw_os_error()));
        let opened = self.pipes.open(PipeName::of(client, PipeKind::Alive), OFlags::RDONLY);
        // If it can be now, it could not be a moment ago.
        opened.map_or_else(|e| short.contains(&e.raw_os_error()), |_| true)
    }

    /// Whether a peer reads its messages.
    pub(super) fn reach(&self, client: ClientId) -> Reachable {
        match self.pipes.open(PipeName::of(client, PipeKind::Wake), OFlags::WRONLY) {
            Ok(_) => Reachable::Yes,
            Err(e) if e.kind() == ErrorKind::NotFound => Reachable::Gone,
            Err(e) if e.raw_os_error() == Some(Errno::NXIO.raw_os_error()) => Reachable::Gone,
            Err(_) => Reachable::Refused,
        }
    }

    /// Sends a message without waiting: a peer that does not empty its pipe is stopped, and finds out by polling.
    pub(super) fn send(&self, client: ClientId, message: &[u8]) {
        // Open for reading too: if the peer dies right now there must be no SIGPIPE for us.
        let pipe = self.pipes.open(PipeName::of(client, PipeKind::Wake), OFlags::RDWR);
        drop(pipe.and_then(|mut pipe| pipe.write(message)));
    }

    /// Removes what a dead client left behind.
    pub(super) fn remove(&self, client: ClientId) {
        for kind in [PipeKind::Alive, PipeKind::Wake] {
            self.pipes.remove(PipeName::of(client, kind));
        }
    }

    /// The clients whose pipes say that they are dead.
    pub(super) fn dead(&self) -> Vec<ClientId> {
        let mut dead = Vec::new();
        let names = self.pipes.list();
        for name in &names {
            let left = match name {
                // Its maker makes another one if it was not dead but slow.
                PipeName { hidden: true, .. } => matches!(self.life(*name), Life::Dead),
                PipeName { kind: PipeKind::Alive, client, .. } => {
                    if matches!(self.look(*client), Life::Dead) {
                        dead.push(*client);
                    }
                    false
                }
                // Reading from it would take messages.
                PipeName { kind: PipeKind::Wake, client, .. } => {
                    !names.contains(&PipeName::of(*client, PipeKind::Alive)) && self.reach(*client) == Reachable::Gone
                }
            };
            // By a client that died while it made or removed its pipes.
            if left {
                self.pipes.remove(*name);
            }
        }
        dead
    }

    /// Watches a holder for the waiters at a key, which ask again if it does not live.
    fn watch_holder(self: &Arc<Self>, client: ClientId, key: &str, how: Watch) {
        match self.look(client) {
            Life::Alive(alive) => self.watch(key, vec![(client, alive)], how),
            Life::Dead | Life::Unknown => self.notify.hub.fire(key),
        }
    }

    fn receive(self: &Arc<Self>, message: Option<Message>) {
        match message {
            Some(Message::Free(key)) => self.notify.hub.fire(&key),
            Some(Message::Lost(owner)) => self.notify.losses.suspect(owner),
            Some(Message::Wanted(owner)) => self.notify.losses.wanted(owner),
            Some(Message::Held(client, key)) => self.watch_holder(client, &key, Watch::Alone),
            Some(Message::HeldToo(client, key)) => self.watch_holder(client, &key, Watch::Too),
            None => self.notify.hub.fire_all(),
        }
    }
}

/// Resolves when the other end of a pipe is closed.
pub(super) async fn until_closed(pipe: &pipe::Receiver) {
    let mut nothing = [0_u8; 8];
    while pipe.readable().await.is_ok() {
        match pipe.try_read(&mut nothing) {
            Ok(0) => return,
            Err(e) if e.kind() != ErrorKind::WouldBlock => return,
            _ => {}
        }
    }
}

async fn listen(peers: Arc<Peers>, pipe: pipe::Receiver) {
    let mut buffer = Vec::new();
    let mut chunk = [0_u8; 4096];
    while pipe.readable().await.is_ok() {
        match pipe.try_read(&mut chunk) {
            Ok(n) => buffer.extend(chunk.iter().take(n)),
            Err(e) if e.kind() == ErrorKind::WouldBlock => continue,
            Err(_) => return,
        }
        while let Some(message) = Message::take(&mut buffer) {
            peers.receive(message);
        }
    }
}

/// This client as its peers see it. Dropping it removes its pipes.
#[derive(Debug)]
pub(super) struct Presence {
    peers: Arc<Peers>,
    client: ClientId,
    reader: AbortHandle,
    alive: Option<File>,
}

impl Presence {
    /// Makes the pipes. Pipes and not inotify: its limit of 128 instances per user is below the 200 processes we serve,
    /// and a pipe can carry the name.
    pub(super) fn new(peers: &Arc<Peers>, client: ClientId) -> std::io::Result<Self> {
        // `alive` last: a client that has one can be woken.
        let wake = peers.pipes.make(PipeName::of(client, PipeKind::Wake))?;
        let entered = peers.notify.runtime.enter();
        let pipe = pipe::Receiver::from_file_unchecked(wake)?;
        drop(entered);
        // Nothing may fail after that: one without a writer is a dead client's.
        let alive = peers.pipes.make(PipeName::of(client, PipeKind::Alive))?;
        let reader = peers.notify.runtime.spawn(listen(Arc::clone(peers), pipe)).abort_handle();
        Ok(Self { peers: Arc::clone(peers), client, reader, alive: Some(alive) })
    }

    /// Removes its pipes, and keeps open the one that says that it lives: a peer may just have opened it.
    pub(super) fn withdraw(mut self) -> Option<File> {
        self.alive.take()
    }

    /// One more descriptor of what says that it lives.
    pub(super) fn lifeline(&self) -> Option<OwnedFd> {
        Some(self.alive.as_ref()?.try_clone().ok()?.into())
    }

    /// What their directory looks like.
    pub(super) fn stamp(&self) -> Option<Stamp> {
        self.peers.pipes.stamp()
    }

    /// Whether its pipes are still there for others to find.
    pub(super) fn is_seen(&self) -> bool {
        self.peers.pipes.are_there(&[PipeKind::Wake, PipeKind::Alive].map(|kind| PipeName::of(self.client, kind)))
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        // Removed while still open: a missing pipe leaves the leases alone, one without a writer would end them.
        self.peers.remove(self.client);
        self.reader.abort();
        self.peers.notify.watches.forget_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::super::location::Location;
    use super::super::terms::Terms;
    use super::*;

    #[test]
    fn a_client_that_takes_its_pipes_away_does_not_look_dead() {
        let dir = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let terms = Terms::of(dir.path().join("locks.db"));
        let location = Arc::new(Location::find(&terms).unwrap());
        let (pipes, made) = Pipes::new(terms, &location);
        made.unwrap();
        let (hub, watches, losses, runtime) = (Hub::default(), Watches::default(), Losses::default(), runtime.handle().clone());
        let peers = Arc::new(Peers { pipes, notify: Notifiers { hub, watches, losses, runtime } });
        let client = ClientId::random().unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let looker = scope.spawn(|| {
                let mut died = false;
                while !died && !done.load(Ordering::Relaxed) {
                    died = matches!(peers.look(client), Life::Dead);
                }
                died
            });
            let left = (0..5_000).try_for_each(|_| Presence::new(&peers, client).map(drop));
            done.store(true, Ordering::Relaxed);
            left.unwrap();
            assert!(!looker.join().unwrap(), "it has only left");
        });
    }
}
