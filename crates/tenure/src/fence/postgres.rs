//! Fences in PostgreSQL, over [`tokio_postgres`].
//!
//! ```no_run
//! use tenure::fence::{postgres, sql::FenceTable};
//!
//! # async fn example(client: &mut tokio_postgres::Client, guard: &tenure::Guard) -> Result<(), Box<dyn std::error::Error>> {
//! let fences = FenceTable::default(); // made once with `tenure fence ddl --dialect postgres`
//! let tx = client.transaction().await?;
//! postgres::pass(&tx, &fences, "stock:1001", guard).await?; // too late? then tx is dropped, and nothing is written
//! tx.execute("UPDATE stock SET units = units - 1 WHERE id = 1001", &[]).await?;
//! tx.commit().await?;
//! # Ok(())
//! # }
//! ```
//!
//! Under `REPEATABLE READ` and `SERIALIZABLE` a transaction that waited for another one at the fence ends with a serialization
//! failure (`40001`), as it would for any row: try it again.
//!
//! **Bound the wait**: a holder that is stopped inside of its transaction keeps the next one waiting at the fence for as long as its
//! connection lives. `lock_timeout` ends the wait of the one, `idle_in_transaction_session_timeout` the transaction of the other;
//! PostgreSQL sets neither by itself. (MySQL gives up after `innodb_lock_wait_timeout`, 50 s; SQLite after its busy timeout.)

pub(crate) mod link;
mod marks;

use std::error::Error as StdError;

use bytes::BytesMut;
pub use marks::PostgresMarks;
use tokio_postgres::types::{Format, IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{GenericClient, Row, Transaction};

use super::Pass;
use super::sql::{Dialect, Effect, FenceTable, Probe, Statement, Update, Value, token};

/// Why a fenced write did not happen.
pub type Error = super::Error<tokio_postgres::Error>;

/// Lets the rest of the transaction happen under this pass, or says that it is too late. Run it first.
///
/// Other writers of the resource wait until the transaction ends.
pub async fn pass(tx: &Transaction<'_>, fences: &FenceTable, resource: &str, pass: &dyn Pass) -> Result<(), Error> {
    let mut seen = 0;
    for statement in fences.raise(Dialect::Postgres, resource, pass.token()).map_err(Error::Request)? {
        let row = tx.query_typed_one(&statement.text, &typed(&statement)).await.map_err(Error::Store)?;
        seen = row.try_get(0).map_err(Error::Store)?;
    }
    Ok(fences.tally().judge(resource, pass, token(seen))?)
}

/// Carries an update out, in a transaction or by itself.
pub async fn update(client: &impl GenericClient, update: &Update<'_>) -> Result<Effect, Error> {
    let write = update.write(Dialect::Postgres).map_err(Error::Request)?;
    let met = client.execute_typed(&write.text, &typed(&write)).await.map_err(Error::Store)?;
    let mut found = None;
    if met == 0 {
        let probe = update.probe(Dialect::Postgres).map_err(Error::Request)?;
        let row = client.query_typed_opt(&probe.text, &typed(&probe)).await.map_err(Error::Store)?;
        let probe = |row: Row| Ok(Probe { fence: row.try_get(0)?, lease: row.try_get(1)? });
        found = row.map(probe).transpose().map_err(Error::Store)?;
    }
    update.judge(met, found)
}

/// Reads the lease of the row that an update names. `None`: there is no such row.
pub async fn read_lease(client: &impl GenericClient, update: &Update<'_>, column: &str) -> Result<Option<i64>, Error> {
    let read = update.read_lease(Dialect::Postgres, column).map_err(Error::Request)?;
    let row = client.query_typed_opt(&read.text, &typed(&read)).await.map_err(Error::Store)?;
    row.map(|row| row.try_get(0)).transpose().map_err(Error::Store)
}

/// With types that the server finds out: one round trip, and nothing to keep prepared.
pub(crate) fn typed(statement: &Statement) -> Vec<(&(dyn ToSql + Sync), Type)> {
    statement.binds.iter().map(|bind| (bind as &(dyn ToSql + Sync), Type::UNKNOWN)).collect()
}

/// As text, which the server reads as whatever type it wants there, and refuses what does not fit. Bytes as they are.
impl ToSql for Value {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        let counts = matches!(*ty, Type::INT2 | Type::INT4 | Type::INT8 | Type::NUMERIC);
        match self {
            Self::Null => return Ok(IsNull::Yes),
            Self::Bool(yes) if counts => out.extend_from_slice(if *yes { b"1" } else { b"0" }),
            Self::Bool(yes) => out.extend_from_slice(if *yes { b"true" } else { b"false" }),
            Self::Int(n) => out.extend_from_slice(n.to_string().as_bytes()),
            Self::Float(n) => out.extend_from_slice(n.to_string().as_bytes()),
            Self::Text(text) => out.extend_from_slice(text.as_bytes()),
            Self::Bytes(bytes) => out.extend_from_slice(bytes),
        }
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, _: &Type) -> Format {
        match self {
            Self::Bytes(_) => Format::Binary,
            _ => Format::Text,
        }
    }

    to_sql_checked!();
}
