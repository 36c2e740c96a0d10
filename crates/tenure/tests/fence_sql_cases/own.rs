//! What is particular to each database.

use std::process::Command;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, OptsBuilder};
use tenure::Token;
use tenure::fence::sql::{Dialect, Effect, FenceTable, Update};
use tenure::fence::{mysql, sqlite};

use super::session::{Error, Place, Session};
use tenure_testkit::database::{driver, file};
use tenure_testkit::{mariadb, postgres};

pub(crate) async fn text_becomes_what_the_column_is(place: Place) {
    let mut session = place.open().await;
    let types = ["uuid", "jsonb", "timestamptz", "numeric(30, 10)", "int[]", "inet", "name", "char(3)", "interval"];
    let columns: Vec<_> = types.iter().enumerate().map(|(n, kind)| format!("c{n} {kind}")).collect();
    session.run(&format!("CREATE TABLE kinds (id int PRIMARY KEY, lease int DEFAULT 0, {})", columns.join(", "))).await;
    session.run("INSERT INTO kinds (id) VALUES (1)").await;
    let binds = [
        "3f2504e0-4f89-11d3-9a0c-0305e82c3301",
        "{\"a\": [1]}",
        "2026-01-02 03:04:05+00",
        "12345678901234567890.0123456789",
        "{1,2}",
        "10.0.0.0/8",
        "n",
        "abc",
        "1 day",
    ];
    let all = |between: &str| (0..types.len()).map(|n| format!("c{n} = ?")).collect::<Vec<_>>().join(between);
    let row = || Update::of("kinds").key("id = ?", [1]);
    let set = row().set(&all(", "), binds).lease("lease", 0);
    assert_eq!(session.update(&set).await.expect("written"), Effect::Written);
    let same = row().only_if(&all(" AND "), binds).lease("lease", 1);
    assert_eq!(session.update(&same).await.expect("written"), Effect::Written);
    let numbers = row().set("c3 = ?, c7 = ?", (7, 8)).only_if("c3 > ?", [1.5]).lease("lease", 2);
    assert_eq!(session.update(&numbers).await.expect("written"), Effect::Written);
    assert_eq!(session.number("SELECT (c3 + c7::int)::bigint FROM kinds").await, Some(15));
}

pub(crate) async fn a_number_that_does_not_fit_is_refused_and_not_cut(place: Place) {
    let mut session = place.open().await;
    session.run("CREATE TABLE small (id smallint PRIMARY KEY, n int NOT NULL, fence int NOT NULL DEFAULT 0, yes boolean)").await;
    session.run("INSERT INTO small VALUES (1, 1)").await;
    let (fits, does_not) = (Token::new(5), Token::new(1 << 32 | 6));
    let row = || Update::of("small").key("id = ?", [1]);
    assert_eq!(session.update(&row().set("n = ?", [i32::MIN]).fenced("fence", &fits)).await.expect("written"), Effect::Written);
    for update in [
        row().set("n = ?", [i64::from(i32::MAX) + 1]).fenced("fence", &fits),
        row().set("n = ?", [1.5]).fenced("fence", &fits),
        row().set("n = ?", ["one"]).fenced("fence", &fits),
        row().set("yes = ?", [2]).fenced("fence", &fits),
        row().fenced("fence", &does_not),
        Update::of("small").key("id = ?", [65537]).fenced("fence", &fits),
    ] {
        let refused = session.update(&update).await;
        assert!(matches!(refused, Err(Error::Store(_))), "{refused:?}");
    }
    assert_eq!(session.number("SELECT n::bigint + fence FROM small").await, Some(i64::from(i32::MIN) + 5));
}

pub(crate) async fn operators_with_a_question_mark_can_be_used(place: Place) {
    let mut session = place.open().await;
    session.run("CREATE TABLE docs (id int PRIMARY KEY, doc jsonb, lease int DEFAULT 0)").await;
    session.run(r#"INSERT INTO docs VALUES (1, '{"a?": 1}')"#).await;
    let update = Update::of("docs")
        .set("doc = doc || CAST(? AS jsonb)", [r#"{"b": 2}"#])
        .key("id = ? AND doc ?? 'a?'", [1])
        .lease("lease", 0);
    assert_eq!(session.update(&update).await.expect("written"), Effect::Written);
    assert_eq!(session.number("SELECT (doc->'b')::bigint FROM docs").await, Some(2));
}

pub(crate) async fn rows_that_are_found_count_also_if_the_client_asks_for_them(place: Place) {
    let opts = OptsBuilder::from_opts(mysql_async::Opts::from_url(&place.url).expect("a URL"));
    for found in [false, true] {
        let mut conn = Conn::new(opts.clone().client_found_rows(found)).await.expect("connected");
        conn.query_drop("UPDATE stock SET units = 3, fence = 0").await.expect("reset");
        let pass = Token::new(5);
        let update = Update::of("stock").set("units = ?", [3]).key("id = ?", [1]).fenced("fence", &pass);
        for _ in 0..2 {
            assert_eq!(mysql::update(&mut conn, &update).await.expect("passed"), Effect::Written);
        }
        let nobody = Update::of("stock").set("units = ?", [3]).key("id = ?", [2]).fenced("fence", &pass);
        assert_eq!(mysql::update(&mut conn, &nobody).await.expect("passed"), Effect::NoSuchRow);
    }
}

pub(crate) async fn a_pass_outside_of_a_transaction_is_refused(place: Place) {
    let Session::Sqlite(conn) = place.open().await else { unreachable!("asked for") };
    let fences = FenceTable::default();
    let refused = sqlite::pass(&conn, &fences, "R", &Token::new(5)).expect_err("refused");
    assert!(matches!(&refused, sqlite::Error::Request(tenure::Error::Misuse(_))), "{refused:?}");
    let refused = refused.to_string();
    assert!(refused.starts_with("a pass for \"R\" was shown outside of a transaction"), "{refused}");
    conn.execute_batch("BEGIN").expect("begun");
    sqlite::pass(&conn, &fences, "R", &Token::new(5)).expect("passed");
    conn.execute_batch("COMMIT").expect("committed");
    assert_eq!(place.open().await.mark("R").await, Some(5));
}

pub(crate) async fn a_savepoint_is_a_transaction(place: Place) {
    let Session::Sqlite(mut conn) = place.open().await else { unreachable!("asked for") };
    let savepoint = conn.savepoint().expect("begun");
    sqlite::pass(&savepoint, &FenceTable::default(), "R", &Token::new(5)).expect("passed");
    savepoint.commit().expect("committed");
    assert_eq!(place.open().await.mark("R").await, Some(5));
}

pub(crate) fn sqlx_has_fences_and_records() {
    // Options of the URL are the drivers' own.
    let servers = [postgres::database(), mariadb::database()];
    let [postgres, mysql] = servers.each_ref().map(|url| url.split('?').next().unwrap_or_default());
    let sqlite = format!("sqlite:{}?mode=rwc", file());
    let said = drive("sqlx", &[postgres, mysql, &sqlite]);
    for dialect in Dialect::ALL {
        assert_eq!(said.matches(&format!("sqlx, {dialect}, ")).count(), 3, "{said}");
    }
}

pub(crate) fn diesel_runs_the_statements() {
    let said = drive("diesel", &[]);
    assert_eq!(said.matches("diesel, sqlite, ").count(), 2, "{said}");
}

fn drive(program: &str, args: &[&str]) -> String {
    let output = Command::new(driver(program)).args(args).output().expect("it runs");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}
