//! One server: started on a free loopback port with a directory of its own, stopped on drop.

use std::hash::{BuildHasher, RandomState};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::clock::Skew;
use super::signal;

/// Servers with their directories. Some live in statics, which nobody drops.
static LEFT: Mutex<Vec<(u32, PathBuf, Option<Login>)>> = Mutex::new(Vec::new());

/// Ends what nobody dropped.
pub(crate) fn end_all() {
    for (pid, dir, _) in LEFT.lock().expect("not poisoned").drain(..) {
        signal(pid, "KILL");
        let _already_gone = std::fs::remove_dir_all(dir);
    }
}

/// Keys that no server would ever forget, in all servers that nobody has dropped.
pub(crate) fn keys_for_ever() -> Vec<String> {
    let servers = LEFT.lock().expect("not poisoned").clone();
    let mut found = Vec::new();
    for (_, dir, login) in servers {
        let mut raw = client(&dir.join("socket"), login).get_connection().expect("connected");
        // A sentinel has no keys.
        let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut raw).unwrap_or_default();
        let left = |key: &String| redis::cmd("PTTL").arg(key).query::<i64>(&mut raw).unwrap_or(-2);
        found.extend(keys.iter().map(left).zip(&keys).filter(|(left, _)| *left == -1).map(|(_, key)| key.clone()));
    }
    found
}

/// Over the socket: the same way for servers that speak only TLS.
fn client(socket: &Path, login: Option<Login>) -> redis::Client {
    let login = login.map(|Login { user, pass }| format!("?user={user}&pass={pass}")).unwrap_or_default();
    redis::Client::open(format!("redis+unix://{}{login}", socket.display())).expect("a URL")
}

/// The server program: `redis-server`, or the one that is to be tested instead.
pub(crate) fn program() -> String {
    std::env::var("TENURE_TEST_REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned())
}

/// The one user that a server lets in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Login {
    pub(crate) user: &'static str,
    pub(crate) pass: &'static str,
}

/// How a server is started, apart from its port and directory.
#[derive(Debug, Clone, Default)]
pub(crate) struct Setup {
    lines: Vec<String>,
    args: Vec<String>,
    environment: Vec<(&'static str, PathBuf)>,
    pub(crate) login: Option<Login>,
    pub(crate) tls: bool,
}

impl Setup {
    /// Lines of the configuration file, which Sentinel rewrites when roles change.
    pub(crate) fn lines(mut self, lines: &[&str]) -> Self {
        self.lines.extend(lines.iter().map(ToString::to_string));
        self
    }

    /// Arguments, which win over the file after a restart too. Paths are relative to the server's directory.
    pub(crate) fn args(mut self, args: &[&str]) -> Self {
        self.args.extend(args.iter().map(ToString::to_string));
        self
    }

    /// Lets only this user in, and uses it towards a master.
    pub(crate) fn login(mut self, login: Login) -> Self {
        self.login = Some(login);
        let Login { user, pass } = login;
        let user_line = format!("user {user} on >{pass} ~* &* +@all");
        self.lines(&["user default off", &user_line, &format!("masteruser {user}"), &format!("masterauth {pass}")])
    }

    /// Speaks only TLS, also to other servers, with the certificates of a directory.
    pub(crate) fn tls(mut self, certificates: &Path) -> Self {
        self.tls = true;
        let file = |option: &str, name: &str| format!("{option} \"{}\"", certificates.join(name).display());
        self.lines(&[
            &file("tls-cert-file", "server.crt"),
            &file("tls-key-file", "server.key"),
            &file("tls-ca-cert-file", "ca.crt"),
            "tls-auth-clients no",
            "tls-replication yes",
            "tls-cluster yes",
        ])
    }

    /// As [`tls`](Self::tls), and lets nobody in without a certificate of the same authority.
    pub(crate) fn mutual_tls(self, certificates: &Path) -> Self {
        self.tls(certificates).lines(&["tls-auth-clients yes"])
    }

    /// With a clock that can be moved.
    pub(crate) fn clock(mut self, skew: &Skew) -> Self {
        self.environment.extend(skew.environment());
        self
    }

    pub(crate) fn start(&self) -> RedisServer {
        let dir = directory();
        // A port that is free now may be taken in the next moment by another test.
        for _ in 0..10 {
            let port = free_port();
            std::fs::write(dir.path().join("conf"), self.file(port)).expect("written");
            if let Some(child) = self.spawn(dir.path(), &[]) {
                return RedisServer { child, port, dir, setup: self.clone() };
            }
        }
        let log = std::fs::read_to_string(dir.path().join("log")).unwrap_or_default();
        panic!("{} does not start: {log}", program());
    }

    /// Starts many at the same time.
    pub(crate) fn start_all(setups: &[&Self]) -> Vec<RedisServer> {
        std::thread::scope(|scope| {
            let started: Vec<_> = setups.iter().map(|setup| scope.spawn(|| setup.start())).collect();
            started.into_iter().map(|thread| thread.join().expect("started")).collect()
        })
    }

