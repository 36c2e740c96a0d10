//! Clients of other processes, which are only rows and pipes, and what a test waits for.

use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::opening::{LIMIT, boot};

pub(crate) async fn within_limit<T>(task: tokio::task::JoinHandle<tenure::Result<T>>) -> T {
    tokio::time::timeout(LIMIT, task).await.unwrap().unwrap().unwrap()
}

/// `CLOCK_BOOTTIME` in nanoseconds, a little later than now.
pub(crate) fn soon(after: Duration) -> i64 {
    let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
    let seconds: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
    i64::try_from((Duration::from_secs_f64(seconds) + after).as_nanos()).unwrap()
}

pub(crate) const PLAIN: i64 = 0;
pub(crate) const FAIR: i64 = 1;
pub(crate) const READ: i64 = 2;
pub(crate) const WRITE: i64 = 3;
pub(crate) const PERMITS: i64 = 4;

/// A client of another process, of which there is nothing but its rows and its pipes.
pub(crate) struct Stranger {
    pub(crate) id: String,
    pub(crate) boot: String,
    dir: PathBuf,
    alive: Option<std::fs::File>,
}

impl Stranger {
    /// It has the pipe that tells its death, and cannot be woken.
    pub(crate) fn new(dir: &TempDir, number: u32) -> Self {
        let id = format!("00000000-0000-4000-8000-{number:012}");
        let alive = Some(pipe(dir.path(), &format!("{id}.alive")));
        Self { id, boot: boot(), dir: dir.path().to_owned(), alive }
    }

    /// The pipe in which others leave word.
    pub(crate) fn listens(&self) -> std::fs::File {
        pipe(&self.dir, &format!("{}.wake", self.id))
    }

    pub(crate) fn file(&self) -> rusqlite::Connection {
        let file = rusqlite::Connection::open(self.dir.join("locks.db")).unwrap();
        file.busy_timeout(LIMIT).unwrap();
        file
    }

    /// Leases of a century: only the pipe can tell.
    pub(crate) fn holds(&self, name: &str, kind: i64, take: i64) {
        self.holds_until(name, kind, take, i64::MAX / 2);
    }

    pub(crate) fn holds_until(&self, name: &str, kind: i64, take: i64, until: i64) {
        let sql = "INSERT INTO holds VALUES (?1, ?2 || ':1', ?3, ?4, ?2, ?5, ?6, 1, 1, NULL, NULL)";
        let params = rusqlite::params![name.as_bytes(), self.id, kind, take, self.boot, until];
        self.file().execute(sql, params).unwrap();
    }

    pub(crate) fn waits(&self, name: &str, kind: i64) {
        // Places for a plain lock have no end, but for that of their client.
        self.waits_until(name, kind, if kind == PLAIN { i64::MAX } else { i64::MAX / 2 });
    }

    pub(crate) fn waits_until(&self, name: &str, kind: i64, until: i64) {
        let sql = "INSERT INTO waiters VALUES (NULL, ?1, ?2 || ':1', ?3, 0, ?2, ?4, ?5)";
        self.file().execute(sql, rusqlite::params![name.as_bytes(), self.id, kind, self.boot, until]).unwrap();
    }

    /// As one that was closed: a missing pipe says nothing.
    pub(crate) fn leaves(&mut self) {
        std::fs::remove_file(self.dir.join(format!("locks.db.clients/{}.alive", self.id))).unwrap();
        self.alive = None;
    }

    pub(crate) fn dies(&mut self) {
        self.alive = None;
    }

    /// Dies, and waits for the grant that this allows. How long that took.
    pub(crate) async fn dies_and_frees<T>(&mut self, waiting: tokio::task::JoinHandle<tenure::Result<T>>) -> Duration {
        let died = Instant::now();
        self.dies();
        let _granted = within_limit(waiting).await;
        died.elapsed()
    }
}

/// A new pipe beside the file, open at both ends, which is not waited for.
fn pipe(dir: &Path, name: &str) -> std::fs::File {
    let path = dir.join("locks.db.clients").join(name);
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    let nonblocking = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap();
    std::fs::OpenOptions::new().read(true).write(true).custom_flags(nonblocking).open(path).unwrap()
}

/// What was left in a pipe, the bytes of length aside.
pub(crate) fn word(pipe: &mut std::fs::File) -> String {
    let mut bytes = [0; 4096];
    let length = pipe.read(&mut bytes).unwrap_or(0);
    String::from_utf8_lossy(bytes[..length].get(2..).unwrap_or_default()).into_owned()
}

/// Whether it took less than a poll at least once: a busy machine may be late, but not always.
pub(crate) async fn at_once(mut round: impl AsyncFnMut(u32) -> Duration) {
    let mut waits = Vec::new();
    for n in 0..4 {
        waits.push(round(n).await);
        if waits[waits.len() - 1] < Duration::from_millis(300) {
            return;
        }
    }
    panic!("each time as late as a poll: {waits:?}");
}
