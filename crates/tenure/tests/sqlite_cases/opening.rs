//! A file of locks in a directory of its own, and its clients.

use std::path::Path;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tenure::Locker;

/// How long a test waits for what must happen.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

pub(crate) fn dir() -> TempDir {
    tempfile::tempdir().unwrap()
}

pub(crate) fn url(path: &Path) -> String {
    format!("sqlite:{}", path.display())
}

pub(crate) async fn client(dir: &TempDir) -> Locker {
    Locker::connect(&url(&dir.path().join("locks.db"))).await.unwrap()
}

/// The boot id of this machine, as rows have it.
pub(crate) fn boot() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap().trim().to_owned()
}

/// Waits until the store knows of so many waiters.
pub(crate) async fn until_waiting(locker: &Locker, name: &str, count: u32) {
    let bound = Instant::now() + LIMIT;
    while locker.mutex(name).inspect().await.unwrap().waiting != Some(count) {
        assert!(Instant::now() < bound, "never {count} waiters of {name:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
