//! Marks that databases keep for storages that cannot.

use std::sync::Arc;
use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{OptsBuilder, Pool};
use tenure::fence::marks::Marks;
use tenure::fence::mysql::MysqlMarks;
use tenure::fence::sql::{Dialect, FenceTable};
use tenure::fence::sqlite::SqliteMarks;
use tenure::{Error, Fault, Token};
use tokio::task::JoinSet;

use super::session::{Place, Session};
use tenure_testkit::locker::must;

async fn raise(marks: &dyn Marks, resource: &str, token: u64) -> Result<u64, Error> {
    must("an answer", marks.raise(resource, Token::new(token))).await.map(Token::get)
}

pub(crate) async fn a_mark_only_rises_and_is_told(place: Place) {
    let marks = place.marks().await;
    for (token, largest) in [(5, 5), (7, 7), (6, 7), (7, 7), (0, 7), (8, 8)] {
        assert_eq!(raise(&*marks, "R", token).await.expect("raised"), largest);
    }
    assert_eq!(raise(&*marks, "r", 1).await.expect("raised"), 1, "another resource");
    assert_eq!(place.open().await.mark("R").await, Some(8));
    let refused = raise(&*marks, "", 1).await.expect_err("refused");
    assert!(matches!(refused, Error::Config { .. }), "{refused}");
}

pub(crate) async fn marks_are_shared_by_all_who_use_the_table(place: Place) {
    let (one, two) = (place.marks().await, place.marks().await);
    assert_eq!(raise(&*one, "R", 7).await.expect("raised"), 7);
    assert_eq!(raise(&*two, "R", 6).await.expect("raised"), 7);
    let refused = place.open().await.sell(&FenceTable::default(), "R", &Token::new(6)).await.expect_err("refused");
    assert_eq!(refused.stale().map(|stale| stale.seen), Some(Token::new(7)), "the table of marks is the same");
}

