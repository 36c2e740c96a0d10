//! Marks in a file.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use super::raise;
use crate::backends::sqlite::{sqlite_error, why_not};
use crate::error::{Error, Fault, Result};
use crate::fence::marks::{Marks, PATIENCE};
use crate::fence::sql::{Ddl, Dialect, FenceTable, Statement, token};
use crate::name::Token;
use crate::runtime::background;

/// [`Marks`] in a table of a SQLite file, which is made if it is missing. Several processes may share it.
#[derive(Debug)]
pub struct SqliteMarks {
    table: FenceTable,
    file: Arc<File>,
}

#[derive(Debug)]
struct File {
    path: PathBuf,
    conn: Mutex<Connection>,
}

impl SqliteMarks {
    /// In that table of that file.
    pub async fn open(path: impl Into<PathBuf>, table: FenceTable) -> Result<Self> {
        let path = path.into();
        let definition = Ddl(Dialect::Sqlite).table(&table);
        let file = aside(move || File::open(&path, &definition)).await?;
        Ok(Self { table, file: Arc::new(file) })
    }
}

impl File {
    fn open(path: &Path, definition: &str) -> Result<Self> {
        let open = || {
            // No SQLITE_OPEN_URI: a path is a path.
            let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            let mut conn = Connection::open_with_flags(path, flags)?;
            conn.busy_timeout(PATIENCE)?;
            // Immediate: who reads first cannot wait for its turn to write.
            let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
            tx.execute_batch(definition)?;
            tx.commit()?;
            Ok(conn)
        };
        let conn = open().map_err(|e| why_not(path, &e))?;
        Ok(Self { path: path.to_owned(), conn: Mutex::new(conn) })
    }

    fn raise(&self, statements: &[Statement]) -> Result<i64> {
        let mut conn = self.conn.lock().unwrap_or_else(PoisonError::into_inner);
        let mut run = || {
            let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let seen = raise(&tx, statements)?;
            tx.commit()?;
            Ok(seen)
        };
        run().map_err(|e| sqlite_error(&self.path, "raising a mark", &e))
    }
}

#[async_trait]
impl Marks for SqliteMarks {
    async fn raise(&self, resource: &str, seen: Token) -> Result<Token> {
        let statements = self.table.raise(Dialect::Sqlite, resource, seen)?;
        let file = Arc::clone(&self.file);
        aside(move || file.raise(&statements)).await.map(token)
    }
}

/// On a thread that may block, whatever the caller's executor is.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let ended = |e: tokio::task::JoinError| Error::unavailable("sqlite", "raising a mark", Fault::Connection, e.to_string());
    background()?.spawn_blocking(work).await.map_err(ended)?
}
