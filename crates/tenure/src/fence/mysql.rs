//! Fences in MySQL and MariaDB, over [`mysql_async`].
//!
//! ```no_run
//! use mysql_async::prelude::Queryable;
//! use tenure::fence::{mysql, sql::FenceTable};
//!
//! # async fn example(conn: &mut mysql_async::Conn, guard: &tenure::Guard) -> Result<(), Box<dyn std::error::Error>> {
//! let fences = FenceTable::default(); // made once with `tenure fence ddl --dialect mysql`
//! let mut tx = conn.start_transaction(Default::default()).await?;
//! mysql::pass(&mut tx, &fences, "stock:1001", guard).await?; // too late? then tx is dropped, and nothing is written
//! tx.query_drop("UPDATE stock SET units = units - 1 WHERE id = 1001").await?;
//! tx.commit().await?;
//! # Ok(())
//! # }
//! ```
//!
//! Of many who are the first to write to a resource the server may end one with a deadlock (`1213`), as for any row that is new, and
//! MariaDB from 11.6 on one that has read before the mark was raised (`1020`): try it again.

pub(crate) mod fault;
mod marks;

pub use marks::MysqlMarks;
use mysql_async::prelude::Queryable;
use mysql_async::{Params, Row, Transaction};

use super::Pass;
use super::sql::{Dialect, Effect, FenceTable, Probe, Statement, Update, Value, token};

/// Why a fenced write did not happen.
pub type Error = super::Error<mysql_async::Error>;

/// Lets the rest of the transaction happen under this pass, or says that it is too late. Run it first: what was read before it may be
/// older than the mark.
///
/// Other writers of the resource wait until the transaction ends.
pub async fn pass(tx: &mut Transaction<'_>, fences: &FenceTable, resource: &str, pass: &dyn Pass) -> Result<(), Error> {
    let statements = fences.raise(Dialect::Mysql, resource, pass.token()).map_err(Error::Request)?;
    let seen = raise(tx, &statements).await.map_err(Error::Store)?;
    Ok(fences.tally().judge(resource, pass, token(seen))?)
}

/// Carries an update out, in a transaction or by itself.
pub async fn update(client: &mut impl Queryable, update: &Update<'_>) -> Result<Effect, Error> {
    let write = update.write(Dialect::Mysql).map_err(Error::Request)?;
    let result = client.exec_iter(&write.text, params(&write)).await.map_err(Error::Store)?;
    let met = met(&result.info(), result.affected_rows());
    result.drop_result().await.map_err(Error::Store)?;
    let mut found = None;
    if met == 0 {
        let probe = update.probe(Dialect::Mysql).map_err(Error::Request)?;
        let row: Option<Row> = client.exec_first(&probe.text, params(&probe)).await.map_err(Error::Store)?;
        let probe = |row: Row| Ok(Probe { fence: number(&row, 0)?, lease: number(&row, 1)? });
        found = row.map(probe).transpose().map_err(Error::Store)?;
    }
    update.judge(met, found)
}

/// Reads the lease of the row that an update names. `None`: there is no such row.
pub async fn read_lease(client: &mut impl Queryable, update: &Update<'_>, column: &str) -> Result<Option<i64>, Error> {
    let read = update.read_lease(Dialect::Mysql, column).map_err(Error::Request)?;
    let row: Option<Row> = client.exec_first(&read.text, params(&read)).await.map_err(Error::Store)?;
    row.map(|row| number(&row, 0)).transpose().map_err(Error::Store)
}

/// Runs the statements of [`FenceTable::raise`], and returns the largest token.
async fn raise(client: &mut impl Queryable, statements: &[Statement]) -> Result<i64, mysql_async::Error> {
    let mut last = None;
    for statement in statements {
        last = client.exec_first::<Row, _, _>(&statement.text, params(statement)).await?;
    }
    // Only a trigger could have taken it away.
    let row = last.ok_or_else(|| mysql_async::Error::Other("the mark is gone that was just written".into()))?;
    number(&row, 0)
}

pub(crate) fn params(statement: &Statement) -> Params {
    if statement.binds.is_empty() {
        return Params::Empty;
    }
    Params::Positional(statement.binds.iter().map(Into::into).collect())
}

impl From<&Value> for mysql_async::Value {
    fn from(value: &Value) -> Self {
        match value {
            Value::Null => Self::NULL,
            Value::Bool(yes) => Self::Int(i64::from(*yes)),
            Value::Int(n) => Self::Int(*n),
            Value::Float(n) => Self::Double(*n),
            Value::Text(text) => Self::Bytes(text.clone().into_bytes()),
            Value::Bytes(bytes) => Self::Bytes(bytes.clone()),
        }
    }
}

pub(crate) fn number(row: &Row, column: usize) -> Result<i64, mysql_async::Error> {
    let refuse = || mysql_async::Error::Other(format!("column {column} is not a whole number").into());
    row.get_opt(column).and_then(Result::ok).ok_or_else(refuse)
}

/// The rows that an update met. Unless the client was told otherwise, the number alone is of those that it changed.
fn met(info: &str, affected: u64) -> u64 {
    // The first number in it, in whatever language.
    let digits = info.trim_start_matches(|c: char| !c.is_ascii_digit());
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().unwrap_or(affected)
}

#[cfg(test)]
mod tests {
    use super::met;

    #[test]
    fn rows_that_were_met_are_counted_in_any_language() {
        let infos = [
            "Rows matched: 1  Changed: 0  Warnings: 0",
            "Datensätze gefunden: 1  Geändert: 0  Warnungen: 0",
            "該当した行: 1  変更: 0",
        ];
        assert!(infos.iter().all(|info| met(info, 0) == 1));
        assert_eq!((met("", 1), met("nothing", 2), met("Rows matched: 12  Changed: 3", 3)), (1, 2, 12));
    }
}
