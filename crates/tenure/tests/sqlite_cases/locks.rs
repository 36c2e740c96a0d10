//! Clients that exclude, wake and see each other.

use std::time::{Duration, Instant, SystemTime};

use tenure::Locker;
use tenure::backend::{Modes, Reach, Survival};

use super::opening::*;

#[tokio::test]
async fn two_clients_exclude_each_other_and_the_tokens_grow() {
    let dir = dir();
    let (a, b) = (client(&dir).await, client(&dir).await);
    let first = a.mutex("x").lock().await.unwrap();
    assert!(b.mutex("x").try_lock().await.unwrap().is_none());
    assert!(b.mutex("y").try_lock().await.unwrap().is_some());
    let token = first.token();
    first.release().await.unwrap();
    let second = b.mutex("x").try_lock().await.unwrap().unwrap();
    assert!(second.token() > token);
    assert!(a.mutex("x").try_lock().await.unwrap().is_none());
}

#[tokio::test]
async fn it_says_what_it_promises() {
    let dir = dir();
    let locker = client(&dir).await;
    let can = locker.capabilities();
    assert_eq!((can.backend, can.reach), ("sqlite", Reach::Machine));
    assert!(can.token_blocks && can.queues && can.watch_first);
    assert_eq!(can.modes, Modes::ALL);
    assert_eq!(can.safety.power_loss, Survival::Together);
    assert_eq!(can.safety.clock_jump, Survival::Lock);
}

#[tokio::test]
async fn a_release_wakes_the_waiter_of_another_client() {
    let dir = dir();
    let (a, b) = (client(&dir).await, client(&dir).await);
    let mut waits = Vec::new();
    for _ in 0..5 {
        let held = a.mutex("x").lock().await.unwrap();
        let waiter = tokio::spawn(b.mutex("x").lock());
        until_waiting(&a, "x", 1).await;
        let released = Instant::now();
        held.release().await.unwrap();
        let guard = tokio::time::timeout(LIMIT, waiter).await.unwrap().unwrap().unwrap();
        waits.push(released.elapsed());
        guard.release().await.unwrap();
    }
    // It has just polled: without a word from the one who released, each of these would take most of a second.
    assert!(waits.iter().min().unwrap() < &Duration::from_millis(500), "{waits:?}");
}

#[tokio::test]
async fn a_waiter_that_polls_keeps_its_place_and_takes_no_second_one() {
    let dir = dir();
    let (a, b) = (client(&dir).await, client(&dir).await);
    let held = a.mutex("x").lock().await.unwrap();
    let waiter = tokio::spawn(b.mutex("x").lock());
    until_waiting(&a, "x", 1).await;
    // Two more polls of the waiter pass.
    tokio::time::sleep(Duration::from_millis(2200)).await;
    assert_eq!(a.mutex("x").inspect().await.unwrap().waiting, Some(1));
    held.release().await.unwrap();
    let guard = tokio::time::timeout(LIMIT, waiter).await.unwrap().unwrap().unwrap();
    assert_eq!(a.mutex("x").inspect().await.unwrap().waiting, Some(0));
    guard.release().await.unwrap();
}

#[tokio::test]
async fn those_who_wait_are_served_by_and_large_in_order() {
    let dir = dir();
    let holder = client(&dir).await;
    let held = holder.mutex("x").lock().await.unwrap();
    let (served, mut order) = tokio::sync::mpsc::unbounded_channel();
    for n in 0..8_u32 {
        let (locker, served) = (client(&dir).await, served.clone());
        tokio::spawn(async move {
            let guard = locker.mutex("x").lock().await.unwrap();
            served.send((n, locker.clone())).unwrap();
            guard.release().await.unwrap();
        });
        until_waiting(&holder, "x", n + 1).await;
    }
    drop(served);
    held.release().await.unwrap();
    // The lockers stay: the end of a client wakes those who watched it.
    let (mut got, mut lockers) = (Vec::new(), Vec::new());
    while let Some((n, locker)) = order.recv().await {
        got.push(n);
        lockers.push(locker);
    }
    // One may poll in the moment in which it is free.
    assert!(got.windows(2).filter(|w| w[0] > w[1]).count() <= 1, "{got:?}");
    assert_eq!(got.len(), 8);
}

