//! Clients that died, that left, and that have no pipes.

use std::time::{Duration, Instant};

use tenure::Error;

use super::clients::*;
use super::opening::*;

#[tokio::test]
async fn closing_removes_the_pipes_and_so_does_dropping() {
    let dir = dir();
    let pipes = || std::fs::read_dir(dir.path().join("locks.db.clients")).unwrap().count();
    let (a, b) = (client(&dir).await, client(&dir).await);
    assert_eq!(pipes(), 4);
    a.close().await.unwrap();
    assert_eq!(pipes(), 2);
    a.close().await.unwrap();
    assert!(matches!(a.mutex("x").lock().await, Err(Error::Closed)));
    drop(b);
    let bound = Instant::now() + LIMIT;
    while pipes() > 0 {
        assert!(Instant::now() < bound, "the pipes of a dropped client stay");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn what_dead_clients_left_is_swept_at_connect() {
    let dir = dir();
    client(&dir).await.close().await.unwrap();
    let clients = dir.path().join("locks.db.clients");
    let dead = "00000000-0000-4000-8000-000000000000";
    for name in ["alive", "wake", "alive.new", "wake.new"] {
        let made = std::process::Command::new("mkfifo").arg(clients.join(format!("{dead}.{name}"))).status().unwrap();
        assert!(made.success());
    }
    let file = rusqlite::Connection::open(dir.path().join("locks.db")).unwrap();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let sql = "INSERT INTO holds VALUES (?1, 'x:1', 0, 0, ?2, ?3, ?4, 1, 1, NULL, NULL)";
    for (name, client, boot) in [(b"dead".as_slice(), dead, boot.trim()), (b"other boot", "closed", "another")] {
        file.execute(sql, rusqlite::params![name, client, boot, i64::MAX]).unwrap();
    }
    let locker = client(&dir).await;
    assert_eq!(std::fs::read_dir(clients).unwrap().count(), 2);
    assert_eq!(file.query_row("SELECT count(*) FROM holds", [], |row| row.get::<_, i64>(0)).unwrap(), 0);
    assert!(locker.mutex("dead").try_lock().await.unwrap().is_some());
}

#[tokio::test]
async fn a_holder_that_is_dead_does_not_block_and_its_lease_does_not_count() {
    let dir = dir();
    let locker = client(&dir).await;
    let dead = "00000000-0000-4000-8000-000000000000";
    let pipe = dir.path().join(format!("locks.db.clients/{dead}.alive"));
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let file = rusqlite::Connection::open(dir.path().join("locks.db")).unwrap();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    for name in [b"x", b"y"] {
        let sql = "INSERT INTO holds VALUES (?1, 'x:1', 0, 0, ?2, ?3, ?4, 1, 1, NULL, NULL)";
        file.execute(sql, rusqlite::params![name.as_slice(), dead, boot.trim(), i64::MAX]).unwrap();
    }
    assert!(locker.list("").await.unwrap().is_empty());
    assert!(locker.mutex("x").try_lock().await.unwrap().is_some());
    assert!(!pipe.exists());
    // Its pipe was the proof of its death: all its rows went with it.
    assert!(locker.mutex("y").try_lock().await.unwrap().is_some());
}

#[tokio::test]
async fn a_holder_without_pipes_keeps_its_lease() {
    let dir = dir();
    let (a, b) = (client(&dir).await, client(&dir).await);
    let held = a.mutex("x").lock().await.unwrap();
    std::fs::remove_dir_all(dir.path().join("locks.db.clients")).unwrap();
    assert!(b.mutex("x").try_lock().await.unwrap().is_none());
    held.release().await.unwrap();
    assert!(b.mutex("x").try_lock().await.unwrap().is_some());
}

#[tokio::test]
async fn where_no_pipes_can_be_made_polling_takes_their_place() {
    let dir = dir();
    // A file in the place of the directory.
    std::fs::write(dir.path().join("locks.db.clients"), "").unwrap();
    let (a, b) = (client(&dir).await, client(&dir).await);
    let held = a.mutex("x").lock().await.unwrap();
    let waiter = tokio::spawn(async move { b.mutex("x").lock().await.unwrap().token() });
    tokio::time::sleep(Duration::from_millis(100)).await;
    let token = held.token();
    held.release().await.unwrap();
    assert!(tokio::time::timeout(LIMIT, waiter).await.unwrap().unwrap() > token);
}

#[tokio::test]
async fn a_dead_head_of_a_fair_queue_lets_the_next_one_in_at_once() {
    let dir = dir();
    let (a, b) = (client(&dir).await, client(&dir).await);
    at_once(async |n| {
        let name = format!("x{n}");
        let held = a.mutex(&name).fair().lock().await.unwrap();
        let mut head = Stranger::new(&dir, n);
        head.waits(&name, FAIR);
        let next = tokio::spawn(b.mutex(&name).fair().lock());
        until_waiting(&a, &name, 2).await;
        held.release().await.unwrap();
        assert!(a.mutex(&name).fair().try_lock().await.unwrap().is_none(), "it is the turn of another one");
        assert!(!next.is_finished());
        assert_eq!(a.mutex(&name).inspect().await.unwrap().queue.len(), 2);
        head.dies_and_frees(next).await
    })
    .await;
}

#[tokio::test]
async fn the_death_of_the_last_reader_lets_the_writer_in_at_once() {
    let dir = dir();
    let (a, b) = (client(&dir).await, client(&dir).await);
    at_once(async |n| {
        let name = format!("x{n}");
        let (mut one, mut other) = (Stranger::new(&dir, 2 * n), Stranger::new(&dir, 2 * n + 1));
        one.holds(&name, READ, 0);
        other.holds(&name, READ, 0);
        let writer = tokio::spawn(a.rwlock(&name).write());
        until_waiting(&b, &name, 1).await;
        assert!(b.rwlock(&name).try_read().await.unwrap().is_none(), "a writer waits");
        one.dies();
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(!writer.is_finished());
        other.dies_and_frees(writer).await
    })
    .await;
}

#[tokio::test]
async fn the_death_of_a_waiting_writer_lets_readers_in_at_once() {
    let dir = dir();
    let (a, b) = (client(&dir).await, client(&dir).await);
    at_once(async |n| {
        let name = format!("x{n}");
        let reader = a.rwlock(&name).read().await.unwrap();
        let mut writer = Stranger::new(&dir, n);
        writer.waits(&name, WRITE);
        let readers = [&a, &b, &b].map(|locker| tokio::spawn(locker.rwlock(&name).read()));
        // Those of one client ask one after another.
        until_waiting(&b, &name, 3).await;
        let died = Instant::now();
        writer.dies();
        for waiting in readers {
            drop(within_limit(waiting).await);
        }
        reader.release().await.unwrap();
        died.elapsed()
    })
    .await;
}

#[tokio::test]
async fn the_permits_of_a_dead_client_come_back_at_once() {
    let dir = dir();
    let (a, b) = (client(&dir).await, client(&dir).await);
    at_once(async |n| {
        let name = format!("x{n}");
        a.semaphore(&name, 3).resize(3).await.unwrap();
        let mut holder = Stranger::new(&dir, n);
        holder.holds(&name, PERMITS, 2);
        let kept = a.semaphore(&name, 3).acquire().await.unwrap();
        let waiting = [&a, &b].map(|locker| tokio::spawn(locker.semaphore(&name, 3).acquire()));
        until_waiting(&b, &name, 2).await;
        let died = Instant::now();
        holder.dies();
        let mut permits = vec![kept];
        for waiting in waiting {
            permits.push(within_limit(waiting).await);
        }
        let took = died.elapsed();
        assert!(b.semaphore(&name, 3).try_acquire().await.unwrap().is_none());
        took
    })
    .await;
}

#[tokio::test]
async fn all_modes_work_by_polling_where_no_pipes_can_be_made() {
    let dir = dir();
    std::fs::write(dir.path().join("locks.db.clients"), "").unwrap();
    let (a, b) = (client(&dir).await, client(&dir).await);
    let held = a.mutex("fair").fair().lock().await.unwrap();
    let writer = a.rwlock("rw").write().await.unwrap();
    let permit = a.semaphore("permits", 1).acquire().await.unwrap();
    assert!(a.latch("latch").set(1).await.unwrap());
    let fair = tokio::spawn(b.mutex("fair").fair().lock());
    let reader = tokio::spawn(b.rwlock("rw").read());
    let second = tokio::spawn(b.semaphore("permits", 1).acquire());
    let open = tokio::spawn(b.latch("latch").wait());
    until_waiting(&a, "fair", 1).await;
    held.release().await.unwrap();
    writer.release().await.unwrap();
    permit.release().await.unwrap();
    assert_eq!(a.latch("latch").count_down().await.unwrap(), 0);
    drop((within_limit(fair).await, within_limit(reader).await, within_limit(second).await));
    within_limit(open).await;
}
