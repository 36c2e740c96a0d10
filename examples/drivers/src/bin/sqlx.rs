//! Fences and records over sqlx on PostgreSQL, MySQL and SQLite.
//!
//! cargo run --bin sqlx -- postgres://… mysql://… sqlite:… (any of them); `examples/drivers/run` does so on servers of its own.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use sqlx::pool::PoolOptions;
use sqlx::{AssertSqlSafe, Executor, MySql, Pool, Postgres, Sqlite};
use tenure::fence::marks::Marks;
use tenure::fence::sql::{Ddl, Dialect, Effect, FenceTable, Update};
use tenure::fence::sqlx::{self as fence, Database, SqlxMarks};
use tenure::once::sqlx::{self as once, SqlxRecords};
use tenure::once::{Claimed, Ledger, OnceTable};
use tenure::{Guard, Locker, Token};

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

#[tokio::main]
async fn main() -> Result<()> {
    for url in std::env::args().skip(1) {
        let dialect = url.split(':').next().unwrap_or_default().parse()?;
        match dialect {
            Dialect::Postgres => run::<Postgres>(&url, dialect).await?,
            Dialect::Mysql => run::<MySql>(&url, dialect).await?,
            Dialect::Sqlite => run::<Sqlite>(&url, dialect).await?,
        }
    }
    Ok(())
}

async fn run<DB: Database>(url: &str, dialect: Dialect) -> Result<()>
where
    for<'c> &'c mut DB::Connection: Executor<'c, Database = DB>,
{
    let pool = PoolOptions::<DB>::new().connect(url).await?;
    // In production this is `tenure fence ddl`, once.
    let (fences, table) = (FenceTable::named("sqlx_fences")?, OnceTable::named("sqlx_once")?);
    execute(&pool, &Ddl(dialect).table(&fences)).await?;
    execute(&pool, &Ddl(dialect).once(&table)).await?;
    execute(&pool, "CREATE TABLE sqlx_stock (id bigint PRIMARY KEY, units bigint, fence bigint NOT NULL DEFAULT 0)").await?;
    execute(&pool, "INSERT INTO sqlx_stock (id, units) VALUES (1001, 10)").await?;

    let locker = Locker::connect("memory:").await?;
    // A lease that is not renewed, as if its holder were paused.
    let paused = locker.mutex("stock:1001").lease_fixed(Duration::from_millis(100)).lock().await?;
    let next = locker.mutex("stock:1001").lock().await?;

    sell(&pool, &fences, &next).await?;
    let late = sell(&pool, &fences, &paused).await.expect_err("it woke up too late");
    println!("sqlx, {dialect}, table:  {late}");

    let mut conn = pool.acquire().await?;
    let sell = Update::of("sqlx_stock").set("units = units - ?", [1]).key("id = ?", [1001]).only_if("units >= ?", [1]);
    assert_eq!(fence::update(&mut *conn, &sell.clone().fenced("fence", &next)).await?, Effect::Written);
    let late = fence::update(&mut *conn, &sell.clone().fenced("fence", &paused)).await.expect_err("it woke up too late");
    println!("sqlx, {dialect}, column: {late}");
    // A write that changes nothing is written too, and a row that is missing is a value.
    let same = || Update::of("sqlx_stock").set("units = ?", [8]).fenced("fence", &next);
    assert_eq!(fence::update(&mut *conn, &same().key("id = ?", [1001])).await?, Effect::Written);
    assert_eq!(fence::update(&mut *conn, &same().key("id = ?", [1002])).await?, Effect::NoSuchRow);
    assert_eq!(fence::read_lease(&mut *conn, &sell, "units").await?, Some(8));
    drop(conn);
    assert_eq!(locker.stats().stale, 2);

    marks(&pool).await?;
    records(&pool, &locker, &table).await?;
    transactions(&pool, &table).await?;
    println!("sqlx, {dialect}, once:   done once");
    for name in ["sqlx_stock", "sqlx_fences", "sqlx_once"] {
        execute(&pool, &format!("DROP TABLE {name}")).await?;
    }
    Ok(())
}

