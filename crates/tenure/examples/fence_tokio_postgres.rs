//! PostgreSQL refuses a holder that comes too late, through tokio-postgres.
//!
//! DATABASE_URL=postgres://localhost/test cargo run -p tenure --features postgres --example fence_tokio_postgres

use std::error::Error;
use std::time::Duration;

use tenure::fence::postgres;
use tenure::fence::sql::{Ddl, Dialect, Effect, FenceTable, Update};
use tenure::{Guard, Locker};
use tokio_postgres::{Client, NoTls};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    run(&std::env::var("DATABASE_URL")?).await
}

pub(crate) async fn run(url: &str) -> Result<(), Box<dyn Error>> {
    let (mut client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);

    // In production this is `tenure fence ddl --dialect postgres | psql`, once.
    let fences = FenceTable::named("pg_temp.fences")?;
    client.batch_execute(&Ddl(Dialect::Postgres).table(&fences)).await?;
    client.batch_execute("CREATE TEMP TABLE stock (id bigint PRIMARY KEY, units int, fence bigint NOT NULL DEFAULT 0)").await?;
    client.batch_execute("INSERT INTO stock VALUES (1001, 10)").await?;

    let locker = Locker::connect("memory:").await?; // redis://… where other processes are to be kept out too
    // A lease that is not renewed, as if its holder were paused.
    let paused = locker.mutex("stock:1001").lease_fixed(Duration::from_secs(1)).lock().await?;
    let next = locker.mutex("stock:1001").lock().await?; // waits for the end of that lease

    sell(&mut client, &fences, &next).await?;
    let late = sell(&mut client, &fences, &paused).await.expect_err("it woke up too late");
    println!("table:  {late}");

    // The same without a table of marks and without a transaction: the row itself keeps the token.
    let sell = Update::of("stock").set("units = units - ?", [1]).key("id = ?", [1001]).only_if("units >= ?", [1]);
    assert_eq!(postgres::update(&client, &sell.clone().fenced("fence", &next)).await?, Effect::Written);
    let late = postgres::update(&client, &sell.fenced("fence", &paused)).await.expect_err("it woke up too late");
    println!("column: {late}");

    let left: i32 = client.query_one("SELECT units FROM stock", &[]).await?.get(0);
    println!("{left} units are left, {} writes came too late", locker.stats().stale);
    assert_eq!((left, locker.stats().stale), (8, 2));
    Ok(())
}

async fn sell(client: &mut Client, fences: &FenceTable, guard: &Guard) -> Result<(), postgres::Error> {
    let tx = client.transaction().await.map_err(postgres::Error::Store)?;
    // First, so that all that follows is fenced. An error drops the transaction, which rolls it back.
    postgres::pass(&tx, fences, "stock:1001", guard).await?;
    tx.execute("UPDATE stock SET units = units - 1 WHERE id = 1001", &[]).await.map_err(postgres::Error::Store)?;
    tx.commit().await.map_err(postgres::Error::Store)
}
