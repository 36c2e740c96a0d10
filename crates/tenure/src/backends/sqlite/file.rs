//! The file, and how it is opened.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::hooks::Wal;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use rustix::fs::{Access, access};
use tracing::debug;

use super::bounds::Bounds;
use super::fault::{NAME, io_error, is_busy, shown, sqlite_error};
use super::format::{self, Format};
use super::location::{Inode, Location};
use super::terms::Terms;
use super::{index, recognize, siblings};
use crate::error::{Error, Fault, Result};
use crate::retry::jitter;

/// A log of so many pages is written back into the file.
const LONG: i32 = 2000;

/// An open file of ours.
#[derive(Debug)]
pub(super) struct Database {
    pub(super) conn: Connection,
    pub(super) bounds: Bounds,
    pub(super) location: Arc<Location>,
    /// Of the file, its log and the log's index.
    inodes: Option<[Inode; 3]>,
    /// How many pages the log had after the last commit of this client.
    log: Arc<AtomicI32>,
    /// How many are to be written back.
    long: i32,
}

impl Database {
    /// Opens or makes the file. Another program's lock on it is waited for, up to `patience`.
    pub(super) fn open(terms: &Terms, patience: Duration) -> Result<Self> {
        let location = Arc::new(Location::find(terms)?);
        let start = Instant::now();
        loop {
            let refusal = match Self::try_open(&location, terms, patience) {
                Ok(database) => return Ok(database),
                Err(refusal) => refusal,
            };
            let is_late = start.elapsed() >= patience;
            match refusal {
                // Many first openers at once: SQLite does not wait by itself in all steps of the switch to WAL.
                Refusal::Sqlite(e) if is_busy(&e) && !is_late => {}
                Refusal::Sqlite(e) => return Err(why_not(&location.path, e)),
                Refusal::Removed if !is_late => siblings::look(),
                Refusal::Removed => return Err(removed(&location.path)),
                Refusal::Final(e) => return Err(e),
            }
            std::thread::sleep(Duration::from_millis(1) + jitter(Duration::from_millis(4)));
        }
    }

    fn try_open(location: &Arc<Location>, terms: &Terms, patience: Duration) -> Result<Self, Refusal> {
        let path = &*location.path;
        location.check_files(terms)?;
        if index::lingers(path) {
            return Err(Refusal::Removed);
        }
        // Up to here, and unless the file is ours or new, nothing is changed.
        recognize::check(location, patience)?;
        location.claim()?;
        let before = location.inodes().and_then(|[file, ..]| file);
        // No SQLITE_OPEN_URI: a path is a path. No SQLITE_OPEN_CREATE: it was made, with its mode, in a directory that was looked at.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
        let mut conn = Connection::open_with_flags(path, flags)?;
        let bounds = Bounds::set(&mut conn, patience)?;
        // A killed process does not checkpoint either; the one that ends well should not pay two fsyncs for it. Nor is
        // another program's log ours to write back.
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        // In one transaction: another process may be making the tables right now.
        let found = format::check(&*conn.transaction()?, path)?;
        if conn.is_readonly("main")? {
            let detail = format!("{} cannot be written; allowed: a file that this user may write", path.display());
            return Err(Error::backend(NAME, "opening", Fault::ReadOnly, detail).into());
        }
        if found == Format::Empty {
            // Rows are small, and every page that changes is written whole.
            conn.execute_batch("PRAGMA page_size = 1024")?;
        }
        let mode: String = conn.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
        if mode != "wal" {
            let problem = format!("is on a file system without shared memory (journal mode {mode})");
            return Err(Error::config(shown(path), problem, "a file on a local disk or tmpfs").into());
        }
        // No fsync per commit: a power cut ends all holders too, and tokens follow the wall clock, so none comes back.
        conn.execute_batch("PRAGMA synchronous = NORMAL; PRAGMA cell_size_check = ON")?;
        // Instead of SQLite's own checkpoints, which whoever commits would wait for.
        let log = Arc::<AtomicI32>::default();
        let pages = Arc::clone(&log);
        conn.wal_hook(Some(move |_: &mut Wal, now: i32| {
            pages.store(now, Ordering::Relaxed);
            Ok(())
        }))?;
        conn.set_prepared_statement_cache_capacity(64);
        // By which SQLite has opened the log and its index, if it had not yet.
        format::is_marked(&conn)?;
        let Some([Some(file), Some(wal), Some(shared)]) = location.inodes() else { return Err(Refusal::Removed) };
        if before != Some(file) || !index::is_open(path, shared) {
            return Err(Refusal::Removed);
        }
        if found != Format::Present {
            format::prepare(&mut conn, path)?;
        }
        let inodes = Some([file, wal, shared]);
        let database = Self { conn, bounds, location: Arc::clone(location), inodes, log, long: LONG };
        if database.is_in_place() { Ok(database) } else { Err(Refusal::Removed) }
    }

