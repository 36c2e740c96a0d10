//! Columns that compare: a token, a lease, both.

use tenure::fence::sql::{Ddl, Dialect, Effect, Update, Value};
use tenure::fence::{FenceCounters, Overtaken, Stale};
use tenure::{Locker, Token};

use super::session::{Error, Place, one_less};

pub(crate) async fn a_row_keeps_the_largest_token_and_refuses_smaller_ones(place: Place) {
    let counters = FenceCounters::default();
    let mut session = place.open().await;
    for (token, left) in [(5, 9), (5, 8), (7, 7)] {
        let pass = Token::new(token);
        let effect = session.update(&one_less().fenced("fence", &pass).counted(&counters)).await.expect("passed");
        assert_eq!((effect, session.units().await), (Effect::Written, left));
    }
    let pass = Token::new(6);
    let refused = session.update(&one_less().fenced("fence", &pass).counted(&counters)).await.expect_err("refused");
    let stale = Stale { resource: "stock".to_owned(), token: pass, seen: Token::new(7) };
    assert_eq!(refused.stale(), Some(&stale));
    assert_eq!(session.units().await, 7);
    assert_eq!(session.number("SELECT fence FROM stock").await, Some(7));
    assert_eq!((counters.stats().accepted, counters.stats().stale), (3, 1));
}

pub(crate) async fn an_unmet_condition_and_a_missing_row_are_values(place: Place) {
    let mut session = place.open().await;
    let pass = Token::new(5);
    let sell = |id: i64, units: i64| {
        let update = Update::of("stock").set("units = units - ?", [units]).key("id = ?", [id]);
        update.only_if("units >= ?", [units]).fenced("fence", &pass).lease("lease", 0)
    };
    assert_eq!(session.update(&sell(1, 11)).await.expect("asked"), Effect::Unmet);
    assert_eq!(session.update(&sell(2, 1)).await.expect("asked"), Effect::NoSuchRow);
    assert_eq!(session.units().await, 10);
    assert_eq!(session.number("SELECT fence + lease FROM stock").await, Some(0), "what is not written raises nothing");
    assert_eq!(session.update(&sell(1, 10)).await.expect("asked"), Effect::Written);
    // The lease has moved on, and too little is left: who lost must read again before it can judge.
    assert!(matches!(session.update(&sell(1, 10)).await, Err(Error::Overtaken(Overtaken { read: 0, found: 1, .. }))));
}

pub(crate) async fn an_update_of_two_rows_is_a_mistake_that_can_be_rolled_back(place: Place) {
    let mut session = place.open().await;
    session.run("INSERT INTO stock (id, units) VALUES (2, 10)").await;
    let pass = Token::new(5);
    let mut tx = session.begin().await;
    let update = Update::of("stock").set("units = 0", ()).key("id > 0", ()).fenced("fence", &pass);
    let refused = tx.update(&update).await;
    assert!(matches!(&refused, Err(Error::Request(e)) if e.to_string().contains("was made in 2 rows")), "{refused:?}");
    drop(tx);
    assert_eq!(session.number("SELECT count(*) FROM stock WHERE units = 10 AND fence = 0").await, Some(2));
}

pub(crate) async fn a_write_that_changes_nothing_is_written(place: Place) {
    let counters = FenceCounters::default();
    let mut session = place.open().await;
    let pass = Token::new(5);
    let update = Update::of("stock").set("units = ?", [3]).key("id = ?", [1]).only_if("units >= 0", ());
    let update = update.fenced("fence", &pass).counted(&counters);
    for _ in 0..2 {
        assert_eq!(session.update(&update).await.expect("passed"), Effect::Written);
    }
    assert_eq!(counters.stats().accepted, 2);
}

