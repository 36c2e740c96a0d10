//! Many clients that ask at once, and many waiters.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::set::{LEASE, Set};

#[tokio::test(start_paused = true)]
async fn those_who_wait_do_not_wake_each_other() {
    let set = Set::of(5);
    let (holder, one, other) = (set.locker().await, set.locker().await, set.locker().await);
    // A bare majority: two nodes are free, and those who wait get and give back votes there.
    set.away(&[3, 4], true);
    let guard = holder.mutex("a").lease_fixed(LEASE * 4).lock().await.expect("locked");
    tokio::time::sleep(Duration::from_secs(5)).await;
    set.away(&[3, 4], false);
    let waiting = [&one, &other].map(|locker| {
        let lock = locker.mutex("a").lock();
        tokio::spawn(async move { lock.await.expect("locked").release().await.expect("given back") })
    });
    tokio::time::sleep(Duration::from_secs(5)).await;
    let before = set.node(3).asked();
    tokio::time::sleep(Duration::from_secs(20)).await;
    let asked = set.node(3).asked() - before;
    assert!(asked < 40, "asked {asked} times in 20 s while nothing changed");
    guard.release().await.expect("given back");
    for waiter in waiting {
        tokio::time::timeout(LEASE / 2, waiter).await.expect("woken").expect("no panic");
    }
}

#[tokio::test(start_paused = true)]
async fn many_who_ask_at_once_all_come_to_their_turn() {
    let set = Set::of(5);
    let held = Arc::new(AtomicUsize::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for i in 0..8_u64 {
        let (locker, held) = (set.locker().await, Arc::clone(&held));
        // Each reaches the nodes in an order of its own.
        for (n, node) in set.stores.iter().enumerate() {
            node.layer().answers_take(Duration::from_millis((i * 7 + n as u64 * 3) % 10));
        }
        tasks.spawn(async move {
            for _ in 0..10 {
                let guard = locker.mutex("a").lock().await.expect("locked");
                assert_eq!(held.fetch_add(1, Ordering::SeqCst), 0, "two hold it");
                tokio::time::sleep(Duration::from_millis(1)).await;
                held.fetch_sub(1, Ordering::SeqCst);
                guard.release().await.expect("given back");
            }
        });
    }
    let all = async { while tasks.join_next().await.transpose().expect("no panic").is_some() {} };
    tokio::time::timeout(Duration::from_secs(600), all).await.expect("all came to their turn");
    set.eventually("a", &[]).await;
}

#[tokio::test(start_paused = true)]
async fn readers_share_a_majority_and_a_writer_is_alone() {
    let set = Set::of(3);
    let (one, other) = (set.locker().await, set.locker().await);
    let read = [one.rwlock("rw").read().await.expect("read"), other.rwlock("rw").read().await.expect("read")];
    assert!(one.rwlock("rw").try_write().await.expect("asked").is_none());
    drop(read);
    let write = other.rwlock("rw").write().await.expect("write");
    assert!(one.rwlock("rw").try_read().await.expect("asked").is_none());
    drop(write);
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_waits_does_not_wake_itself() {
    for trouble in ["away", "restarted", "free"] {
        let set = Set::of(3);
        let (holder, writer) = (set.locker().await, set.locker().await);
        set.away(&[2], true);
        let guard = holder.rwlock("rw").read().await.expect("read");
        if trouble == "restarted" {
            set.node(2).restart();
        }
        set.away(&[2], trouble == "away");
        let waiting = tokio::spawn(writer.rwlock("rw").write());
        tokio::time::sleep(Duration::from_secs(2)).await;
        let before = set.node(0).asked();
        tokio::time::sleep(Duration::from_secs(20)).await;
        let asked = set.node(0).asked() - before;
        assert!(asked < 60, "{trouble}: asked {asked} times in 20 s while nothing changed");
        guard.release().await.expect("given back");
        drop(tokio::time::timeout(LEASE, waiting).await.expect("woken").expect("no panic").expect("locked"));
    }
}

#[tokio::test(start_paused = true)]
async fn very_many_may_ask_at_once() {
    let set = Set::of(3);
    let locker = set.locker().await;
    let asked = (0..3000).map(|i| locker.mutex(format!("{i}")).try_lock());
    for answer in futures_util::future::join_all(asked).await {
        assert!(answer.expect("asked").is_some());
    }
}
