//! The transactions of `sqlite:` by hand, with the same tables and pragmas, on the thread that calls: its limit. A lock that is
//! taken is asked for again every millisecond.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};
use tenure_bench::clock;
use tenure_bench::options::Options;

use super::only;
use super::ours::LEASE;
use crate::Fault;
use crate::crowd::{Client, Lock};

const TABLES: &str = "
CREATE TABLE IF NOT EXISTS counter (one INTEGER PRIMARY KEY CHECK (one = 1), token INTEGER NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS waiters (
    place INTEGER PRIMARY KEY, name BLOB NOT NULL, owner TEXT NOT NULL, kind INTEGER NOT NULL, take INTEGER NOT NULL,
    client TEXT NOT NULL, boot TEXT NOT NULL, until INTEGER NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS waiters_in_line ON waiters (name);
CREATE UNIQUE INDEX IF NOT EXISTS waiters_once ON waiters (owner, name);
CREATE TABLE IF NOT EXISTS holds (
    name BLOB NOT NULL, owner TEXT NOT NULL, kind INTEGER NOT NULL, take INTEGER NOT NULL, client TEXT NOT NULL,
    boot TEXT NOT NULL, until INTEGER NOT NULL, token INTEGER NOT NULL, last INTEGER NOT NULL, note TEXT, since INTEGER,
    PRIMARY KEY (name, owner)
) STRICT, WITHOUT ROWID;
";
const FIND: &str = "SELECT owner, client, kind, take, until, token, last, note, since FROM holds WHERE name = ?1 AND until > ?2";
const COUNT: &str =
    "INSERT INTO counter (one, token) VALUES (1, ?1) ON CONFLICT (one) DO UPDATE SET token = max(token + 1, ?1) RETURNING token";
const TAKE: &str = "INSERT OR REPLACE INTO holds (name, owner, kind, take, client, boot, until, token, last, note, since)
    VALUES (?1, ?2, 0, 0, 'bare', 'boot', ?3, ?4, ?4, 'bench', ?5)";
const LEAVE: &str = "DELETE FROM waiters WHERE owner = ?2 AND name = ?1 RETURNING place";
const NEXT: &str = "SELECT kind FROM waiters WHERE name = ?1 AND until > ?2 ORDER BY place LIMIT 1";
const GIVE: &str = "DELETE FROM holds WHERE name = ?1 AND owner = ?2 RETURNING until > ?3";
const PAUSE: Duration = Duration::from_millis(1);

pub(crate) struct Sqlite {
    connection: Arc<Mutex<Connection>>,
}

impl Sqlite {
    pub(crate) fn open(options: &Options) -> Result<Self, Fault> {
        only(options, &["mutex"])?;
        let path = options.urls[0].strip_prefix("sqlite:").ok_or("sqlite:PATH is needed")?;
        let connection = Connection::open(path)?;
        connection.busy_timeout(Duration::from_secs(10))?;
        connection.execute_batch("PRAGMA page_size = 1024; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL")?;
        connection.execute_batch("PRAGMA wal_autocheckpoint = 2000; PRAGMA cell_size_check = ON")?;
        connection.execute_batch(TABLES)?;
        connection.set_prepared_statement_cache_capacity(64);
        Ok(Self { connection: Arc::new(Mutex::new(connection)) })
    }
}

impl Client for Sqlite {
    type Lock = SqliteLock;

    fn lock(&self, name: &str) -> SqliteLock {
        SqliteLock { connection: Arc::clone(&self.connection), name: name.as_bytes().to_vec(), process: std::process::id() }
    }

    fn blocks(&self) -> bool {
        true
    }
}

#[derive(Clone)]
pub(crate) struct SqliteLock {
    connection: Arc<Mutex<Connection>>,
    name: Vec<u8>,
    process: u32,
}

pub(crate) struct SqliteHeld {
    owner: String,
    token: i64,
}

impl SqliteLock {
    fn ask(&self) -> Result<Option<SqliteHeld>, Fault> {
        let now = clock::now();
        let owner = format!("{}:{now}", self.process);
        let mut connection = self.connection.lock().expect("not poisoned");
        let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if tx.prepare_cached(FIND)?.query_row(params![self.name, now as i64], |row| row.get::<_, String>(0)).optional()?.is_some()
        {
            return Ok(None);
        }
        let wall = SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros() as i64;
        let token: i64 = tx.prepare_cached(COUNT)?.query_row(params![wall], |row| row.get(0))?;
        let until = now as i64 + LEASE.as_nanos() as i64;
        tx.prepare_cached(TAKE)?.execute(params![self.name, owner, until, token, wall])?;
        tx.prepare_cached(LEAVE)?.query_row(params![self.name, owner], |row| row.get::<_, i64>(0)).optional()?;
        tx.prepare_cached(NEXT)?.query_row(params![self.name, now as i64], |row| row.get::<_, i64>(0)).optional()?;
        tx.commit()?;
        Ok(Some(SqliteHeld { owner, token }))
    }

    fn give(&self, owner: &str) -> Result<bool, Fault> {
        let now = clock::now() as i64;
        let mut connection = self.connection.lock().expect("not poisoned");
        let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let given: Option<bool> =
            tx.prepare_cached(GIVE)?.query_row(params![self.name, owner, now], |row| row.get(0)).optional()?;
        tx.prepare_cached(LEAVE)?.query_row(params![self.name, owner], |row| row.get::<_, i64>(0)).optional()?;
        tx.prepare_cached(NEXT)?.query_row(params![self.name, now], |row| row.get::<_, i64>(0)).optional()?;
        tx.commit()?;
        Ok(given == Some(true))
    }
}

impl Lock for SqliteLock {
    type Held = SqliteHeld;

    async fn acquire(&mut self, _write: bool) -> Result<SqliteHeld, Fault> {
        loop {
            if let Some(held) = self.ask()? {
                return Ok(held);
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn token(held: &SqliteHeld) -> Option<u64> {
        u64::try_from(held.token).ok()
    }

    async fn release(&mut self, held: SqliteHeld) -> Result<(), Fault> {
        if self.give(&held.owner)? { Ok(()) } else { Err("the lock was not held any more".into()) }
    }
}