pub(crate) async fn a_column_without_a_number_is_one_that_nobody_wrote_to(place: Place) {
    let mut session = place.open().await;
    session.run("CREATE TABLE loose (id bigint PRIMARY KEY, fence bigint, lease bigint)").await;
    session.run("INSERT INTO loose VALUES (1, NULL, NULL)").await;
    let pass = Token::new(5);
    let row = || Update::of("loose").key("id = ?", [1]);
    assert_eq!(session.read_lease(&row(), "lease").await.expect("read"), Some(0));
    assert!(matches!(session.update(&row().lease("lease", 1)).await, Err(Error::Overtaken(Overtaken { found: 0, .. }))));
    assert_eq!(session.update(&row().fenced("fence", &pass).lease("lease", 0)).await.expect("passed"), Effect::Written);
    assert_eq!(session.number("SELECT fence * 100 + lease FROM loose").await, Some(501));
}

pub(crate) async fn a_token_and_a_lease_both_must_hold(place: Place) {
    let counters = FenceCounters::default();
    let mut session = place.open().await;
    let (early, late) = (Token::new(5), Token::new(6));
    let write = |pass, lease| one_less().fenced("fence", pass).lease("lease", lease).counted(&counters);
    assert_eq!(session.update(&write(&late, 0)).await.expect("passed"), Effect::Written);
    assert!(matches!(session.update(&write(&late, 0)).await, Err(Error::Overtaken(Overtaken { read: 0, found: 1, .. }))));
    assert!(matches!(session.update(&write(&early, 1)).await, Err(Error::Stale(_))));
    assert_eq!(session.read_lease(&one_less(), "lease").await.expect("read"), Some(1));
    assert_eq!(session.read_lease(&Update::of("stock").key("id = ?", [9]), "lease").await.expect("read"), None);
    let stats = counters.stats();
    assert_eq!((stats.accepted, stats.stale, stats.overtaken), (1, 1, 1));
    assert_eq!(session.units().await, 9);
}

pub(crate) async fn the_locker_of_a_guard_hears_that_a_row_was_ahead(place: Place) {
    let locker = Locker::connect("memory:").await.expect("connected");
    let guard = locker.mutex("R").lock().await.expect("locked");
    let mut session = place.open().await;
    session.sell_one(guard.token().get() + 1).await.expect("passed");
    session.update(&one_less().fenced("fence", &guard)).await.expect_err("refused");
    assert_eq!(locker.stats().stale, 1);
}

pub(crate) async fn values_of_all_kinds_arrive_as_they_are(place: Place) {
    let mut session = place.open().await;
    let (float, bytes) = match place.dialect {
        Dialect::Postgres => ("double precision", "bytea"),
        _ => ("double precision", "blob"),
    };
    session
        .run(&format!("CREATE TABLE kinds (id bigint PRIMARY KEY, a bigint, b varchar(99), c {float}, d {bytes}, e boolean)"))
        .await;
    session.run("INSERT INTO kinds VALUES (1, 1, '', 1, NULL, false)").await;
    session.run(&Ddl(place.dialect).column("kinds", "lease").expect("a column")).await;
    let row = || Update::of("kinds").key("id = ?", [1]);
    let text = "it's \"?\" – \\ \u{1F512}";
    let set = row()
        .set("a = ?, b = ?", (i64::MIN, text))
        .set("c = ?, d = ?, e = ?", (-1.5e-300, &[0_u8, 255, 39][..], true))
        .lease("lease", 0);
    assert_eq!(session.update(&set).await.expect("written"), Effect::Written);
    let found = row()
        .set("b = ?", [Value::Null])
        .only_if("a = ? AND b = ? AND c = ? AND d = ? AND e = ?", (i64::MIN, text, -1.5e-300, &[0_u8, 255, 39][..], true))
        .lease("lease", 1);
    assert_eq!(session.update(&found).await.expect("written"), Effect::Written);
    let empty = row().set("a = 0", ()).only_if("b IS NULL", ()).lease("lease", 2);
    assert_eq!(session.update(&empty).await.expect("written"), Effect::Written);
}
