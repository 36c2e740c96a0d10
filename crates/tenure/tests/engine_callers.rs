//! What callers may do to the engine that they drive: stand still, drop what they hold when they are woken, end its runtime.

#[path = "engine_crowds_cases/slow.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod slow;

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures_util::StreamExt;
use slow::{Slow, lockers};
use tenure::{Error, Guard, Locker};
use tokio::time::Instant;

/// Polls once.
async fn begin<F: Future + Unpin>(future: &mut F) -> bool {
    std::future::poll_fn(|cx| Poll::Ready(std::pin::Pin::new(&mut *future).poll(cx).is_pending())).await
}

#[tokio::test(start_paused = true)]
async fn callers_that_stand_still_keep_nobody_from_the_store() {
    let (_, locker, _) = lockers(Slow { question_takes: Duration::from_millis(10), ..Slow::default() });
    let mine = locker.mutex("mine").lock().await.expect("locked");
    let mut parked: Vec<_> = (0..1000).map(|i| Box::pin(locker.mutex(format!("{i}")).lock())).collect();
    for one in &mut parked {
        assert!(begin(one).await, "it is under way");
    }
    let begun = Instant::now();
    mine.release().await.expect("given back");
    let other = locker.mutex("other").try_lock_for(Duration::from_secs(20)).await.expect("asked");
    drop(other.expect("it is free"));
    assert!(begun.elapsed() < Duration::from_secs(1), "after {:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_locks_is_given_back_one_by_one() {
    let (_, locker, _) = lockers(Slow { question_takes: Duration::from_millis(10), ..Slow::default() });
    let begun = Instant::now();
    let mut guards = futures_util::stream::iter(0..400).map(|i| locker.mutex(format!("{i}")).lock()).buffer_unordered(400);
    while let Some(guard) = guards.next().await {
        // Meanwhile nobody polls the others.
        guard.expect("locked").release().await.expect("given back");
    }
    assert!(begun.elapsed() < Duration::from_secs(3), "after {:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_lease_begins_when_the_question_is_sent() {
    let (_, locker, _) = lockers(Slow { question_takes: Duration::from_millis(20), ..Slow::default() });
    let lease = Duration::from_millis(400);
    let all: Vec<_> = (0..4000).map(|i| tokio::spawn(locker.mutex(format!("{i}")).lease(lease).lock())).collect();
    for one in all {
        let guard = one.await.expect("no panic").expect("locked");
        drop(guard);
    }
    assert_eq!(locker.stats().errors, 0, "answers were taken for late because their questions had waited");
}

#[test]
fn those_in_the_queue_hear_that_the_runtime_has_ended() {
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let (theirs, mine) = (runtime(), runtime());
    mine.block_on(async {
        let locker = Locker::builder().runtime(theirs.handle().clone()).connect("memory:").await.expect("connected");
        let guard = locker.mutex("a").lock().await.expect("locked");
        let (waiter, reader) = (tokio::spawn(locker.mutex("a").lock()), tokio::spawn(locker.mutex("a").fair().lock()));
        while locker.stats().waiting < 2 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        theirs.shutdown_background();
        guard.lost().await;
        for waits in [waiter, reader] {
            let told = tokio::time::timeout(Duration::from_secs(20), waits).await.expect("told").expect("no panic");
            assert!(matches!(told, Err(Error::Closed)), "{told:?}");
        }
        drop(guard);
    });
}

/// As the waker of an executor that is no more: to wake a task is to drop it, with all that it holds.
struct Dropped(Mutex<Option<Guard>>);

impl Wake for Dropped {
    fn wake(self: Arc<Self>) {
        drop(self.0.lock().expect("not poisoned").take());
    }
}

#[test]
fn who_is_told_of_a_loss_may_drop_another_guard_at_once() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let locker = runtime.block_on(Locker::connect("memory:")).expect("connected");
    let max_hold = Duration::from_millis(50);
    let lost = runtime.block_on(locker.mutex("a").max_hold(max_hold).lock()).expect("locked");
    let other = runtime.block_on(locker.mutex("b").lock()).expect("locked");
    let waker = Waker::from(Arc::new(Dropped(Mutex::new(Some(other)))));
    let mut told = Box::pin(async move { lost.lost().await });
    assert!(told.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    // Free once the loss was told, and then also for everybody else: the keeper goes on.
    let again = runtime.block_on(locker.mutex("b").try_lock_for(Duration::from_secs(20))).expect("asked");
    drop(again.expect("it was given back"));
    drop(runtime.block_on(locker.mutex("c").lock()).expect("locked"));
}

/// As the task of an executor that keeps what waits only by its wakers: who drops the last one drops the task, with all that it holds.
struct Kept(#[allow(dead_code, reason = "dropped, not read")] Guard);

impl Wake for Kept {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn who_drops_a_waker_may_drop_another_guard_with_it() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let locker = runtime.block_on(Locker::connect("memory:")).expect("connected");
    let first = runtime.block_on(locker.mutex("a").lock()).expect("locked");
    let (told, ended) = std::sync::mpsc::channel();
    let mutex = locker.mutex("a");
    // One stands in the queue so that tokens are reserved, and the hold can be handed over.
    let next = runtime.spawn(mutex.lock());
    while locker.stats().waiting < 1 {
        std::thread::yield_now();
    }
    runtime.block_on(first.release()).expect("given back");
    let second = runtime.block_on(next).expect("no panic").expect("locked");
    let other = runtime.block_on(locker.mutex("b").lock()).expect("locked");
    // Gone half-way: its waker is still in the queue, and all that keeps the other guard.
    let mut gone = Box::pin(locker.mutex("a").lock());
    let task = Arc::new(Kept(other));
    let (kept, waker) = (Arc::downgrade(&task), Waker::from(task));
    assert!(gone.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    drop((gone, waker));
    while kept.strong_count() > 1 || locker.stats().waiting > 0 {
        std::thread::yield_now();
    }
    // It may hang, and then the test must not.
    let handle = runtime.handle().clone();
    std::thread::spawn(move || told.send(handle.block_on(second.release())));
    ended.recv_timeout(Duration::from_secs(20)).expect("nothing is locked while wakers are dropped").expect("given back");
    let again = runtime.block_on(locker.mutex("b").try_lock_for(Duration::from_secs(20))).expect("asked");
    assert!(again.is_some(), "the other guard went with its task");
}

#[tokio::test]
async fn the_second_call_of_an_owner_hears_that_the_locker_closes() {
    let locker = Locker::connect("memory:").await.expect("connected");
    let _busy = locker.mutex("a").lock().await.expect("locked");
    let owner = tenure::Owner::new();
    let mutex = locker.mutex("a").owner(&owner);
    // The first one stands still forever.
    let mut first = Box::pin(mutex.lock());
    assert!(begin(&mut first).await);
    let (second, bounded) = (tokio::spawn(mutex.lock()), tokio::spawn(mutex.try_lock_for(Duration::from_secs(60))));
    // Both have to wait for the first one to be told.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    let close = tokio::spawn(async move { locker.close().await });
    for waits in [tokio::spawn(async { second.await.expect("no panic").map(Some) }), bounded] {
        let told = tokio::time::timeout(Duration::from_secs(20), waits).await.expect("told").expect("no panic");
        assert!(matches!(told, Err(Error::Closed)), "{told:?}");
    }
    drop(first);
    close.await.expect("no panic").expect("closed");
}
