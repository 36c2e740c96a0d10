//! Identifies the file, for a quorum that it is a node of.

use std::time::Duration;

use rusqlite::params;

use super::rows::{signed, unsigned};
use super::verbs::{VerbResult, Verbs};
use crate::backend::{InUse, Server};
use crate::name::Token;

// Made when first needed: older programs go on with the file.
pub(super) const TABLES: &str = "
CREATE TABLE IF NOT EXISTS introduced (one INTEGER PRIMARY KEY CHECK (one = 1), id TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS leases (lease INTEGER PRIMARY KEY, first INTEGER NOT NULL, last INTEGER NOT NULL) STRICT";
/// A lease that was not named for so long, and twice its own length, is no longer in use.
const FORGOTTEN: Duration = Duration::from_secs(3600);

impl Verbs<'_> {
    pub(super) fn identify(&self, longest: Duration) -> VerbResult<Server> {
        self.tx.execute_batch(TABLES)?;
        let sql = "INSERT INTO introduced (one, id) VALUES (1, lower(hex(randomblob(16)))) ON CONFLICT (one) DO UPDATE SET id = id RETURNING id";
        let id = self.tx.prepare_cached(sql)?.query_row([], |row| row.get(0))?;
        let clock_micros = Token::after_now(None).map_or(0, Token::get);
        let (now, lease) = (signed(clock_micros), signed(micros(longest)));
        let forget = "DELETE FROM leases WHERE last + 2 * lease + ?2 < ?1";
        self.run(forget, params![now, signed(micros(FORGOTTEN))])?;
        let note = "INSERT INTO leases (lease, first, last) VALUES (?2, ?1, ?1) ON CONFLICT (lease) DO UPDATE SET last = ?1";
        self.run(note, params![now, lease])?;
        let mut read = self.tx.prepare_cached("SELECT lease, first FROM leases ORDER BY lease")?;
        let in_use = |row: &rusqlite::Row<'_>| {
            let (lease, first): (i64, i64) = (row.get(0)?, row.get(1)?);
            // By a clock that was set back since, it is as old as can be.
            let for_long = if first > now { now } else { now - first };
            Ok(InUse { lease: Duration::from_micros(unsigned(lease)), for_long: Duration::from_micros(unsigned(for_long)) })
        };
        let leases = read.query_map([], in_use)?.collect::<rusqlite::Result<_>>()?;
        Ok(Server { id, up: None, replica: false, clock_micros, leases, connection: 0 })
    }
}

fn micros(d: Duration) -> u64 {
    u64::try_from(d.as_micros()).unwrap_or(u64::MAX)
}
