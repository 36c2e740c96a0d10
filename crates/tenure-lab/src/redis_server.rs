//! A Redis server on a free loopback port, in a directory of its own, which ends when it is dropped.
//!
//! It is the one way in which the lab and the tests of all crates start a Redis server.

use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::clock::Clock;
use crate::process::{self, MakeCommand, Signal};
use crate::resources::free_port;

/// The configuration file. Only its owner can read it: a password in an argument would be in the list of processes.
const CONF: &str = "conf";
const SOCKET: &str = "socket";

/// How long a server may take to start on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(20);
const RESTART_LIMIT: Duration = Duration::from_secs(10);

/// With a diskless sync a master waits for more replicas, and a replica whose link is up may still lack the stream.
const BASE: &str = "bind 127.0.0.1\nunixsocket socket\nsave \"\"\nappendonly no\nrepl-diskless-sync no\nlogfile log";

/// The one user that a server accepts.
#[derive(Debug, Clone, Copy)]
pub struct Login {
    /// The name of the user.
    pub user: &'static str,
    /// The password of the user.
    pub pass: &'static str,
}

/// The configuration of a server, apart from its port and directory.
#[derive(Debug, Clone, Default)]
pub struct Setup {
    lines: Vec<String>,
    args: Vec<String>,
    environment: Vec<(OsString, OsString)>,
    password: Option<String>,
    /// The one user that the server accepts, if it does not accept all.
    pub login: Option<Login>,
    /// Whether the server accepts only TLS.
    pub tls: bool,
}

impl Setup {
    /// Adds lines of the configuration file, which Sentinel rewrites when roles change.
    #[must_use]
    pub fn lines(mut self, lines: &[&str]) -> Self {
        self.lines.extend(lines.iter().map(ToString::to_string));
        self
    }

    /// Adds arguments such as `--appendonly yes`, word by word. They override the file, after a restart too. Paths are relative to
    /// the server's directory.
    #[must_use]
    pub fn args(mut self, args: &[&str]) -> Self {
        self.args.extend(args.iter().map(ToString::to_string));
        self
    }

    /// Makes it a replica of the server on a port of this machine.
    #[must_use]
    pub fn replica_of(self, port: u16) -> Self {
        self.args(&["--replicaof", "127.0.0.1", &port.to_string()])
    }

    /// Requires a password of the default user, and shows it to a master.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self.lines(&[&format!("requirepass {password}"), &format!("masterauth {password}")])
    }

    /// Accepts only this user, and logs in as it at a master.
    #[must_use]
    pub fn login(mut self, login: Login) -> Self {
        self.login = Some(login);
        let Login { user, pass } = login;
        let user_line = format!("user {user} on >{pass} ~* &* +@all");
        self.lines(&["user default off", &user_line, &format!("masteruser {user}"), &format!("masterauth {pass}")])
    }

    /// Accepts and speaks only TLS, with the certificates of a directory.
    #[must_use]
    pub fn tls(mut self, certificates: &Path) -> Self {
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

    /// As [`tls`](Self::tls), and requires a certificate of the same authority from each client.
    #[must_use]
    pub fn mutual_tls(self, certificates: &Path) -> Self {
        self.tls(certificates).lines(&["tls-auth-clients yes"])
    }

    /// Runs by clocks that can be moved.
    #[must_use]
    pub fn clock(mut self, clock: &Clock) -> Self {
        self.environment.extend(clock.environment());
        self
    }

    fn write_conf(&self, path: &Path, port: u16) -> io::Result<()> {
        let port = if self.tls { format!("port 0\ntls-port {port}") } else { format!("port {port}") };
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        writeln!(file, "{BASE}\n{port}\n{}", self.lines.join("\n"))
    }
}

/// A running server.
#[derive(Debug)]
pub struct RedisServer {
    program: OsString,
    make_command: MakeCommand,
    setup: Setup,
    dir: PathBuf,
    port: u16,
    child: Mutex<Child>,
}

impl RedisServer {
    /// Starts a server in an existing directory, and waits until it answers.
    ///
    /// # Errors
    /// The program cannot be started, or it ends instead of answering.
    pub fn start(program: &OsStr, make_command: MakeCommand, dir: &Path, setup: Setup) -> io::Result<Self> {
        // Another process may take a port between the check and the start.
        for _ in 0..10 {
            let port = free_port();
            setup.write_conf(&dir.join(CONF), port)?;
            if let Some(child) = spawn(program, make_command, &setup, dir, &[])? {
                let (program, dir, child) = (program.to_owned(), dir.to_owned(), Mutex::new(child));
                return Ok(Self { program, make_command, setup, dir, port, child });
            }
        }
        let log = std::fs::read_to_string(dir.join("log")).unwrap_or_default();
        let said = log.lines().last().unwrap_or("it says nothing");
        Err(io::Error::other(format!("{} does not start: {said}", program.display())))
    }

