//! Several locks under one name.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure::{Locker, Multi};

use super::store::{Store, eventually, until_all_free};
use tenure_testkit::bare::block_on;
use tenure_testkit::locker::must;

const SOON: Duration = Duration::from_millis(50);

/// A stock of 500 in five segments; 600 want one each.
pub(crate) async fn five_hundred_are_sold_once_each(store: Store) {
    let lockers = [store.locker().await, store.locker().await, store.locker().await];
    let stock: Arc<[AtomicU64; 5]> = Arc::new(std::array::from_fn(|_| AtomicU64::new(100)));
    let buyers = (0..60).map(|buyer| {
        let (locker, stock) = (lockers[buyer % 3].clone(), Arc::clone(&stock));
        tokio::spawn(async move {
            let segments = locker.striped("stock", 5);
            let mut bought = 0;
            for _ in 0..10 {
                loop {
                    let (segment, guard) = segments.lock_any().await.expect("locked");
                    let left = &stock[usize::try_from(segment).expect("small")];
                    let before = left.load(Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    if before > 0 {
                        left.store(before - 1, Ordering::SeqCst);
                        bought += 1;
                    }
                    drop(guard);
                    // A segment that is empty says nothing of the others.
                    if before > 0 || stock.iter().all(|left| left.load(Ordering::SeqCst) == 0) {
                        break;
                    }
                }
            }
            bought
        })
    });
    let mut sold = 0;
    for buyer in buyers.collect::<Vec<_>>() {
        sold += must("every buyer is served", buyer).await.expect("no panic");
    }
    assert_eq!(sold, 500);
    until_all_free(&lockers[0]).await;
}

pub(crate) async fn any_free_stripe_is_found(store: Store) {
    let (ours, theirs) = (store.locker().await, store.locker().await);
    let stripes = ours.striped("s", 5);
    let others = Multi::of([0, 1, 2, 4].map(|index| theirs.striped("s", 5).stripe(index).expect("a stripe")));
    let others = others.lock().await.expect("locked");
    for _ in 0..3 {
        let (index, guard) = stripes.try_lock_any().await.expect("asked").expect("one is free");
        assert_eq!((index, guard.resource().as_str()), (3, "s#3"));
        assert!(stripes.try_lock_any().await.expect("asked").is_none());
        assert!(stripes.try_lock_any_for(SOON).await.expect("asked").is_none());
        guard.release().await.expect("given back");
        let (index, guard) = stripes.try_lock_any_for(Duration::from_secs(20)).await.expect("asked").expect("one is free");
        assert_eq!(index, 3);
        guard.release().await.expect("given back");
    }
    drop(others);
    let guard = must("the key's", stripes.of("foobar").lock()).await.expect("locked");
    assert_eq!(guard.resource().as_str(), "s#3");
}

pub(crate) async fn whoever_waits_for_any_gets_the_first_and_nothing_else(store: Store) {
    let (ours, theirs) = (store.locker().await, store.locker().await);
    let all = || Multi::of((0..4).map(|index| theirs.striped("s", 4).stripe(index).expect("a stripe")));
    let held = all().lock().await.expect("locked");
    let waiter = tokio::spawn(ours.striped("s", 4).lock_any());
    eventually("in every queue", async || ours.stats().waiting == 4).await;
    let gone = ours.striped("s", 4).lock_any();
    assert!(tokio::time::timeout(SOON, gone).await.is_err());
    // All at the same moment: three are given back.
    held.release().await.expect("given back");
    let (_, guard) = must("one", waiter).await.expect("no panic").expect("locked");
    eventually("only one is held", async || theirs.list("s#").await.expect("listed").len() == 1).await;
    assert!(guard.is_valid());
    guard.release().await.expect("given back");
    drop(must("all", all().lock()).await.expect("locked"));
    until_all_free(&ours).await;
}

pub(crate) fn any_executor_will_do() {
    block_on(async {
        let locker = Locker::connect("memory:").await.expect("connected");
        let held = locker.multi(["a", "s#0", "s#1"]).lock().await.expect("locked");
        assert!(locker.multi(["a", "b"]).try_lock_for(SOON).await.expect("asked").is_none());
        assert!(locker.striped("s", 2).try_lock_any_for(SOON).await.expect("asked").is_none());
        held.release().await.expect("given back");
        drop(locker.striped("s", 2).lock_any().await.expect("locked"));
        let election = locker.election("e");
        let mut changes = election.changes();
        assert!(changes.next().await.expect("looked").is_none());
        let term = election.campaign("me").await.expect("elected");
        assert!(changes.next().await.expect("looked").is_some());
        term.release().await.expect("resigned");
        assert!(changes.next().await.expect("looked").is_none());
        let mut member = locker.partitions("p", 3).join().await.expect("joined");
        while member.owned().len() < 3 {
            member.changed().await.expect("changed");
        }
        member.leave().await.expect("left");
        locker.close().await.expect("closed");
    });
}
