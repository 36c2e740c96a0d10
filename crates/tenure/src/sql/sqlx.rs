//! PostgreSQL, MySQL, MariaDB and SQLite over `sqlx`.
//!
//! It names no driver of sqlx, and so brings none: the application's features of sqlx choose them. But a number of
//! rows has no common type there, so the database is asked for it.

use std::fmt;
use std::str::FromStr;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, ColumnIndex, Decode, Encode, Executor, IntoArguments, Pool, Row as _, Type};

use super::driver::TIMEOUT;
use super::fault::{self, Meaning};
use super::{Columns, Dialect, Driver, Operation, Session, Statement, Value, whole};
use crate::error::{Error, Fault, Result};

/// A database of sqlx that fences and records can use. Implemented for `Postgres`, `MySql` and `Sqlite`.
pub trait Database: sqlx::Database {
    /// Runs a statement with its binds, and returns all rows.
    #[doc(hidden)]
    fn rows<'a>(
        conn: &'a mut Self::Connection,
        text: String,
        binds: &[Value],
    ) -> BoxFuture<'a, Result<Vec<Columns>, sqlx::Error>>;
}

impl<DB> Database for DB
where
    DB: sqlx::Database,
    DB::Arguments: IntoArguments<DB>,
    for<'c> &'c mut DB::Connection: Executor<'c, Database = DB>,
    for<'v> bool: Encode<'v, DB> + Type<DB>,
    for<'v> i64: Encode<'v, DB> + Decode<'v, DB> + Type<DB>,
    for<'v> f64: Encode<'v, DB> + Type<DB>,
    for<'v> String: Encode<'v, DB> + Type<DB>,
    for<'v> Vec<u8>: Encode<'v, DB> + Decode<'v, DB> + Type<DB>,
    for<'v> Option<String>: Encode<'v, DB> + Type<DB>,
    usize: ColumnIndex<DB::Row>,
{
    fn rows<'a>(conn: &'a mut DB::Connection, text: String, binds: &[Value]) -> BoxFuture<'a, Result<Vec<Columns>, sqlx::Error>> {
        // Safe: checked names, placeholders, and fragments of the application itself.
        let text = AssertSqlSafe(text);
        if binds.is_empty() {
            // Not prepared: MySQL counts the rows of the statement before.
            return Box::pin(async move { read::<DB>(&conn.fetch_all(text).await?) });
        }
        let query: Query<'_, DB, DB::Arguments> = sqlx::query(text);
        let query = binds.iter().fold(query, |query, value| match value {
            Value::Null => query.bind(None::<String>),
            Value::Bool(yes) => query.bind(*yes),
            Value::Int(n) => query.bind(*n),
            Value::Float(n) => query.bind(*n),
            Value::Text(text) => query.bind(text.clone()),
            Value::Bytes(bytes) => query.bind(bytes.clone()),
        });
        Box::pin(async move { read::<DB>(&query.fetch_all(conn).await?) })
    }
}

fn read<DB>(rows: &[DB::Row]) -> Result<Vec<Columns>, sqlx::Error>
where
    DB: sqlx::Database,
    for<'v> i64: Decode<'v, DB> + Type<DB>,
    for<'v> Vec<u8>: Decode<'v, DB> + Type<DB>,
    usize: ColumnIndex<DB::Row>,
{
    let column = |row: &DB::Row, at| match row.try_get::<Option<i64>, _>(at) {
        Ok(number) => Ok(number.into()),
        Err(_) => row.try_get::<Option<Vec<u8>>, _>(at).map(Value::from),
    };
    rows.iter().map(|row| (0..row.len()).map(|at| column(row, at)).collect()).collect()
}

/// A connection of the application, in a transaction or not.
pub(crate) struct Sqlx<'a, DB: Database> {
    conn: &'a mut DB::Connection,
    dialect: Dialect,
}

impl<'a, DB: Database> Sqlx<'a, DB> {
    pub(crate) fn new(conn: &'a mut DB::Connection) -> Result<Self> {
        Ok(Self { conn, dialect: dialect::<DB>()? })
    }
}

fn dialect<DB: Database>() -> Result<Dialect> {
    match DB::NAME {
        "PostgreSQL" => Ok(Dialect::Postgres),
        "MySQL" => Ok(Dialect::Mysql),
        "SQLite" => Ok(Dialect::Sqlite),
        name => Err(Error::config(format!("the database {name:?} of sqlx"), "is not known", "Postgres, MySql, Sqlite")),
    }
}

