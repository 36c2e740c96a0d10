//! What the embedded store asks of SQLite for a plain lock, without the library: the same statements in the same settings, on the
//! caller's own thread. Nothing that does these transactions is faster.

use std::path::Path;

use rusqlite::{Connection, OpenFlags, OptionalExtension, Statement, params};

const SETTINGS: &str = "
PRAGMA page_size = 1024; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 2000;
PRAGMA cell_size_check = ON";
const TABLES: &str = "
CREATE TABLE counter (one INTEGER PRIMARY KEY CHECK (one = 1), token INTEGER NOT NULL) STRICT;
CREATE TABLE waiters (
    place INTEGER PRIMARY KEY, name BLOB NOT NULL, owner TEXT NOT NULL, kind INTEGER NOT NULL, take INTEGER NOT NULL,
    client TEXT NOT NULL, boot TEXT NOT NULL, until INTEGER NOT NULL
) STRICT;
CREATE INDEX waiters_in_line ON waiters (name);
CREATE UNIQUE INDEX waiters_once ON waiters (owner, name);
CREATE TABLE holds (
    name BLOB NOT NULL, owner TEXT NOT NULL, kind INTEGER NOT NULL, take INTEGER NOT NULL, client TEXT NOT NULL,
    boot TEXT NOT NULL, until INTEGER NOT NULL, token INTEGER NOT NULL, last INTEGER NOT NULL, note TEXT, since INTEGER,
    PRIMARY KEY (name, owner)
) STRICT, WITHOUT ROWID";

const HELD: &str = "SELECT owner, client, kind, take, until, token, last, note, since, until > ?2 AND boot <> '' FROM holds
    WHERE name = ?1";
const LAST: &str = "SELECT token FROM counter WHERE one = 1";
const COUNT: &str = "INSERT INTO counter (one, token) VALUES (1, ?1) ON CONFLICT (one) DO UPDATE SET token = max(token, ?1)";
const HOLD: &str = "INSERT OR REPLACE INTO holds (name, owner, kind, take, client, boot, until, token, last, note, since)
    VALUES (?1, ?2, 0, 0, ?3, ?4, ?5, ?6, ?6, ?7, ?8)";
const QUEUED: &str = "SELECT EXISTS (SELECT 1 FROM waiters WHERE name = ?1)";
const GIVE: &str = "DELETE FROM holds WHERE name = ?1 AND owner = ?2 RETURNING boot = ?3 AND until > ?4";
const CLIENT: &str = "00000000-0000-4000-8000-000000000000";
const BOOT: &str = "00000000-0000-4000-8000-000000000001";
const NOW: i64 = 1_000_000_000_000_000;
const UNTIL: i64 = NOW + 30_000_000_000;

pub(crate) fn open(path: &Path) -> Connection {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags).expect("opened");
    conn.execute_batch(SETTINGS).expect("set");
    conn.execute_batch(TABLES).expect("made");
    conn
}

/// Its statements, prepared once.
pub(crate) struct Bare<'a> {
    statements: [Statement<'a>; 8],
    owners: u64,
}

impl<'a> Bare<'a> {
    pub(crate) fn new(conn: &'a Connection) -> Self {
        let all = ["BEGIN IMMEDIATE", "COMMIT", HELD, LAST, COUNT, HOLD, QUEUED, GIVE];
        Self { statements: all.map(|sql| conn.prepare(sql).expect("prepared")), owners: 0 }
    }

    /// Locks and releases.
    pub(crate) fn cycle(&mut self, name: &str) {
        self.owners += 1;
        let (name, owner) = (name.as_bytes(), format!("{CLIENT}:{}", self.owners));
        self.acquire(name, &owner).expect("locked");
        assert!(self.release(name, &owner).expect("given back"), "held");
    }

    fn acquire(&mut self, name: &[u8], owner: &str) -> rusqlite::Result<()> {
        let [begin, commit, held, last, count, hold, queued, _] = &mut self.statements;
        begin.execute([])?;
        assert!(held.query(params![name, NOW])?.next()?.is_none(), "free");
        let token = last.query_row([], |row| row.get::<_, i64>(0)).optional()?.unwrap_or(0) + 1;
        count.execute([token])?;
        hold.execute(params![name, owner, CLIENT, BOOT, UNTIL, token, "host 1 bench", NOW])?;
        assert!(!queued.query_row([name], |row| row.get::<_, bool>(0))?, "nobody waits");
        commit.execute([]).map(drop)
    }

    fn release(&mut self, name: &[u8], owner: &str) -> rusqlite::Result<bool> {
        let [begin, commit, .., queued, give] = &mut self.statements;
        begin.execute([])?;
        let held = give.query_row(params![name, owner, BOOT, NOW], |row| row.get(0)).optional()?;
        let waits: bool = queued.query_row([name], |row| row.get(0))?;
        commit.execute([])?;
        Ok(held == Some(true) && !waits)
    }
}
