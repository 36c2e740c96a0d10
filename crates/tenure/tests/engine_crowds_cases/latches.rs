//! What many waiters of a latch are told.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::slow::{Slow, WHILE, client, lockers};
use tenure::Locker;
use tenure::backend::Opened;
use tenure::backends::faulty::{Faulty, Plan};
use tenure::backends::memory::Memory;
use tenure::clock::Clock;
use tokio::runtime::Handle;

#[tokio::test(start_paused = true)]
async fn an_open_latch_is_open_to_all_who_ask_at_once() {
    let (_, locker, _) = lockers(Slow { answer_takes: WHILE, ..Slow::default() });
    let asked: Vec<_> = (0..400).map(|_| tokio::spawn(locker.latch("a").wait_for(Duration::ZERO))).collect();
    for one in asked {
        assert!(one.await.expect("no panic").expect("asked"), "it is open");
    }
}

#[tokio::test(start_paused = true)]
async fn one_answer_opens_a_latch_for_all_who_wait() {
    let (store, locker, other) = lockers(Slow { answer_takes: WHILE, ..Slow::default() });
    assert!(other.latch("a").set(1).await.expect("asked"));
    let waiting: Vec<_> = (0..200).map(|_| tokio::spawn(locker.latch("a").wait_for(Duration::from_secs(2)))).collect();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(other.latch("a").count_down().await.expect("counted"), 0);
    for one in waiting {
        assert!(one.await.expect("no panic").expect("asked"), "it was opened in time");
    }
    assert!(store.asked.load(Ordering::SeqCst) < 10, "asked {} times", store.asked.load(Ordering::SeqCst));
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_not_shared_with_those_who_came_after_the_question() {
    let (_, locker, other) = lockers(Slow { answer_takes: WHILE, ..Slow::default() });
    // Open when it is asked for, and set before the answer comes.
    let before = tokio::spawn(locker.latch("a").wait());
    tokio::time::sleep(WHILE / 2).await;
    assert!(other.latch("a").set(1).await.expect("asked"));
    let after = locker.latch("a").wait_for(Duration::from_secs(1)).await;
    assert!(!after.expect("asked"), "it was set before this one asked");
    before.await.expect("no panic").expect("it was open");
}

#[tokio::test(start_paused = true)]
async fn who_comes_to_a_latch_later_is_answered_by_the_store_and_not_by_the_past() {
    let clock = Clock::for_tests();
    let store = Memory::new(client(), clock.clone());
    let other = Arc::new(store.client(client()));
    let deaf = Arc::new(Faulty::over(Arc::new(store), Plan { deaf: true, ..Plan::default() }));
    let over =
        |store: Opened| Locker::builder().clock(clock.clone()).runtime(Handle::current()).backend(store).expect("a locker");
    let (locker, other) = (over(deaf.into()), over(other.into()));
    assert!(other.latch("a").set(1).await.expect("asked"));
    let first = tokio::spawn(locker.latch("a").wait());
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(other.latch("a").count_down().await.expect("counted"), 0);
    // No signal fires, and the next poll is seconds away.
    assert!(locker.latch("a").wait_for(Duration::from_millis(100)).await.expect("asked"), "it is open");
    first.await.expect("no panic").expect("the same answer served");
}

#[tokio::test(start_paused = true)]
async fn a_latch_that_stays_closed_is_closed_to_all_whose_time_is_up() {
    let (_, locker, other) = lockers(Slow { answer_takes: WHILE, ..Slow::default() });
    assert!(other.latch("a").set(1).await.expect("asked"));
    let mut waiting = Vec::new();
    for _ in 0..20 {
        waiting.push(tokio::spawn(locker.latch("a").wait_for(Duration::from_secs(1))));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for one in waiting {
        // Who gets the turn of the one that leaves has no time for a question of its own, and needs none.
        let open = one.await.expect("no panic");
        assert!(matches!(open, Ok(false)), "{open:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_latch_of_a_store_that_does_not_answer_is_not_known_to_be_closed() {
    let (store, locker, _) = lockers(Slow::default());
    store.acquire_hangs.store(true, Ordering::SeqCst);
    let waiting: Vec<_> = (0..3).map(|_| tokio::spawn(locker.latch("a").wait_for(WHILE))).collect();
    for one in waiting {
        let error = one.await.expect("no panic").expect_err("nobody knows");
        assert!(error.is_transient(), "{error}");
    }
}
