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

pub(crate) mod file;
mod marks;

pub use marks::SqliteMarks;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, OptionalExtension, Row, ToSql, params_from_iter};

use super::Pass;
use super::sql::{Dialect, Effect, FenceTable, Probe, Statement, Update, Value, token};

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
    let statements = fences.raise(Dialect::Sqlite, resource, pass.token()).map_err(Error::Request)?;
    let seen = raise(tx, &statements).map_err(Error::Store)?;
    Ok(fences.tally().judge(resource, pass, token(seen))?)
}

/// Carries an update out, in a transaction or by itself.
pub fn update(client: &Connection, update: &Update<'_>) -> Result<Effect, Error> {
    let write = update.write(Dialect::Sqlite).map_err(Error::Request)?;
    let run = || client.prepare_cached(&write.text)?.execute(params_from_iter(&write.binds));
    let met = run().map_err(Error::Store)?;
    let mut found = None;
    if met == 0 {
        let probe = update.probe(Dialect::Sqlite).map_err(Error::Request)?;
        found = one(client, &probe, |row| Ok(Probe { fence: row.get(0)?, lease: row.get(1)? })).map_err(Error::Store)?;
    }
    update.judge(met as u64, found)
}

/// Reads the lease of the row that an update names. `None`: there is no such row.
pub fn read_lease(client: &Connection, update: &Update<'_>, column: &str) -> Result<Option<i64>, Error> {
    let read = update.read_lease(Dialect::Sqlite, column).map_err(Error::Request)?;
    one(client, &read, |row| row.get(0)).map_err(Error::Store)
}

/// Runs the statements of [`FenceTable::raise`], and returns the largest token.
fn raise(tx: &Connection, statements: &[Statement]) -> rusqlite::Result<i64> {
    let mut seen = None;
    for statement in statements {
        seen = one(tx, statement, |row| row.get(0))?;
    }
    seen.ok_or(rusqlite::Error::QueryReturnedNoRows)
}

pub(crate) fn one<T>(
    client: &Connection,
    statement: &Statement,
    read: fn(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Option<T>> {
    client.prepare_cached(&statement.text)?.query_one(params_from_iter(&statement.binds), read).optional()
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Bool(yes) => ValueRef::Integer(i64::from(*yes)),
            Self::Int(n) => ValueRef::Integer(*n),
            Self::Float(n) => ValueRef::Real(*n),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Bytes(bytes) => ValueRef::Blob(bytes),
        }))
    }
}
