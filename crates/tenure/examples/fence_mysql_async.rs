//! MySQL or MariaDB refuses a holder that comes too late, through mysql_async.
//!
//! DATABASE_URL=mysql://root@localhost/test cargo run -p tenure --features mysql --example fence_mysql_async

use std::error::Error;
use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, TxOpts};
use tenure::fence::mysql;
use tenure::fence::sql::{Ddl, Dialect, Effect, FenceTable, Update};
use tenure::{Guard, Locker};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    run(&std::env::var("DATABASE_URL")?).await
}

pub(crate) async fn run(url: &str) -> Result<(), Box<dyn Error>> {
    let mut conn = Conn::from_url(url).await?;

    // In production this is `tenure fence ddl --dialect mysql | mysql`, once.
    let fences = FenceTable::named("example_fences")?;
    conn.query_drop(Ddl(Dialect::Mysql).table(&fences)).await?;
    conn.query_drop("CREATE TEMPORARY TABLE stock (id bigint PRIMARY KEY, units int, fence bigint NOT NULL DEFAULT 0)").await?;
    conn.query_drop("INSERT INTO stock (id, units) VALUES (1001, 10)").await?;

    let locker = Locker::connect("memory:").await?; // redis://… where other processes are to be kept out too
    // A lease that is not renewed, as if its holder were paused.
    let paused = locker.mutex("stock:1001").lease_fixed(Duration::from_secs(1)).lock().await?;
    let next = locker.mutex("stock:1001").lock().await?; // waits for the end of that lease

    sell(&mut conn, &fences, &next).await?;
    let late = sell(&mut conn, &fences, &paused).await.expect_err("it woke up too late");
    println!("table:  {late}");

    // The same without a table of marks and without a transaction: the row itself keeps the token.
    let sell = Update::of("stock").set("units = units - ?", [1]).key("id = ?", [1001]).only_if("units >= ?", [1]);
    assert_eq!(mysql::update(&mut conn, &sell.clone().fenced("fence", &next)).await?, Effect::Written);
    let late = mysql::update(&mut conn, &sell.fenced("fence", &paused)).await.expect_err("it woke up too late");
    println!("column: {late}");

    let left: Option<i32> = conn.query_first("SELECT units FROM stock").await?;
    println!("{} units are left, {} writes came too late", left.unwrap_or_default(), locker.stats().stale);
    assert_eq!((left, locker.stats().stale), (Some(8), 2));
    conn.query_drop("DROP TABLE example_fences").await?;
    Ok(conn.disconnect().await?)
}

async fn sell(conn: &mut Conn, fences: &FenceTable, guard: &Guard) -> Result<(), mysql::Error> {
    let mut tx = conn.start_transaction(TxOpts::default()).await.map_err(mysql::Error::Store)?;
    // First: what is read before it may be older than the mark. An error drops the transaction, which rolls it back.
    mysql::pass(&mut tx, fences, "stock:1001", guard).await?;
    tx.query_drop("UPDATE stock SET units = units - 1 WHERE id = 1001").await.map_err(mysql::Error::Store)?;
    tx.commit().await.map_err(mysql::Error::Store)
}