#[tokio::test]
async fn one_who_gives_up_waiting_leaves_the_queue_and_the_next_is_woken() {
    let dir = dir();
    let (a, b, c) = (client(&dir).await, client(&dir).await, client(&dir).await);
    let held = a.mutex("x").lock().await.unwrap();
    let impatient = tokio::spawn({
        let b = b.clone();
        async move { b.mutex("x").lock().await }
    });
    until_waiting(&a, "x", 1).await;
    let patient = tokio::spawn(async move { c.mutex("x").lock().await.unwrap().token() });
    until_waiting(&a, "x", 2).await;
    impatient.abort();
    until_waiting(&a, "x", 1).await;
    let token = held.token();
    held.release().await.unwrap();
    assert!(tokio::time::timeout(LIMIT, patient).await.unwrap().unwrap() > token);
}

#[tokio::test]
async fn breaking_a_hold_wakes_the_waiter_and_raises_the_fence() {
    let dir = dir();
    let (a, b, c) = (client(&dir).await, client(&dir).await, client(&dir).await);
    let held = a.mutex("x").lock().await.unwrap();
    let waiter = tokio::spawn(async move {
        let guard = b.mutex("x").lock().await.unwrap();
        let token = guard.token();
        guard.release().await.map(|()| token)
    });
    until_waiting(&a, "x", 1).await;
    let broken = c.mutex("x").break_hold().await.unwrap().unwrap();
    let token = tokio::time::timeout(LIMIT, waiter).await.unwrap().unwrap().unwrap();
    assert!(held.token() < broken.fence && broken.fence < token);
    assert_eq!(broken.holders.len(), 1);
    assert!(held.release().await.is_err());
    assert!(c.mutex("x").break_hold().await.unwrap().is_none());
}

#[tokio::test]
async fn a_lapsed_hold_is_not_renewed_and_somebody_else_gets_in() {
    let dir = dir();
    let (a, b) = (client(&dir).await, client(&dir).await);
    let held = a.mutex("x").lease_fixed(Duration::from_millis(200)).lock().await.unwrap();
    let next = b.mutex("x").lock().await.unwrap();
    assert!(next.token() > held.token());
    assert!(held.release().await.is_err());
    assert!(next.is_valid());
}

#[tokio::test]
async fn inspection_tells_who_holds_since_when_and_for_how_long() {
    let dir = dir();
    let before = SystemTime::now() - Duration::from_millis(1);
    let a = Locker::builder().about("the first").connect(&url(&dir.path().join("locks.db"))).await.unwrap();
    let b = client(&dir).await;
    assert_eq!(b.mutex("x").inspect().await.unwrap().fence, None);
    let held = a.mutex("x").lock().await.unwrap();
    let state = b.mutex("x").inspect().await.unwrap();
    let [holder] = &state.holders[..] else { panic!("{state:?}") };
    assert!(holder.owner.starts_with(&a.client_id().to_string()));
    assert_eq!((holder.token, state.fence, state.waiting), (Some(held.token()), Some(held.token()), Some(0)));
    assert_eq!(holder.note.as_deref(), Some("the first"));
    let since = holder.since.unwrap();
    assert!(before <= since && since <= SystemTime::now());
    let expires = holder.expires_in.unwrap();
    assert!(Duration::from_secs(25) < expires && expires <= Duration::from_secs(30));
    held.release().await.unwrap();
    assert!(b.mutex("x").inspect().await.unwrap().holders.is_empty());
    assert!(b.list("").await.unwrap().is_empty());
}
