//! A store of its own for every test, and the real binary.
#![allow(dead_code, reason = "every test file uses a part of it")]

#[cfg(target_os = "linux")]
pub(crate) mod nobody;

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long a test waits for what must happen.
const LIMIT: Duration = Duration::from_secs(20);

/// A directory, with a lock file in it unless the locks are elsewhere.
pub(crate) struct Store {
    dir: tempfile::TempDir,
    elsewhere: Option<String>,
}

impl Store {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("a temporary directory"), elsewhere: None }
    }

    /// Locks at another place.
    pub(crate) fn at(url: String) -> Self {
        Self { elsewhere: Some(url), ..Self::new() }
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.dir.path().join(file)
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.path("locks.db")
    }

    pub(crate) fn url(&self) -> String {
        self.elsewhere.clone().unwrap_or_else(|| format!("sqlite:{}", self.database().display()))
    }

    /// `tenure` on this store, in this directory.
    pub(crate) fn tenure<const N: usize>(&self, args: [&str; N]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
        command.args(args).current_dir(self.dir.path());
        command.env("TENURE_URL", self.url()).stdin(Stdio::null());
        command
    }

    /// Runs `tenure` to its end.
    pub(crate) fn output<const N: usize>(&self, args: [&str; N]) -> Output {
        self.tenure(args).output().expect("tenure starts")
    }

    /// What `tenure … --json` prints.
    pub(crate) fn json<const N: usize>(&self, args: [&str; N]) -> serde_json::Value {
        let output = self.output(args);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"))
    }

    /// What the store says of one name.
    pub(crate) fn who(&self, name: &str) -> serde_json::Value {
        self.json(["who", name, "--json"])
    }

    /// Starts `tenure` and leaves it running.
    pub(crate) fn start<const N: usize>(&self, args: [&str; N]) -> Running {
        Running::new(self.tenure(args).stdout(Stdio::piped()).stderr(Stdio::piped()))
    }

    /// Whether somebody holds a lock.
    pub(crate) fn is_held(&self, name: &str) -> bool {
        self.who(name)["held"] == true
    }

    /// Waits until the program has written a file, and reads it.
    pub(crate) fn written(&self, file: &str) -> String {
        until(file, || std::fs::read_to_string(self.path(file)).ok().filter(|text| text.ends_with('\n'))).trim().to_owned()
    }

    /// Waits until the program has written a process id.
    pub(crate) fn pid(&self, file: &str) -> i32 {
        self.written(file).parse().expect("a process id")
    }
}

/// A process that does not outlive its test.
pub(crate) struct Running {
    child: Child,
    said: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl Running {
    pub(crate) fn new(command: &mut Command) -> Self {
        let mut child = command.spawn().expect("the command starts");
        let said = Arc::new(Mutex::new(Vec::new()));
        let reader = child.stderr.take().map(|stderr| collect(stderr, &said));
        Self { child, said, reader }
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a process id")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal);
    }

    /// Waits until a text has come on stderr.
    pub(crate) fn says(&self, text: &str) {
        until_true(text, || self.stderr().contains(text));
    }

    /// Waits for the end: code and stderr.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        let status = until("the end of the process", || self.child.try_wait().expect("it is ours"));
        until_true("the end of stderr", || self.reader.as_ref().is_none_or(JoinHandle::is_finished));
        (status.code(), self.stderr())
    }

    fn stderr(&self) -> String {
        text(&self.said.lock().expect("no panic"))
    }
}

/// Reads all that comes, in a thread, so that nobody has to wait for it without a limit.
pub(crate) fn collect(mut from: impl Read + Send + 'static, into: &Arc<Mutex<Vec<u8>>>) -> JoinHandle<()> {
    let into = Arc::clone(into);
    std::thread::spawn(move || {
        let mut chunk = [0; 1024];
        // A terminal ends with an error.
        while let Ok(n @ 1..) = from.read(&mut chunk) {
            into.lock().expect("no panic").extend_from_slice(&chunk[..n]);
        }
    })
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            drop(self.child.kill());
            drop(self.child.wait());
        }
    }
}

/// Polls until something is there.
#[track_caller]
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + LIMIT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Polls until something is true.
#[track_caller]
pub(crate) fn until_true(what: &str, mut look: impl FnMut() -> bool) {
    until(what, || look().then_some(()));
}

/// Sends a signal to a process.
pub(crate) fn kill(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).expect("a process id"), signal).expect("the process is there");
}

/// The state letter of a process; `None` when it is gone.
pub(crate) fn state(pid: i32) -> Option<char> {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Whether a process runs no more.
pub(crate) fn is_dead(pid: i32) -> bool {
    matches!(state(pid), None | Some('Z' | 'X'))
}

/// Says where all see it that a test cannot run here. With `TENURE_TEST_ALL` that is a failure.
pub(crate) fn skipped(why: &str) {
    assert!(std::env::var_os("TENURE_TEST_ALL").is_none(), "TENURE_TEST_ALL is set, and {why}");
    // Unlike the macros, this is not kept back from the output of a test that passes.
    drop(writeln!(std::io::stderr(), "SKIPPED: {why}"));
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
