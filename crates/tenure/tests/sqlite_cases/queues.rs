//! Queues: which client watches which, what each is told, and by which pipes.

use std::time::{Duration, Instant};

use super::clients::*;
use super::opening::*;

#[tokio::test]
async fn who_stood_behind_one_that_gave_up_sees_the_death_of_the_one_before_it() {
    let dir = dir();
    let (a, c, d) = (client(&dir).await, client(&dir).await, client(&dir).await);
    at_once(async |n| {
        let name = format!("x{n}");
        let held = a.mutex(&name).fair().lock().await.unwrap();
        let mut head = Stranger::new(&dir, n);
        head.waits(&name, FAIR);
        let gives_up = tokio::spawn(c.mutex(&name).fair().lock());
        until_waiting(&a, &name, 2).await;
        let last = tokio::spawn(d.mutex(&name).fair().lock());
        until_waiting(&a, &name, 3).await;
        gives_up.abort();
        until_waiting(&a, &name, 2).await;
        held.release().await.unwrap();
        assert!(!last.is_finished(), "it is the turn of another one");
        head.dies_and_frees(last).await
    })
    .await;
}

#[tokio::test]
async fn who_stood_behind_a_place_that_lapsed_sees_the_death_of_the_one_before_it() {
    let dir = dir();
    let (a, d) = (client(&dir).await, client(&dir).await);
    at_once(async |n| {
        let name = format!("x{n}");
        let held = a.mutex(&name).fair().lock().await.unwrap();
        let (mut head, stopped) = (Stranger::new(&dir, 2 * n), Stranger::new(&dir, 2 * n + 1));
        head.waits(&name, FAIR);
        stopped.waits_until(&name, FAIR, soon(Duration::from_secs(1)));
        let last = tokio::spawn(d.mutex(&name).fair().lock());
        until_waiting(&a, &name, 3).await;
        until_waiting(&a, &name, 2).await;
        held.release().await.unwrap();
        head.dies_and_frees(last).await
    })
    .await;
}

#[tokio::test]
async fn a_fair_waiter_is_told_at_its_own_key_of_a_plain_holder() {
    let dir = dir();
    let a = client(&dir).await;
    let fair = Stranger::new(&dir, 0);
    let mut wake = fair.listens();
    fair.waits("x", FAIR);
    let _held = a.mutex("x").lock().await.unwrap();
    let told = word(&mut wake);
    assert!(told.starts_with('t') && told.ends_with(&format!("/x\0{}:1", fair.id)), "{told:?}");
}

#[tokio::test]
async fn a_fair_waiter_is_woken_at_its_own_key_if_the_plain_ones_before_it_are_gone() {
    let dir = dir();
    let a = client(&dir).await;
    let held = a.mutex("x").lock().await.unwrap();
    let (gone, fair) = (Stranger::new(&dir, 0), Stranger::new(&dir, 1));
    let mut wake = fair.listens();
    gone.waits("x", PLAIN);
    fair.waits("x", FAIR);
    held.release().await.unwrap();
    assert_eq!(word(&mut wake), format!("fx\0{}:1", fair.id));
}

#[tokio::test]
async fn a_plain_waiter_is_told_of_a_fair_holder() {
    let dir = dir();
    let a = client(&dir).await;
    let plain = Stranger::new(&dir, 0);
    let mut wake = plain.listens();
    plain.waits("x", PLAIN);
    let held = a.mutex("x").fair().lock().await.unwrap();
    let told = word(&mut wake);
    assert!(told.starts_with('h') && told.ends_with("/x"), "{told:?}");
    held.release().await.unwrap();
    assert_eq!(word(&mut wake), "fx");
}

#[tokio::test]
async fn pipes_that_could_not_be_made_are_made_when_they_can_be() {
    let dir = dir();
    let pipes = dir.path().join("locks.db.clients");
    std::fs::write(&pipes, "").unwrap();
    let (a, b) = (client(&dir).await, client(&dir).await);
    // Of a holder nothing comes but renewals.
    let held = a.mutex("x").lease(Duration::from_secs(3)).lock().await.unwrap();
    let mut waiter = tokio::spawn(b.mutex("x").lock());
    std::fs::remove_file(&pipes).unwrap();
    let bound = Instant::now() + LIMIT;
    while std::fs::read_dir(&pipes).map_or(0, Iterator::count) < 4 {
        assert!(Instant::now() < bound, "the pipes were never made");
        assert!(tokio::time::timeout(Duration::from_millis(20), &mut waiter).await.is_err(), "it is held");
    }
    // Only who can be woken stands in the queue for a plain lock.
    until_waiting(&a, "x", 1).await;
    held.release().await.unwrap();
    drop(within_limit(waiter).await);
}

#[tokio::test]
async fn pipes_in_a_directory_that_was_moved_away_are_made_again() {
    let dir = dir();
    let pipes = dir.path().join("locks.db.clients");
    let (a, b) = (client(&dir).await, client(&dir).await);
    let count = || std::fs::read_dir(&pipes).map_or(0, Iterator::count);
    assert_eq!(count(), 4);
    // With a file in its place for a while, and with nothing.
    for between in [true, false] {
        let moved = dir.path().join(format!("moved{between}"));
        std::fs::rename(&pipes, &moved).unwrap();
        if between {
            std::fs::write(&pipes, "").unwrap();
            drop((a.mutex("x").try_lock().await.unwrap(), b.mutex("y").try_lock().await.unwrap()));
            std::fs::remove_file(&pipes).unwrap();
        }
        let bound = Instant::now() + LIMIT;
        while count() < 4 {
            assert!(Instant::now() < bound, "the pipes were never made again");
            drop((a.mutex("x").try_lock().await.unwrap(), b.mutex("y").try_lock().await.unwrap()));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(std::fs::read_dir(moved).unwrap().count(), 0, "nobody looks there any more");
    }
}
