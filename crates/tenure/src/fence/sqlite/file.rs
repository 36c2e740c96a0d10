//! A file that is asked on a thread that may block.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::backends::sqlite::{sqlite_error, why_not};
use crate::engine::background;
use crate::error::{Error, Fault, Result};
use crate::fence::marks::PATIENCE;

#[derive(Debug)]
pub(crate) struct File {
    path: PathBuf,
    conn: Mutex<Connection>,
}

impl File {
    /// Opens or makes the file, and a table in it.
    pub(crate) async fn open(path: PathBuf, definition: String) -> Result<Arc<Self>> {
        aside("opening", move || Self::open_here(&path, &definition)).await.map(Arc::new)
    }

    fn open_here(path: &Path, definition: &str) -> Result<Self> {
        // What SQLite makes by itself every user may read, and so lock. Not opened for that: closing it again would end the locks of
        // other connections. One that is there keeps the mode that its owner gave it.
        if path != Path::new(":memory:") {
            let _ = mknodat(CWD, path, FileType::RegularFile, Mode::RUSR | Mode::WUSR, 0);
        }
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
        let conn = open().map_err(|e| why_not(path, e))?;
        Ok(Self { path: path.to_owned(), conn: Mutex::new(conn) })
    }

    /// Does something in a transaction.
    pub(crate) async fn transact<A, F>(self: &Arc<Self>, doing: &'static str, work: F) -> Result<A>
    where
        A: Send + 'static,
        F: FnOnce(&Transaction<'_>) -> rusqlite::Result<A> + Send + 'static,
    {
        let file = Arc::clone(self);
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

/// On a thread that may block, whatever the caller's executor is. Whoever waits behind others who wait for the file gives up in time too.
async fn aside<A: Send + 'static>(doing: &'static str, work: impl FnOnce() -> Result<A> + Send + 'static) -> Result<A> {
    let refuse = |fault, detail| Error::unavailable("sqlite", doing, fault, detail);
    let runtime = background::handle()?;
    let work = runtime.spawn_blocking(work);
    let bounded = runtime.spawn(async move { tokio::time::timeout(PATIENCE * 2, work).await });
    match bounded.await {
        Ok(Ok(Ok(done))) => done,
        Ok(Err(_)) => Err(refuse(Fault::Timeout, format!("waited {:?}", PATIENCE * 2))),
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
        let file = File::open_here(&new, definition).expect("opened");
        file.conn.lock().expect("no panic").execute("INSERT INTO t VALUES (1)", []).expect("written");
        assert_eq!(mode(&new), 0o600);
        let there = dir.path().join("there.db");
        std::fs::write(&there, []).expect("written");
        std::fs::set_permissions(&there, std::fs::Permissions::from_mode(0o640)).expect("ours");
        File::open_here(&there, definition).expect("opened");
        assert_eq!(mode(&there), 0o640);
        let nowhere = File::open_here(&dir.path().join("no/such.db"), definition).expect_err("there is no such directory");
        assert!(nowhere.to_string().contains("no"), "{nowhere}");
    }
}
