//! The clients of one file as processes: who is alive, and how one wakes another.
//!
//! Every client has two pipes beside the file. It keeps `<client>.alive` open for as long as it lives, so that whoever
//! has it open for reading sees the end of it at the moment of its death. It reads `<client>.wake`, in which others
//! leave word. A client without pipes (its file system has none, or it was closed) has nothing but its leases.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, Mode, OFlags};
use tokio::net::unix::pipe;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use super::message::Message;
use super::watches::Watches;
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
    dir: PathBuf,
    hub: Hub,
    runtime: Handle,
    watches: Watches,
}

impl Peers {
    /// The hub must tell `watches` when nobody listens to a key any more.
    pub(super) fn new(file: &Path, hub: Hub, watches: Watches, runtime: Handle) -> Self {
        let mut dir = file.as_os_str().to_owned();
        dir.push(".clients");
        Self { dir: dir.into(), hub, runtime, watches }
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

    fn path(&self, client: &str, kind: &str) -> PathBuf {
        self.dir.join(format!("{client}.{kind}"))
    }

    /// Whether a peer lives. Only a pipe without its writer proves a death: a missing one may just have been closed.
    pub(super) fn look(&self, client: &str) -> Life {
        life(&self.path(client, "alive"))
    }

    /// Whether word can be left with a peer.
    pub(super) fn reach(&self, client: &str) -> Reach {
        match open(&self.path(client, "wake"), OpenOptions::new().write(true)) {
            Ok(_) => Reach::Yes,
            Err(e) if e.kind() == ErrorKind::NotFound => Reach::Gone,
            Err(e) if e.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error()) => Reach::Gone,
            Err(_) => Reach::Refused,
        }
    }

    /// Leaves word without waiting: one who does not empty its pipe is stopped, and finds out by polling.
    pub(super) fn send(&self, client: &str, message: &[u8]) {
        // Open for reading too: if the peer dies right now there must be no SIGPIPE for us.
        let pipe = open(&self.path(client, "wake"), OpenOptions::new().read(true).write(true));
        drop(pipe.and_then(|mut pipe| pipe.write(message)));
    }

    /// Removes what a dead client left behind.
    pub(super) fn remove(&self, client: &str) {
        for kind in ["alive", "wake"] {
            drop(std::fs::remove_file(self.path(client, kind)));
        }
    }

    /// The clients whose pipes say that they are dead.
    pub(super) fn dead(&self) -> Vec<String> {
        let mut dead = Vec::new();
        for entry in std::fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            let (name, path) = (entry.file_name(), entry.path());
            let Some((client, kind)) = name.to_str().and_then(|name| name.split_once('.')) else { continue };
            let left = match kind {
                "alive" => {
                    if matches!(life(&path), Life::Dead) {
                        dead.push(client.to_owned());
                    }
                    false
                }
                // Reading from it would take messages.
                "wake" => !self.path(client, "alive").exists() && self.reach(client) == Reach::Gone,
                // Its maker makes another one if it was not dead but slow.
                _ => matches!(life(&path), Life::Dead),
            };
            // By a client that died while it made or removed its pipes.
            if left {
                drop(std::fs::remove_file(path));
            }
        }
        dead
    }

    fn receive(self: &Arc<Self>, message: Option<Message>) {
        match message {
            Some(Message::Free(key)) => self.hub.fire(&key),
            Some(Message::Held(client, key)) => match self.look(&client.to_string()) {
                Life::Alive(alive) => self.watch(&key, vec![(client, alive)]),
                Life::Dead | Life::Unknown => self.hub.fire(&key),
            },
            Some(Message::HeldToo(client, key)) => match self.look(&client.to_string()) {
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

fn open(path: &Path, options: &mut OpenOptions) -> std::io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW;
    options.custom_flags(i32::try_from(flags.bits()).unwrap_or(0)).open(path)
}

fn life(path: &Path) -> Life {
    let Ok(mut alive) = open(path, OpenOptions::new().read(true)) else { return Life::Unknown };
    match alive.read(&mut [0_u8; 8]) {
        Ok(0) => Life::Dead,
        Err(e) if e.kind() != ErrorKind::WouldBlock => Life::Unknown,
        _ => Life::Alive(alive),
    }
}

/// This client as its peers see it. Dropping it removes its pipes.
#[derive(Debug)]
pub(super) struct Presence {
    peers: Arc<Peers>,
    client: ClientId,
    reader: AbortHandle,
    _alive: File,
}

impl Presence {
    /// Makes the pipes. Pipes and not inotify: its limit of 128 instances per user is below the 200 processes we serve,
    /// and a pipe can carry the name.
    pub(super) fn new(peers: &Arc<Peers>, client: ClientId) -> std::io::Result<Self> {
        std::fs::create_dir_all(&peers.dir)?;
        // `alive` last: who has one can be woken.
        let wake = make(&peers.path(&client.to_string(), "wake"))?;
        let alive = make(&peers.path(&client.to_string(), "alive"))?;
        let entered = peers.runtime.enter();
        let pipe = pipe::Receiver::from_file_unchecked(wake)?;
        drop(entered);
        let reader = peers.runtime.spawn(listen(Arc::clone(peers), pipe)).abort_handle();
        Ok(Self { peers: Arc::clone(peers), client, reader, _alive: alive })
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        // Removed while still open: a missing pipe leaves the leases alone, one without a writer would end them.
        self.peers.remove(&self.client.to_string());
        self.reader.abort();
        self.peers.watches.forget_all();
    }
}

/// Makes a pipe that is open for reading and writing before anybody can see it, so that it never looks dead.
fn make(path: &Path) -> std::io::Result<File> {
    let mut hidden = path.as_os_str().to_owned();
    hidden.push(".new");
    let hidden = PathBuf::from(hidden);
    let once = || -> std::io::Result<File> {
        rustix::fs::mkfifoat(CWD, &hidden, Mode::from_raw_mode(0o666))?;
        let file = open(&hidden, OpenOptions::new().read(true).write(true))?;
        std::fs::rename(&hidden, path)?;
        Ok(file)
    };
    // Somebody who sweeps may have taken it for a dead one's before it was open.
    let mut made = once();
    for _ in 0..8 {
        match &made {
            Err(e) if e.kind() == ErrorKind::NotFound => made = once(),
            _ => break,
        }
    }
    made.inspect_err(|_| drop(std::fs::remove_file(&hidden)))
}
