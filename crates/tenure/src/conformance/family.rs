//! What the primitives promise, through the engine.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::try_join_all;

use super::{Subject, sure};
use crate::backend::Mode;
use crate::engine::guard::Guard;
use crate::engine::owner::Owner;
use crate::error::Error;
use crate::locker::Locker;

async fn two(s: &Subject, mode: Mode) -> Option<(Locker, Locker)> {
    let (one, other) = (s.locker().await, s.locker().await);
    one.capabilities().modes.carry(mode).then_some((one, other))
}

/// Gives back; if the store cannot be told now, it is in the background.
async fn give_back(guard: Guard) {
    drop(guard.release().await);
}

pub(super) async fn readers_of_one_process_hold_together(s: Subject) {
    let Some((one, other)) = two(&s, Mode::Read).await else { return };
    let (here, there) = (one.rwlock(s.name("a")), other.rwlock(s.name("a")));
    let readers = [here.read().await.expect("read"), here.read().await.expect("read"), there.read().await.expect("read")];
    assert!(sure(|| here.try_write()).await.is_none());
    // All of them are kept alive.
    tokio::time::sleep(s.lease() * 2).await;
    assert!(readers.iter().all(|reader| reader.is_valid()));
    let writer = tokio::spawn(there.write());
    s.eventually("new readers wait", || async { here.try_read().await.is_ok_and(|reader| reader.is_none()) }).await;
    drop(readers);
    let writer = writer.await.expect("no panic").expect("written");
    let reader = there.downgrade(writer).await.expect("downgraded");
    let second = here.read().await.expect("read together");
    assert!(second.is_valid() && reader.is_valid() && sure(|| here.try_write()).await.is_none());
}

pub(super) async fn a_downgraded_hold_is_kept_alive_and_given_back(s: Subject) {
    let Some((one, other)) = two(&s, Mode::Read).await else { return };
    let (here, there) = (one.rwlock(s.name("a")), other.rwlock(s.name("a")));
    let writer = here.write().await.expect("written");
    let (token, old) = (writer.token(), writer.watcher());
    let reader = here.downgrade(writer).await.expect("downgraded");
    assert_eq!((reader.token(), reader.mode()), (token, Mode::Read));
    assert!(old.ended().await.is_none(), "given up, not lost");
    tokio::time::sleep(s.lease() * 2).await;
    reader.check().expect("kept alive");
    give_back(reader).await;
    drop(there.write().await.expect("free again"));
}

pub(super) async fn an_upgrade_is_refused_at_once(s: Subject) {
    let Some((one, _)) = two(&s, Mode::Read).await else { return };
    let owner = Owner::new();
    let lock = one.rwlock(s.name("a")).owner(&owner);
    let reader = lock.read().await.expect("read");
    let again = lock.read().await.expect("read again");
    assert_eq!(again.hold_count(), 2);
    assert!(matches!(lock.write().await, Err(Error::Misuse(_))));
    drop((reader, again));
    let writer = lock.write().await.expect("written");
    let nested = lock.read().await.expect("a writer may read");
    assert_eq!(nested.token(), writer.token());
    assert!(matches!(lock.downgrade(writer).await, Err(Error::Misuse(_))), "others share it");
    drop(nested);
    let writer = lock.write().await.expect("written");
    let reader = lock.downgrade(writer).await.expect("downgraded");
    assert_eq!(lock.read().await.expect("read again").token(), reader.token());
    assert!(matches!(lock.write().await, Err(Error::Misuse(_))), "a reader by now");
}

pub(super) async fn a_fair_lock_is_served_in_order_across_clients(s: Subject) {
    let Some((one, other)) = two(&s, Mode::Fair).await else { return };
    // A queue position ends with its lease: a busy machine must not take it for dead.
    let lease = s.lease() * 5;
    let held = one.mutex(s.name("a")).fair().lease(lease).lock().await.expect("locked");
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for turn in 0..8_usize {
        let mutex = if turn % 3 == 0 { &one } else { &other }.mutex(s.name("a")).fair().lease(lease);
        let order = Arc::clone(&order);
        let lock = mutex.lock();
        tasks.push(tokio::spawn(async move {
            let guard = lock.await.expect("locked");
            order.lock().expect("no panic").push(turn);
            give_back(guard).await;
        }));
        s.eventually("in the queue", || async {
            one.mutex(s.name("a")).inspect().await.is_ok_and(|state| state.queue.len() > turn)
        })
        .await;
    }
    give_back(held).await;
    try_join_all(tasks).await.expect("no panic");
    assert_eq!(*order.lock().expect("no panic"), (0..8).collect::<Vec<_>>());
}