pub(crate) async fn of_many_who_raise_at_once_the_largest_stays(place: Place) {
    let mut tasks = JoinSet::new();
    for writer in 0..4 {
        let marks = place.marks().await;
        tasks.spawn(async move {
            let mut seen = 0;
            for round in 0..20 {
                let token = round * 4 + writer;
                let largest = raise(&*marks, "R", token).await.expect("raised");
                assert!(largest >= token && largest >= seen, "{largest} after {seen}, with {token}");
                seen = largest;
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("no panic");
    }
    assert_eq!(place.open().await.mark("R").await, Some(79));
}

pub(crate) async fn a_table_that_is_missing_is_told_with_the_way_to_make_it(place: Place) {
    let marks = place.marks_in(FenceTable::named("nowhere").expect("a name")).await;
    let words = raise(&*marks, "R", 1).await.expect_err("refused").to_string();
    assert!(words.starts_with("the table of marks nowhere cannot be used: "), "{words}");
    assert!(words.ends_with(&format!("allowed: one as `tenure fence ddl --dialect {}` makes it", place.dialect)), "{words}");
    // A table of another shape is as good as none.
    let marks = place.marks_in(FenceTable::named("stock").expect("a name")).await;
    let refused = raise(&*marks, "R", 1).await.expect_err("refused");
    assert!(matches!(refused, Error::Config { .. }), "{refused}");
}

pub(crate) async fn a_server_that_is_away_is_unavailable(place: Place) {
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port").port();
    let there = place.url.split('@').nth(1).and_then(|rest| rest.split('/').next()).expect("a server");
    let away = place.with(there, &format!("127.0.0.1:{port}")).marks().await;
    let error = raise(&*away, "R", 1).await.expect_err("nobody is there");
    assert_eq!((error.fault(), error.is_transient()), (Some(Fault::Connection), true), "{error}");
}

pub(crate) async fn a_connection_that_broke_is_made_anew(place: Place) {
    let marks = place.marks().await;
    raise(&*marks, "R", 1).await.expect("raised");
    match place.native().open().await {
        Session::Postgres(client) => {
            let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity";
            let others = "datname = current_database() AND pid <> pg_backend_pid()";
            client.execute(&format!("{end} WHERE {others}"), &[]).await.expect("ended");
        }
        Session::Mysql(mut conn) => {
            let others = "SELECT id FROM information_schema.processlist WHERE db = database() AND id <> connection_id()";
            for id in conn.query::<u64, _>(others).await.expect("asked") {
                conn.query_drop(format!("KILL {id}")).await.expect("ended");
            }
        }
        _ => unreachable!("no connection"),
    }
    must("a new connection", async {
        while let Err(error) = raise(&*marks, "R", 2).await {
            assert_eq!((error.fault(), error.is_transient()), (Some(Fault::Connection), true), "{error}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

pub(crate) async fn who_may_not_write_is_told_so(place: Place) {
    let mut session = place.open().await;
    // Users are the server's, not the database's.
    let (user, root) = (format!("reader_{}", place.name()), if place.dialect == Dialect::Mysql { "root@" } else { "postgres@" });
    match place.dialect {
        Dialect::Postgres => session.run(&format!("CREATE ROLE {user} LOGIN")).await,
        _ => session.run(&format!("CREATE USER {user} IDENTIFIED BY 'hunter2'")).await,
    }
    session
        .run(&format!("GRANT SELECT ON {} TO {user}", if place.dialect == Dialect::Mysql { "*" } else { "tenure_fences" }))
        .await;
    let marks = place.with(root, &format!("{user}:hunter2@")).marks().await;
    let error = raise(&*marks, "R", 1).await.expect_err("it may only read");
    assert_eq!((error.fault(), error.is_transient()), (Some(Fault::Denied), false), "{error}");
    let marks = place.with(root, "nobody:hunter3@").marks().await;
    let error = raise(&*marks, "R", 1).await.expect_err("there is no such user");
    assert_eq!((error.fault(), error.is_transient()), (Some(Fault::Auth), false), "{error}");
    assert!(!format!("{error} {error:?} {marks:?}").contains("hunter"), "{error:?} {marks:?}");
}

pub(crate) async fn a_server_that_takes_no_writes_may_take_them_later(place: Place) {
    let marks: Arc<dyn Marks> = match place.dialect {
        Dialect::Postgres => {
            let read_only = "?options=-c%20default_transaction_read_only%3Don&connect_timeout";
            place.with("?connect_timeout", read_only).marks().await
        }
        _ => with_first(&place, "SET SESSION TRANSACTION READ ONLY"),
    };
    let error = raise(&*marks, "R", 1).await.expect_err("it may only read");
    assert_eq!((error.fault(), error.is_transient()), (Some(Fault::ReadOnly), true), "{error}");
}

pub(crate) async fn marks_stay_also_where_nothing_is_committed_by_itself(place: Place) {
    let marks = with_first(&place, "SET autocommit = 0");
    raise(&*marks, "R", 5).await.expect("raised");
    assert_eq!(place.open().await.mark("R").await, Some(5));
}

/// Marks whose connections begin with a statement.
fn with_first(place: &Place, statement: &str) -> Arc<dyn Marks> {
    let opts = OptsBuilder::from_opts(mysql_async::Opts::from_url(&place.url).expect("a URL")).init(vec![statement]);
    Arc::new(MysqlMarks::new(Pool::new(opts), FenceTable::default()))
}

pub(crate) async fn a_file_that_cannot_be_used_is_told_with_the_reason(place: Place) {
    let nowhere = format!("{}.d/marks", place.url);
    let refused = SqliteMarks::open(&nowhere, FenceTable::default()).await.expect_err("no such directory");
    assert!(matches!(refused, Error::Config { .. }), "{refused}");
    let text = format!("{}.txt", place.url);
    std::fs::write(
        &text,
        "a text that is long enough not to be taken for an empty database, of which the header has a hundred bytes",
    )
    .expect("written");
    let refused = SqliteMarks::open(&text, FenceTable::default()).await.expect_err("not a database");
    assert_eq!(refused.fault(), Some(Fault::Corrupt), "{refused}");
}
