//! Database servers: slow to start, so each test program has one of a kind, and each test a database of its own in it.

use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use tenure_lab::process::is_installed;
use tenure_lab::resources::free_port;

use crate::server::directory;
use crate::{Signal, signal, within};

/// What runs, where its files are, and the signal by which it ends at once without leaving anything behind.
static STARTED: Mutex<Vec<(Child, PathBuf, Signal)>> = Mutex::new(Vec::new());

/// Directories without a server.
static FILES: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Ends all. They are in statics, which are never dropped.
pub(crate) fn end_all() {
    for (mut child, dir, farewell) in STARTED.lock().expect("not poisoned").drain(..) {
        signal(child.id(), farewell);
        if within(Duration::from_secs(5), || child.try_wait().expect("asked")).is_none() {
            let _already_gone = child.kill();
            let _reaped = child.wait();
        }
        let _already_gone = std::fs::remove_dir_all(dir);
    }
    for dir in FILES.lock().expect("not poisoned").drain(..) {
        let _already_gone = std::fs::remove_dir_all(dir);
    }
}

/// How a kind of server is prepared and started.
pub(crate) trait Kind {
    /// Its name, and the signal that ends it.
    const NAME: &str;
    const FAREWELL: Signal;
    /// Writes its first files.
    fn prepare(dir: &Path) -> Command;
    fn start(dir: &Path, port: u16) -> Command;
    fn answers(port: u16) -> bool;
}

/// Starts one that runs until [`end_all`], and returns its port.
pub(crate) fn start<K: Kind>() -> u16 {
    let dir = directory();
    let user = user();
    if let Some(user) = user {
        std::os::unix::fs::chown(dir.path(), Some(user), Some(user)).expect("given away");
    }
    let as_user = |mut command: Command| {
        if let Some(user) = user {
            command.uid(user).gid(user);
        }
        command.current_dir(dir.path()).stdin(Stdio::null());
        command
    };
    let prepared = as_user(K::prepare(dir.path())).output().expect("a program");
    assert!(prepared.status.success(), "{} is not prepared: {}", K::NAME, String::from_utf8_lossy(&prepared.stderr));
    // A port that is free now may be taken in the next moment by another test.
    for _ in 0..10 {
        let port = free_port();
        let log = std::fs::File::create(dir.path().join("log")).expect("a file");
        let mut child = as_user(K::start(dir.path(), port)).stdout(Stdio::null()).stderr(log).spawn().expect("a server");
        let give_up = Instant::now() + Duration::from_secs(60);
        while Instant::now() < give_up && child.try_wait().expect("asked").is_none() {
            if K::answers(port) {
                STARTED.lock().expect("not poisoned").push((child, TempDir::keep(dir), K::FAREWELL));
                return port;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _already_gone = child.kill();
        let _reaped = child.wait();
    }
    panic!("{} does not start: {}", K::NAME, std::fs::read_to_string(dir.path().join("log")).unwrap_or_default());
}

/// A program on the path, or in a directory.
pub(crate) fn find(program: &str, dir: &Path) -> Option<PathBuf> {
    let there = dir.join(program);
    is_installed(program).then(|| program.into()).or_else(|| there.exists().then_some(there))
}

/// Databases refuse to run as root: for root this is the user `nobody`.
fn user() -> Option<u32> {
    const NOBODY: u32 = 65534;
    (std::fs::metadata("/proc/self").expect("this process").uid() == 0).then_some(NOBODY)
}

/// The name of a database that no other test has.
pub(crate) fn fresh_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Waits for something in or outside of async code.
pub(crate) fn wait_for<T: Send>(work: impl Future<Output = T> + Send) -> T {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    std::thread::scope(|scope| scope.spawn(|| runtime().block_on(work)).join().expect("no panic"))
}

/// The path of a new SQLite file, which goes with all else.
pub fn file() -> String {
    static DIRECTORY: LazyLock<PathBuf> = LazyLock::new(|| {
        let dir = TempDir::keep(directory());
        FILES.lock().expect("not poisoned").push(dir.clone());
        dir
    });
    DIRECTORY.join(fresh_name()).display().to_string()
}

/// A program of `examples/drivers`, if that was built.
pub fn driver(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "../../target/drivers/debug", name].iter().collect()
}