impl<DB: Database> Session for Sqlx<'_, DB> {
    type Error = sqlx::Error;

    fn dialect(&self) -> Dialect {
        self.dialect
    }

    async fn read(&mut self, statements: &[Statement]) -> Result<Option<Columns>, sqlx::Error> {
        let mut last = Vec::new();
        for Statement { text, binds } in statements {
            last = DB::rows(self.conn, text.clone(), binds).await?;
        }
        Ok(last.into_iter().next())
    }

    async fn write(&mut self, Statement { text, binds }: &Statement) -> Result<u64, sqlx::Error> {
        if self.dialect != Dialect::Mysql {
            let rows = DB::rows(self.conn, format!("{text} RETURNING CAST(1 AS bigint)"), binds).await?;
            return Ok(rows.len() as u64);
        }
        DB::rows(self.conn, text.clone(), binds).await?;
        // sqlx has the server count the rows that were found, not those that changed.
        let rows = DB::rows(self.conn, "SELECT ROW_COUNT()".to_owned(), &[]).await?;
        let count = rows.first().and_then(|row| whole(row)).map(|[count]| count);
        Ok(count.and_then(|count| u64::try_from(count).ok()).unwrap_or(0))
    }
}

/// A database over a pool of sqlx.
pub struct SqlxPool<DB: Database> {
    pool: Pool<DB>,
    dialect: Dialect,
}

impl<DB: Database> SqlxPool<DB> {
    pub(crate) fn new(pool: Pool<DB>) -> Result<Self> {
        Ok(Self { pool, dialect: dialect::<DB>()? })
    }

    async fn transact<A>(
        &self,
        operation: Operation<'_>,
        call: impl AsyncFnOnce(&mut Sqlx<'_, DB>) -> Result<A, sqlx::Error>,
    ) -> Result<A> {
        let run = async {
            let mut tx = self.pool.begin().await?;
            if self.dialect == Dialect::Postgres {
                // A statement that waits for a row outlives its caller: it would keep a connection of the application's pool.
                DB::rows(&mut tx, "SET LOCAL lock_timeout = '3s'".to_owned(), &[]).await?;
            }
            let answer = call(&mut Sqlx { conn: &mut tx, dialect: self.dialect }).await?;
            tx.commit().await?;
            Ok(answer)
        };
        match tokio::time::timeout(TIMEOUT, run).await {
            Ok(answer) => answer.map_err(|e| error(self.dialect, operation, &e).with_source(e)),
            Err(_) => Err(Meaning::Transient(Fault::Timeout).error(self.dialect, operation, format!("waited {TIMEOUT:?}"))),
        }
    }
}

#[async_trait]
impl<DB: Database> Driver for SqlxPool<DB> {
    fn dialect(&self) -> Dialect {
        self.dialect
    }

    async fn read(&self, operation: Operation<'_>, statements: Vec<Statement>) -> Result<Option<Columns>> {
        self.transact(operation, async |session| session.read(&statements).await).await
    }

    async fn write(&self, operation: Operation<'_>, statement: Statement) -> Result<u64> {
        self.transact(operation, async |session| session.write(&statement).await).await
    }
}

impl<DB: Database> fmt::Debug for SqlxPool<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SqlxPool").field(&self.dialect).finish()
    }
}

fn error(dialect: Dialect, operation: Operation<'_>, e: &sqlx::Error) -> Error {
    let meaning = match e {
        sqlx::Error::Database(answer) => {
            let code = answer.code().unwrap_or_default();
            let meaning = match dialect {
                Dialect::Postgres => fault::postgres(&code),
                // Its code is a SQLSTATE, which says little. The number of the error stands before its text.
                Dialect::Mysql => fault::mysql(leading(&answer.to_string())),
                Dialect::Sqlite => fault::sqlite(leading(&code), answer.message()),
            };
            return meaning.error(dialect, operation, answer.message());
        }
        sqlx::Error::PoolClosed => Meaning::Permanent(Fault::Connection),
        sqlx::Error::PoolTimedOut | sqlx::Error::Io(_) | sqlx::Error::WorkerCrashed => Meaning::Transient(Fault::Connection),
        sqlx::Error::Tls(_) => Meaning::Permanent(Fault::Tls),
        sqlx::Error::Configuration(_) => Meaning::Permanent(Fault::Auth),
        _ => Meaning::Permanent(Fault::Protocol),
    };
    meaning.error(dialect, operation, e.to_string())
}

/// The number at the beginning of a text, or zero.
fn leading<N: FromStr + Default>(text: &str) -> N {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().unwrap_or_default()
}