async fn execute<DB: Database>(pool: &Pool<DB>, text: &str) -> Result<()>
where
    for<'c> &'c mut DB::Connection: Executor<'c, Database = DB>,
{
    let mut conn = pool.acquire().await?;
    (&mut *conn).execute(AssertSqlSafe(text.to_owned())).await?;
    Ok(())
}

/// The table of marks: raised first, in the transaction that writes.
async fn sell<DB: Database>(pool: &Pool<DB>, fences: &FenceTable, guard: &Guard) -> Result<()>
where
    for<'c> &'c mut DB::Connection: Executor<'c, Database = DB>,
{
    let mut tx = pool.begin().await?;
    // Too late? Then the transaction is dropped, which rolls it back.
    fence::pass(&mut tx, fences, "stock:1001", guard).await?;
    (&mut *tx).execute("UPDATE sqlx_stock SET units = units - 1 WHERE id = 1001").await?;
    Ok(tx.commit().await?)
}

/// Marks only rise, also if many raise one at once.
async fn marks<DB: Database>(pool: &Pool<DB>) -> Result<()> {
    let marks = Arc::new(SqlxMarks::new(pool.clone(), FenceTable::named("sqlx_fences")?)?);
    let raise = (0..40).map(|token| {
        let marks = Arc::clone(&marks);
        tokio::spawn(async move { retried(|| marks.raise("R", Token::new(token))).await })
    });
    for (token, task) in raise.collect::<Vec<_>>().into_iter().enumerate() {
        assert!(task.await??.get() >= token as u64);
    }
    assert_eq!(marks.raise("R", Token::new(1)).await?, Token::new(39));
    let missing = SqlxMarks::new(pool.clone(), FenceTable::named("nowhere")?)?.raise("R", Token::new(1)).await;
    assert!(missing.expect_err("there is no table").to_string().contains("tenure fence ddl"));
    Ok(())
}

/// Databases end one of several that are new.
async fn retried<T, F: Future<Output = tenure::Result<T>>>(ask: impl Fn() -> F) -> tenure::Result<T> {
    loop {
        match ask().await {
            Err(error) if error.is_transient() => tokio::time::sleep(Duration::from_millis(5)).await,
            answer => return answer,
        }
    }
}

/// At least once: the records over a pool.
async fn records<DB: Database>(pool: &Pool<DB>, locker: &Locker, table: &OnceTable) -> Result<()> {
    let ledger = Ledger::new(locker, Arc::new(SqlxRecords::new(pool.clone(), table.clone())?));
    for replayed in [false, true] {
        let done = ledger.once("mail:77").run(async { Ok::<_, std::io::Error>(7) }).await?;
        assert_eq!((done.value, done.replayed), (7, replayed));
    }
    Ok(())
}

/// Exactly once: of many transactions one does the work.
async fn transactions<DB: Database>(pool: &Pool<DB>, table: &OnceTable) -> Result<()>
where
    for<'c> &'c mut DB::Connection: Executor<'c, Database = DB>,
{
    let mut done = 0;
    for value in 0..5_u32 {
        let mut tx = pool.begin().await?;
        let claim = table.claim("payment:77")?;
        match once::claim::<u32, DB>(&mut tx, &claim).await? {
            Claimed::Done(earlier) => assert_eq!((earlier.value, earlier.replayed), (1, true)),
            Claimed::Yours(ticket) => {
                (&mut *tx).execute("UPDATE sqlx_stock SET units = units - 1 WHERE id = 1001").await?;
                once::finish(&mut tx, ticket, value).await?;
                done += 1;
            }
        }
        // The first one is rolled back, and has done nothing.
        if value == 0 { tx.rollback().await? } else { tx.commit().await? }
    }
    assert_eq!((done, table.stats().accepted), (2, 2));
    let mut conn = pool.acquire().await?;
    assert_eq!(once::sweep(&mut *conn, table).await?, 0);
    assert_eq!(fence::read_lease(&mut *conn, &Update::of("sqlx_stock").key("id = ?", [1001]), "units").await?, Some(7));
    Ok(())
}
