//! The record in the transaction of the work: exactly once, whichever process is killed.

use std::sync::Arc;
use std::time::Duration;

use mysql_async::Pool;
use tenure::Token;
use tenure::fence::Pass;
use tenure::fence::sql::{Ddl, Dialect};
use tenure::once::{
    Begin, Begun, Claimed, Done, Finished, Key, MysqlRecords, OnceTable, PostgresRecords, Records, SqliteRecords, Ticket, mysql,
    postgres, sqlite, sqlx,
};
use tokio_postgres::NoTls;

use super::kills::step;
use super::session::{Error, Session, Tx, plain};
use super::shelf::{Address, Shelf, records_over_sqlx};
use tenure_testkit::locker::{block_on, must};
use tenure_testkit::player::Player;

fn ticket(claimed: Claimed<u32>) -> Ticket {
    match claimed {
        Claimed::Yours(ticket) => ticket,
        Claimed::Done(done) => panic!("it is done: {done:?}"),
    }
}

pub(crate) async fn what_is_committed_is_done_and_what_is_rolled_back_is_not(shelf: Shelf) {
    let mut session = Session::open(&shelf.records).await;
    let (table, key) = (OnceTable::default(), shelf.key("k"));
    // Rolled back: before the work, after it, and after it was recorded.
    for steps in 0..3 {
        let mut tx = session.begin().await;
        let ticket = ticket(tx.claim(&table.claim(&key).expect("a key")).await.expect("claimed"));
        assert_eq!(ticket.unfinished(), None, "what is rolled back never was");
        if steps > 0 {
            tx.work(&key).await.expect("worked");
        }
        if steps > 1 {
            tx.finish(ticket, 1).await.expect("recorded");
        }
        drop(tx);
        assert_eq!(session.effects(&key).await, 0);
    }
    let first = session.once(&key, 2).await;
    assert_eq!((first.value, first.replayed), (2, false));
    for session in [&mut session, &mut Session::open(&shelf.records).await] {
        assert_eq!(session.once(&key, 3).await, Done { replayed: true, ..first });
        assert_eq!(session.effects(&key).await, 1);
    }
}

pub(crate) async fn twenty_transactions_at_once_have_it_done_once(shelf: Shelf) {
    for round in 0..3 {
        let key = shelf.key(&format!("round {round}"));
        let mut threads = Vec::new();
        // One of them is rolled back at first, so that there is something to take over.
        let mut first = Session::open(&shelf.records).await;
        let table = OnceTable::default();
        let mut tx = first.begin().await;
        let ticket = ticket(tx.claim(&table.claim(&key).expect("a key")).await.expect("claimed"));
        tx.work(&key).await.expect("worked");
        for n in 0..20 {
            let (records, key) = (shelf.records.clone(), key.clone());
            // A thread each: SQLite's driver blocks.
            threads.push(std::thread::spawn(move || block_on(async { Session::open(&records).await.once(&key, n).await })));
        }
        // Some of them wait by now, whoever comes later does not have to.
        tokio::time::sleep(Duration::from_millis(20)).await;
        drop(ticket);
        tx.rollback().await;
        let done = move || threads.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Vec<_>>();
        let done = must("all are answered", tokio::task::spawn_blocking(done)).await.expect("no panic");
        assert_eq!(done.iter().filter(|done| !done.replayed).count(), 1);
        assert!(done.iter().all(|one| (one.value, one.token) == (done[0].value, done[0].token)), "{done:?}");
        assert_eq!(first.effects(&key).await, 1);
    }
}

/// The points at which a process stands still, in order.
const STEPS: [&str; 5] = ["begun", "claimed", "worked", "recorded", "committed"];

pub(crate) async fn a_process_killed_between_any_two_steps_has_done_it_wholly_or_not_at_all(shelf: Shelf) {
    let mut session = Session::open(&shelf.records).await;
    for (at, step) in STEPS.iter().enumerate() {
        let key = shelf.key(step);
        let mut victim = start(&shelf, &key);
        for passed in &STEPS[..at] {
            assert_eq!(victim.line(), *passed);
            victim.tell("go on");
        }
        assert_eq!(victim.line(), *step);
        victim.kill();
        let done = must("it is done", session.once(&key, 2)).await;
        let committed = *step == "committed";
        assert_eq!((done.value, done.replayed), if committed { (1, true) } else { (2, false) }, "killed {step}");
        assert_eq!(session.effects(&key).await, 1, "killed {step}");
    }
}