    fn file(&self, port: u16) -> String {
        let port = if self.tls { format!("port 0\ntls-port {port}") } else { format!("port {port}") };
        // With a diskless sync, a replica that calls its link up may still be without the stream for a second.
        let base = "bind 127.0.0.1\nunixsocket socket\nsave \"\"\nappendonly no\nrepl-diskless-sync no\nlogfile log";
        format!("{base}\n{port}\n{}\n", self.lines.join("\n"))
    }

    /// Starts it and waits until it answers; `None` if it ended instead.
    fn spawn(&self, dir: &Path, more: &[&str]) -> Option<Child> {
        let mut command = Command::new(program());
        command.arg("conf").args(&self.args).args(more).current_dir(dir).envs(self.environment.iter().cloned());
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("a server");
        let give_up = Instant::now() + Duration::from_secs(20);
        while Instant::now() < give_up {
            if child.try_wait().expect("asked").is_some() {
                return None;
            }
            if answers(&dir.join("socket"), Duration::from_secs(1)) {
                LEFT.lock().expect("not poisoned").push((child.id(), dir.to_owned(), self.login));
                return Some(child);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        end(&mut child);
        None
    }
}

/// A Redis server of its own, with a directory of its own.
#[derive(Debug)]
pub(crate) struct RedisServer {
    child: Child,
    pub(crate) port: u16,
    pub(crate) dir: TempDir,
    setup: Setup,
}

impl RedisServer {
    pub(crate) fn start() -> Self {
        Self::with(&[])
    }

    pub(crate) fn with(args: &[&str]) -> Self {
        Setup::default().args(args).start()
    }

    /// Its address, without a login.
    pub(crate) fn url(&self) -> String {
        format!("{}://127.0.0.1:{}", if self.setup.tls { "rediss" } else { "redis" }, self.port)
    }

    /// The server's process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A plain connection, for what a test does behind the library's back.
    pub(crate) fn raw(&self) -> redis::Connection {
        self.client().get_connection().expect("connected")
    }

    /// The same, unless it is dead or stopped.
    pub(crate) fn if_alive(&self) -> Option<redis::Connection> {
        if !answers(&self.path("socket"), Duration::from_millis(500)) {
            return None;
        }
        let limit = Duration::from_secs(1);
        let raw = self.client().get_connection_with_timeout(limit).ok()?;
        raw.set_read_timeout(Some(limit)).ok()?;
        Some(raw)
    }

    fn client(&self) -> redis::Client {
        client(&self.path("socket"), self.setup.login)
    }

    pub(crate) fn is_master(&self) -> bool {
        self.replication().contains("\nrole:master\r\n")
    }

    /// Whether it is a replica of that master, has its data and hears of every change.
    pub(crate) fn follows(&self, master: &Self) -> bool {
        let said = self.replication();
        said.contains(&format!("\nmaster_port:{}\r\n", master.port)) && said.contains("\nmaster_link_status:up\r\n")
    }

    fn replication(&self) -> String {
        let ask = |mut raw| redis::cmd("INFO").arg("replication").query(&mut raw).ok();
        self.if_alive().and_then(ask).unwrap_or_default()
    }

    pub(crate) fn kill(&mut self) {
        end(&mut self.child);
    }

    /// Starts it again on the same port and directory after [`kill`](Self::kill).
    pub(crate) fn restart(&mut self) {
        self.restart_with(&[]);
    }

    pub(crate) fn restart_with(&mut self, more: &[&str]) {
        let give_up = Instant::now() + Duration::from_secs(10);
        loop {
            if let Some(child) = self.setup.spawn(self.dir.path(), more) {
                self.child = child;
                return;
            }
            assert!(Instant::now() < give_up, "{} does not start again", program());
        }
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// In memory where that can be had: sentinels and nodes of a cluster sync what they note to disk, and are deaf meanwhile.
pub(super) fn directory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory")
}

/// A stopped process would not notice anything milder.
fn end(child: &mut Child) {
    let _already_gone = child.kill();
    let _reaped = child.wait();
    LEFT.lock().expect("not poisoned").retain(|(pid, ..)| *pid != child.id());
}

/// Never the same twice, so that a killed server finds its port free. Outgoing connections get ports from 32768 on, and a
/// cluster's bus is 10000 above its server.
pub(super) fn free_port() -> u16 {
    static NEXT: LazyLock<AtomicU64> = LazyLock::new(|| AtomicU64::new(RandomState::new().hash_one(()) % 10_000));
    loop {
        let next = NEXT.fetch_add(1, Ordering::Relaxed) % 10_000;
        let port = u16::try_from(10_000 + next).expect("small");
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Any answer to PING will do: also that it loads, or wants a password.
fn answers(socket: &Path, limit: Duration) -> bool {
    let ping = || -> std::io::Result<bool> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(limit))?;
        stream.write_all(b"PING\r\n")?;
        let mut answer = [0; 1];
        stream.read_exact(&mut answer)?;
        Ok(matches!(answer[0], b'+' | b'-'))
    };
    ping().unwrap_or(false)
}
