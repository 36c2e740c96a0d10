//! A SQLite file refuses a holder that comes too late, through rusqlite and without async.
//!
//! cargo run -p tenure --features blocking --example fence_rusqlite

use std::error::Error;
use std::time::Duration;

use rusqlite::Connection;
use tenure::blocking::Locker;
use tenure::fence::Pass;
use tenure::fence::sql::{Ddl, Dialect, Effect, FenceTable, Update};
use tenure::fence::sqlite;

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let mut conn = Connection::open_in_memory()?;

    // In production this is `tenure fence ddl --dialect sqlite | sqlite3 shop.db`, once.
    let fences = FenceTable::default();
    conn.execute_batch(&Ddl(Dialect::Sqlite).table(&fences))?;
    conn.execute_batch("CREATE TABLE stock (id INTEGER PRIMARY KEY, units INTEGER, fence INTEGER NOT NULL DEFAULT 0)")?;
    conn.execute_batch("INSERT INTO stock (id, units) VALUES (1001, 10)")?;

    let locker = Locker::connect("memory:")?; // sqlite: where other processes are to be kept out too
    // A lease that is not renewed, as if its holder were paused. Not this thread's, which would enter it again.
    let paused = locker.mutex("stock:1001").lease_fixed(Duration::from_secs(1)).lock()?.into_send();
    // Waits for the end of that lease.
    let next = locker.mutex("stock:1001").lock()?;

    sell(&mut conn, &fences, &next)?;
    let late = sell(&mut conn, &fences, &paused).expect_err("it woke up too late");
    println!("table:  {late}");

    // The same without a table of marks and without a transaction: the row itself keeps the token.
    let sell = Update::of("stock").set("units = units - ?", [1]).key("id = ?", [1001]).only_if("units >= ?", [1]);
    assert_eq!(sqlite::update(&conn, &sell.clone().fenced("fence", &next))?, Effect::Written);
    let late = sqlite::update(&conn, &sell.fenced("fence", &paused)).expect_err("it woke up too late");
    println!("column: {late}");

    let left: i64 = conn.query_row("SELECT units FROM stock", [], |row| row.get(0))?;
    println!("{left} units are left, {} writes came too late", locker.stats().stale);
    assert_eq!((left, locker.stats().stale), (8, 2));
    Ok(())
}

fn sell(conn: &mut Connection, fences: &FenceTable, guard: &dyn Pass) -> Result<(), sqlite::Error> {
    let tx = conn.transaction().map_err(sqlite::Error::Store)?;
    // First, so that all that follows is fenced. An error drops the transaction, which rolls it back.
    sqlite::pass(&tx, fences, "stock:1001", guard)?;
    tx.execute("UPDATE stock SET units = units - 1 WHERE id = 1001", []).map_err(sqlite::Error::Store)?;
    tx.commit().map_err(sqlite::Error::Store)
}
