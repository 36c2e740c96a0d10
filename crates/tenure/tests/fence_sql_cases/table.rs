//! The table of marks.

use tenure::fence::Stale;
use tenure::fence::sql::{Ddl, Dialect, FenceTable};
use tenure::{Locker, Token};

use super::session::{Error, Place};

fn stale(resource: &str, token: u64, seen: u64) -> Option<Stale> {
    Some(Stale { resource: resource.to_owned(), token: Token::new(token), seen: Token::new(seen) })
}

pub(crate) async fn a_larger_token_passes_and_a_smaller_one_is_stale(place: Place) {
    let fences = FenceTable::default();
    let mut session = place.open().await;
    for token in [5, 6] {
        session.sell(&fences, "R", &Token::new(token)).await.expect("passed");
    }
    let refused = session.sell(&fences, "R", &Token::new(5)).await.expect_err("refused");
    assert_eq!(refused.stale().cloned(), stale("R", 5, 6));
    assert_eq!(session.units().await, 8, "nothing is written by who is stale");
    assert_eq!(session.mark("R").await, Some(6));
    let stats = fences.stats();
    assert_eq!((stats.accepted, stats.stale), (2, 1));
}

pub(crate) async fn the_same_token_passes_again(place: Place) {
    let fences = FenceTable::default();
    let mut session = place.open().await;
    for sold in 1..=3 {
        session.sell(&fences, "R", &Token::new(7)).await.expect("passed");
        assert_eq!(session.units().await, 10 - sold);
    }
    assert_eq!(session.mark("R").await, Some(7));
}

pub(crate) async fn the_mark_stays_also_if_a_stale_transaction_is_committed(place: Place) {
    let fences = FenceTable::default();
    let mut session = place.open().await;
    session.sell(&fences, "R", &Token::new(9)).await.expect("passed");
    for token in [8, 0, 3] {
        let mut tx = session.begin().await;
        tx.pass(&fences, "R", &Token::new(token)).await.expect_err("refused");
        tx.commit().await.expect("committed");
        assert_eq!(session.mark("R").await, Some(9));
    }
}

pub(crate) async fn a_stale_transaction_leaves_nothing_behind(place: Place) {
    let fences = FenceTable::default();
    let mut session = place.open().await;
    session.sell(&fences, "R", &Token::new(9)).await.expect("passed");
    let mut tx = session.begin().await;
    tx.run("INSERT INTO stock (id, units) VALUES (2, 1)").await.expect("inserted");
    tx.run("UPDATE stock SET units = 0").await.expect("updated");
    tx.pass(&fences, "other", &Token::new(8)).await.expect("nobody was there");
    tx.pass(&fences, "R", &Token::new(8)).await.expect_err("refused");
    drop(tx);
    assert_eq!(session.number("SELECT id FROM stock WHERE id = 2").await, None);
    assert_eq!(session.units().await, 9);
    assert_eq!(session.mark("other").await, None, "also what was let through is undone");
}

pub(crate) async fn a_mark_that_is_rolled_back_refuses_nobody(place: Place) {
    let fences = FenceTable::default();
    let mut session = place.open().await;
    session.sell(&fences, "R", &Token::new(5)).await.expect("passed");
    let mut tx = session.begin().await;
    tx.pass(&fences, "R", &Token::new(6)).await.expect("passed");
    drop(tx);
    session.sell(&fences, "R", &Token::new(5)).await.expect("nothing was written under 6");
}

pub(crate) async fn names_that_differ_a_little_are_different(place: Place) {
    let fences = FenceTable::default();
    let mut session = place.open().await;
    let names = [
        "Stock",
        "stock",
        "STOCK",
        "stock ",
        "stock  ",
        " stock",
        "stöck",
        "sto\u{308}ck",
        "stosck",
        "stoßck",
        "stock\t",
        "%",
        "_",
    ];
    for (n, name) in names.iter().enumerate() {
        session.sell(&fences, name, &Token::new(100 - n as u64)).await.expect("nobody was here");
    }
    for (n, name) in names.iter().enumerate() {
        let refused = session.sell(&fences, name, &Token::new(1)).await.expect_err("refused");
        assert_eq!(refused.stale().cloned(), stale(name, 1, 100 - n as u64));
    }
}

