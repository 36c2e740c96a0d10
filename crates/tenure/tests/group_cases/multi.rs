//! All or none.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure::backend::Client;
use tenure::backends::faulty::{Faulty, Plan};
use tenure::backends::memory::Memory;
use tenure::clock::Clock;
use tenure::{ClientId, Error, Locker, LostReason, Multi};
use tokio::runtime::Handle;

use super::store::{Store, eventually, until_all_free};
use tenure_testkit::locker::must;

const SOON: Duration = Duration::from_millis(50);

/// Small numbers that differ from run to run.
fn random(below: usize) -> usize {
    usize::try_from(tenure_random()).unwrap_or(0) % below
}

fn tenure_random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}

pub(crate) async fn overlapping_sets_neither_deadlock_nor_lose_updates(store: Store) {
    const NAMES: usize = 6;
    let lockers = [store.locker().await, store.locker().await];
    let counters: Arc<[AtomicU64; NAMES]> = Arc::default();
    let tasks = (0..8).map(|task| {
        let (locker, counters) = (lockers[task % 2].clone(), Arc::clone(&counters));
        tokio::spawn(async move {
            let mut added = 0;
            for _ in 0..15 {
                let set: Vec<usize> = (0..=random(4)).map(|_| random(NAMES)).collect();
                let guard = locker.multi(set.iter().map(|name| format!("name:{name}"))).lock().await.expect("locked");
                assert!(guard.is_valid());
                for &name in &set {
                    // Not one step: a second holder would be seen.
                    let before = counters[name].load(Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    counters[name].store(before + 1, Ordering::SeqCst);
                    added += 1;
                }
                if random(2) == 0 {
                    guard.release().await.expect("given back");
                }
            }
            added
        })
    });
    let mut added = 0;
    for task in tasks.collect::<Vec<_>>() {
        added += must("no deadlock", task).await.expect("no panic");
    }
    assert_eq!(counters.iter().map(|c| c.load(Ordering::SeqCst)).sum::<u64>(), added);
    until_all_free(&lockers[0]).await;
}

pub(crate) async fn all_or_none(store: Store) {
    let (ours, theirs) = (store.locker().await, store.locker().await);
    let held = theirs.mutex("b").lock().await.expect("locked");
    let all = ours.multi(["c", "a", "b"]);
    assert!(all.try_lock().await.expect("asked").is_none());
    // At once: what was got in vain is in nobody's way.
    drop(theirs.multi(["a", "c"]).try_lock().await.expect("asked").expect("free").release().await);
    assert!(all.try_lock_for(SOON).await.expect("asked").is_none());
    // Soon: the wait has a limit, and what was got in vain is given back after it.
    let both = must("what was got in vain", theirs.multi(["a", "c"]).lock()).await.expect("locked");
    both.release().await.expect("given back");
    let waiter = tokio::spawn(all.lock());
    held.release().await.expect("given back");
    let guard = must("all", waiter).await.expect("no panic").expect("locked");
    let names: Vec<&str> = guard.guards().iter().map(|g| g.resource().as_str()).collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert_eq!(guard.token("b"), Some(guard.guards()[1].token()));
    assert_eq!(guard.token("d"), None);
    for name in names {
        assert!(theirs.mutex(name).try_lock().await.expect("asked").is_none(), "{name}");
    }
    guard.release().await.expect("given back");
    until_all_free(&theirs).await;
}

pub(crate) async fn an_error_gives_back_all(store: Store) {
    let (ours, closed) = (store.locker().await, Locker::connect("memory:").await.expect("connected"));
    closed.close().await.expect("closed");
    let both = Multi::of([ours.mutex("a"), closed.mutex("z"), ours.mutex("b")]);
    assert!(matches!(both.lock().await, Err(Error::Closed)));
    assert!(matches!(both.try_lock().await, Err(Error::Closed)));
    assert!(matches!(both.try_lock_for(SOON).await, Err(Error::Closed)));
    until_all_free(&ours).await;
}

pub(crate) async fn a_lost_part_is_the_loss_of_all(store: Store) {
    let (ours, theirs) = (store.locker().await, store.locker().await);
    let lease = Duration::from_secs(3);
    let guard = Multi::of(["a", "b"].map(|name| ours.mutex(name).lease(lease))).lock().await.expect("locked");
    assert_eq!(guard.run(async { 1 }).await.expect("held"), 1);
    theirs.mutex("b").break_hold().await.expect("broken").expect("held");
    let lost = must("the loss", guard.run(std::future::pending::<()>())).await.expect_err("lost");
    assert_eq!((lost.resource.as_str(), lost.reason), ("b", LostReason::Revoked));
    assert!(!guard.is_valid());
    assert_eq!(guard.check().expect_err("lost"), lost);
    assert_eq!(guard.lost().await, lost);
    assert!(guard.guards()[0].is_valid(), "the other part is a lock all the same");
    assert!(matches!(guard.release().await, Err(Error::Lost(_))));
    until_all_free(&ours).await;
}

pub(crate) async fn a_part_that_is_lost_while_another_is_waited_for_ends_the_wait(store: Store) {
    let (ours, theirs) = (store.locker().await, store.locker().await);
    let held = theirs.mutex("b").lock().await.expect("locked");
    let lease = Duration::from_secs(3);
    let waiter = tokio::spawn(Multi::of(["a", "b"].map(|name| ours.mutex(name).lease(lease))).lock());
    // Until it holds `a` and waits for `b`, and no longer asks for both at once: that gives `a` back.
    eventually("in the queue", async || {
        let a = theirs.mutex("a").inspect().await.expect("inspected");
        let stats = ours.stats();
        !a.holders.is_empty() && stats.not_granted == 1 && stats.waiting == 1 && stats.holding == 1
    })
    .await;
    theirs.mutex("a").break_hold().await.expect("broken");
    let answer = must("the end of the wait", waiter).await.expect("no panic");
    assert!(matches!(&answer, Err(Error::Lost(lost)) if lost.resource.as_str() == "a"), "{answer:?}");
    held.release().await.expect("given back");
    until_all_free(&ours).await;
}

pub(crate) async fn a_dropped_future_leaves_nothing(store: Store) {
    let (ours, theirs) = (store.locker().await, store.locker().await);
    let held = theirs.mutex("b").lock().await.expect("locked");
    for pause in [0, 1, 3, 10, 30, 100] {
        let waiter = ours.multi(["a", "b", "c"]).lock();
        assert!(tokio::time::timeout(Duration::from_millis(pause), waiter).await.is_err());
    }
    drop(ours.multi(["a", "c"]).lock());
    held.release().await.expect("given back");
    until_all_free(&theirs).await;
    eventually("nobody waits", async || ours.stats().waiting == 0 && ours.stats().holding == 0).await;
    drop(must("all", theirs.multi(["a", "b", "c"]).lock()).await.expect("locked"));
}

pub(crate) async fn duplicates_are_one(store: Store) {
    let (ours, theirs) = (store.locker().await, store.locker().await);
    let guard = must("one", ours.multi(["a", "b", "a", "a"]).lock()).await.expect("locked");
    assert_eq!(guard.guards().len(), 2);
    drop(guard);
    if !matches!(store, Store::Memory(_)) {
        // It would wait for itself.
        let twice = Multi::of([ours.mutex("a"), theirs.mutex("a")]).lock().await;
        assert!(matches!(twice, Err(Error::Misuse(_))), "{twice:?}");
    }
}

pub(crate) async fn wrong_requests() {
    let locker = Locker::connect("memory:").await.expect("connected");
    let refused = |result: Result<(), Error>, words: &str| match result {
        Err(error @ Error::Config { .. }) => assert!(error.to_string().contains(words), "{error}"),
        other => panic!("{other:?}"),
    };
    let none: [&str; 0] = [];
    refused(locker.multi(none).lock().await.map(drop), "one name or more");
    refused(locker.multi(["a", ""]).try_lock().await.map(drop), "1 to 512 bytes");
    refused(locker.striped("a", 0).lock_any().await.map(drop), "0 stripes");
    refused(locker.striped("a", 0).of("k").lock().await.map(drop), "0 stripes");
    // Very many are not asked for one by one. One of them is no trouble.
    refused(locker.striped("a", 65_537).try_lock_any().await.map(drop), "1 to 65536");
    assert!(locker.striped("a", u32::MAX).of("k").try_lock().await.expect("asked").is_some());
    refused(locker.partitions("a", 65_537).join().await.map(drop), "1 to 65536");
    refused(locker.striped("", 5).of("k").lock().await.map(drop), "1 to 512 bytes");
    refused(locker.striped("", 5).try_lock_any().await.map(drop), "1 to 512 bytes");
    assert!(locker.striped("a", 5).stripe(5).is_none() && locker.striped("a", 5).stripe(4).is_some());
    refused(locker.election("").leader().await.map(drop), "1 to 512 bytes");
    refused(locker.election("").changes().next().await.map(drop), "1 to 512 bytes");
    refused(locker.election("a").try_campaign(&"x".repeat(4097)).await.map(drop), "4096 bytes");
    refused(locker.partitions("a", 0).join().await.map(drop), "0 partitions");
    refused(locker.partitions("", 3).join().await.map(drop), "1 to 512 bytes");
    // Nobody can tell whether two backends of the caller's own are one store: then it would wait for itself.
    let memory = Memory::new(Client { id: ClientId::random().expect("random bits"), about: "".into() }, Clock::system());
    let other = memory.client(Client { id: ClientId::random().expect("random bits"), about: "".into() });
    let over = |memory: Memory| Locker::builder().backend(Arc::new(memory)).expect("a locker");
    let (one, other) = (over(memory), over(other));
    let twice = Multi::of([one.mutex("x"), other.mutex("x")]).lock().await;
    assert!(matches!(&twice, Err(e @ Error::Misuse(_)) if e.to_string().contains("each lock once")), "{twice:?}");
    assert!(Multi::of([one.mutex("x"), other.mutex("y")]).try_lock().await.expect("asked").is_some());
    until_all_free(&locker).await;
}

/// As many calls as names, in the time of one.
pub(crate) fn all_are_asked_for_at_once() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime");
    runtime.block_on(async {
        let clock = Clock::for_tests();
        let memory = Memory::new(Client { id: ClientId::random().expect("random bits"), about: "".into() }, clock.clone());
        let call = Duration::from_secs(1);
        let slow = Faulty::over(Arc::new(memory), Plan { delay_every: 1, delay: call, ..Plan::default() });
        let locker = Locker::builder().clock(clock).runtime(Handle::current()).backend(Arc::new(slow)).expect("a locker");
        let before = tokio::time::Instant::now();
        let guard = locker.multi((0..50).map(|n| n.to_string())).lock().await.expect("locked");
        assert_eq!(guard.guards().len(), 50);
        assert!(before.elapsed() < call * 2, "{:?}", before.elapsed());
        let before = tokio::time::Instant::now();
        guard.release().await.expect("given back");
        assert!(before.elapsed() < call * 2, "{:?}", before.elapsed());
        // A store that does not answer in time is not a lock that somebody holds.
        let late = locker.multi(["a", "b"]).try_lock_for(call / 2).await;
        assert!(late.expect_err("no answer").is_transient());
        for count in [1, 5] {
            let late = locker.striped(format!("s{count}"), count).try_lock_any_for(call / 2).await;
            assert!(late.expect_err("no answer").is_transient(), "{count} stripes");
        }
    });
}
