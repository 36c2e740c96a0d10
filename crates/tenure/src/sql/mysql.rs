//! MySQL and MariaDB over `mysql_async`.

use std::fmt;

use async_trait::async_trait;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, DriverError, Params, Pool, Transaction, TxOpts};

use super::driver::TIMEOUT;
use super::fault::{self, Meaning};
use super::{Columns, Dialect, Driver, Operation, Session, Statement, Value};
use crate::error::{Error, Fault, Result};

const DIALECT: Dialect = Dialect::Mysql;

impl<C: Queryable> Session for &mut C {
    type Error = mysql_async::Error;

    fn dialect(&self) -> Dialect {
        DIALECT
    }

    async fn read(&mut self, statements: &[Statement]) -> Result<Option<Columns>, mysql_async::Error> {
        let mut last: Option<mysql_async::Row> = None;
        for statement in statements {
            last = self.exec_first(&statement.text, params(statement)).await?;
        }
        last.map(|row| row.unwrap().into_iter().map(column).collect()).transpose()
    }

    async fn write(&mut self, statement: &Statement) -> Result<u64, mysql_async::Error> {
        let result = self.exec_iter(&statement.text, params(statement)).await?;
        let matched = matched(&result.info(), result.affected_rows());
        result.drop_result().await?;
        Ok(matched)
    }
}

fn column(value: mysql_async::Value) -> Result<Value, mysql_async::Error> {
    let other = |value| mysql_async::Error::Other(format!("{value:?} is no whole number").into());
    match value {
        mysql_async::Value::NULL => Ok(Value::Null),
        mysql_async::Value::Int(n) => Ok(Value::Int(n)),
        mysql_async::Value::UInt(n) => i64::try_from(n).map(Value::Int).map_err(|_| other(value)),
        mysql_async::Value::Bytes(bytes) => Ok(Value::Bytes(bytes)),
        value => Err(other(value)),
    }
}

fn params(statement: &Statement) -> Params {
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

/// The rows that an update matched. The number alone counts changed rows, unless the client has asked for found ones.
fn matched(info: &str, affected: u64) -> u64 {
    // The first number in the text, in any language.
    let digits = info.trim_start_matches(|c: char| !c.is_ascii_digit());
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().unwrap_or(affected)
}

/// A MySQL or MariaDB server, over a pool.
pub struct Mysql(Pool);

impl Mysql {
    pub(crate) fn new(pool: Pool) -> Self {
        Self(pool)
    }

    /// In a transaction: a server may have autocommit turned off.
    async fn transact<A>(
        &self,
        operation: Operation<'_>,
        call: impl AsyncFnOnce(&mut Transaction<'_>) -> Result<A, mysql_async::Error>,
    ) -> Result<A> {
        let run = async {
            let mut conn: Conn = self.0.get_conn().await?;
            let mut tx = conn.start_transaction(TxOpts::default()).await?;
            let answer = call(&mut tx).await?;
            tx.commit().await?;
            Ok(answer)
        };
        match tokio::time::timeout(TIMEOUT, run).await {
            Ok(answer) => answer.map_err(|e| error(operation, &e).with_source(e)),
            Err(_) => Err(Meaning::Transient(Fault::Timeout).error(DIALECT, operation, format!("waited {TIMEOUT:?}"))),
        }
    }
}

#[async_trait]
impl Driver for Mysql {
    fn dialect(&self) -> Dialect {
        DIALECT
    }

    async fn read(&self, operation: Operation<'_>, statements: Vec<Statement>) -> Result<Option<Columns>> {
        self.transact(operation, async |mut tx| tx.read(&statements).await).await
    }

    async fn write(&self, operation: Operation<'_>, statement: Statement) -> Result<u64> {
        self.transact(operation, async |mut tx| tx.write(&statement).await).await
    }
}

impl fmt::Debug for Mysql {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mysql")
    }
}

fn error(operation: Operation<'_>, e: &mysql_async::Error) -> Error {
    let meaning = match e {
        mysql_async::Error::Server(answer) => {
            let detail = if fault::mysql(answer.code) == Meaning::WrongTable { answer.message.clone() } else { e.to_string() };
            return fault::mysql(answer.code).error(DIALECT, operation, detail);
        }
        // By its text, because the features of the driver decide whether there is such a kind.
        mysql_async::Error::Io(e) if e.to_string().starts_with("TLS") => Meaning::Permanent(Fault::Tls),
        mysql_async::Error::Io(_) | mysql_async::Error::Driver(DriverError::ConnectionClosed) => {
            Meaning::Transient(Fault::Connection)
        }
        mysql_async::Error::Driver(DriverError::PoolDisconnected) => Meaning::Permanent(Fault::Connection),
        _ => Meaning::Permanent(Fault::Protocol),
    };
    meaning.error(DIALECT, operation, e.to_string())
}

#[cfg(test)]
mod tests {
    use super::matched;

    #[test]
    fn matched_rows_are_counted_in_any_language() {
        let infos = [
            "Rows matched: 1  Changed: 0  Warnings: 0",
            "Datensätze gefunden: 1  Geändert: 0  Warnungen: 0",
            "該当した行: 1  変更: 0",
        ];
        assert!(infos.iter().all(|info| matched(info, 0) == 1));
        assert_eq!((matched("", 1), matched("nothing", 2), matched("Rows matched: 12  Changed: 3", 3)), (1, 2, 12));
    }
}
