//! Redis servers: each on a free loopback port, with a directory of its own, ended on drop.

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use tempfile::TempDir;
pub use tenure_lab::redis_server::{Login, Setup};
use tenure_lab::{process, redis_server, resources};

use crate::process::{Signal, signal};

/// The servers that run, with their directories. Some are in statics, which are never dropped.
static RUNNING: Mutex<Vec<(u32, PathBuf, Setup)>> = Mutex::new(Vec::new());

/// Ends the servers that no test has dropped.
pub(crate) fn end_all() {
    for (pid, dir, _) in RUNNING.lock().expect("not poisoned").drain(..) {
        signal(pid, Signal::KILL);
        let _already_gone = std::fs::remove_dir_all(dir);
    }
}

/// Keys without an expiry, in all servers that run.
pub fn keys_for_ever() -> Vec<String> {
    let servers = RUNNING.lock().expect("not poisoned").clone();
    let mut found = Vec::new();
    for (_, dir, setup) in servers {
        let client = redis_server::client(&dir, &setup).expect("a URL");
        let mut raw = client.get_connection().expect("connected");
        // A sentinel has no keys.
        let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut raw).unwrap_or_default();
        let left = |key: &String| redis::cmd("PTTL").arg(key).query::<i64>(&mut raw).unwrap_or(-2);
        found.extend(keys.iter().map(left).zip(&keys).filter(|(left, _)| *left == -1).map(|(_, key)| key.clone()));
    }
    found
}

/// The server program: `redis-server`, or the one that `TENURE_TEST_REDIS_SERVER` names.
pub fn program() -> String {
    std::env::var("TENURE_TEST_REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned())
}

/// Whether the server program is installed.
pub fn is_installed() -> bool {
    process::is_installed(program())
}

/// The command by which a server deletes a key that has a value. Where there is none, what needs it is skipped, and says so.
pub fn compares_and_deletes(raw: &mut redis::Connection) -> Option<&'static str> {
    let has = |name: &&str| {
        let info: redis::RedisResult<Vec<redis::Value>> = redis::cmd("COMMAND").arg("INFO").arg(name).query(raw);
        info.is_ok_and(|info| matches!(info.first(), Some(redis::Value::Array(about)) if !about.is_empty()))
    };
    let found = ["delex", "delifeq"].into_iter().find(has);
    if found.is_none() {
        println!(
            "SKIPPED: the plain layout without scripts (this server has no DELEX or DELIFEQ; scripts/test-others has one that has)"
        );
    }
    found
}

/// Starts a server.
pub fn start(setup: &Setup) -> RedisServer {
    let dir = directory();
    let server = redis_server::RedisServer::start(program().as_ref(), process::plain, dir.path(), setup.clone());
    let server = server.unwrap_or_else(|error| panic!("{error}"));
    let server = RedisServer { port: server.port(), server, dir };
    server.register();
    server
}

/// Starts many at the same time.
pub fn start_all(setups: &[&Setup]) -> Vec<RedisServer> {
    std::thread::scope(|scope| {
        let started: Vec<_> = setups.iter().map(|setup| scope.spawn(|| start(setup))).collect();
        started.into_iter().map(|thread| thread.join().expect("started")).collect()
    })
}

/// A Redis server of one test, with a directory of its own.
#[derive(Debug)]
pub struct RedisServer {
    server: redis_server::RedisServer,
    pub port: u16,
    pub dir: TempDir,
}

impl RedisServer {
    pub fn start() -> Self {
        Self::with(&[])
    }

    pub fn with(args: &[&str]) -> Self {
        start(&Setup::default().args(args))
    }

    /// Its address, without a login.
    pub fn url(&self) -> String {
        format!("{}://127.0.0.1:{}", if self.server.setup().tls { "rediss" } else { "redis" }, self.port)
    }

    /// The process id of the server.
    pub fn pid(&self) -> u32 {
        self.server.pid()
    }

    /// A file in its directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A plain connection, for what a test does without the library.
    pub fn raw(&self) -> redis::Connection {
        self.server.client().and_then(|client| client.get_connection()).expect("connected")
    }

    /// The same, unless it is dead or stopped.
    pub fn if_alive(&self) -> Option<redis::Connection> {
        let alive = self.server.answers(Duration::from_millis(500));
        alive.then(|| self.server.connect(Duration::from_secs(1)).ok()).flatten()
    }

    pub fn is_master(&self) -> bool {
        self.replication().contains("\nrole:master\r\n")
    }

    /// Whether it is a replica of that master, has its data and receives every change.
    pub fn follows(&self, master: &Self) -> bool {
        let said = self.replication();
        said.contains(&format!("\nmaster_port:{}\r\n", master.port)) && said.contains("\nmaster_link_status:up\r\n")
    }

    fn replication(&self) -> String {
        let ask = |mut raw| redis::cmd("INFO").arg("replication").query(&mut raw).ok();
        self.if_alive().and_then(ask).unwrap_or_default()
    }

    pub fn kill(&mut self) {
        self.unregister();
        let _already_gone = self.server.kill();
    }

    /// Starts it again on the same port and directory after [`kill`](Self::kill).
    pub fn restart(&mut self) {
        self.restart_with(&[]);
    }

    pub fn restart_with(&mut self, more: &[&str]) {
        self.server.restart(more).unwrap_or_else(|error| panic!("{error}"));
        self.register();
    }

    fn register(&self) {
        let entry = (self.pid(), self.dir.path().to_owned(), self.server.setup().clone());
        RUNNING.lock().expect("not poisoned").push(entry);
    }

    fn unregister(&self) {
        let pid = self.pid();
        RUNNING.lock().expect("not poisoned").retain(|(known, ..)| *known != pid);
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// In memory where there is such a file system: sentinels and nodes of a cluster sync to a disk, and do not answer meanwhile.
pub(crate) fn directory() -> TempDir {
    resources::temp_dir("tenure-test-").expect("a directory")
}
