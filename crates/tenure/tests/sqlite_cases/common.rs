//! Files, rows and pipes as the store leaves them, made by hand.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;
use tenure::{Error, Locker, RetryPolicy};

/// A client that nobody is.
pub(crate) const NOBODY: &str = "00000000-0000-4000-8000-000000000000";
/// Users that need not be known to the machine, and a group.
pub(crate) const ALICE: u32 = 54_321;
pub(crate) const BOB: u32 = 54_322;
pub(crate) const LOCKS: u32 = 54_323;

pub(crate) fn dir() -> TempDir {
    tempfile::tempdir().expect("a directory")
}

pub(crate) fn url(path: &Path) -> String {
    format!("sqlite:{}", path.display())
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Runtime::new().expect("a runtime").block_on(future)
}

pub(crate) async fn client(dir: &TempDir) -> Locker {
    Locker::connect(&url(&dir.path().join("locks.db"))).await.expect("connected")
}

/// Why a URL is refused. Asked for once, and not for long.
pub(crate) fn refusal(url: &str) -> Error {
    let retry = RetryPolicy { attempts: 1, ..RetryPolicy::default() };
    let connect = Locker::builder().retry(retry).timeout(Duration::from_secs(2)).connect(url);
    match block_on(connect) {
        Ok(_) => panic!("{url} was taken"),
        Err(e) => e,
    }
}

pub(crate) fn clients(dir: &TempDir) -> PathBuf {
    dir.path().join("locks.db.clients")
}

pub(crate) fn mkfifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().expect("mkfifo runs").success());
}

pub(crate) fn chmod(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("its mode is set");
}

pub(crate) fn chown(path: &Path, user: u32, group: u32) {
    std::os::unix::fs::lchown(path, Some(user), Some(group)).expect("its owner is set");
}

pub(crate) fn mode(path: &Path) -> u32 {
    std::fs::symlink_metadata(path).unwrap_or_else(|e| panic!("{}: {e}", path.display())).mode() & 0o7777
}

pub(crate) fn rows(dir: &TempDir) -> rusqlite::Connection {
    let file = rusqlite::Connection::open(dir.path().join("locks.db")).expect("opened");
    file.busy_timeout(Duration::from_secs(20)).expect("patient");
    file
}

pub(crate) fn boot() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("read").trim().to_owned()
}

/// A hold for a century of whoever is written there.
pub(crate) fn add_hold(file: &rusqlite::Connection, name: &str, client: &str) {
    let sql = "INSERT INTO holds VALUES (?1, 'x:1', 0, 0, ?2, ?3, ?4, 1, 1, NULL, NULL)";
    file.execute(sql, rusqlite::params![name.as_bytes(), client, boot(), i64::MAX / 2]).expect("held");
}

/// A queue position that only its pipes can end.
pub(crate) fn add_waiter(file: &rusqlite::Connection, name: &str, client: &str, kind: i64) {
    let sql = "INSERT INTO waiters VALUES (NULL, ?1, 'x:2', ?2, 1, ?3, ?4, ?5)";
    file.execute(sql, rusqlite::params![name.as_bytes(), kind, client, boot(), i64::MAX]).expect("in the queue");
}

/// All below a directory: what it is, and what is in it.
pub(crate) fn tree(dir: &Path) -> Vec<(PathBuf, u32, Option<Vec<u8>>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).expect("read").flatten() {
        let path = entry.path();
        let meta = entry.metadata().expect("there");
        if meta.is_dir() {
            found.extend(tree(&path));
        }
        let content = meta.is_file().then(|| std::fs::read(&path).expect("read"));
        found.push((path, meta.mode(), content));
    }
    found.sort();
    found
}
