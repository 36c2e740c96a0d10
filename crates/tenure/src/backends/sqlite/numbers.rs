//! Permits, the counts of latches, and tokens.

use std::time::Duration;

use rusqlite::{OptionalExtension, params};

use super::fault::NAME;
use super::rows::{signed, unsigned};
use super::verbs::{VerbResult, Verbs};
use crate::backend::{Attempt, Claim, Mode, Queue};
use crate::backends::decision::{Turn, held};
use crate::clock::Instant;
use crate::error::{Error, Fault};
use crate::name::Token;

/// How long a latch remembers the owners that have counted down, so that asking again counts once.
const REMEMBER: Duration = Duration::from_secs(600);

const COUNTED: (&str, &str) = ("counted", "name, owner");

impl Verbs<'_> {
    /// How many permits there are, if there is a number.
    pub(super) fn permits(&self, name: &str) -> rusqlite::Result<Option<u32>> {
        let sql = "SELECT number FROM permits WHERE name = ?1";
        self.tx.prepare_cached(sql)?.query_row(params![name.as_bytes()], |row| row.get(0)).optional()
    }

    /// The same for a claim, which sets the number if there is none.
    pub(super) fn permits_or(&self, name: &str, of: u32) -> rusqlite::Result<u32> {
        if let Some(number) = self.permits(name)? {
            // Once a day is enough to show that it is used, and most questions write nothing.
            let sql = "UPDATE permits SET used = unixepoch() WHERE name = ?1 AND used < unixepoch() - 86400";
            self.run(sql, params![name.as_bytes()])?;
            return Ok(number);
        }
        if of > 0 {
            self.set_permits(name, of)?;
        }
        Ok(of)
    }

    fn set_permits(&self, name: &str, of: u32) -> rusqlite::Result<usize> {
        let sql = "INSERT OR REPLACE INTO permits (name, number, used) VALUES (?1, ?2, unixepoch())";
        self.run(sql, params![name.as_bytes(), of])
    }

    pub(super) fn resize(&mut self, name: &str, of: u32, now: Instant) -> VerbResult<Attempt> {
        self.set_permits(name, of)?;
        self.wake(name, now)?;
        let holds: Vec<_> = self.stored(name, now)?.holds.into_iter().map(|hold| (hold.owner, hold.mode)).collect();
        Ok(Attempt::Done { left: u64::from(of).saturating_sub(held(&holds)) })
    }

    /// The count of a latch.
    pub(super) fn count(&self, name: &str) -> rusqlite::Result<Option<u64>> {
        let sql = "SELECT count FROM latches WHERE name = ?1";
        let read = |row: &rusqlite::Row<'_>| Ok(unsigned(row.get(0)?));
        self.tx.prepare_cached(sql)?.query_row(params![name.as_bytes()], read).optional()
    }

    pub(super) fn latch(&mut self, claim: &Claim, now: Instant) -> VerbResult<Attempt> {
        let name = claim.resource.as_str();
        let owner = claim.owner.to_string();
        let count = self.count(name)?;
        if count.is_some() && (claim.mode == Mode::CountZero || self.may_not_set(claim, &owner, now)?) {
            return Ok(self.latch_is_busy(claim, now)?);
        }
        let left = match claim.mode {
            Mode::CountZero => 0,
            _ if !self.is_first_time(name, &owner, now)? => count.unwrap_or(0),
            Mode::SetCount { of } => of.into(),
            Mode::CountDown => count.unwrap_or(0).saturating_sub(1),
            _ => 0,
        };
        if left == 0 {
            self.remove_latch(name)?;
        } else if Some(left) != count {
            let sql = "INSERT OR REPLACE INTO latches (name, count) VALUES (?1, ?2)";
            self.run(sql, params![name.as_bytes(), signed(left)])?;
        }
        Ok(Attempt::Done { left })
    }

    /// Whether there is a count that another owner has set.
    fn may_not_set(&self, claim: &Claim, owner: &str, now: Instant) -> rusqlite::Result<bool> {
        if !matches!(claim.mode, Mode::SetCount { .. }) {
            return Ok(false);
        }
        let sql = "SELECT 1 FROM counted WHERE name = ?1 AND owner = ?2 AND boot = ?3 AND until > ?4";
        let params = params![claim.resource.as_str().as_bytes(), owner, self.me.boot, signed(now.as_nanos())];
        Ok(!self.tx.prepare_cached(sql)?.exists(params)?)
    }

    fn latch_is_busy(&self, claim: &Claim, now: Instant) -> rusqlite::Result<Attempt> {
        let mut within = self.poll();
        if claim.mode == Mode::CountZero && claim.queue == Queue::Allowed {
            // One position per client: its waiters are woken together.
            self.enqueue(claim, &self.me.client, Turn::Open, now)?;
            within = within.min(claim.position_lease() / 3);
        }
        Ok(Attempt::busy(within, None))
    }

    fn remove_latch(&mut self, name: &str) -> rusqlite::Result<()> {
        self.run("DELETE FROM latches WHERE name = ?1", params![name.as_bytes()])?;
        self.wake_latch(name)
    }

    /// Whether this owner has not done its part yet; from now on it has.
    fn is_first_time(&self, name: &str, owner: &str, now: Instant) -> rusqlite::Result<bool> {
        self.clear(COUNTED, "until <= ?1", params![signed(now.as_nanos())])?;
        let sql = "INSERT OR IGNORE INTO counted (name, owner, boot, until) VALUES (?1, ?2, ?3, ?4)";
        let until = signed(now.after(REMEMBER).as_nanos());
        Ok(self.run(sql, params![name.as_bytes(), owner, self.me.boot, until])? == 1)
    }

    /// Removes the numbers that were not used for a week, and what latches need not remember.
    pub(super) fn sweep_numbers(&self, now: Instant) -> rusqlite::Result<()> {
        let unused = "used < unixepoch() - 604800 AND name NOT IN (SELECT name FROM holds)";
        self.clear(("permits", "name"), unused, &[])?;
        self.clear(COUNTED, "until <= ?1 OR NOT of_this_boot(boot, owner)", params![signed(now.as_nanos())])
    }

    /// The last token of the file.
    pub(super) fn counter(&self) -> rusqlite::Result<Option<Token>> {
        let sql = "SELECT token FROM counter WHERE one = 1";
        let token = self.tx.prepare_cached(sql)?.query_row([], |row| row.get(0)).optional()?;
        Ok(token.map(|token| Token::new(unsigned(token))))
    }

    /// Reserves tokens. One counter for all names: it outlives the rows of locks that are free.
    pub(super) fn tokens(&self, count: u32, at_least: Option<Token>) -> VerbResult<(Token, Token)> {
        let first = Token::next(self.counter()?, at_least).ok_or_else(exhausted)?;
        let last = first.plus(u64::from(count.max(1)) - 1).ok_or_else(exhausted)?;
        self.count_to(last)?;
        Ok((first, last))
    }

    /// Raises the counter; it never goes back.
    pub(super) fn count_to(&self, last: Token) -> rusqlite::Result<usize> {
        let sql = "INSERT INTO counter (one, token) VALUES (1, ?1) ON CONFLICT (one) DO UPDATE SET token = max(token, ?1)";
        self.run(sql, params![signed(last.get())])
    }
}

pub(super) fn exhausted() -> Error {
    Error::backend(NAME, "acquiring", Fault::TokenExhausted, "the next token would not fit 63 bits")
}