    /// Whether the path still leads to the open file, its log and its index: locks in a removed file exclude no other process.
    pub(super) fn is_in_place(&self) -> bool {
        self.inodes.is_some_and(|opened| self.location.inodes() == Some(opened.map(Some)))
    }

    /// Whether the log is to be written back.
    pub(super) fn is_log_long(&self) -> bool {
        self.log.load(Ordering::Relaxed) >= self.long
    }

    /// Writes the log back into the file, and begins it anew. Waits for the disk.
    pub(super) fn write_back(&mut self) {
        self.bounds.begin(false);
        let begun = self.conn.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())).and_then(|()| {
            // The first commit to a log that begins anew waits for the disk, too.
            self.conn.prepare_cached("UPDATE counter SET token = token WHERE one = 1")?.execute([])
        });
        if let Err(e) = begun {
            debug!(error = %e, "the log stays as it is");
        }
        // One that others still read from is not begun anew. It is tried for again, and not after every commit.
        let pages = self.log.load(Ordering::Relaxed);
        self.long = if pages < LONG { LONG } else { pages.saturating_add(LONG / 4) };
    }

    /// Closes a file that was removed or replaced. SQLite shares one index within a process, so no client in it can open the file anew
    /// before.
    pub(super) fn let_go(&mut self) -> rusqlite::Result<()> {
        self.inodes = None;
        self.conn = Connection::open_in_memory()?;
        Ok(())
    }
}

fn removed(path: &Path) -> Error {
    let detail = format!("{}: it, its -wal or its -shm was removed or replaced while this process had it open", path.display());
    Error::unavailable(NAME, "opening", Fault::Connection, detail)
}

pub(super) enum Refusal {
    Sqlite(rusqlite::Error),
    /// What was opened is not, or not any more, what the path leads to.
    Removed,
    Final(Error),
}

impl From<rusqlite::Error> for Refusal {
    fn from(e: rusqlite::Error) -> Self {
        Self::Sqlite(e)
    }
}

impl From<Error> for Refusal {
    fn from(e: Error) -> Self {
        Self::Final(e)
    }
}

/// SQLite does not say why it cannot open a file; the system does.
pub(crate) fn why_not(path: &Path, e: rusqlite::Error) -> Error {
    if e.sqlite_error_code() == Some(ErrorCode::CannotOpen) {
        let dir = path.parent().unwrap_or(path);
        if let Err(e) = access(dir, Access::WRITE_OK | Access::EXEC_OK) {
            return io_error(dir, "opening", e.into());
        }
        // Only a file that does not exist yet: see above.
        if let Err(e) = std::fs::File::create_new(path)
            && e.kind() != std::io::ErrorKind::AlreadyExists
        {
            return io_error(path, "opening", e);
        }
    }
    sqlite_error(path, "opening", e)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_without_an_end_is_ended_and_the_file_is_usable_then() {
        let dir = tempfile::tempdir().unwrap();
        let file = Database::open(&Terms::of(dir.path().join("locks.db")), Duration::from_millis(200)).unwrap();
        let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";
        let e = file.conn.query_row(endless, [], |row| row.get::<_, i64>(0)).unwrap_err();
        let e = sqlite_error(&file.location.path, "inspecting", e);
        assert_eq!((e.fault(), e.is_transient()), (Some(Fault::Timeout), true), "{e}");
        file.bounds.restart();
        assert_eq!(file.conn.query_row("SELECT count(*) FROM holds", [], |row| row.get::<_, i64>(0)).unwrap(), 0);
    }

    #[test]
    fn a_full_disk_is_reported_as_such() {
        let dir = tempfile::tempdir().unwrap();
        let file = Database::open(&Terms::of(dir.path().join("full.db")), Duration::from_secs(1)).unwrap();
        file.conn.execute_batch("PRAGMA max_page_count = 1").unwrap();
        let sql = "INSERT INTO holds VALUES (zeroblob(100000), '', 0, 0, '', '', 0, 0, 0, NULL, NULL)";
        let e = sqlite_error(&file.location.path, "acquiring", file.conn.execute(sql, []).unwrap_err());
        assert_eq!((e.fault(), e.is_transient()), (Some(Fault::Disk), true));
        let source = std::error::Error::source(&e).and_then(|source| source.downcast_ref::<rusqlite::Error>());
        assert_eq!(source.and_then(rusqlite::Error::sqlite_error_code), Some(ErrorCode::DiskFull));
    }
}
