//! Who answers: for those who make one lock of several files.

use std::time::Duration;

use super::rows::{signed, unsigned};
use super::verbs::{Answer, Verbs};
use crate::backend::Server;
use crate::name::Token;

// Made when it is first wanted: programs that know nothing of it go on with the file.
const TABLE: &str = "
CREATE TABLE IF NOT EXISTS introduced (one INTEGER PRIMARY KEY CHECK (one = 1), id TEXT NOT NULL, longest INTEGER NOT NULL) STRICT";

impl Verbs<'_> {
    pub(super) fn introduce(&self, longest: Duration) -> Answer<Server> {
        self.tx.execute_batch(TABLE)?;
        let sql = "INSERT INTO introduced (one, id, longest) VALUES (1, lower(hex(randomblob(16))), ?1)
                   ON CONFLICT (one) DO UPDATE SET longest = max(longest, ?1) RETURNING id, longest";
        let nanos = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
        let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
        let (id, longest) = self.tx.prepare_cached(sql)?.query_row([signed(nanos)], read)?;
        let clock_micros = Token::after_now(None).map_or(0, Token::get);
        let longest = Duration::from_nanos(unsigned(longest));
        Ok(Ok(Server { id, up: None, replica: false, clock_micros, longest, session: 0 }))
    }
}
