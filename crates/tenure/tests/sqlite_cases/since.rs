//! Since when a lock is held, in files of programs that did not write that.

use super::clients::{boot, client, dir};

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
