//! Clients of one file, and what is known of it.

use std::path::Path;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tenure::{Error, Locker, RetryPolicy};

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

pub(crate) async fn refusal(path: &Path) -> Error {
    let retry = RetryPolicy { attempts: 1, ..RetryPolicy::default() };
    Locker::builder().retry(retry).timeout(Duration::from_millis(300)).connect(&url(path)).await.unwrap_err()
}

/// Waits until the store knows of so many waiters.
pub(crate) async fn until_waiting(locker: &Locker, name: &str, count: u32) {
    let bound = Instant::now() + LIMIT;
    while locker.mutex(name).inspect().await.unwrap().waiting != Some(count) {
        assert!(Instant::now() < bound, "never {count} waiters of {name:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) fn boot() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap().trim().to_owned()
}

pub(crate) async fn within_limit<T>(task: tokio::task::JoinHandle<tenure::Result<T>>) -> T {
    tokio::time::timeout(LIMIT, task).await.unwrap().unwrap().unwrap()
}
