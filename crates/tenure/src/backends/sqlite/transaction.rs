//! A transaction. Beginning and ending it are statements too, and are prepared once.

use rusqlite::Connection;

/// What it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    /// Alone, from its first moment on.
    Write,
}

/// Undone when it is dropped before its commit.
pub(super) struct Transaction<'a>(&'a Connection);

impl<'a> Transaction<'a> {
    pub(super) fn begin(conn: &'a Connection, access: Access) -> rusqlite::Result<Self> {
        let sql = if access == Access::Write { "BEGIN IMMEDIATE" } else { "BEGIN DEFERRED" };
        conn.prepare_cached(sql)?.execute([])?;
        Ok(Self(conn))
    }

    pub(super) fn conn(&self) -> &'a Connection {
        self.0
    }

    pub(super) fn commit(self) -> rusqlite::Result<()> {
        self.0.prepare_cached("COMMIT")?.execute([]).map(drop)
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        // SQLite has ended it by itself after a commit, and after some errors.
        if !self.0.is_autocommit() {
            drop(self.0.execute_batch("ROLLBACK"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_committed_is_undone_and_the_next_one_can_begin() {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch("CREATE TABLE a (b)").unwrap();
        let insert = |tx: &Transaction<'_>| tx.conn().execute("INSERT INTO a VALUES (1)", []).unwrap();
        let count = || conn.query_row("SELECT count(*) FROM a", [], |row| row.get::<_, i64>(0)).unwrap();
        let tx = Transaction::begin(&conn, Access::Write).unwrap();
        insert(&tx);
        drop(tx);
        assert_eq!(count(), 0);
        let tx = Transaction::begin(&conn, Access::Write).unwrap();
        insert(&tx);
        tx.commit().unwrap();
        assert_eq!(count(), 1);
        assert!(Transaction::begin(&conn, Access::Read).is_ok_and(|tx| Transaction::begin(tx.conn(), Access::Read).is_err()));
        assert!(conn.is_autocommit());
    }
}
