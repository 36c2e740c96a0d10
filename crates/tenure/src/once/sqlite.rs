//! Work that is done once in SQLite, over [`rusqlite`].
//!
//! **Exactly once**, the record in the transaction of the work:
//!
//! ```
//! use tenure::fence::sql::{Ddl, Dialect};
//! use tenure::once::{Claimed, OnceTable, sqlite};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let mut conn = rusqlite::Connection::open_in_memory()?;
//! # conn.execute_batch("CREATE TABLE account (id INTEGER PRIMARY KEY, cents INTEGER); INSERT INTO account VALUES (9, 2000)")?;
//! let table = OnceTable::default();
//! conn.execute_batch(&Ddl(Dialect::Sqlite).once(&table))?; // once
//! # for _ in 0..2 {
//!
//! let tx = conn.transaction()?;
//! let done = match sqlite::claim(&tx, &table.claim("payment:77")?)? {
//!     Claimed::Done(done) => done, // by an earlier call
//!     Claimed::Yours(ticket) => {
//!         let left = tx.query_row("UPDATE account SET cents = cents - 500 WHERE id = 9 RETURNING cents", [], |row| row.get(0))?;
//!         sqlite::finish::<i64>(&tx, ticket, left)?
//!     }
//! };
//! tx.commit()?; // the work and its record, or neither
//! assert_eq!(done.value, 1500);
//! # }
//! # Ok(())
//! # }
//! ```
//!
//! A transaction that has read before another one wrote cannot write any more (`SQLITE_BUSY_SNAPSHOT`): try it again. **At least
//! once**, with a [`Ledger`](super::Ledger): [`SqliteRecords`].

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use rusqlite::{Connection, params_from_iter};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::attempt::Done;
use super::sql::{Driver, SqlRecords};
use super::table::{Claimed, OnceClaim, OnceTable, Row, Ticket};
use crate::error::Result;
use crate::fence::sql::{Ddl, Dialect, Statement};
use crate::fence::sqlite::file::File;
use crate::fence::sqlite::{Error, one};

/// Claims work for the transaction that is open, or returns what was recorded when it was done. Waits for others as long as the
/// connection does. Run it before the work.
pub fn claim<T: DeserializeOwned>(tx: &Connection, claim: &OnceClaim<'_>) -> Result<Claimed<T>, Error> {
    if tx.is_autocommit() {
        let problem = "was made outside of a transaction, and would be over at once";
        return Err(Error::Request(crate::Error::misuse("a claim", problem, "a transaction that is open")));
    }
    claim.judge(read(tx, &claim.statements(Dialect::Sqlite)).map_err(Error::Store)?)
}

/// Records the result in the transaction that claimed the work. Commit it then.
pub fn finish<T: Serialize>(tx: &Connection, ticket: Ticket, value: T) -> Result<Done<T>, Error> {
    let statement = ticket.finish(Dialect::Sqlite, &value).map_err(Error::Request)?;
    let affected = write(tx, &statement).map_err(Error::Store)?;
    ticket.judge(value, affected)
}

/// Deletes up to a thousand records whose time is up. Not in the transaction of any work.
pub fn sweep(client: &Connection, table: &OnceTable) -> rusqlite::Result<u64> {
    write(client, &table.sweep(Dialect::Sqlite))
}

fn read(client: &Connection, statements: &[Statement]) -> rusqlite::Result<Option<Row>> {
    let mut last = None;
    for statement in statements {
        last = one(client, statement, |row| {
            Ok(Row { token: row.get(0)?, earlier: row.get(1)?, result: row.get(2)?, age: row.get(3)? })
        })?;
    }
    Ok(last)
}

fn write(client: &Connection, statement: &Statement) -> rusqlite::Result<u64> {
    let affected = client.prepare_cached(&statement.text)?.execute(params_from_iter(&statement.binds))?;
    Ok(u64::try_from(affected).unwrap_or(u64::MAX))
}

/// Records in a SQLite file. Several processes may share it.
pub type SqliteRecords = SqlRecords<Sqlite>;

impl SqliteRecords {
    /// In that table of that file, both of which are made if they are missing.
    pub async fn open(path: impl Into<PathBuf>, table: OnceTable) -> Result<Self> {
        let file = File::open(path.into(), Ddl(Dialect::Sqlite).once(&table)).await?;
        Ok(Self::over(Sqlite(file), table))
    }
}

/// The file of [`SqliteRecords`].
#[derive(Debug)]
pub struct Sqlite(Arc<File>);

#[async_trait]
impl Driver for Sqlite {
    fn dialect(&self) -> Dialect {
        Dialect::Sqlite
    }

    async fn read(&self, doing: &'static str, _: &OnceTable, statements: Vec<Statement>) -> Result<Option<Row>> {
        self.0.transact(doing, move |tx| read(tx, &statements)).await
    }

    async fn write(&self, doing: &'static str, _: &OnceTable, statement: Statement) -> Result<u64> {
        self.0.transact(doing, move |tx| write(tx, &statement)).await
    }
}
