//! What the file looks like, and which files are ours: those with our tables, to the letter, and nothing else.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};

use super::fault::NAME;
use super::file::Refusal;
use super::identify;
use crate::error::{Error, Fault, Result};

/// Marks the file as ours: "TNRE".
const APPLICATION: i32 = 0x544e_5245;
const VERSION: i32 = 2;
/// Exclusive locks alone: one hold per name, no modes.
const BEFORE: i32 = 1;

/// One row per hold. The last column came later: programs that know nothing of it leave it out.
const HOLDS: &str = "
CREATE TABLE holds (
    name BLOB NOT NULL, owner TEXT NOT NULL, kind INTEGER NOT NULL, take INTEGER NOT NULL, client TEXT NOT NULL,
    boot TEXT NOT NULL, until INTEGER NOT NULL, token INTEGER NOT NULL, last INTEGER NOT NULL, note TEXT, since INTEGER,
    PRIMARY KEY (name, owner)
) STRICT, WITHOUT ROWID;
";
/// The same as the first programs of this format made it.
const HOLDS_BEFORE: &str = "
CREATE TABLE holds (
    name BLOB NOT NULL, owner TEXT NOT NULL, kind INTEGER NOT NULL, take INTEGER NOT NULL, client TEXT NOT NULL,
    boot TEXT NOT NULL, until INTEGER NOT NULL, token INTEGER NOT NULL, last INTEGER NOT NULL, note TEXT,
    PRIMARY KEY (name, owner)
) STRICT, WITHOUT ROWID;
";

// Names are blobs: SQLite's text functions stop at a NUL. No other column has a default, see `migrate`.
const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS counter (one INTEGER PRIMARY KEY CHECK (one = 1), token INTEGER NOT NULL) STRICT;
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

/// The tables of the format before.
const SCHEMA_BEFORE: &str = "
CREATE TABLE counter (one INTEGER PRIMARY KEY CHECK (one = 1), token INTEGER NOT NULL) STRICT;
CREATE TABLE holds (
    name BLOB PRIMARY KEY, owner TEXT NOT NULL, client TEXT NOT NULL, boot TEXT NOT NULL,
    until INTEGER NOT NULL, token INTEGER NOT NULL, last INTEGER NOT NULL, note TEXT
) STRICT, WITHOUT ROWID;
CREATE TABLE waiters (
    place INTEGER PRIMARY KEY, name BLOB NOT NULL, owner TEXT NOT NULL, client TEXT NOT NULL, boot TEXT NOT NULL
) STRICT;
CREATE INDEX waiters_in_line ON waiters (name);
CREATE UNIQUE INDEX waiters_once ON waiters (owner, name);
";

/// What `ANALYZE` makes, which an administrator may have run.
const STATISTICS: [(&str, &str); 2] = [
    ("sqlite_stat1", "CREATE TABLE sqlite_stat1(tbl,idx,stat)"),
    ("sqlite_stat4", "CREATE TABLE sqlite_stat4(tbl,idx,neq,nlt,ndlt,sample)"),
];

/// What is found in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Empty,
    Before,
    /// The present format, but for the column that came later.
    WithoutSince,
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
        (APPLICATION, BEFORE | VERSION, _) => {
            let found = |schemas: &[&str]| foreign(conn, &schemas.concat());
            let (differs, format) = match version {
                BEFORE => (found(&[SCHEMA_BEFORE])?, Format::Before),
                _ if found(&[SCHEMA, HOLDS_BEFORE])?.is_none() => (None, Format::WithoutSince),
                _ => (found(&[SCHEMA, HOLDS])?, Format::Present),
            };
            match differs {
                None => Ok(format),
                Some(what) => {
                    refuse(format!("{} {what}; allowed: the tables of format {version} and nothing else", path.display()))
                }
            }
        }
        (APPLICATION, newer, _) => {
            let allowed = format!("{BEFORE} or {VERSION}, or a later version of this program");
            refuse(format!("{} has format {newer}; allowed: {allowed}", path.display()))
        }
        _ => refuse(format!("{} is a database of another program; allowed: a new file", path.display())),
    }
}

/// Whether the file says that it is ours.
pub(super) fn is_marked(conn: &Connection) -> rusqlite::Result<bool> {
    conn.query_row("PRAGMA application_id", [], |row| row.get(0)).map(|application: i32| application == APPLICATION)
}

/// What is in a schema: the type, the name, the table, the text.
type Object = (String, String, String, Option<String>);

/// In what the file differs from a schema. What is there to the letter can do no more than ours.
fn foreign(conn: &Connection, schema: &str) -> rusqlite::Result<Option<String>> {
    let ours = Connection::open_in_memory()?;
    ours.execute_batch(schema)?;
    let needed = objects(&ours)?;
    ours.execute_batch(identify::TABLES)?;
    let mut known = objects(&ours)?;
    known.extend(STATISTICS.map(|(name, sql)| ("table".to_owned(), name.to_owned(), name.to_owned(), Some(sql.to_owned()))));
    let found = objects(conn)?;
    let named =
        |(kind, name, ..): &Object| format!("{:.16} {:?}", kind.escape_debug(), name.chars().take(64).collect::<String>());
    if let Some(other) = found.iter().find(|object| !known.contains(object)) {
        return Ok(Some(format!("has the {}, which is not as this program makes it", named(other))));
    }
    Ok(needed.iter().find(|object| !found.contains(object)).map(|missing| format!("lacks the {}", named(missing))))
}

fn objects(conn: &Connection) -> rusqlite::Result<Vec<Object>> {
    // More than we ever have: a file with more has a foreign one among the first.
    let mut read = conn.prepare("SELECT type, name, tbl_name, sql FROM sqlite_schema LIMIT 64")?;
    read.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?.collect()
}

/// Makes the tables, or those of the format before into those of today.
pub(super) fn prepare(conn: &mut Connection, path: &Path) -> Result<(), Refusal> {
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another process may have been faster.
    match check(&tx, path)? {
        Format::Empty => tx.execute_batch(&[SCHEMA, HOLDS].concat())?,
        Format::Before => migrate(&tx)?,
        Format::WithoutSince => add_since(&tx)?,
        Format::Present => return Ok(()),
    }
    tx.execute_batch(&format!("PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION}"))?;
    Ok(tx.commit()?)
}

/// Keeps the holds and the counter. Programs of before that have the file open go on renewing and releasing what they
/// hold, and find held what is held. They cannot lock anew: they leave out columns that have no default.
fn migrate(conn: &Connection) -> rusqlite::Result<()> {
    conn.execute_batch("ALTER TABLE holds RENAME TO holds_before; DROP TABLE waiters")?;
    conn.execute_batch(&[SCHEMA, HOLDS].concat())?;
    // Those in line cannot be served any more; they poll, and are told so.
    conn.execute_batch(
        "INSERT INTO holds (name, owner, kind, take, client, boot, until, token, last, note)
         SELECT name, owner, 0, 0, client, boot, until, token, last, note FROM holds_before;
         DROP TABLE holds_before",
    )
}

/// Made anew instead of altered: what is in the file is ours to the letter. Programs that have it open go on as they did.
fn add_since(conn: &Connection) -> rusqlite::Result<()> {
    conn.execute_batch("ALTER TABLE holds RENAME TO holds_before")?;
    conn.execute_batch(HOLDS)?;
    conn.execute_batch(
        "INSERT INTO holds (name, owner, kind, take, client, boot, until, token, last, note)
         SELECT name, owner, kind, take, client, boot, until, token, last, note FROM holds_before;
         DROP TABLE holds_before",
    )
}
