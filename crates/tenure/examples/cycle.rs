//! Locks and releases on `memory:` as often as it is told, for `scripts/costs`: `cycle lock|hand-over|linger COUNT`.

use std::time::Duration;

use tenure::clock::Clock;
use tenure::{Locker, Mutex};

async fn cycles(mutex: &Mutex, count: usize) {
    for _ in 0..count {
        let guard = mutex.lock().await.expect("locked");
        // Another task comes to wait, if there is one.
        tokio::task::yield_now().await;
        guard.release().await.expect("given back");
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> tenure::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let kind = arguments.next().unwrap_or_default();
    let count = arguments.next().and_then(|count| count.parse().ok()).unwrap_or(1);
    // The system's own is read in a way that Valgrind does not know.
    let locker = Locker::builder().clock(Clock::for_tests()).connect("memory:").await?;
    let mutex = locker.mutex("a");
    match &*kind {
        "lock" => cycles(&mutex, count).await,
        "hand-over" => drop(tokio::join!(cycles(&mutex, count / 2), cycles(&mutex, count / 2))),
        // Valgrind is slow: no linger time may end.
        "linger" => cycles(&mutex.linger(Duration::from_secs(3600)), count).await,
        _ => {
            eprintln!("unknown; allowed are lock, hand-over and linger");
            std::process::exit(2);
        }
    }
    locker.close().await
}
