//! Lockers for tests.

use std::time::Duration;

use tenure::Locker;

pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Runtime::new().expect("a runtime").block_on(future)
}

pub async fn connect(url: &str) -> Locker {
    Locker::connect(url).await.expect("connected")
}

/// Waits for something that must come, however long a busy machine takes.
pub async fn must<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(Duration::from_secs(60), future).await {
        Ok(value) => value,
        Err(_) => panic!("never came: {what}"),
    }
}