pub(super) async fn a_cancelled_fair_wait_leaves_the_queue(s: Subject) {
    let Some((one, other)) = two(&s, Mode::Fair).await else { return };
    let (here, there) = (one.mutex(s.name("a")).fair(), other.mutex(s.name("a")).fair());
    let held = here.lock().await.expect("locked");
    let waiting = tokio::spawn(there.lock());
    s.eventually("in the queue", || async { here.inspect().await.is_ok_and(|state| state.queue.len() == 1) }).await;
    waiting.abort();
    s.eventually("out of it", || async { here.inspect().await.is_ok_and(|state| state.queue.is_empty()) }).await;
    assert!(sure(|| there.try_lock_for(s.lease() / 2)).await.is_none());
    give_back(held).await;
    drop(there.lock().await.expect("locked"));
}

pub(super) async fn a_crowd_never_holds_more_than_the_permits(s: Subject) {
    let Some((one, other)) = two(&s, Mode::Permits { take: 1, of: 3 }).await else { return };
    let inside = Arc::new(AtomicUsize::new(0));
    let mut tasks = Vec::new();
    for n in 0..12 {
        let semaphore = if n % 2 == 0 { &one } else { &other }.semaphore(s.name("a"), 3);
        let inside = Arc::clone(&inside);
        tasks.push(tokio::spawn(async move {
            for round in 0..3_u32 {
                let take = 1 + usize::from(round == 1);
                let permit = semaphore.acquire_many(1 + u32::from(round == 1)).await.expect("acquired");
                let now = inside.fetch_add(take, Ordering::SeqCst) + take;
                assert!(now <= 3, "{now} of 3");
                tokio::task::yield_now().await;
                inside.fetch_sub(take, Ordering::SeqCst);
                give_back(permit).await;
            }
        }));
    }
    try_join_all(tasks).await.expect("no panic");
    s.eventually("all are back", || async {
        one.semaphore(s.name("a"), 3).inspect().await.is_ok_and(|state| state.permits.is_some_and(|p| p.free == 3))
    })
    .await;
}

pub(super) async fn permits_are_kept_alive(s: Subject) {
    let Some((one, other)) = two(&s, Mode::Permits { take: 2, of: 2 }).await else { return };
    let permit = one.semaphore(s.name("a"), 2).acquire_many(2).await.expect("acquired");
    tokio::time::sleep(s.lease() * 2).await;
    permit.check().expect("kept alive");
    let there = other.semaphore(s.name("a"), 2);
    assert!(sure(|| there.try_acquire()).await.is_none());
    assert!(matches!(there.acquire_many(4).await, Err(Error::Config { .. })));
    match there.resize(3).await {
        Ok(()) => drop(sure(|| there.try_acquire()).await.expect("there are three now")),
        Err(e) => assert!(matches!(e, Error::Unsupported { .. }), "{e}"),
    }
    drop(permit);
    drop(there.acquire_many(2).await.expect("given back"));
}

pub(super) async fn a_latch_lets_all_go_on(s: Subject) {
    let Some((one, other)) = two(&s, Mode::CountZero).await else { return };
    let (here, there) = (one.latch(s.name("a")), other.latch(s.name("a")));
    there.wait().await.expect("not set, so open");
    assert!(here.set(2).await.expect("an answer"));
    assert!(!there.set(3).await.expect("an answer"));
    let waiting: Vec<_> = [&here, &there, &here, &there, &there].map(|latch| tokio::spawn(latch.wait())).into();
    assert!(!sure(|| there.wait_for(s.lease() / 2)).await);
    assert_eq!(there.count_down().await.expect("counted"), 1);
    assert_eq!(sure(|| here.count()).await, 1);
    assert_eq!(here.count_down().await.expect("counted"), 0);
    for wait in waiting {
        wait.await.expect("no panic").expect("open");
    }
}

pub(super) async fn an_open_latch_is_open_to_all_who_ask_at_once(s: Subject) {
    let Some((one, other)) = two(&s, Mode::CountZero).await else { return };
    let latch = one.latch(s.name("a"));
    assert!(other.latch(s.name("a")).set(1).await.expect("an answer"));
    let waiting: Vec<_> = (0..20).map(|_| tokio::spawn(latch.wait_for(s.lease() * 10))).collect();
    assert_eq!(other.latch(s.name("a")).count_down().await.expect("counted"), 0);
    let asked = (0..40).map(|_| {
        let latch = latch.clone();
        tokio::spawn(async move { Ok(sure(|| latch.wait_for(Duration::ZERO)).await) })
    });
    for one in waiting.into_iter().chain(asked.collect::<Vec<_>>()) {
        assert!(one.await.expect("no panic").expect("an answer"), "it is open");
    }
}
