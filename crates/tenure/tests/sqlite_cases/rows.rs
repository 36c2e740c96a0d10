//! Rows: which are removed, and what becomes of damaged ones.

use std::time::Duration;

use tenure::Fault;

use super::clients::*;
use super::opening::*;

#[tokio::test]
async fn what_nobody_uses_any_more_leaves_no_rows() {
    let dir = dir();
    let (a, b) = (client(&dir).await, client(&dir).await);
    let file = rusqlite::Connection::open(dir.path().join("locks.db")).unwrap();
    let count = |table: &str| file.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get::<_, i64>(0)).unwrap();
    assert!(a.latch("l").set(1).await.unwrap());
    for _ in 0..3 {
        assert!(!b.latch("l").wait_for(Duration::from_millis(300)).await.unwrap());
    }
    assert_eq!(count("waiters"), 1, "one per client, however often it asks");
    a.latch("l").count_down().await.unwrap();
    assert_eq!((count("latches"), count("waiters"), count("counted")), (0, 0, 2), "both calls are remembered");
    let permit = a.semaphore("used", 1).acquire().await.unwrap();
    a.semaphore("unused", 1).acquire().await.unwrap().release().await.unwrap();
    a.semaphore("lately", 1).acquire().await.unwrap().release().await.unwrap();
    file.execute("UPDATE permits SET used = used - 8 * 86400 WHERE name <> CAST('lately' AS BLOB)", []).unwrap();
    file.execute("UPDATE counted SET until = 1", []).unwrap();
    client(&dir).await.close().await.unwrap();
    assert_eq!((count("permits"), count("counted")), (2, 0));
    assert_eq!(a.semaphore("used", 0).inspect().await.unwrap().permits.map(|p| (p.of, p.free)), Some((1, 0)));
    assert_eq!(a.semaphore("unused", 0).inspect().await.unwrap().permits, None);
    permit.release().await.unwrap();
}

#[tokio::test]
async fn a_mode_that_nobody_knows_is_damage_and_not_a_panic() {
    let dir = dir();
    let locker = client(&dir).await;
    let stranger = Stranger::new(&dir, 0);
    stranger.holds("kind", 77, 0);
    stranger.holds("take", PERMITS, -1);
    for name in ["kind", "take"] {
        let error = locker.mutex(name).try_lock().await.unwrap_err();
        assert_eq!((error.fault(), error.is_transient()), (Some(Fault::Corrupt), false), "{error}");
    }
    locker.mutex("other").lock().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_damaged_name_costs_no_other_one_its_answer() {
    let dir = dir();
    let locker = client(&dir).await;
    Stranger::new(&dir, 0).holds("damaged", 77, 0);
    for round in 0..20 {
        // Asked for at once, so that they share transactions.
        let ask = |name: String| tokio::spawn(locker.mutex(name).try_lock());
        let asked: Vec<_> =
            (0..40).flat_map(|n| [(true, ask(format!("{round}.{n}"))), (false, ask("damaged".to_owned()))]).collect();
        for (is_sound, answer) in asked {
            match answer.await.unwrap() {
                Ok(granted) => assert_eq!(granted.is_some(), is_sound),
                Err(e) => assert!(!is_sound && e.fault() == Some(Fault::Corrupt), "{e}"),
            }
        }
    }
}