    /// The port, of TLS if it accepts only that.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The configuration that it was started with.
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child().id()
    }

    /// A client over the unix socket: the same for servers that accept only TLS.
    ///
    /// # Errors
    /// The path of the socket is no URL.
    pub fn client(&self) -> redis::RedisResult<redis::Client> {
        client(&self.dir, &self.setup)
    }

    /// A connection over the unix socket whose calls end after a limit.
    ///
    /// # Errors
    /// The server is dead, or does not answer within the limit.
    pub fn connect(&self, limit: Duration) -> redis::RedisResult<redis::Connection> {
        let connection = self.client()?.get_connection_with_timeout(limit)?;
        connection.set_read_timeout(Some(limit))?;
        Ok(connection)
    }

    /// Whether it answers within a limit: neither dead nor stopped.
    pub fn answers(&self, limit: Duration) -> bool {
        answers(&self.socket(), limit)
    }

    /// The path of the unix socket.
    pub fn socket(&self) -> PathBuf {
        self.dir.join(SOCKET)
    }

    /// Kills it with SIGKILL: it loses what it has not written.
    ///
    /// # Errors
    /// The process is not a child of this one any more.
    pub fn kill(&self) -> io::Result<()> {
        let mut child = self.child();
        child.kill()?;
        child.wait().map(drop)
    }

    /// Starts it again after [`kill`](Self::kill), on the same port, with what it has written and with more arguments.
    ///
    /// # Errors
    /// It does not start.
    pub fn restart(&self, more: &[&str]) -> io::Result<()> {
        let give_up = Instant::now() + RESTART_LIMIT;
        while Instant::now() < give_up {
            if let Some(child) = spawn(&self.program, self.make_command, &self.setup, &self.dir, more)? {
                *self.child() = child;
                return Ok(());
            }
        }
        Err(io::Error::other(format!("{} does not start again", self.program.display())))
    }

    /// Stops it with SIGSTOP: it neither answers nor ends connections.
    ///
    /// # Errors
    /// It is dead, or does not stop.
    pub fn stop(&self) -> io::Result<()> {
        process::stop(self.pid())
    }

    /// Continues it with SIGCONT.
    ///
    /// # Errors
    /// It is dead.
    pub fn resume(&self) -> io::Result<()> {
        process::signal(self.pid(), Signal::CONT)
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        drop(self.kill());
    }
}

/// A client of the server in a directory, over its unix socket.
///
/// # Errors
/// The path of the socket is no URL.
pub fn client(dir: &Path, setup: &Setup) -> redis::RedisResult<redis::Client> {
    let login = match (setup.login, &setup.password) {
        (Some(Login { user, pass }), _) => format!("?user={user}&pass={pass}"),
        (None, Some(password)) => format!("?pass={password}"),
        (None, None) => String::new(),
    };
    redis::Client::open(format!("redis+unix://{}{login}", dir.join(SOCKET).display()))
}

/// Starts it and waits until it answers; `None` if it ended instead.
fn spawn(program: &OsStr, make_command: MakeCommand, setup: &Setup, dir: &Path, more: &[&str]) -> io::Result<Option<Child>> {
    let args = setup.args.iter().map(String::as_str).chain(more.iter().copied());
    let args: Vec<OsString> = std::iter::once(CONF).chain(args).map(OsString::from).collect();
    let mut command = make_command(program, &args)?;
    command.current_dir(dir).envs(setup.environment.iter().cloned());
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let give_up = Instant::now() + START_LIMIT;
    while Instant::now() < give_up {
        if child.try_wait()?.is_some() {
            return Ok(None);
        }
        if answers(&dir.join(SOCKET), Duration::from_secs(1)) {
            return Ok(Some(child));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}

/// Any answer to PING counts: also that it is loading, or requires a password.
fn answers(socket: &Path, limit: Duration) -> bool {
    let ping = || -> io::Result<bool> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(limit))?;
        stream.write_all(b"PING\r\n")?;
        let mut answer = [0; 1];
        stream.read_exact(&mut answer)?;
        Ok(matches!(answer[0], b'+' | b'-'))
    };
    ping().unwrap_or(false)
}
