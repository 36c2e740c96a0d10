//! Whether a file is ours, and what is beside it SQLite's, before anything of it is touched: a name in a URL may be
//! mistaken, and what it leads to is not ours to change.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use rustix::fs::{Access, Mode, OFlags, access, openat};
use rustix::io::Errno;

use super::bounds::Bounds;
use super::fault::{io_error, is_busy, shown, sqlite_error};
use super::file::Refusal;
use super::format::{self, Format};
use super::location::{BESIDE, Location};
use crate::error::{Error, Result};

const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/');
const JOURNAL: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
const LOGS: [[u8; 4]; 2] = [[0x37, 0x7f, 0x06, 0x82], [0x37, 0x7f, 0x06, 0x83]];

/// Refuses what is certainly not ours. What is not certain is for the regular opening to judge.
pub(super) fn check(location: &Location, patience: Duration) -> Result<(), Refusal> {
    for end in BESIDE {
        check_beside(location, end)?;
    }
    if location.size("").is_none_or(|size| size == 0) {
        return Ok(());
    }
    access(&location.path, Access::READ_OK).map_err(|e| io_error(&location.path, "opening", e.into()))?;
    let is_logged = location.size("-wal").is_some_and(|size| size > 0);
    let recognized = match look(&location.path, still, patience)? {
        // Once more: a page may have been read while it was written.
        Recognized::Foreign(_) => look(&location.path, still, patience)?,
        // Without its log the file may be old, or half of something.
        Recognized::Changed(_) | Recognized::Unclear if is_logged => look(&location.path, with_log, patience)?,
        recognized => recognized,
    };
    match recognized {
        Recognized::Foreign(e) | Recognized::Changed(e) => Err(e.into()),
        Recognized::Ours | Recognized::Unclear => Ok(()),
    }
}

/// What a file is, before it is touched.
enum Recognized {
    Ours,
    /// Marked as ours, and not what we make.
    Changed(Error),
    Foreign(Error),
    /// Empty, or not readable like this.
    Unclear,
}

fn look(path: &Path, open: fn(&Path) -> rusqlite::Result<Connection>, patience: Duration) -> Result<Recognized, Refusal> {
    match read(path, open, patience) {
        Ok(recognized) => Ok(recognized),
        Err(e) if e.sqlite_error_code() == Some(ErrorCode::NotADatabase) => {
            Ok(Recognized::Foreign(sqlite_error(path, "opening", e)))
        }
        // Would be so again.
        Err(e) if is_busy(&e) || e.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => Err(e.into()),
        Err(_) => Ok(Recognized::Unclear),
    }
}

fn read(path: &Path, open: fn(&Path) -> rusqlite::Result<Connection>, patience: Duration) -> rusqlite::Result<Recognized> {
    let mut conn = open(path)?;
    Bounds::set(&mut conn, patience)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    let tx = conn.transaction()?;
    match format::check(&tx, path) {
        Ok(Format::Empty) => Ok(Recognized::Unclear),
        Ok(Format::Before | Format::WithoutSince | Format::Present) => Ok(Recognized::Ours),
        Err(Refusal::Final(e)) if format::is_marked(&tx)? => Ok(Recognized::Changed(e)),
        Err(Refusal::Final(e)) => Ok(Recognized::Foreign(e)),
        Err(Refusal::Sqlite(e)) => Err(e),
        Err(Refusal::Removed) => Ok(Recognized::Unclear),
    }
}

/// The file as it is: no lock is taken, no journal is played back, no log is read. It is SQLite that opens it: a
/// descriptor of ours would end the locks of other connections when it is closed.
fn still(path: &Path) -> rusqlite::Result<Connection> {
    let uri = format!("file:{}?immutable=1", percent_encode(path.as_os_str().as_bytes(), PLAIN));
    Connection::open_with_flags(uri, OpenFlags::SQLITE_OPEN_URI | reading())
}

/// The file with its log. Of the log SQLite may make an index, `-shm`, and that is all it writes.
fn with_log(path: &Path) -> rusqlite::Result<Connection> {
    Connection::open_with_flags(path, reading())
}

fn reading() -> OpenFlags {
    OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW
}

/// SQLite deletes or overwrites what it finds beside a file, whatever it is.
fn check_beside(location: &Location, end: &str) -> Result<()> {
    let is_sqlites = match end {
        // Never opened: its locks are the process's.
        "-shm" => location.size(end).is_none_or(|size| size == 3 || size % 4096 == 0),
        _ => begins(location, end).is_none_or(|start| looks_right(end, &start)),
    };
    if is_sqlites {
        return Ok(());
    }
    let (_, name) = location.beside(end);
    let allowed = "a name for the store beside which there are no files of others";
    Err(Error::config(shown(&location.path.with_file_name(name)), "is not what SQLite keeps beside a file of its own", allowed))
}

/// The first bytes of a file, if it is there and may be read. SQLite has no locks on these.
fn begins(location: &Location, end: &str) -> Option<Vec<u8>> {
    let (dir, name) = location.beside(end);
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat(dir, &name, flags, Mode::empty()).ok()?;
    let mut start = vec![0; JOURNAL.len()];
    let read = loop {
        match rustix::io::read(&file, &mut start) {
            Err(Errno::INTR) => {}
            read => break read.ok()?,
        }
    };
    start.truncate(read);
    Some(start)
}

/// Zeros are what a journal is while it is written, and what a power cut leaves of either.
fn looks_right(end: &str, start: &[u8]) -> bool {
    let is_log = |magic: &[u8]| start.starts_with(magic);
    let is_right = if end == "-wal" { LOGS.iter().any(|magic| is_log(magic)) } else { JOURNAL.starts_with(start) };
    is_right || start.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn journals_and_logs_are_known_by_their_first_bytes() {
        for (end, start, due) in [
            ("-journal", &JOURNAL[..], true),
            ("-journal", &JOURNAL[..5], true),
            ("-journal", &[0; 8], true),
            ("-journal", &[], true),
            ("-journal", &LOGS[0], false),
            ("-journal", b"notes on", false),
            ("-wal", &[0x37, 0x7f, 0x06, 0x82, 0, 0x2d, 0xe2, 0x18], true),
            ("-wal", &[0x37, 0x7f, 0x06, 0x83, 0, 0x2d, 0xe2, 0x18], true),
            ("-wal", &[0x37, 0x7f, 0x06, 0x84, 0, 0x2d, 0xe2, 0x18], false),
            ("-wal", &[0; 8], true),
            ("-wal", &[], true),
            ("-wal", &JOURNAL, false),
            ("-wal", b"7", false),
        ] {
            assert_eq!(looks_right(end, start), due, "{end} {start:?}");
        }
    }
}
