//! Files of older formats: they are taken over, also while programs of that format have them open.

use tenure::Locker;

use super::opening::{boot, client, dir, url};

/// The tables of format 2, before the time of a grant was among them.
const WITHOUT_SINCE: &str = "
PRAGMA journal_mode = WAL;
CREATE TABLE counter (one INTEGER PRIMARY KEY CHECK (one = 1), token INTEGER NOT NULL) STRICT;
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
PRAGMA application_id = 0x544e5245;
PRAGMA user_version = 2;
";

#[tokio::test]
async fn a_file_without_the_time_of_grants_is_taken_over_and_shared_with_programs_that_write_none() {
    let dir = dir();
    let old = rusqlite::Connection::open(dir.path().join("locks.db")).unwrap();
    old.execute_batch(WITHOUT_SINCE).unwrap();
    let lock = "INSERT OR REPLACE INTO holds (name, owner, kind, take, client, boot, until, token, last, note)
                VALUES (?1, 'c:1', 0, 0, 'c', ?2, ?3, 5, 7, 'from before')";
    let mut locks = old.prepare(lock).unwrap();
    locks.execute(rusqlite::params![b"before", boot(), i64::MAX / 2]).unwrap();

    let (locker, other) = (client(&dir).await, client(&dir).await);
    // A program of before has the file open, and goes on locking.
    locks.execute(rusqlite::params![b"beside", boot(), i64::MAX / 2]).unwrap();
    for name in ["before", "beside"] {
        let holder = other.mutex(name).inspect().await.unwrap().holders.remove(0);
        assert_eq!((holder.token.map(|t| t.get()), holder.note.as_deref()), (Some(7), Some("from before")), "{name}");
        assert_eq!(holder.since, None, "{name}: not what its token says");
        assert!(locker.mutex(name).try_lock().await.unwrap().is_none(), "{name}");
    }
    let guard = locker.mutex("new").lock().await.unwrap();
    assert!(other.mutex("new").inspect().await.unwrap().holders[0].since.is_some());
    guard.release().await.unwrap();
}

/// The tables of format 1.
const FORMAT_1: &str = "
PRAGMA journal_mode = WAL;
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
PRAGMA application_id = 0x544e5245;
PRAGMA user_version = 1;
";

#[tokio::test]
async fn a_file_of_the_format_before_is_taken_over_with_its_holds_and_tokens() {
    let dir = dir();
    let old = rusqlite::Connection::open(dir.path().join("locks.db")).unwrap();
    old.execute_batch(FORMAT_1).unwrap();
    let last = 1_u64 << 62;
    old.execute("INSERT INTO counter VALUES (1, ?1)", [i64::try_from(last).unwrap()]).unwrap();
    // As programs of that format ask, who have the file open.
    let lock = "INSERT OR REPLACE INTO holds (name, owner, client, boot, until, token, last, note)
                VALUES (?1, 'c:1', 'c', ?2, ?3, 5, 7, 'from before')";
    let mut locks = old.prepare(lock).unwrap();
    locks.execute(rusqlite::params![b"held", boot(), i64::MAX / 2]).unwrap();
    old.execute("INSERT INTO waiters (name, owner, client, boot) VALUES (?1, 'd:1', 'd', ?2)", (b"held", boot())).unwrap();

    let mut opening = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let path = url(&dir.path().join("locks.db"));
        opening.spawn(async move { Locker::connect(&path).await.unwrap() });
    }
    let lockers = opening.join_all().await;
    let locker = &lockers[0];
    assert_eq!(old.query_row("PRAGMA user_version", [], |row| row.get::<_, i64>(0)).unwrap(), 2);
    let state = locker.mutex("held").inspect().await.unwrap();
    assert_eq!((state.holders[0].note.as_deref(), state.holders[0].token.map(|t| t.get())), (Some("from before"), Some(7)));
    assert!(locker.mutex("held").try_lock().await.unwrap().is_none());
    let guard = locker.rwlock("free").read().await.unwrap();
    assert!(guard.token().get() > last);

    // Who has it open goes on with what it holds and gets nothing new.
    let refused = locks.execute(rusqlite::params![b"new", boot(), i64::MAX / 2]).unwrap_err();
    assert!(refused.to_string().contains("NOT NULL"), "{refused}");
    let renewal = "UPDATE holds SET until = ?5 WHERE name = ?1 AND owner = ?2 AND boot = ?3 AND until > ?4";
    assert_eq!(old.execute(renewal, (b"held", "c:1", boot(), 1, i64::MAX / 2)).unwrap(), 1);
    assert_eq!(old.execute("DELETE FROM holds WHERE name = ?1 AND owner = ?2", (b"held", "c:1")).unwrap(), 1);
    assert!(locker.mutex("held").try_lock().await.unwrap().is_some());
}
