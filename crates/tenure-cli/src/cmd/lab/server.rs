//! A Redis server of its own: on a free loopback port, in a directory of its own, gone when it is dropped.

use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasher, RandomState};
use std::net::TcpListener;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::ear::Ear;
use super::upset::{Played, Upset};
use super::{password, process};

/// The ports of servers. Outgoing connections get ports from 32768 on.
pub(crate) const PORTS: Range<u16> = 20_000..30_000;

/// Where a server reads what no list of processes is to show.
const CONF: &str = "conf";

/// How long a server may take to start.
const LIMIT: Duration = Duration::from_secs(10);

/// How a server is started, apart from its port and directory.
#[derive(Debug, Clone, Default)]
pub(crate) struct Setup {
    args: Vec<String>,
    environment: Vec<(OsString, OsString)>,
}

impl Setup {
    /// Options such as `--appendonly yes`, word by word.
    pub(crate) fn args(mut self, args: &[&str]) -> Self {
        self.args.extend(args.iter().map(ToString::to_string));
        self
    }

    /// Copies all that another server has.
    pub(crate) fn replica_of(self, master: &Server) -> Self {
        let port = master.port().to_string();
        self.args(&["--replicaof", "127.0.0.1", &port])
    }

    /// A variable of the environment, such as a library to preload.
    pub(crate) fn environment(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }
}

#[derive(Debug)]
pub(crate) struct Server {
    program: OsString,
    setup: Setup,
    dir: PathBuf,
    port: u16,
    child: Mutex<Child>,
    ear: Ear,
}

