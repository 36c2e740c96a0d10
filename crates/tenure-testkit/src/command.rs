//! The command `tenure` on a store of its own, run to its end or in the background.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustix::process::{Pid, Signal, kill_process};

use crate::{eventually, until};

/// A directory, with a lock file in it unless the locks are elsewhere.
#[derive(Debug)]
pub struct Store {
    dir: tempfile::TempDir,
    elsewhere: Option<String>,
}

impl Default for Store {
    fn default() -> Self {
        Self::new()
    }
}

impl Store {
    pub fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("a temporary directory"), elsewhere: None }
    }

    /// Locks at another place.
    pub fn at(url: String) -> Self {
        Self { elsewhere: Some(url), ..Self::new() }
    }

    pub fn path(&self, file: &str) -> PathBuf {
        self.dir.path().join(file)
    }

    pub fn database(&self) -> PathBuf {
        self.path("locks.db")
    }

    pub fn url(&self) -> String {
        self.elsewhere.clone().unwrap_or_else(|| format!("sqlite:{}", self.database().display()))
    }

    /// `tenure` on this store, in this directory.
    pub fn tenure<const N: usize>(&self, args: [&str; N]) -> Command {
        let mut command = Command::new(binary());
        command.args(args).current_dir(self.dir.path());
        command.env("TENURE_URL", self.url()).stdin(Stdio::null());
        command
    }

    /// Runs `tenure` to its end.
    pub fn output<const N: usize>(&self, args: [&str; N]) -> Output {
        self.tenure(args).output().expect("tenure starts")
    }

    /// What `tenure … --json` prints.
    pub fn json<const N: usize>(&self, args: [&str; N]) -> serde_json::Value {
        let output = self.output(args);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"))
    }

    /// What the store says of one name.
    pub fn who(&self, name: &str) -> serde_json::Value {
        self.json(["who", name, "--json"])
    }

    /// Starts `tenure` and leaves it running.
    pub fn start<const N: usize>(&self, args: [&str; N]) -> Running {
        Running::new(self.tenure(args).stdout(Stdio::piped()).stderr(Stdio::piped()))
    }

    /// Whether a lock is held.
    pub fn is_held(&self, name: &str) -> bool {
        self.who(name)["held"] == true
    }

    /// Waits until the program has written a file, and reads it.
    pub fn written(&self, file: &str) -> String {
        until(file, || std::fs::read_to_string(self.path(file)).ok().filter(|text| text.ends_with('\n'))).trim().to_owned()
    }

    /// Waits until the program has written a process id.
    pub fn pid(&self, file: &str) -> i32 {
        self.written(file).parse().expect("a process id")
    }
}

/// A process that does not outlive its test.
#[derive(Debug)]
pub struct Running {
    child: Child,
    said: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl Running {
    pub fn new(command: &mut Command) -> Self {
        let mut child = command.spawn().expect("the command starts");
        let said = Arc::new(Mutex::new(Vec::new()));
        let reader = child.stderr.take().map(|stderr| collect(stderr, &said));
        Self { child, said, reader }
    }

    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a process id")
    }

    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal);
    }

    /// Waits until a text has come on stderr.
    pub fn says(&self, text: &str) {
        eventually(text, || self.stderr().contains(text));
    }

    /// Waits for the end: code and stderr.
    pub fn end(mut self) -> (Option<i32>, String) {
        let status = until("the end of the process", || self.child.try_wait().expect("it is ours"));
        eventually("the end of stderr", || self.reader.as_ref().is_none_or(JoinHandle::is_finished));
        (status.code(), self.stderr())
    }

    fn stderr(&self) -> String {
        text(&self.said.lock().expect("no panic"))
    }
}

/// Reads all that comes, in a thread, so that a test waits for it with a limit.
pub fn collect(mut from: impl Read + Send + 'static, into: &Arc<Mutex<Vec<u8>>>) -> JoinHandle<()> {
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

/// The binary of the command, which cargo builds for the tests of its package. A cargo before 1.94 does not name it to programs that
/// run: it is in the directory above that of the test programs.
pub fn binary() -> PathBuf {
    let beside = || std::env::current_exe().ok().and_then(|test| Some(test.parent()?.parent()?.join("tenure")));
    std::env::var_os("CARGO_BIN_EXE_tenure").map(PathBuf::from).or_else(beside).expect("a test of tenure-cli")
}

/// Sends a signal to a process.
pub fn kill(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).expect("a process id"), signal).expect("the process is there");
}

/// The state letter of a process; `None` when it is gone.
pub fn state(pid: i32) -> Option<char> {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Whether a process runs no more.
pub fn is_dead(pid: i32) -> bool {
    matches!(state(pid), None | Some('Z' | 'X'))
}

/// Prints that a test cannot run here. With `TENURE_TEST_ALL` that is a failure.
pub fn skipped(why: &str) {
    assert!(std::env::var_os("TENURE_TEST_ALL").is_none(), "TENURE_TEST_ALL is set, and {why}");
    // Unlike the macros, this is not kept back from the output of a test that passes.
    drop(writeln!(std::io::stderr(), "SKIPPED: {why}"));
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
