//! Clients with a boot id of their own, as in a container that shares the file with its host.

use std::time::Duration;

use super::clients::*;
use super::opening::*;

const ANOTHER: &str = "11111111-2222-4333-8444-555555555555";

fn contained(dir: &tempfile::TempDir, number: u32) -> Stranger {
    let mut stranger = Stranger::new(dir, number);
    ANOTHER.clone_into(&mut stranger.boot);
    stranger
}

#[tokio::test]
async fn a_holder_that_lives_keeps_its_lock_whatever_its_boot_id_is() {
    let dir = dir();
    let a = client(&dir).await;
    let holder = contained(&dir, 0);
    holder.holds("x", PLAIN, 0);
    assert!(a.mutex("x").try_lock().await.unwrap().is_none(), "met in a claim");
    // Met while it is swept, and while it is looked at.
    let b = client(&dir).await;
    assert_eq!(b.mutex("x").inspect().await.unwrap().holders.len(), 1);
    assert_eq!(b.list("").await.unwrap().len(), 1);
    assert!(b.mutex("x").try_lock().await.unwrap().is_none());
    assert!(b.mutex("x").break_hold().await.unwrap().is_some());
    assert!(a.mutex("x").try_lock().await.unwrap().is_some());
}

#[tokio::test]
async fn the_death_of_a_holder_with_another_boot_id_is_seen_at_once() {
    let dir = dir();
    let (a, b) = (client(&dir).await, client(&dir).await);
    at_once(async |n| {
        let name = format!("x{n}");
        let mut holder = contained(&dir, n);
        holder.holds(&name, PLAIN, 0);
        let next = tokio::spawn(a.mutex(&name).lock());
        until_waiting(&b, &name, 1).await;
        holder.dies_and_frees(next).await
    })
    .await;
}

#[tokio::test]
async fn the_lease_of_a_holder_with_another_boot_id_counts_on_the_same_clock() {
    let dir = dir();
    let a = client(&dir).await;
    let holder = contained(&dir, 0);
    holder.holds_until("x", PLAIN, 0, soon(Duration::from_millis(300)));
    assert!(a.mutex("x").try_lock().await.unwrap().is_none());
    assert!(a.mutex("x").try_lock_for(LIMIT).await.unwrap().is_some());
}

#[tokio::test]
async fn who_waits_with_another_boot_id_has_its_place_and_is_woken() {
    let dir = dir();
    let a = client(&dir).await;
    let waiter = contained(&dir, 0);
    let mut wake = waiter.listens();
    for (name, kind) in [("fair", FAIR), ("plain", PLAIN)] {
        let held = if kind == FAIR { a.mutex(name).fair().lock().await } else { a.mutex(name).lock().await }.unwrap();
        waiter.waits(name, kind);
        held.release().await.unwrap();
        let key = if kind == FAIR { format!("f{name}\0{}:1", waiter.id) } else { format!("f{name}") };
        assert_eq!(word(&mut wake), key);
    }
    assert!(a.mutex("fair").fair().try_lock().await.unwrap().is_none(), "it is the turn of the other one");
}

#[tokio::test]
async fn what_a_latch_remembers_of_those_who_live_outlives_the_sweep() {
    let dir = dir();
    let a = client(&dir).await;
    let (lives, mut dead) = (contained(&dir, 0), contained(&dir, 1));
    "another one".clone_into(&mut dead.boot);
    dead.dies();
    let counted = || {
        let sql = "SELECT count(*) FROM counted";
        lives.file().query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap()
    };
    for stranger in [&lives, &dead] {
        let sql = "INSERT INTO counted VALUES (x'78', ?1 || ':1', ?2, ?3)";
        stranger.file().execute(sql, rusqlite::params![stranger.id, stranger.boot, i64::MAX / 2]).unwrap();
    }
    assert_eq!(counted(), 2);
    let _b = client(&dir).await;
    assert_eq!(counted(), 1);
    a.close().await.unwrap();
}

#[tokio::test]
async fn of_another_boot_only_those_are_void_of_which_nobody_lives() {
    let dir = dir();
    let a = client(&dir).await;
    let mut dead = contained(&dir, 0);
    dead.holds("dead", PLAIN, 0);
    dead.dies();
    let mut closed = contained(&dir, 1);
    closed.holds("closed", PLAIN, 0);
    closed.leaves();
    assert!(a.list("").await.unwrap().is_empty());
    assert!(a.mutex("dead").try_lock().await.unwrap().is_some());
    assert!(a.mutex("closed").try_lock().await.unwrap().is_some());
    // One who lives proves that its boot is this one: who has no pipes has its lease then.
    let lives = contained(&dir, 2);
    lives.holds("lives", PLAIN, 0);
    closed.holds("blind", PLAIN, 0);
    assert!(a.mutex("lives").try_lock().await.unwrap().is_none());
    assert!(a.mutex("blind").try_lock().await.unwrap().is_none());
}