impl Server {
    /// Starts a server in a new directory. To be called from the main thread: the server ends with the calling one.
    pub(crate) fn start(program: &OsStr, dir: &Path, setup: Setup) -> Played<Self> {
        std::fs::create_dir_all(dir)?;
        password::write(&dir.join(CONF))?;
        let program = program.to_owned();
        // A port that is free now may be taken in the next moment.
        for _ in 0..10 {
            let port = free_port();
            let child = Mutex::new(spawn(&program, &setup, dir, port)?);
            let server =
                Self { program: program.clone(), setup: setup.clone(), dir: dir.to_owned(), port, child, ear: Ear::default() };
            if server.is_up()? {
                server.ear.listen(&server.socket())?;
                return Ok(server);
            }
        }
        let log = std::fs::read_to_string(dir.join("log")).unwrap_or_default();
        Err(Upset::new(format!("{} does not start: {}", program.display(), log.lines().last().unwrap_or("it says nothing"))))
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// For Tenure, with options such as `lease=1s`.
    pub(crate) fn url(&self, options: &str) -> String {
        password::url(self.port, options)
    }

    /// The lab's own way in, which is not counted.
    pub(crate) fn lab(&self) -> Played<redis::Connection> {
        Ok(self.within(LIMIT)?)
    }

    /// Asks one thing through [`lab`](Self::lab).
    pub(crate) fn ask<T: redis::FromRedisValue>(&self, command: &[&str]) -> Played<T> {
        Ok(asked(command).query(&mut self.lab()?)?)
    }

    /// How many requests clients have sent so far, over all of its lives.
    pub(crate) fn requests(&self) -> Played<u64> {
        static WORDS: AtomicU64 = AtomicU64::new(0);
        let word = format!("word {}", WORDS.fetch_add(1, Ordering::Relaxed));
        // Whoever is dead or stands still hears nothing new.
        if self.answers() && self.ask::<String>(&["ECHO", &word]).is_ok() {
            self.ear.until(&word)?;
        }
        Ok(self.ear.requests())
    }

    /// The connections of clients other than the lab: their ids, and whether they are subscribed to something.
    pub(crate) fn clients(&self) -> Played<Vec<(u64, bool)>> {
        let list: String = self.ask(&["CLIENT", "LIST"])?;
        let client = |line: &str| {
            let field = |name: &str| line.split(' ').find_map(|word| word.strip_prefix(name));
            let subscribed = field("sub=") != Some("0");
            field("addr=").filter(|addr| addr.starts_with("127.0.0.1:"))?;
            Some((field("id=")?.parse().ok()?, subscribed))
        };
        Ok(list.lines().filter_map(client).collect())
    }

    /// Ends a connection.
    pub(crate) fn cut(&self, client: u64) -> Played<()> {
        self.ask::<u64>(&["CLIENT", "KILL", "ID", &client.to_string()]).map(drop)
    }

    /// SIGKILL: it loses what it has not written down.
    pub(crate) fn kill(&self) -> Played<()> {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// Starts it again after [`kill`](Self::kill), on the same port and with what it has written down.
    pub(crate) fn restart(&self) -> Played<()> {
        let give_up = Instant::now() + LIMIT;
        while Instant::now() < give_up {
            *self.child.lock().unwrap_or_else(PoisonError::into_inner) = spawn(&self.program, &self.setup, &self.dir, self.port)?;
            if self.is_up()? {
                return self.ear.listen(&self.socket());
            }
        }
        Err(Upset::new(format!("{} does not start again", self.program.display())))
    }

    /// It stands still: it neither answers nor ends connections.
    pub(crate) fn stop(&self) -> Played<()> {
        process::stop(self.pid())
    }

    pub(crate) fn go_on(&self) -> Played<()> {
        process::signal(self.pid(), Signal::CONT)
    }

    fn pid(&self) -> u32 {
        self.child.lock().unwrap_or_else(PoisonError::into_inner).id()
    }

    fn socket(&self) -> PathBuf {
        self.dir.join("socket")
    }

    fn answers(&self) -> bool {
        let limit = Duration::from_millis(500);
        self.within(limit).and_then(|mut raw| redis::cmd("PING").query::<String>(&mut raw)).is_ok()
    }

    /// Connects over the unix socket.
    fn within(&self, limit: Duration) -> redis::RedisResult<redis::Connection> {
        let client = redis::Client::open(password::socket_url(&self.socket()))?;
        let raw = client.get_connection_with_timeout(limit)?;
        raw.set_read_timeout(Some(limit))?;
        Ok(raw)
    }

    /// Waits until it answers; false if it ended instead.
    fn is_up(&self) -> Played<bool> {
        let give_up = Instant::now() + LIMIT;
        while Instant::now() < give_up {
            if self.child.lock().unwrap_or_else(PoisonError::into_inner).try_wait()?.is_some() {
                return Ok(false);
            }
            if self.answers() {
                return Ok(true);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(false)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.kill());
    }
}

/// A command from its words.
pub(crate) fn asked(command: &[impl AsRef<str>]) -> redis::Cmd {
    let mut cmd = redis::Cmd::new();
    for word in command {
        cmd.arg(word.as_ref());
    }
    cmd
}

/// Whether there is such a program.
pub(crate) fn is_installed(program: &OsStr) -> bool {
    Command::new(program).arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

fn spawn(program: &OsStr, setup: &Setup, dir: &Path, port: u16) -> Played<Child> {
    let port = port.to_string();
    let ours = [CONF, "--port", &port, "--bind", "127.0.0.1", "--unixsocket", "socket", "--save", "", "--logfile", "log"];
    // With a diskless sync a master waits for more replicas, and one that calls its link up may be without the stream.
    let sync = ["--repl-diskless-sync", "no"];
    let args = ours.iter().chain(&sync).map(OsString::from);
    let args: Vec<OsString> = args.chain(setup.args.iter().map(OsString::from)).collect();
    let mut command = process::tied(program, &args)?;
    command.current_dir(dir).envs(setup.environment.iter().cloned());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(command.spawn()?)
}

/// Never the same twice, so that a killed server finds its port free.
fn free_port() -> u16 {
    static NEXT: LazyLock<AtomicU64> = LazyLock::new(|| AtomicU64::new(RandomState::new().hash_one(())));
    loop {
        let next = NEXT.fetch_add(1, Ordering::Relaxed) % (PORTS.len() as u64);
        let port = PORTS.start + u16::try_from(next).unwrap_or_default();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
