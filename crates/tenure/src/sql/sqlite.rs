//! SQLite over `rusqlite`.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use futures_util::FutureExt;
use rusqlite::types::{FromSql, FromSqlResult, ToSqlOutput, ValueRef};
use rusqlite::{Connection, OpenFlags, OptionalExtension, ToSql, Transaction, TransactionBehavior, params_from_iter};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::driver::TIMEOUT;
use super::{Columns, Dialect, Driver, Operation, Session, Statement, Value};
use crate::backends::sqlite::{sqlite_error, why_not};
use crate::engine::background;
use crate::error::{Error, Fault, Result};

impl Session for &Connection {
    type Error = rusqlite::Error;

    fn dialect(&self) -> Dialect {
        Dialect::Sqlite
    }

    async fn read(&mut self, statements: &[Statement]) -> rusqlite::Result<Option<Columns>> {
        let mut last = None;
        for statement in statements {
            let mut prepared = self.prepare_cached(&statement.text)?;
            let columns = prepared.column_count();
            let row = |row: &rusqlite::Row<'_>| (0..columns).map(|at| row.get(at)).collect();
            last = prepared.query_one(params_from_iter(&statement.binds), row).optional()?;
        }
        Ok(last)
    }

    async fn write(&mut self, statement: &Statement) -> rusqlite::Result<u64> {
        let affected = self.prepare_cached(&statement.text)?.execute(params_from_iter(&statement.binds))?;
        Ok(u64::try_from(affected).unwrap_or(u64::MAX))
    }
}

/// The output of a future over a [`Connection`], which never waits.
pub(crate) fn ready<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("SQLite answers in the call")
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

impl FromSql for Value {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        Ok(match value {
            ValueRef::Null => Self::Null,
            ValueRef::Integer(n) => Self::Int(n),
            ValueRef::Real(n) => Self::Float(n),
            ValueRef::Text(_) => Self::Text(value.as_str()?.to_owned()),
            ValueRef::Blob(bytes) => Self::Bytes(bytes.to_vec()),
        })
    }
}

/// A SQLite file that the library has opened. It is asked on a thread that may block.
#[derive(Debug)]
pub struct Sqlite(Arc<File>);

#[derive(Debug)]
struct File {
    path: PathBuf,
    conn: Mutex<Connection>,
}

impl Sqlite {
    /// Opens or makes the file, and a table in it.
    pub(crate) async fn open(path: PathBuf, definition: String) -> Result<Self> {
        aside("opening", move || File::open(&path, &definition)).await.map(|file| Self(Arc::new(file)))
    }

    async fn transact<A, F>(&self, doing: &'static str, work: F) -> Result<A>
    where
        A: Send + 'static,
        F: FnOnce(&Transaction<'_>) -> rusqlite::Result<A> + Send + 'static,
    {
        let file = Arc::clone(&self.0);
        aside(doing, move || {
            let mut conn = file.conn.lock().unwrap_or_else(PoisonError::into_inner);
            let run = move || {
                let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
                let done = work(&tx)?;
                tx.commit()?;
                Ok(done)
            };
            run().map_err(|e: rusqlite::Error| sqlite_error(&file.path, doing, e))
        })
        .await
    }
}

#[async_trait]
impl Driver for Sqlite {
    fn dialect(&self) -> Dialect {
        Dialect::Sqlite
    }

    async fn read(&self, operation: Operation<'_>, statements: Vec<Statement>) -> Result<Option<Columns>> {
        self.transact(operation.what, move |tx| ready((&**tx).read(&statements))).await
    }

    async fn write(&self, operation: Operation<'_>, statement: Statement) -> Result<u64> {
        self.transact(operation.what, move |tx| ready((&**tx).write(&statement))).await
    }
}

impl File {
    fn open(path: &Path, definition: &str) -> Result<Self> {
        // Every user may read a file that SQLite makes, and so lock it. It is not opened here: to close it would end the locks of
        // other connections. An existing file keeps its mode.
        if path != Path::new(":memory:") {
            let _ = mknodat(CWD, path, FileType::RegularFile, Mode::RUSR | Mode::WUSR, 0);
        }
        let open = || {
            // No SQLITE_OPEN_URI: a path is a path.
            let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            let mut conn = Connection::open_with_flags(path, flags)?;
            conn.busy_timeout(TIMEOUT)?;
            // Immediate: a transaction that has read cannot wait for its turn to write.
            let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
            tx.execute_batch(definition)?;
            tx.commit()?;
            Ok(conn)
        };
        let conn = open().map_err(|e| why_not(path, e))?;
        Ok(Self { path: path.to_owned(), conn: Mutex::new(conn) })
    }
}

/// Runs work on a thread that may block, whatever the caller's executor is. The bound also covers the wait for earlier calls.
async fn aside<A: Send + 'static>(doing: &'static str, work: impl FnOnce() -> Result<A> + Send + 'static) -> Result<A> {
    let refuse = |fault, detail| Error::unavailable("sqlite", doing, fault, detail);
    let runtime = background::handle()?;
    let work = runtime.spawn_blocking(work);
    let bounded = runtime.spawn(async move { tokio::time::timeout(TIMEOUT * 2, work).await });
    match bounded.await {
        Ok(Ok(Ok(done))) => done,
        Ok(Err(_)) => Err(refuse(Fault::Timeout, format!("waited {:?}", TIMEOUT * 2))),
        Ok(Ok(Err(e))) | Err(e) => Err(refuse(Fault::Connection, e.to_string()).with_source(e)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_new_file_is_closed_to_others_and_one_that_is_there_stays_as_it_is() {
        let dir = tempfile::tempdir().expect("a directory");
        let mode = |path: &Path| std::fs::metadata(path).expect("a file").permissions().mode() & 0o777;
        let definition = "CREATE TABLE IF NOT EXISTS t (i)";
        let new = dir.path().join("new.db");
        let file = File::open(&new, definition).expect("opened");
        file.conn.lock().expect("no panic").execute("INSERT INTO t VALUES (1)", []).expect("written");
        assert_eq!(mode(&new), 0o600);
        let there = dir.path().join("there.db");
        std::fs::write(&there, []).expect("written");
        std::fs::set_permissions(&there, std::fs::Permissions::from_mode(0o640)).expect("ours");
        File::open(&there, definition).expect("opened");
        assert_eq!(mode(&there), 0o640);
        let nowhere = File::open(&dir.path().join("no/such.db"), definition).expect_err("there is no such directory");
        assert!(nowhere.to_string().contains("no"), "{nowhere}");
    }
}
