//! Fences as text and binds, run by sqlx on PostgreSQL, MySQL and SQLite.
//!
//! cargo run --bin sqlx -- postgres://… mysql://… sqlite:… (any of them); `examples/drivers/run` does so on servers of its own.

use std::error::Error;
use std::time::Duration;

// With a pool of one kind the code is the same, only the names of the types differ.
use sqlx::any::AnyArguments;
use sqlx::query::Query;
use sqlx::{Any, AnyConnection, AssertSqlSafe, Connection, Executor, Row};
use tenure::fence::sql::{Ddl, Dialect, Effect, FenceTable, Probe, Statement, Update, Value};
use tenure::{Guard, Locker, Token};

type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

#[tokio::main]
async fn main() -> Result<()> {
    sqlx::any::install_default_drivers();
    for url in std::env::args().skip(1) {
        let dialect = url.split(':').next().unwrap_or_default().parse()?;
        run(&url, dialect).await?;
    }
    Ok(())
}

async fn run(url: &str, dialect: Dialect) -> Result<()> {
    let mut conn = AnyConnection::connect(url).await?;
    // In production this is `tenure fence ddl`, once.
    let fences = FenceTable::named("sqlx_fences")?;
    conn.execute(AssertSqlSafe(Ddl(dialect).table(&fences))).await?;
    conn.execute("CREATE TABLE sqlx_stock (id bigint PRIMARY KEY, units bigint, fence bigint NOT NULL DEFAULT 0)").await?;
    conn.execute("INSERT INTO sqlx_stock (id, units) VALUES (1001, 10)").await?;

    let locker = Locker::connect("memory:").await?;
    // A lease that is not renewed, as if its holder were paused.
    let paused = locker.mutex("stock:1001").lease_fixed(Duration::from_millis(100)).lock().await?;
    let next = locker.mutex("stock:1001").lock().await?;

    sell(&mut conn, dialect, &fences, &next).await?;
    let late = sell(&mut conn, dialect, &fences, &paused).await.expect_err("it woke up too late");
    println!("sqlx, {dialect}, table:  {late}");

    let sell = Update::of("sqlx_stock").set("units = units - ?", [1]).key("id = ?", [1001]).only_if("units >= ?", [1]);
    assert_eq!(update(&mut conn, dialect, &sell.clone().fenced("fence", &next)).await?, Effect::Written);
    let late = update(&mut conn, dialect, &sell.fenced("fence", &paused)).await.expect_err("it woke up too late");
    println!("sqlx, {dialect}, column: {late}");
    // A write that changes nothing is written too: sqlx lets MySQL count the rows that it found.
    let same = Update::of("sqlx_stock").set("units = ?", [8]).key("id = ?", [1001]).fenced("fence", &next);
    assert_eq!(update(&mut conn, dialect, &same).await?, Effect::Written);

    let left: i64 = conn.fetch_one("SELECT units FROM sqlx_stock").await?.get(0);
    assert_eq!((left, locker.stats().stale), (8, 2));
    conn.execute("DROP TABLE sqlx_stock").await?;
    conn.execute("DROP TABLE sqlx_fences").await?;
    Ok(())
}

/// The table of marks: raised first, in the transaction that writes.
async fn sell(conn: &mut AnyConnection, dialect: Dialect, fences: &FenceTable, guard: &Guard) -> Result<()> {
    let mut tx = conn.begin().await?;
    let mut seen = None;
    for statement in fences.raise(dialect, "stock:1001", guard.token())? {
        seen = query(statement).fetch_optional(&mut *tx).await?;
    }
    let seen: i64 = seen.ok_or("the last statement returns the mark")?.get(0);
    // Too late? Then the transaction is dropped, which rolls it back.
    fences.tally().judge("stock:1001", guard, Token::new(seen.try_into()?))?;
    tx.execute("UPDATE sqlx_stock SET units = units - 1 WHERE id = 1001").await?;
    Ok(tx.commit().await?)
}

/// The column: one statement, and another one if it met no row.
async fn update(conn: &mut AnyConnection, dialect: Dialect, update: &Update<'_>) -> Result<Effect> {
    let met = query(update.write(dialect)?).execute(&mut *conn).await?.rows_affected();
    let mut found = None;
    if met == 0 {
        let row = query(update.probe(dialect)?).fetch_optional(&mut *conn).await?;
        found = row.map(|row| Probe { fence: row.get(0), lease: row.get(1) });
    }
    Ok(update.judge::<sqlx::Error>(met, found)?)
}

fn query<'q>(statement: Statement) -> Query<'q, Any, AnyArguments> {
    // Safe: checked names, placeholders, and what the application wrote itself.
    let query = sqlx::query(AssertSqlSafe(statement.text));
    statement.binds.into_iter().fold(query, |query, value| match value {
        Value::Bool(yes) => query.bind(yes),
        Value::Int(n) => query.bind(n),
        Value::Float(n) => query.bind(n),
        Value::Text(text) => query.bind(text),
        Value::Bytes(bytes) => query.bind(bytes),
        _ => query.bind(None::<String>),
    })
}
