//! Fences as text and binds, run by diesel on SQLite. With its other connections the code is the same, only the dialect differs.
//!
//! cargo run --bin diesel

use std::error::Error;
use std::time::Duration;

use diesel::query_builder::{BoxedSqlQuery, SqlQuery};
use diesel::sql_types::{BigInt, Binary, Bool, Double, Nullable, Text};
use diesel::sqlite::Sqlite;
use diesel::{Connection, OptionalExtension, QueryableByName, RunQueryDsl, SqliteConnection, sql_query};
use tenure::fence::sql::{Ddl, Dialect, Effect, FenceTable, Probe, Statement, Update, Value};
use tenure::{Guard, Locker, Token};

type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

#[derive(QueryableByName)]
struct Mark {
    #[diesel(sql_type = BigInt)]
    token: i64,
}

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = BigInt)]
    fence: i64,
    #[diesel(sql_type = BigInt)]
    lease: i64,
}

#[derive(QueryableByName)]
struct Left {
    #[diesel(sql_type = BigInt)]
    units: i64,
}

#[tokio::main]
async fn main() -> Result<()> {
    let mut conn = SqliteConnection::establish(":memory:")?;
    // In production this is `tenure fence ddl`, once.
    let fences = FenceTable::default();
    sql_query(Ddl(Dialect::Sqlite).table(&fences)).execute(&mut conn)?;
    let stock = "CREATE TABLE stock (id INTEGER PRIMARY KEY, units INTEGER, fence INTEGER NOT NULL DEFAULT 0)";
    sql_query(stock).execute(&mut conn)?;
    sql_query("INSERT INTO stock (id, units) VALUES (1001, 10)").execute(&mut conn)?;

    let locker = Locker::connect("memory:").await?;
    // A lease that is not renewed, as if its holder were paused.
    let paused = locker.mutex("stock:1001").lease_fixed(Duration::from_millis(100)).lock().await?;
    let next = locker.mutex("stock:1001").lock().await?;

    sell(&mut conn, &fences, &next)?;
    let late = sell(&mut conn, &fences, &paused).expect_err("it woke up too late");
    println!("diesel, sqlite, table:  {late}");

    let sell = Update::of("stock").set("units = units - ?", [1]).key("id = ?", [1001]).only_if("units >= ?", [1]);
    assert_eq!(update(&mut conn, &sell.clone().fenced("fence", &next))?, Effect::Written);
    let late = update(&mut conn, &sell.fenced("fence", &paused)).expect_err("it woke up too late");
    println!("diesel, sqlite, column: {late}");

    let left: Left = sql_query("SELECT units FROM stock").get_result(&mut conn)?;
    assert_eq!((left.units, locker.stats().stale), (8, 2));
    Ok(())
}

/// The table of marks: raised first, in the transaction that writes. An error rolls it back.
fn sell(conn: &mut SqliteConnection, fences: &FenceTable, guard: &Guard) -> Result<()> {
    conn.transaction(|tx| {
        let mut seen = None;
        for statement in fences.raise(Dialect::Sqlite, "stock:1001", guard.token())? {
            seen = query(statement).get_result::<Mark>(tx).optional()?;
        }
        let seen = seen.ok_or("the last statement returns the mark")?.token;
        fences.counters().check("stock:1001", guard, Token::new(seen.try_into()?))?;
        sql_query("UPDATE stock SET units = units - 1 WHERE id = 1001").execute(tx)?;
        Ok(())
    })
}

/// The column: one statement, and another one if it met no row.
fn update(conn: &mut SqliteConnection, update: &Update<'_>) -> Result<Effect> {
    let met = query(update.write(Dialect::Sqlite)?).execute(conn)?;
    let mut found = None;
    if met == 0 {
        let row = query(update.probe(Dialect::Sqlite)?).get_result::<Row>(conn).optional()?;
        found = row.map(|Row { fence, lease }| Probe { fence, lease });
    }
    Ok(update.check::<diesel::result::Error>(met as u64, found)?)
}

fn query(statement: Statement) -> BoxedSqlQuery<'static, Sqlite, SqlQuery> {
    let query = sql_query(statement.text).into_boxed();
    statement.binds.into_iter().fold(query, |query, value| match value {
        Value::Bool(yes) => query.bind::<Bool, _>(yes),
        Value::Int(n) => query.bind::<BigInt, _>(n),
        Value::Float(n) => query.bind::<Double, _>(n),
        Value::Text(text) => query.bind::<Text, _>(text),
        Value::Bytes(bytes) => query.bind::<Binary, _>(bytes),
        _ => query.bind::<Nullable<Text>, _>(None::<String>),
    })
}
