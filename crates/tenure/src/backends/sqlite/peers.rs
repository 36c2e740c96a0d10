//! The clients of one file as processes: who is alive, and how one wakes another.
//!
//! Every client has two pipes beside the file. It keeps `<client>.alive` open for as long as it lives, so that whoever
//! has it open for reading sees the end of it at the moment of its death. It reads `<client>.wake`, in which others
//! leave word. A client without pipes (its file system has none, or it was closed) has nothing but its leases.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::OFlags;
use rustix::io::Errno;
use tokio::net::unix::pipe;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use super::message::Message;
use super::pipes::{Kind, Name, Pipes};
use super::watches::Watches;
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
pub(super) enum Reach {
    Yes,
    /// Nobody will ever read there.
    Gone,
    /// Its pipe is another user's: it polls.
    Refused,
}

/// Where the peers of one file meet.
#[derive(Debug)]
pub(super) struct Peers {
    pipes: Pipes,
    hub: Hub,
    runtime: Handle,
    watches: Watches,
    losses: Losses,
}

/// Who is woken, whose death is watched for, where losses are told, and where all that is waited for.
pub(super) type Company = (Hub, Watches, Losses, Handle);

impl Peers {
    /// The hub must tell `watches` when nobody listens to a key any more.
    pub(super) fn new(pipes: Pipes, (hub, watches, losses, runtime): Company) -> Self {
        Self { pipes, hub, runtime, watches, losses }
    }

    /// Those whom it works with, for another one in its place.
    pub(super) fn company(&self) -> Company {
        (self.hub.clone(), self.watches.clone(), self.losses.clone(), self.runtime.clone())
    }

    /// Where losses are told.
    pub(super) fn losses(&self) -> &Losses {
        &self.losses
    }

    pub(super) fn hub(&self) -> &Hub {
        &self.hub
    }

    pub(super) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    pub(super) fn watches(&self) -> &Watches {
        &self.watches
    }

    /// Whether a peer lives. Only a pipe without its writer proves a death: a missing one may just have been closed.
    pub(super) fn look(&self, client: ClientId) -> Life {
        self.life(Name::of(client, Kind::Alive))
    }

    fn life(&self, name: Name) -> Life {
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
        let opened = self.pipes.open(Name::of(client, Kind::Alive), OFlags::RDONLY);
        // If it can be now, it could not be a moment ago.
        opened.map_or_else(|e| short.contains(&e.raw_os_error()), |_| true)
    }

    /// Whether word can be left with a peer.
    pub(super) fn reach(&self, client: ClientId) -> Reach {
        match self.pipes.open(Name::of(client, Kind::Wake), OFlags::WRONLY) {
            Ok(_) => Reach::Yes,
            Err(e) if e.kind() == ErrorKind::NotFound => Reach::Gone,
            Err(e) if e.raw_os_error() == Some(Errno::NXIO.raw_os_error()) => Reach::Gone,
            Err(_) => Reach::Refused,
        }
    }

    /// Leaves word without waiting: one who does not empty its pipe is stopped, and finds out by polling.
    pub(super) fn send(&self, client: ClientId, message: &[u8]) {
        // Open for reading too: if the peer dies right now there must be no SIGPIPE for us.
        let pipe = self.pipes.open(Name::of(client, Kind::Wake), OFlags::RDWR);
        drop(pipe.and_then(|mut pipe| pipe.write(message)));
    }

    /// Removes what a dead client left behind.
    pub(super) fn remove(&self, client: ClientId) {
        for kind in [Kind::Alive, Kind::Wake] {
            self.pipes.remove(Name::of(client, kind));
        }
    }

    /// The clients whose pipes say that they are dead.
    pub(super) fn dead(&self) -> Vec<ClientId> {
        let mut dead = Vec::new();
        let names = self.pipes.list();
        for name in &names {
            let left = match name {
                // Its maker makes another one if it was not dead but slow.
                Name { hidden: true, .. } => matches!(self.life(*name), Life::Dead),
                Name { kind: Kind::Alive, client, .. } => {
                    if matches!(self.look(*client), Life::Dead) {
                        dead.push(*client);
                    }
                    false
                }
                // Reading from it would take messages.
                Name { kind: Kind::Wake, client, .. } => {
                    !names.contains(&Name::of(*client, Kind::Alive)) && self.reach(*client) == Reach::Gone
                }
            };
            // By a client that died while it made or removed its pipes.
            if left {
                self.pipes.remove(*name);
            }
        }
        dead
    }

    fn receive(self: &Arc<Self>, message: Option<Message>) {
        match message {
            Some(Message::Free(key)) => self.hub.fire(&key),
            Some(Message::Lost(owner)) => self.losses.suspect(owner),
            Some(Message::Held(client, key)) => match self.look(client) {
                Life::Alive(alive) => self.watch(&key, vec![(client, alive)]),
                Life::Dead | Life::Unknown => self.hub.fire(&key),
            },
            Some(Message::HeldToo(client, key)) => match self.look(client) {
                Life::Alive(alive) => self.watch_too(&key, client, alive),
                Life::Dead | Life::Unknown => self.hub.fire(&key),
            },
            None => self.hub.fire_all(),
        }
    }
}

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
        // `alive` last: who has one can be woken.
        let wake = peers.pipes.make(Name::of(client, Kind::Wake))?;
        let entered = peers.runtime.enter();
        let pipe = pipe::Receiver::from_file_unchecked(wake)?;
        drop(entered);
        // Nothing may fail after that: one without a writer is a dead client's.
        let alive = peers.pipes.make(Name::of(client, Kind::Alive))?;
        let reader = peers.runtime.spawn(listen(Arc::clone(peers), pipe)).abort_handle();
        Ok(Self { peers: Arc::clone(peers), client, reader, alive: Some(alive) })
    }

    /// Removes its pipes, and keeps open the one that says that it lives: who has just opened that still looks at it.
    pub(super) fn withdraw(mut self) -> Option<File> {
        self.alive.take()
    }

    /// One more descriptor of what says that it lives.
    pub(super) fn lifeline(&self) -> Option<OwnedFd> {
        Some(self.alive.as_ref()?.try_clone().ok()?.into())
    }

    /// Whether its pipes are still there for others to find.
    pub(super) fn is_seen(&self) -> bool {
        self.peers.pipes.are_there(&[Kind::Wake, Kind::Alive].map(|kind| Name::of(self.client, kind)))
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        // Removed while still open: a missing pipe leaves the leases alone, one without a writer would end them.
        self.peers.remove(self.client);
        self.reader.abort();
        self.peers.watches.forget_all();
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
        let peers =
            Arc::new(Peers::new(pipes, (Hub::default(), Watches::default(), Losses::default(), runtime.handle().clone())));
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
