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

use rusqlite::Connection;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::attempt::Done;
use super::run;
use super::sql::SqlRecords;
use super::table::{Claimed, OnceClaim, OnceTable, Ticket};
use crate::fence::sqlite::Error;
pub use crate::sql::sqlite::Sqlite;
use crate::sql::sqlite::ready;
use crate::sql::{Ddl, Dialect};

/// Claims work for the open transaction, or returns the result that an earlier call has recorded. Waits for others as long as the
/// connection does. Run it before the work.
pub fn claim<T: DeserializeOwned>(tx: &Connection, claim: &OnceClaim<'_>) -> Result<Claimed<T>, Error> {
    if tx.is_autocommit() {
        let problem = "was made outside of a transaction, and would be over at once";
        return Err(Error::Request(crate::Error::misuse("a claim", problem, "a transaction that is open")));
    }
    ready(run::claim(tx, claim))
}

/// Records the result in the transaction that claimed the work. Commit it then.
pub fn finish<T: Serialize>(tx: &Connection, ticket: Ticket, value: T) -> Result<Done<T>, Error> {
    ready(run::finish(tx, ticket, value))
}

/// Deletes up to a thousand expired records. Not in the transaction of any work.
pub fn sweep(client: &Connection, table: &OnceTable) -> rusqlite::Result<u64> {
    ready(run::sweep(client, table))
}

/// Records in a SQLite file. Several processes may share it.
pub type SqliteRecords = SqlRecords<Sqlite>;

impl SqliteRecords {
    /// In that table of that file. Both are made if they are missing.
    pub async fn open(path: impl Into<PathBuf>, table: OnceTable) -> crate::Result<Self> {
        let file = Sqlite::open(path.into(), Ddl(Dialect::Sqlite).once(&table)).await?;
        Ok(Self::over(file, table))
    }
}
