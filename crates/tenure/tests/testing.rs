//! The store for tests of users: what it promises.
#![cfg(feature = "testing")]

use std::time::Duration;

use tenure::testing::TestStore;
use tenure::{Error, LostReason};
use tokio::time::Instant;

const LEASE: Duration = Duration::from_secs(30);

#[tokio::test(start_paused = true)]
async fn a_lock_is_lost_at_a_word() {
    let store = TestStore::new();
    let (one, other) = (store.locker().expect("a locker"), store.locker().expect("a locker"));
    assert!(!store.lose("a").await.expect("asked"), "nobody holds it");
    let guard = one.mutex("a").lock().await.expect("locked");
    assert!(other.mutex("a").try_lock().await.expect("asked").is_none(), "two processes");
    let begun = Instant::now();
    assert!(store.lose("a").await.expect("asked"));
    assert_eq!(guard.lost().await.reason, LostReason::Revoked);
    assert!(begun.elapsed() < LEASE / 3, "told, and not found out: {:?}", begun.elapsed());
    let next = other.mutex("a").try_lock().await.expect("asked").expect("free");
    assert!(next.token() > guard.token());
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_costs_what_outlasts_the_lease() {
    let store = TestStore::new();
    let locker = store.locker().expect("a locker");
    let guard = locker.mutex("a").lock().await.expect("locked");
    store.go_away();
    assert!(matches!(locker.mutex("b").try_lock().await, Err(Error::Unavailable { .. })));
    tokio::time::sleep(LEASE / 2).await;
    store.come_back();
    tokio::time::sleep(LEASE * 3).await;
    assert!(guard.is_valid(), "a short outage costs nothing");
    store.go_away();
    assert_eq!(guard.lost().await.reason, LostReason::Expired);
    store.come_back();
    drop(guard);
    assert!(locker.mutex("a").try_lock_for(LEASE).await.expect("asked").is_some());
}

#[tokio::test(start_paused = true)]
async fn who_stands_still_loses_its_locks_and_nobody_else_does() {
    let store = TestStore::new();
    let (still, other) = (store.locker().expect("a locker"), store.locker().expect("a locker"));
    let (mine, theirs) = (still.mutex("a").lock().await.expect("locked"), other.mutex("b").lock().await.expect("locked"));
    store.stand_still(&still, LEASE / 2).await;
    tokio::time::sleep(LEASE).await;
    assert!(mine.is_valid() && theirs.is_valid(), "a short one costs nothing");
    let waits = tokio::spawn(other.mutex("a").lock());
    store.stand_still(&still, LEASE * 2).await;
    assert!(!mine.is_valid() && theirs.is_valid());
    let next = waits.await.expect("no panic").expect("locked");
    assert!(next.token() > mine.token(), "it is another's by now");
    assert!(still.mutex("c").try_lock().await.expect("asked").is_some(), "it goes on");
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_slept_has_lost_what_it_held() {
    let store = TestStore::new();
    let locker = store.locker().expect("a locker");
    let guard = locker.mutex("a").lock().await.expect("locked");
    store.suspend(LEASE * 2);
    assert!(!guard.is_valid(), "no timer has noticed, but the clock has run on");
    assert!(guard.run(async {}).await.is_err(), "not one step");
}

#[test]
fn a_locker_needs_a_runtime() {
    let store = TestStore::new();
    assert!(matches!(store.locker(), Err(Error::Misuse(_))));
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_is_dropped_is_over_and_two_pauses_are_over_when_both_are() {
    let store = TestStore::new();
    let locker = store.locker().expect("a locker");
    let mutex = locker.mutex("L");
    let short = tokio::time::timeout(LEASE / 10, store.stand_still(&locker, LEASE)).await;
    assert!(short.is_err());
    mutex.lock().await.expect("not stopped any more").release().await.expect("given back");
    let (one, two) = (store.stand_still(&locker, LEASE / 10), store.stand_still(&locker, LEASE));
    let asked = async { tokio::time::timeout(LEASE / 2, mutex.lock()).await.is_err() };
    let (.., still_stopped) = tokio::join!(one, two, asked);
    assert!(still_stopped, "the second pause goes on");
}
