//! An unknown outcome is an error, and not reported as busy.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::slow::{CALL, Slow, WHILE, lockers};
use tenure::{Error, Owner};
use tokio::time::Instant;

#[tokio::test(start_paused = true)]
async fn a_lock_of_a_store_that_does_not_answer_is_not_known_to_be_busy() {
    let (store, locker, _) = lockers(Slow::default());
    store.acquire_hangs.store(true, Ordering::SeqCst);
    let first = tokio::spawn(locker.mutex("a").try_lock_for(2 * WHILE));
    tokio::time::sleep(WHILE / 2).await;
    let second = locker.mutex("a").try_lock_for(WHILE).await;
    assert!(second.as_ref().is_err_and(Error::is_transient), "{second:?}");
    first.await.expect("no panic").expect_err("no answer");
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_was_given_back_is_not_known_to_be_busy() {
    let (store, locker, _) = lockers(Slow::default());
    let held = locker.mutex("a").lock().await.expect("locked");
    let second = tokio::spawn(locker.mutex("a").try_lock_for(10 * WHILE));
    tokio::time::sleep(Duration::from_millis(1)).await;
    store.acquire_hangs.store(true, Ordering::SeqCst);
    held.release().await.expect("given back, and confirmed");
    // Nobody holds it when this one comes, and the store does not answer.
    let third = locker.mutex("a").try_lock_for(WHILE).await;
    assert!(third.as_ref().is_err_and(Error::is_transient), "{third:?}");
    let second = second.await.expect("no panic");
    assert!(second.as_ref().is_err_and(Error::is_transient), "{second:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_was_lost_in_an_outage_is_not_known_to_be_busy() {
    let (store, locker, _) = lockers(Slow::default());
    let held = locker.mutex("a").lock().await.expect("locked");
    let behind = tokio::spawn(locker.mutex("a").try_lock_for(Duration::from_secs(30) + CALL / 3));
    for hangs in [&store.acquire_hangs, &store.release_hangs, &store.renew_hangs] {
        hangs.store(true, Ordering::SeqCst);
    }
    held.lost().await;
    let next = locker.mutex("a").try_lock_for(CALL / 2).await;
    for answer in [next, behind.await.expect("no panic")] {
        assert!(answer.as_ref().is_err_and(Error::is_transient), "{answer:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_stood_behind_a_hold_is_told_that_it_was_busy_also_while_the_store_has_yet_to_answer() {
    let (_, locker, _) = lockers(Slow { question_takes: WHILE, ..Slow::default() });
    let held = locker.mutex("a").lock().await.expect("locked");
    // The one asks when the time of both is up.
    let waiting: Vec<_> = (0..2).map(|_| tokio::spawn(locker.mutex("a").try_lock_for(WHILE / 2))).collect();
    tokio::time::sleep(Duration::from_millis(1)).await;
    held.release().await.expect("given back");
    for one in waiting {
        let answer = one.await.expect("no panic");
        assert!(matches!(answer, Ok(None)), "{answer:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_owner_is_not_told_that_it_is_busy_while_the_store_does_not_answer_its_other_call() {
    let (store, locker, other) = lockers(Slow::default());
    let owner = Owner::new();
    let mutex = locker.mutex("a").owner(&owner);
    store.acquire_hangs.store(true, Ordering::SeqCst);
    let first = tokio::spawn(mutex.lock());
    tokio::time::sleep(Duration::from_millis(1)).await;
    let second = mutex.try_lock_for(WHILE).await;
    assert!(second.as_ref().is_err_and(Error::is_transient), "{second:?}");
    while locker.stats().errors == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let second = mutex.try_lock().await;
    assert!(second.as_ref().is_err_and(Error::is_transient), "{second:?}");
    store.acquire_hangs.store(false, Ordering::SeqCst);
    drop(first.await.expect("no panic").expect("locked"));
    // It is known when the other call was told so.
    let held = other.mutex("b").lock().await.expect("locked");
    let mutex = locker.mutex("b").owner(&owner);
    let first = tokio::spawn(mutex.lock());
    tokio::time::sleep(Duration::from_millis(1)).await;
    for second in [mutex.try_lock_for(WHILE).await, mutex.try_lock().await] {
        assert!(matches!(second, Ok(None)), "{second:?}");
    }
    drop(held);
    first.await.expect("no panic").expect("locked").release().await.expect("given back");
}

#[tokio::test(start_paused = true)]
async fn who_wants_several_within_a_limit_does_not_wait_for_what_it_gives_back() {
    let (store, locker, other) = lockers(Slow::default());
    let held = other.mutex("b").lock().await.expect("locked");
    store.release_hangs.store(true, Ordering::SeqCst);
    let start = Instant::now();
    let got = locker.multi(["a", "b"]).try_lock_for(2 * WHILE).await;
    assert!(matches!(got, Ok(None)), "{got:?}");
    assert!(start.elapsed() < 3 * WHILE, "answered after {:?}", start.elapsed());
    // What it had got is given back by itself.
    store.release_hangs.store(false, Ordering::SeqCst);
    let freed = other.mutex("a").try_lock_for(2 * CALL).await.expect("asked");
    freed.expect("given back").release().await.expect("given back");
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn who_gets_the_turn_of_one_that_met_an_outage_is_not_told_that_it_is_busy() {
    let (store, locker, _) = lockers(Slow::default());
    store.acquire_fails.store(true, Ordering::SeqCst);
    // Its time is up before it would ask again.
    let first = tokio::spawn(locker.mutex("a").try_lock_for(Duration::from_millis(15)));
    tokio::time::sleep(Duration::from_millis(1)).await;
    store.acquire_hangs.store(true, Ordering::SeqCst);
    store.acquire_fails.store(false, Ordering::SeqCst);
    let second = locker.mutex("a").try_lock_for(WHILE).await;
    assert!(second.as_ref().is_err_and(Error::is_transient), "{second:?}");
    first.await.expect("no panic").expect_err("the store was away");
}

#[tokio::test(start_paused = true)]
async fn who_may_read_is_not_told_that_it_is_busy() {
    let (_, locker, _) = lockers(Slow { answer_takes: WHILE, ..Slow::default() });
    let wait = Duration::from_secs(2);
    let readers = (0..100).map(|_| tokio::spawn(locker.rwlock("a").try_read_for(wait)));
    let permits = (0..100).map(|_| tokio::spawn(locker.semaphore("b", 100).try_acquire_for(wait)));
    let mut held = Vec::new();
    for one in readers.chain(permits).collect::<Vec<_>>() {
        // They ask one after the other: the time may be over before it is the turn of all, but nobody has refused them.
        let answer = one.await.expect("no panic");
        assert!(matches!(&answer, Ok(Some(_))) || answer.as_ref().is_err_and(Error::is_transient), "{answer:?}");
        held.push(answer);
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_forgotten_when_another_task_has_its_answer() {
    let (store, locker, _) = lockers(Slow::default());
    store.acquire_fails.store(true, Ordering::SeqCst);
    // Its time is up before it would ask again.
    let first = tokio::spawn(locker.mutex("a").try_lock_for(Duration::from_millis(15)));
    tokio::time::sleep(Duration::from_millis(1)).await;
    let second = tokio::spawn(locker.mutex("a").lock());
    let third = tokio::spawn(locker.mutex("a").lock());
    store.acquire_fails.store(false, Ordering::SeqCst);
    first.await.expect("no panic").expect_err("the store was away");
    let held = second.await.expect("no panic").expect("locked");
    // Somebody is in the lane all the time; the one who has asked last was told no error.
    let busy = locker.mutex("a").try_lock().await;
    assert!(matches!(busy, Ok(None)), "{busy:?}");
    drop(held);
    let held = third.await.expect("no panic").expect("locked");
    assert!(matches!(locker.mutex("a").try_lock().await, Ok(None)));
    drop(held);
}
