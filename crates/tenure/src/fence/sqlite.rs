//! Fences in SQLite, over [`rusqlite`].
//!
//! ```
//! use tenure::fence::{sql::{Ddl, Dialect, FenceTable}, sqlite};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let mut conn = rusqlite::Connection::open_in_memory()?;
//! # conn.execute_batch("CREATE TABLE stock (id INTEGER PRIMARY KEY, units INTEGER)")?;
//! # let guard = tenure::Token::new(7);
//! let fences = FenceTable::default();
//! conn.execute_batch(&Ddl(Dialect::Sqlite).table(&fences))?; // once
//!
//! let tx = conn.transaction()?;
//! sqlite::pass(&tx, &fences, "stock:1001", &guard)?; // too late? then tx is dropped, and nothing is written
//! tx.execute("UPDATE stock SET units = units - 1 WHERE id = 1001", [])?;
//! tx.commit()?;
//! # Ok(())
//! # }
//! ```
//!
//! A transaction that has read before another one wrote cannot write any more (`SQLITE_BUSY_SNAPSHOT`): try it again.

use std::path::PathBuf;

use rusqlite::Connection;

use super::Pass;
use super::sql::{Ddl, Dialect, Effect, FenceTable, SqlMarks, Update, run};
pub use crate::sql::sqlite::Sqlite;
use crate::sql::sqlite::ready;

/// Why a fenced write did not happen.
pub type Error = super::Error<rusqlite::Error>;

/// Lets the rest of the transaction happen under this pass, or says that it is too late. Run it first.
///
/// Other writers wait, or are told that the file is busy, until the transaction ends.
pub fn pass(tx: &Connection, fences: &FenceTable, resource: &str, pass: &dyn Pass) -> Result<(), Error> {
    if tx.is_autocommit() {
        let asked = format!("a pass for {resource:?}");
        let problem = "was shown outside of a transaction, where it says nothing of the next statement";
        return Err(Error::Request(crate::Error::misuse(asked, problem, "a transaction that is open")));
    }
    ready(run::pass(tx, fences, resource, pass))
}

/// Carries an update out, in a transaction or by itself.
pub fn update(client: &Connection, update: &Update<'_>) -> Result<Effect, Error> {
    ready(run::update(client, update))
}

/// Reads the lease of the row that an update names. `None`: there is no such row.
pub fn read_lease(client: &Connection, update: &Update<'_>, column: &str) -> Result<Option<i64>, Error> {
    ready(run::read_lease(client, update, column))
}

/// [`Marks`](super::marks::Marks) in a SQLite file. Several processes may share it.
pub type SqliteMarks = SqlMarks<Sqlite>;

impl SqliteMarks {
    /// In that table of that file. Both are made if they are missing.
    pub async fn open(path: impl Into<PathBuf>, table: FenceTable) -> crate::Result<Self> {
        let file = Sqlite::open(path.into(), Ddl(Dialect::Sqlite).table(&table)).await?;
        Ok(Self::over(file, table))
    }
}
