//! Real servers for tests: started on free loopback ports, stopped on drop. What is not installed is skipped visibly.
#![allow(dead_code, reason = "each test program uses its own part")]

pub(crate) mod tls;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Trial};
use tempfile::TempDir;

/// Servers that live in statics, which nobody drops.
static LEFT: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// Sends a signal by name to a process.
pub(crate) fn signal(pid: u32, name: &str) {
    let status = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).stderr(Stdio::null()).status();
    status.expect("kill runs");
}

/// Waits until something is true; panics after a long time.
pub(crate) fn eventually(what: &str, mut check: impl FnMut() -> bool) {
    let give_up = Instant::now() + Duration::from_secs(30);
    while !check() {
        assert!(Instant::now() < give_up, "never came true: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a program is on the path.
pub(crate) fn installed(program: &str) -> bool {
    Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

/// What a test needs, and how to get it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    Nothing,
    Redis,
    Openssl,
}

impl Needs {
    fn missing(self) -> Option<&'static str> {
        match self {
            Self::Nothing => None,
            Self::Redis if installed("redis-server") => None,
            Self::Redis => Some("redis-server (apt-get install redis-server)"),
            Self::Openssl if installed("redis-server") && installed_openssl() => None,
            Self::Openssl => Some("redis-server and openssl (apt-get install redis-server openssl)"),
        }
    }
}

fn installed_openssl() -> bool {
    Command::new("openssl").arg("version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

/// One test of a program without the standard harness.
pub(crate) struct Test {
    pub(crate) name: String,
    pub(crate) needs: Needs,
    pub(crate) run: Box<dyn FnOnce() + Send>,
}

impl Test {
    pub(crate) fn new(name: impl Into<String>, needs: Needs, run: impl FnOnce() + Send + 'static) -> Self {
        Self { name: name.into(), needs, run: Box::new(run) }
    }
}

/// A list of tests from functions.
#[macro_export]
macro_rules! tests {
    ($($needs:ident: $($name:ident)*;)*) => {
        vec![$($($crate::support::Test::new(stringify!($name), $crate::support::Needs::$needs, $name),)*)*]
    };
}

/// Runs tests. Where a server is missing its tests count as ignored and a line says so; with `TENURE_TEST_ALL` set, as
/// the project's own test command does, a missing server is a failure.
pub(crate) fn run(tests: Vec<Test>) -> ! {
    let mut arguments = Arguments::from_args();
    // Most of these wait for servers and leases, not for the processor.
    arguments.test_threads = arguments.test_threads.or(Some(10));
    let strict = std::env::var_os("TENURE_TEST_ALL").is_some();
    let mut skipped = std::collections::BTreeMap::<&str, usize>::new();
    let mut missing = std::collections::HashMap::new();
    let mut trials = Vec::new();
    for Test { name, needs, run } in tests {
        let missing = *missing.entry(needs as u8).or_insert_with(|| needs.missing());
        let trial = Trial::test(name, move || {
            assert!(missing.is_none(), "not installed: {}", missing.unwrap_or_default());
            run();
            Ok(())
        });
        let skip = missing.filter(|_| !strict);
        if let Some(what) = skip {
            *skipped.entry(what).or_default() += 1;
        }
        trials.push(trial.with_ignored_flag(skip.is_some()));
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    for pid in LEFT.lock().expect("not poisoned").drain(..) {
        signal(pid, "KILL");
    }
    for (what, n) in skipped {
        println!("SKIPPED {n} tests: they need {what}");
    }
    conclusion.exit()
}

/// A Redis server of its own, with a directory of its own.
#[derive(Debug)]
pub(crate) struct RedisServer {
    child: Child,
    pub(crate) port: u16,
    pub(crate) dir: TempDir,
    args: Vec<String>,
}

impl RedisServer {
    pub(crate) fn start() -> Self {
        Self::with(&[])
    }

    pub(crate) fn with(args: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let args: Vec<String> = args.iter().map(|a| a.replace("DIR", &dir.path().to_string_lossy())).collect();
        // A port that is free now may be taken in the next moment by another test.
        for _ in 0..10 {
            let port = free_port();
            if let Some(child) = spawn(port, dir.path(), &args) {
                return Self { child, port, dir, args };
            }
        }
        panic!("redis-server does not start: {}", std::fs::read_to_string(dir.path().join("log")).unwrap_or_default());
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
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
        redis::Client::open(self.url()).and_then(|c| c.get_connection()).expect("connected")
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("waited");
        LEFT.lock().expect("not poisoned").retain(|pid| *pid != self.child.id());
    }

    /// Starts it again on the same port and directory after [`kill`](Self::kill).
    pub(crate) fn restart(&mut self) {
        self.restart_with(&[]);
    }

    pub(crate) fn restart_with(&mut self, more: &[&str]) {
        let mut args = self.args.clone();
        args.extend(more.iter().map(ToString::to_string));
        let give_up = Instant::now() + Duration::from_secs(10);
        loop {
            if let Some(child) = spawn(self.port, self.dir.path(), &args) {
                self.child = child;
                return;
            }
            assert!(Instant::now() < give_up, "redis-server does not start again");
        }
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        // A stopped process would not notice anything milder.
        let _already_gone = self.child.kill();
        let _reaped = self.child.wait();
        LEFT.lock().expect("not poisoned").retain(|pid| *pid != self.child.id());
    }
}

pub(crate) fn free_port() -> u16 {
    // Below 55535, because a cluster bus would use port + 10000.
    loop {
        let port = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a free port").port();
        if port < 55535 {
            return port;
        }
    }
}

/// Starts a server and waits until it answers; `None` if it ended instead.
fn spawn(port: u16, dir: &Path, args: &[String]) -> Option<Child> {
    let tls = args.iter().any(|a| a == "--tls-port");
    let mut command = Command::new("redis-server");
    command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--logfile", "log", "--daemonize", "no"]);
    command.arg("--dir").arg(dir).current_dir(dir);
    if tls {
        command.args(["--port", "0"]).args(args.iter().map(|a| if a == "PORT" { port.to_string() } else { a.clone() }));
    } else {
        command.arg("--port").arg(port.to_string()).args(args);
    }
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("redis-server started");
    LEFT.lock().expect("not poisoned").push(child.id());
    let give_up = Instant::now() + Duration::from_secs(20);
    while Instant::now() < give_up {
        if child.try_wait().expect("asked").is_some() {
            return None;
        }
        if if tls { TcpStream::connect(("127.0.0.1", port)).is_ok() } else { answers(port) } {
            return Some(child);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let _gone = child.kill();
    let _reaped = child.wait();
    None
}

/// Any answer to PING will do: also that it loads, or wants a password.
fn answers(port: u16) -> bool {
    let ping = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(b"PING\r\n")?;
        let mut answer = [0; 1];
        stream.read_exact(&mut answer)?;
        Ok(matches!(answer[0], b'+' | b'-'))
    };
    ping().unwrap_or(false)
}
