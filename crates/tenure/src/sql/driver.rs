//! What fences and records ask of a driver.

use std::fmt;

use async_trait::async_trait;

use super::{Dialect, Statement, Value};
use crate::error::{Error, Result};

/// How long a database may take to answer.
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite", feature = "sqlx"))]
pub(crate) const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

/// The columns of a row: whole numbers, bytes and NULL are read.
pub type Columns = Vec<Value>;

/// A connection or a transaction of the application.
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite", feature = "sqlx"))]
pub(crate) trait Session {
    /// The driver's own error.
    type Error;

    /// The dialect of the server.
    fn dialect(&self) -> Dialect;

    /// Runs statements in order, and returns the first row of the last one.
    async fn read(&mut self, statements: &[Statement]) -> Result<Option<Columns>, Self::Error>;

    /// Runs an `UPDATE` or `DELETE`, and returns how many rows it matched, also rows that have the new values already.
    async fn write(&mut self, statement: &Statement) -> Result<u64, Self::Error>;
}

/// A database that is reached without the application: through a pool, or a connection that is made again when it breaks.
///
/// Implement it to keep marks and records over another driver.
#[async_trait]
pub trait Driver: fmt::Debug + Send + Sync {
    /// The dialect of the database.
    fn dialect(&self) -> Dialect;

    /// Runs statements in order, each by itself or all in one transaction, and commits. Returns the first row of the last one.
    async fn read(&self, operation: Operation<'_>, statements: Vec<Statement>) -> Result<Option<Columns>>;

    /// Runs a statement and commits. Returns how many rows it affected.
    async fn write(&self, operation: Operation<'_>, statement: Statement) -> Result<u64>;
}

/// What statements are for, as errors say it.
#[derive(Debug, Clone, Copy)]
pub struct Operation<'a> {
    /// What is done, such as "raising a mark".
    pub what: &'static str,
    pub(crate) table: Table<'a>,
}

impl Operation<'_> {
    /// The error for a table that is missing or has other columns. It says how to make the table.
    #[must_use]
    pub fn wrong_table(&self, dialect: Dialect, problem: &str) -> Error {
        let (asked, option) = match self.table {
            Table::Marks(name) => (format!("the table of marks {name}"), ""),
            #[cfg(feature = "once")]
            Table::Records(name) => (format!("the table of records {name}"), "--once "),
        };
        let allowed = format!("one as `tenure fence ddl {option}--dialect {dialect}` makes it");
        Error::config(asked, format!("cannot be used: {problem}"), allowed)
    }
}

/// A table of the library.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Table<'a> {
    Marks(&'a str),
    #[cfg(feature = "once")]
    Records(&'a str),
}

/// The whole numbers of a row. `None` if it has other columns.
pub(crate) fn whole<const N: usize>(row: &[Value]) -> Option<[i64; N]> {
    let number = |value: &Value| if let Value::Int(n) = value { Some(*n) } else { None };
    row.iter().map(number).collect::<Option<Vec<_>>>()?.try_into().ok()
}
