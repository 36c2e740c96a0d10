//! Closing, by several callers at once.

use std::sync::Arc;
use std::time::Duration;

use super::slow::{Slow, client, lockers};
use tenure::backend::Layered;
use tenure::backends::memory::Memory;
use tenure::clock::Clock;
use tenure::{Error, Locker};
use tokio::time::Instant;

#[tokio::test(start_paused = true)]
async fn all_who_close_wait_until_it_is_closed() {
    let (_, locker, _) = lockers(Slow { closing_takes: Duration::from_secs(1), ..Slow::default() });
    let start = Instant::now();
    let first = tokio::spawn({
        let locker = locker.clone();
        async move { locker.close().await }
    });
    tokio::task::yield_now().await;
    locker.close().await.expect("closed");
    assert!(start.elapsed() >= Duration::from_secs(1), "answered after {:?}", start.elapsed());
    first.await.expect("no panic").expect("closed");
    locker.close().await.expect("closed");
}

#[tokio::test]
async fn who_closes_twice_is_answered_also_if_the_runtime_ends_under_it() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let slow = Slow { closing_takes: Duration::from_secs(2), ..Slow::default() };
    let store = Layered::new(slow, Arc::new(Memory::new(client(), Clock::system())));
    let locker = Locker::builder().runtime(runtime.handle().clone()).backend(Arc::new(store)).expect("a locker");
    drop(tokio::time::timeout(Duration::from_millis(50), locker.close()).await);
    runtime.shutdown_background();
    let closed = tokio::time::timeout(Duration::from_secs(20), locker.close()).await.expect("answered");
    assert!(matches!(closed, Ok(()) | Err(Error::Closed)), "{closed:?}");
}