pub(crate) async fn who_waits_for_a_killed_process_takes_over(shelf: Shelf) {
    let key = shelf.key("k");
    let mut victim = start(&shelf, &key);
    for passed in &STEPS[..3] {
        assert_eq!(victim.line(), *passed);
        victim.tell("go on");
    }
    assert_eq!(victim.line(), "recorded");
    let waiters: Vec<_> = (0..3)
        .map(|n| {
            let (records, key) = (shelf.records.clone(), key.clone());
            std::thread::spawn(move || block_on(async { Session::open(&records).await.once(&key, 10 + n).await }))
        })
        .collect();
    // They cannot get past the one that stands still.
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
    victim.kill();
    let done = move || waiters.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Vec<_>>();
    let done = must("they go on", tokio::task::spawn_blocking(done)).await.expect("no panic");
    assert_eq!(done.iter().filter(|done| !done.replayed).count(), 1);
    assert!(done.iter().all(|one| one.value == done[0].value && one.value >= 10), "{done:?}");
    assert_eq!(Session::open(&shelf.records).await.effects(&key).await, 1);
}

pub(crate) async fn a_claim_under_a_lock_is_fenced(shelf: Shelf) {
    let (table, records, key) = (OnceTable::default(), shelf.records().await, Key::new(shelf.key("k")).expect("a key"));
    let mut session = Session::open(&shelf.records).await;
    let (old, new) = (Token::new(5), Token::new(7));
    let begin = |token| Begin { token, keep: Duration::from_secs(60), repeat: true };
    assert_eq!(records.begin(&key, begin(new)).await.expect("begun"), Begun::Yours { unfinished: None });
    let mut tx = session.begin().await;
    let late = tx.claim(&table.claim_under(key.as_str(), &old).expect("a key")).await.expect_err("too late");
    assert!(late.stale().is_some_and(|stale| (stale.token, stale.seen) == (old, new)), "{late:?}");
    drop(tx);
    assert_eq!((table.stats().stale, table.stats().accepted), (1, 0));
    // The holder itself goes on in a transaction, and so does a later one, who is told.
    for (pass, unfinished) in [(&new, None), (&Token::new(9), Some(new))] {
        let mut tx = session.begin().await;
        let ticket = ticket(tx.claim(&table.claim_under(key.as_str(), pass).expect("a key")).await.expect("claimed"));
        assert_eq!((ticket.token(), ticket.unfinished()), (*pass, unfinished));
        drop(tx);
    }
    let mut tx = session.begin().await;
    let pass: &dyn Pass = &new;
    let ticket = ticket(tx.claim(&table.claim_under(key.as_str(), pass).expect("a key")).await.expect("claimed"));
    assert_eq!(tx.finish(ticket, 1).await.expect("recorded"), Done { value: 1, replayed: false, token: new });
    tx.commit().await.expect("committed");
    assert_eq!(table.stats().accepted, 1);
    // Who is too late is told that it is done.
    let mut tx = session.begin().await;
    let claimed = tx.claim(&table.claim_under(key.as_str(), &old).expect("a key")).await.expect("asked");
    assert!(matches!(claimed, Claimed::Done(Done { value: 1, replayed: true, token }) if token == new), "{claimed:?}");
}

pub(crate) async fn both_forms_see_each_other(shelf: Shelf) {
    let records = shelf.records().await;
    let mut session = Session::open(&shelf.records).await;
    let (table, ledger) = (OnceTable::default(), shelf.ledger().await);
    // Done in a transaction, asked for with a lock; and the other way round.
    let (one, two) = (shelf.key("one"), shelf.key("two"));
    let first = session.once(&one, 1).await;
    let again = ledger.once(&one).run(async { Ok::<u32, String>(2) }).await.expect("done");
    assert_eq!(again, Done { replayed: true, ..first });
    let first = ledger.once(&two).run(async { Ok::<u32, String>(3) }).await.expect("done");
    assert_eq!(session.once(&two, 4).await, Done { replayed: true, ..first });

    // A transaction without a lock takes over what is unfinished, and who was slow cannot record any more.
    for slow in [Token::new(5), Token::new(u64::try_from(i64::MAX - 1).expect("positive"))] {
        let key = Key::new(shelf.key(&format!("after {slow}"))).expect("a key");
        let begin = Begin { token: slow, keep: Duration::from_secs(60), repeat: true };
        assert_eq!(records.begin(&key, begin).await.expect("begun"), Begun::Yours { unfinished: None });
        let mut tx = session.begin().await;
        let ticket = ticket(tx.claim(&table.claim(key.as_str()).expect("a key")).await.expect("claimed"));
        assert_eq!(ticket.unfinished(), Some(slow));
        let done = tx.finish(ticket, 5).await.expect("recorded");
        tx.commit().await.expect("committed");
        let finished = records.finish(&key, slow, b"6", Duration::from_secs(60)).await.expect("asked");
        assert_eq!(finished, Finished::Stale { seen: done.token });
    }
}

