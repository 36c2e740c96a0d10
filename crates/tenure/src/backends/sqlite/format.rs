//! What the file looks like, and which files are ours.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};

use super::fault::NAME;
use super::file::Refusal;
use crate::error::{Error, Fault, Result};

/// Marks the file as ours: "TNRE".
const APPLICATION: i32 = 0x544e_5245;
const VERSION: i32 = 2;
/// Exclusive locks alone: one hold per name, no modes.
const BEFORE: i32 = 1;

// Names are blobs: SQLite's text functions stop at a NUL. No column has a default, see `migrate`.
const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS counter (one INTEGER PRIMARY KEY CHECK (one = 1), token INTEGER NOT NULL) STRICT;
CREATE TABLE holds (
    name BLOB NOT NULL, owner TEXT NOT NULL, kind INTEGER NOT NULL, take INTEGER NOT NULL, client TEXT NOT NULL,
    boot TEXT NOT NULL, until INTEGER NOT NULL, token INTEGER NOT NULL, last INTEGER NOT NULL, note TEXT,
    PRIMARY KEY (name, owner)
) STRICT, WITHOUT ROWID;
CREATE TABLE waiters (
    place INTEGER PRIMARY KEY, name BLOB NOT NULL, owner TEXT NOT NULL, kind INTEGER NOT NULL, take INTEGER NOT NULL,
    client TEXT NOT NULL, boot TEXT NOT NULL, until INTEGER NOT NULL
) STRICT;
CREATE INDEX waiters_in_line ON waiters (name);
CREATE UNIQUE INDEX waiters_once ON waiters (owner, name);
CREATE TABLE permits (name BLOB PRIMARY KEY, number INTEGER NOT NULL, used INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE latches (name BLOB PRIMARY KEY, count INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE counted (
    name BLOB NOT NULL, owner TEXT NOT NULL, boot TEXT NOT NULL, until INTEGER NOT NULL, PRIMARY KEY (name, owner)
) STRICT, WITHOUT ROWID;
CREATE INDEX counted_until ON counted (until);
";

/// What is found in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Empty,
    Before,
    Present,
}

/// What the file is; refuses files of others and of later versions.
pub(super) fn check(conn: &Connection, path: &Path) -> Result<Format, Refusal> {
    let application: i32 = conn.query_row("PRAGMA application_id", [], |row| row.get(0))?;
    let version: i32 = conn.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    let objects: i64 = conn.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    let refuse = |detail: String| Err(Error::backend(NAME, "opening", Fault::ForeignFormat, detail).into());
    match (application, version, objects) {
        (0, 0, 0) => Ok(Format::Empty),
        (APPLICATION, BEFORE, _) => Ok(Format::Before),
        (APPLICATION, VERSION, _) => Ok(Format::Present),
        (APPLICATION, newer, _) => {
            let allowed = format!("{BEFORE} or {VERSION}, or a later version of this program");
            refuse(format!("{} has format {newer}; allowed: {allowed}", path.display()))
        }
        _ => refuse(format!("{} is a database of another program; allowed: a new file", path.display())),
    }
}

/// Makes the tables, or those of the format before into those of today.
pub(super) fn prepare(conn: &mut Connection, path: &Path) -> Result<(), Refusal> {
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another process may have been faster.
    match check(&tx, path)? {
        Format::Empty => tx.execute_batch(SCHEMA)?,
        Format::Before => migrate(&tx)?,
        Format::Present => return Ok(()),
    }
    tx.execute_batch(&format!("PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION}"))?;
    Ok(tx.commit()?)
}

/// Keeps the holds and the counter. Programs of before that have the file open go on renewing and releasing what they
/// hold, and find held what is held. They cannot lock anew: they leave out columns that have no default.
fn migrate(conn: &Connection) -> rusqlite::Result<()> {
    conn.execute_batch("ALTER TABLE holds RENAME TO holds_before; DROP TABLE waiters")?;
    conn.execute_batch(SCHEMA)?;
    // Those in line cannot be served any more; they poll, and are told so.
    conn.execute_batch(
        "INSERT INTO holds (name, owner, kind, take, client, boot, until, token, last, note)
         SELECT name, owner, 0, 0, client, boot, until, token, last, note FROM holds_before;
         DROP TABLE holds_before",
    )
}
