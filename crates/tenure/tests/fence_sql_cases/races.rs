//! Writers at the same time.

use std::sync::Barrier;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use tenure::Token;
use tenure::fence::sql::{Dialect, Effect, FenceTable};

use super::session::{Error, Place, one_less};
use tenure_testkit::locker::{block_on, must};

/// Waits until another thread stands before a lock.
async fn somebody_waits(place: &Place) {
    let place = place.native();
    let mut session = place.open().await;
    must("somebody waits", async {
        while !place.somebody_waits(&mut session).await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// Passes, lets another thread come, writes and commits. Returns what the other one got.
async fn meanwhile(place: &Place, first: u64, second: u64) -> Result<(), Error> {
    let fences = FenceTable::default();
    let mut session = place.open().await;
    let mut tx = session.begin().await;
    tx.pass(&fences, "R", &Token::new(first)).await.expect("passed");
    let other = thread::spawn({
        let place = place.clone();
        move || block_on(async { place.open().await.sell(&FenceTable::default(), "R", &Token::new(second)).await })
    });
    somebody_waits(place).await;
    tx.run("UPDATE stock SET units = units - 1 WHERE id = 1").await.expect("written");
    tx.commit().await.expect("committed");
    other.join().expect("no panic")
}

pub(crate) async fn a_later_holder_waits_for_a_write_that_was_let_through(place: Place) {
    meanwhile(&place, 5, 6).await.expect("its turn came");
    let mut session = place.open().await;
    assert_eq!(session.units().await, 8);
    session.sell(&FenceTable::default(), "R", &Token::new(5)).await.expect_err("refused");
}

pub(crate) async fn an_earlier_holder_that_waited_is_stale(place: Place) {
    place.open().await.sell(&FenceTable::default(), "R", &Token::new(5)).await.expect("passed");
    let refused = meanwhile(&place, 6, 5).await.expect_err("refused");
    assert_eq!(refused.stale().map(|stale| stale.seen), Some(Token::new(6)), "{refused}");
    assert_eq!(place.open().await.units().await, 8);
}

pub(crate) async fn of_two_first_writers_the_earlier_is_stale(place: Place) {
    let refused = meanwhile(&place, 6, 5).await.expect_err("refused");
    assert_eq!(refused.stale().map(|stale| stale.seen), Some(Token::new(6)), "{refused}");
}

/// Reads, and only then shows a token, after somebody with a larger one has written.
pub(crate) async fn a_read_from_before_the_mark_lets_no_stale_write_pass(place: Place) {
    let fences = FenceTable::default();
    for level in place.levels() {
        let mut early = place.open().await;
        early.isolation(level).await;
        early.sell(&fences, level, &Token::new(5)).await.expect("passed");
        let before = early.units().await;
        let mut tx = early.begin().await;
        assert_eq!(tx.number("SELECT units FROM stock WHERE id = 1").await, Some(before));
        assert_eq!(tx.number(&format!("SELECT token FROM tenure_fences WHERE resource = '{level}'")).await, Some(5));
        place.open().await.sell(&fences, level, &Token::new(6)).await.expect("passed");
        let refused = tx.pass(&fences, level, &Token::new(5)).await.expect_err("refused");
        assert_refused(&place, level, &refused);
        drop(tx);
        assert_eq!(early.units().await, before - 1);
    }
}

pub(crate) async fn a_read_from_before_the_first_mark_lets_no_stale_write_pass(place: Place) {
    let fences = FenceTable::default();
    for level in place.levels() {
        let mut early = place.open().await;
        early.isolation(level).await;
        let mut tx = early.begin().await;
        assert_eq!(tx.number(&format!("SELECT token FROM tenure_fences WHERE resource = '{level}'")).await, None);
        place.open().await.sell(&fences, level, &Token::new(6)).await.expect("passed");
        let refused = tx.pass(&fences, level, &Token::new(5)).await.expect_err("refused");
        assert_refused(&place, level, &refused);
    }
}

/// The same with a column: what stands in the way may not be in the snapshot.
pub(crate) async fn a_read_from_before_a_column_was_raised_lets_no_stale_write_pass(place: Place) {
    for level in place.levels() {
        let mut early = place.open().await;
        early.isolation(level).await;
        early.run("UPDATE stock SET units = 10, fence = 0").await;
        let mut tx = early.begin().await;
        assert_eq!(tx.number("SELECT fence FROM stock WHERE id = 1").await, Some(0));
        assert_eq!(place.open().await.sell_one(6).await.expect("passed"), Effect::Written);
        let refused = tx.update(&one_less().fenced("fence", &Token::new(5))).await.expect_err("refused");
        assert_refused(&place, level, &refused);
        drop(tx);
        assert_eq!(early.units().await, 9);
    }
}

pub(crate) async fn a_lease_from_a_snapshot_is_overtaken(place: Place) {
    for level in place.levels() {
        let mut early = place.open().await;
        early.isolation(level).await;
        early.run("UPDATE stock SET units = 10").await;
        let mut tx = early.begin().await;
        let lease = tx.number("SELECT lease FROM stock WHERE id = 1").await.expect("a lease");
        assert_eq!(place.open().await.update(&one_less().lease("lease", lease)).await.expect("won"), Effect::Written);
        match tx.update(&one_less().lease("lease", lease)).await.expect_err("refused") {
            Error::Overtaken(overtaken) => assert_eq!((overtaken.read, overtaken.found), (lease, lease + 1)),
            error => assert_refused(&place, level, &error),
        }
        drop(tx);
        assert_eq!(early.units().await, 9);
    }
}

/// MySQL and `READ COMMITTED` compare with the latest; the others, and MariaDB from 11.6 on, end a transaction that has seen something
/// older.
#[track_caller]
fn assert_refused(place: &Place, level: &str, refused: &Error) {
    let words = format!("{level}: {refused:?}");
    match place.dialect {
        Dialect::Postgres if level != "READ COMMITTED" => assert!(words.contains("40001"), "{words}"),
        Dialect::Mysql if level == "REPEATABLE READ" && words.contains(": 1020") => {}
        // SQLITE_BUSY_SNAPSHOT.
        Dialect::Sqlite => assert!(words.contains("extended_code: 517"), "{words}"),
        _ => assert_eq!(refused.stale().map(|stale| stale.seen), Some(Token::new(6)), "{words}"),
    }
}

pub(crate) async fn a_column_is_compared_with_what_was_waited_for(place: Place) {
    let mut session = place.open().await;
    let mut tx = session.begin().await;
    let token = Token::new(6);
    assert_eq!(tx.update(&one_less().fenced("fence", &token)).await.expect("passed"), Effect::Written);
    let other = thread::spawn({
        let place = place.clone();
        move || block_on(async { place.open().await.sell_one(5).await })
    });
    somebody_waits(&place).await;
    tx.commit().await.expect("committed");
    let refused = other.join().expect("no panic").expect_err("refused");
    assert_eq!(refused.stale().map(|stale| stale.seen), Some(Token::new(6)), "{refused}");
    assert_eq!(session.units().await, 9);
}

pub(crate) async fn of_two_who_have_read_the_same_lease_one_wins(place: Place) {
    const ROUNDS: i64 = 50;
    let start = Barrier::new(2);
    let rounds = || {
        block_on(async {
            let mut session = place.open().await;
            let mut ends = Vec::new();
            // Checked when both are through: a panic here would leave the other thread waiting.
            for _ in 0..ROUNDS {
                let lease = session.read_lease(&one_less(), "lease").await;
                start.wait();
                let read = lease.as_ref().ok().copied().flatten().unwrap_or(-1);
                ends.push((lease, session.update(&one_less().lease("lease", read)).await));
                start.wait();
            }
            ends
        })
    };
    let (one, two) = thread::scope(|scope| {
        let (one, two) = (scope.spawn(rounds), scope.spawn(rounds));
        (one.join().expect("no panic"), two.join().expect("no panic"))
    });
    let won = |round: i64, (lease, end)| match (lease, end) {
        (Ok(Some(read)), Ok(Effect::Written)) if read == round => true,
        (Ok(Some(read)), Err(Error::Overtaken(overtaken))) if read == round => {
            assert_eq!((overtaken.read, overtaken.found), (read, read + 1));
            false
        }
        end => panic!("neither won nor lost in round {round}: {end:?}"),
    };
    for (round, (one, two)) in (0..).zip(one.into_iter().zip(two)) {
        assert_ne!(won(round, one), won(round, two), "one wins in round {round}");
    }
    let mut session = place.open().await;
    assert_eq!(session.units().await, 10 - ROUNDS);
    assert_eq!(session.read_lease(&one_less(), "lease").await.expect("read"), Some(ROUNDS));
}

/// What was accepted is in the order of tokens, whoever came first.
pub(crate) async fn many_writers_at_once_are_accepted_in_the_order_of_their_tokens(place: Place) {
    const WRITERS: u64 = 8;
    let mut session = place.open().await;
    let number = match place.dialect {
        Dialect::Postgres => "n bigserial PRIMARY KEY",
        Dialect::Mysql => "n bigint AUTO_INCREMENT PRIMARY KEY",
        Dialect::Sqlite => "n INTEGER PRIMARY KEY AUTOINCREMENT",
    };
    session.run(&format!("CREATE TABLE writes ({number}, resource varchar(9) NOT NULL, token bigint NOT NULL)")).await;
    let (note, noted) = channel();
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (place, note) = (&place, note.clone());
            scope.spawn(move || block_on(write_some(place, writer, WRITERS, |accepted| note.send(accepted).expect("heard"))));
        }
    });
    drop(note);
    let accepted = noted.iter().count();
    assert!(accepted >= 10, "some are accepted: {accepted}");
    for resource in 0..5 {
        let writes = format!("FROM writes WHERE resource = 'R{resource}'");
        let inversions = format!(
            "SELECT count(*) FROM writes a JOIN writes b ON a.n < b.n AND a.token > b.token
             WHERE a.resource = 'R{resource}' AND b.resource = 'R{resource}'"
        );
        assert_eq!(session.number(&inversions).await, Some(0), "nothing smaller after something larger");
        let largest = session.number(&format!("SELECT max(token) {writes}")).await;
        assert_eq!(session.mark(&format!("R{resource}")).await, largest);
    }
    let count = session.number("SELECT count(*) FROM writes").await;
    assert_eq!(count, i64::try_from(accepted).ok(), "what was accepted is written, and nothing else");
}

async fn write_some(place: &Place, writer: u64, writers: u64, accepted: impl Fn(u64)) {
    let fences = FenceTable::default();
    let mut session = place.open().await;
    for round in 0..10 {
        // Five new names, twice: also the first write of each is made by many at once.
        let (resource, token) = (format!("R{}", round % 5), Token::new(round * writers + writer));
        loop {
            let mut tx = session.begin().await;
            let write = format!("INSERT INTO writes (resource, token) VALUES ('{resource}', {token})");
            let done = match tx.pass(&fences, &resource, &token).await {
                Ok(()) => match tx.run(&write).await {
                    Ok(()) => tx.commit().await,
                    error => error,
                },
                error => error,
            };
            match done {
                Ok(()) => accepted(token.get()),
                Err(Error::Stale(_)) => {}
                // What databases do to one of several who are new: it tries again.
                Err(error) if ["1213", "1020"].iter().any(|code| error.to_string().contains(code)) => continue,
                Err(error) => panic!("{error}"),
            }
            break;
        }
    }
}