pub(crate) async fn results_in_transactions_end_by_age(shelf: Shelf) {
    let mut session = Session::open(&shelf.records).await;
    let (key, records) = (shelf.key("k"), shelf.records().await);
    let table = OnceTable::default().keep(Duration::from_millis(50));
    let look = async || records.look(&Key::new(&key).expect("a key")).await.expect("looked");
    for swept in [false, true] {
        let mut tx = session.begin().await;
        let ticket = ticket(tx.claim(&table.claim(&key).expect("a key")).await.expect("claimed"));
        assert_eq!(ticket.unfinished(), None);
        tx.finish(ticket, 1).await.expect("recorded");
        tx.commit().await.expect("committed");
        let gone = async {
            while look().await.is_some() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        must("its time is up", gone).await;
        if swept {
            session.sweep(&table).await;
        }
    }
    assert_eq!(session.once(&key, 2).await.value, 2);
    session.sweep(&table).await;
    assert_eq!(session.once(&key, 3).await.value, 2);
}

pub(crate) async fn a_claim_sees_what_was_done_after_the_transaction_began(shelf: Shelf) {
    let (mut session, mut other) = (Session::open(&shelf.records).await, Session::open(&shelf.records).await);
    // There, a transaction that has read keeps others from writing.
    if session.dialect() == Dialect::Sqlite {
        return;
    }
    let (table, key) = (OnceTable::default(), shelf.key("k"));
    let mut tx = session.begin().await;
    // MySQL shows from now on what was there at this moment.
    tx.run("SELECT count(*) FROM tenure_once").await.expect("read");
    let done = other.once(&key, 1).await;
    let claimed = tx.claim(&table.claim(&key).expect("a key")).await.expect("asked");
    assert!(matches!(claimed, Claimed::Done(Done { value: 1, token, .. }) if token == done.token), "{claimed:?}");
}

pub(crate) async fn sweeping_deletes_rows_whose_time_is_up(shelf: Shelf) {
    let mut session = Session::open(&shelf.records).await;
    // Of its own, because others sweep too.
    let name = shelf.key("swept").replace(['-', '/'], "_");
    let table = OnceTable::named(&format!("t{name}")).expect("a name");
    session.run(&Ddl(session.dialect()).once(&table)).await;
    let claim = async |session: &mut Session, key: &str, keep| {
        let table = table.clone().keep(keep);
        let mut tx = session.begin().await;
        let ticket = ticket(tx.claim(&table.claim(key).expect("a key")).await.expect("claimed"));
        tx.finish(ticket, 1).await.expect("recorded");
        tx.commit().await.expect("committed");
    };
    for n in 0..5 {
        claim(&mut session, &format!("over {n}"), Duration::from_millis(1)).await;
    }
    claim(&mut session, "kept", Duration::from_secs(60)).await;
    let mut swept = 0;
    let all = async {
        while swept < 5 {
            swept += session.sweep(&table).await;
        }
    };
    must("their time is up", all).await;
    assert_eq!((swept, session.sweep(&table).await), (5, 0));
    assert_eq!(session.number(&format!("SELECT count(*) FROM {}", table.name())).await, Some(1));
    // A row that a transaction has claimed again does not keep the sweeper waiting. SQLite knows no rows that are locked.
    claim(&mut session, "locked", Duration::from_millis(1)).await;
    let mut other = Session::open(&shelf.records).await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    let mut tx = other.begin().await;
    let _ticket = ticket(tx.claim(&table.claim("locked").expect("a key")).await.expect("claimed"));
    if session.dialect() != Dialect::Sqlite {
        assert_eq!(must("nobody waits", session.sweep(&table)).await, 0);
    }
    tx.rollback().await;
    assert_eq!(session.sweep(&table).await, 1);
}

pub(crate) async fn a_ticket_is_good_for_its_own_transaction(shelf: Shelf) {
    let mut session = Session::open(&shelf.records).await;
    let (table, key) = (OnceTable::default(), shelf.key("k"));
    let mut tx = session.begin().await;
    let ticket = ticket(tx.claim(&table.claim(&key).expect("a key")).await.expect("claimed"));
    drop(tx);
    let mut tx = session.begin().await;
    let e = tx.finish(ticket, 1).await.expect_err("another transaction");
    assert!(
        matches!(&e, Error::Request(e @ tenure::Error::Misuse(_)) if e.to_string().contains("in the transaction that claimed it")),
        "{e:?}"
    );
    drop(tx);
    assert_eq!(session.once(&key, 2).await.value, 2);
    // What is of another type is an error here too, and the work is not done again.
    let mut tx = session.begin().await;
    let claim = table.claim(&key).expect("a key");
    let e = match &mut tx {
        Tx::Postgres(tx) => postgres::claim::<String>(tx, &claim).await.map_err(plain),
        Tx::Mysql(tx) => mysql::claim::<String>(tx, &claim).await.map_err(plain),
        Tx::Sqlite(tx) => sqlite::claim::<String>(tx, &claim).map_err(plain),
        Tx::SqlxPostgres(tx) => sqlx::claim::<String, _>(tx, &claim).await.map_err(plain),
        Tx::SqlxMysql(tx) => sqlx::claim::<String, _>(tx, &claim).await.map_err(plain),
    };
    assert!(matches!(&e, Err(Error::Request(e)) if e.to_string().contains("the type that was recorded")), "{e:?}");
}

pub(crate) async fn a_missing_table_says_how_to_make_it(shelf: Shelf) {
    let table = OnceTable::named("missing").expect("a name");
    let (dialect, records): (_, Arc<dyn Records>) = match &shelf.records {
        Address::Sql(dialect @ Dialect::Postgres, url) => {
            (*dialect, Arc::new(PostgresRecords::new(url.parse().expect("a URL"), NoTls, table)))
        }
        Address::Sql(dialect @ Dialect::Mysql, url) => {
            (*dialect, Arc::new(MysqlRecords::new(Pool::from_url(url).expect("a URL"), table)))
        }
        // It makes its own.
        Address::Sql(dialect @ Dialect::Sqlite, url) => {
            (*dialect, Arc::new(SqliteRecords::open(url, table).await.expect("opened")))
        }
        Address::Sqlx(dialect, url) => (*dialect, records_over_sqlx(*dialect, url, table)),
        _ => panic!("not a database"),
    };
    let looked = records.look(&Key::new("k").expect("a key")).await;
    match dialect {
        Dialect::Sqlite => assert_eq!(looked.expect("looked"), None),
        _ => {
            let e = looked.expect_err("no table").to_string();
            assert!(e.starts_with("the table of records missing cannot be used: "), "{e}");
            assert!(e.ends_with(&format!("one as `tenure fence ddl --once --dialect {dialect}` makes it")), "{e}");
        }
    }
}

fn start(shelf: &Shelf, key: &str) -> Player {
    let [kind, url] = shelf.records.in_words();
    Player::start("exactly once", &kind, &[&url, key])
}

/// The role of the process that is killed: arguments are the records and the key.
pub(crate) fn play(args: &[String]) {
    let [kind, url, key] = args else { panic!("not what a process is told: {args:?}") };
    block_on(async {
        let mut session = Session::open(&Address::from_words(kind, url)).await;
        let table = OnceTable::default();
        let mut tx = session.begin().await;
        step("begun");
        let ticket = ticket(tx.claim(&table.claim(key).expect("a key")).await.expect("claimed"));
        step("claimed");
        tx.work(key).await.expect("worked");
        step("worked");
        tx.finish(ticket, 1).await.expect("recorded");
        step("recorded");
        tx.commit().await.expect("committed");
        step("committed");
    });
}