pub(crate) async fn names_of_any_length_and_characters_have_marks(place: Place) {
    let fences = FenceTable::default();
    let mut session = place.open().await;
    let all: String = ('\u{1}'..'\u{ff}').collect();
    for name in ["x".repeat(512), "√".repeat(170), all] {
        session.sell(&fences, &name, &Token::new(2)).await.expect("passed");
        session.sell(&fences, &name, &Token::new(1)).await.expect_err("refused");
    }
    for name in [String::new(), "x".repeat(513)] {
        let refused = session.sell(&fences, &name, &Token::new(2)).await;
        assert!(matches!(refused, Err(Error::Request(_))), "{refused:?}");
    }
    let zero = session.sell(&fences, "a\0b", &Token::new(2)).await;
    if place.dialect == Dialect::Postgres {
        let words = zero.expect_err("PostgreSQL cannot").to_string();
        assert!(words.contains("\"a\\0b\" has a zero byte"), "{words}");
    } else {
        zero.expect("passed");
        session.sell(&fences, "a", &Token::new(1)).await.expect("another name");
    }
}

pub(crate) async fn the_largest_token_fits_and_a_larger_one_is_a_wrong_request(place: Place) {
    let fences = FenceTable::default();
    let mut session = place.open().await;
    let last = i64::MAX as u64;
    session.sell(&fences, "R", &Token::new(last)).await.expect("passed");
    let refused = session.sell(&fences, "R", &Token::new(last - 1)).await.expect_err("refused");
    assert_eq!(refused.stale().cloned(), stale("R", last - 1, last));
    let refused = session.sell(&fences, "R", &Token::new(last + 1)).await;
    assert!(matches!(refused, Err(Error::Request(_))), "{refused:?}");
}

pub(crate) async fn a_table_may_have_any_name_and_a_schema(place: Place) {
    let mut session = place.open().await;
    let (names, schema) = match place.dialect {
        Dialect::Postgres => (["s.fences", "\"order\"", "s.\"Group of\""], Some("CREATE SCHEMA s")),
        Dialect::Mysql => (["mine.fences", "`order`", "mine.`Group of`"], Some("CREATE DATABASE IF NOT EXISTS mine")),
        Dialect::Sqlite => (["main.fences", "\"order\"", "main.`Group of`"], None),
    };
    if let Some(schema) = schema {
        session.run(schema).await;
    }
    for name in names {
        let fences = FenceTable::named(name).expect("a name");
        session.run(&Ddl(place.dialect).table(&fences)).await;
        session.run(&Ddl(place.dialect).table(&fences)).await;
        session.sell(&fences, "R", &Token::new(2)).await.expect("passed");
        session.sell(&fences, "R", &Token::new(2)).await.expect("passed");
        session.sell(&fences, "R", &Token::new(1)).await.expect_err("refused");
    }
}

pub(crate) async fn the_locker_of_a_guard_hears_that_it_was_stale(place: Place) {
    let locker = Locker::connect("memory:").await.expect("connected");
    let guard = locker.mutex("R").lock().await.expect("locked");
    let fences = FenceTable::default();
    let mut session = place.open().await;
    session.sell(&fences, "R", &guard).await.expect("passed");
    assert_eq!(locker.stats().stale, 0);
    session.sell(&fences, "R", &guard.token().plus(1).expect("a token")).await.expect("passed");
    session.sell(&fences, "R", &guard).await.expect_err("refused");
    assert_eq!(locker.stats().stale, 1);
    assert_eq!((fences.stats().accepted, fences.stats().stale), (2, 1));
}
