//! Lockers for tests, and what is measured with them.

use std::time::{Duration, Instant};

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

/// Measures hand-overs between two clients: from the call that releases to the grant of the other one. A waiter is given `pause` to
/// be told "busy" and wait.
pub async fn hand_overs(mut pair: [Locker; 2], rounds: usize, pause: Duration) -> Vec<Duration> {
    let mut guard = pair[0].mutex("H").lock().await.expect("locked");
    let mut times = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let waiter = tokio::spawn({
            let lock = pair[1].mutex("H").lock();
            async move { (lock.await.expect("locked"), Instant::now()) }
        });
        tokio::time::sleep(pause).await;
        let start = Instant::now();
        guard.release().await.expect("given back");
        let (next, at) = waiter.await.expect("no panic");
        times.push(at - start);
        guard = next;
        pair.swap(0, 1);
    }
    times
}
