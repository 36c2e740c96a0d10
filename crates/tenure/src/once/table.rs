//! [`OnceTable`]: the record in the transaction of the work, as text and binds that fit any driver.

use std::fmt;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::attempt::Done;
use super::keep::{self, KEEP};
use super::statements::{INDEX, Over, Statements, Taker, sweep};
use super::{Begun, Key, Record};
use crate::error::{Error, Fault, Result};
use crate::fence::{self, FenceCounters, FenceStats, Pass};
use crate::name::Token;
use crate::sql::{Columns, Dialect, Identifier, Operation, Statement, Table, Value, number, token};

/// How often something is tried whose record is deleted in the same moment.
pub(super) const TRIES: u32 = 3;

/// A table of records. See [`Ddl::once`](crate::fence::sql::Ddl::once) for its definition.
///
/// In the transaction of the work: [`claim`](Self::claim), then the work's own statements, then [`Ticket::finish`], then commit. The
/// row stays locked until the transaction ends: a second one that claims the same key waits, and then finds the result, or the
/// work to do if the first one was rolled back.
#[derive(Debug, Clone)]
pub struct OnceTable {
    name: Identifier,
    keep: Duration,
    counters: FenceCounters,
}

impl Default for OnceTable {
    fn default() -> Self {
        Self { name: Identifier::word("tenure_once"), keep: KEEP, counters: FenceCounters::default() }
    }
}

impl OnceTable {
    /// A table of this name, instead of `tenure_once`.
    pub fn named(name: &str) -> Result<Self> {
        Ok(Self { name: Identifier::table_and(name, INDEX)?, ..Self::default() })
    }

    /// How long results are kept, instead of seven days. After that the work is done again when it is asked for.
    #[must_use]
    pub fn keep(mut self, keep: Duration) -> Self {
        self.keep = keep;
        self
    }

    /// Its name, as it was given.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name.given()
    }

    pub(crate) fn identifier(&self) -> &Identifier {
        &self.name
    }

    pub(super) fn operation(&self, what: &'static str) -> Operation<'_> {
        Operation { what, table: Table::Records(self.name()) }
    }

    /// The row that a statement has returned.
    pub(super) fn row(&self, dialect: Dialect, columns: Columns) -> Result<Row> {
        let found = <[Value; 4]>::try_from(columns);
        // A result that is none of ours must not be taken for work that was not done.
        let Ok(
            [
                Value::Int(token),
                earlier @ (Value::Int(_) | Value::Null),
                result @ (Value::Bytes(_) | Value::Null),
                Value::Int(age),
            ],
        ) = found
        else {
            return Err(self.operation("reading").wrong_table(dialect, "its columns are of other types"));
        };
        let earlier = if let Value::Int(earlier) = earlier { Some(earlier) } else { None };
        let result = if let Value::Bytes(result) = result { Some(result) } else { None };
        Ok(Row { token, earlier, result, age })
    }

    /// How many results were recorded in transactions, and how many claims came too late.
    #[must_use]
    pub fn stats(&self) -> FenceStats {
        self.counters.stats()
    }

    /// A claim without a lock: the row alone decides which transaction does the work.
    pub fn claim(&self, key: impl AsRef<str>) -> Result<OnceClaim<'_>> {
        // A number that no other claim has. It is the time, so that a token of a lock is not below it.
        let number = number(Token::after_now(None).unwrap_or(Token::new(1)))?;
        self.claims(key, number, None)
    }

    /// A claim under a lock: also fenced by its token.
    pub fn claim_under<'a>(&'a self, key: impl AsRef<str>, pass: &'a dyn Pass) -> Result<OnceClaim<'a>> {
        self.claims(key, number(pass.token())?, Some(pass))
    }

    fn claims<'a>(&'a self, key: impl AsRef<str>, number: i64, pass: Option<&'a dyn Pass>) -> Result<OnceClaim<'a>> {
        Ok(OnceClaim { table: self, key: Key::new(key)?, number, keep: keep::millis(self.keep)?, pass })
    }

    /// Deletes up to a thousand records whose time is up. Not in the transaction of any work, where it would keep rows locked.
    #[must_use]
    pub fn sweep(&self, dialect: Dialect) -> Statement {
        sweep(dialect, &self.name)
    }
}

/// What the last statement of a claim returns, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// A whole number.
    pub token: i64,
    /// A whole number, or NULL.
    pub earlier: Option<i64>,
    /// Bytes, or NULL.
    pub result: Option<Vec<u8>>,
    /// Milliseconds, a whole number.
    pub age: i64,
}

impl Row {
    pub(super) fn record(self) -> Record {
        let Self { token: number, earlier, result, age } = self;
        let age = Duration::from_millis(u64::try_from(age).unwrap_or(0));
        Record { token: token(number), unfinished: earlier.map(token), result, age }
    }

    /// What the row means for an attempt to begin under this token.
    pub(super) fn begun(self, mine: Token) -> Begun {
        let Record { token, unfinished, result, .. } = self.record();
        match result {
            Some(result) => Begun::Done { token, result },
            None if token == mine => Begun::Yours { unfinished },
            None if token > mine => Begun::Stale { seen: token },
            None => Begun::Unfinished { token },
        }
    }
}

/// A claim of work, in a transaction.
#[must_use = "nothing is claimed yet"]
pub struct OnceClaim<'a> {
    table: &'a OnceTable,
    key: Key,
    number: i64,
    keep: i64,
    pass: Option<&'a dyn Pass>,
}

/// What came of a claim.
#[derive(Debug)]
#[must_use = "the work is done already, or is to be done"]
pub enum Claimed<T> {
    /// It is done.
    Done(Done<T>),
    /// It is yours to do, in this transaction.
    Yours(Ticket),
}

impl OnceClaim<'_> {
    #[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite", feature = "sqlx"))]
    pub(super) fn table(&self) -> &OnceTable {
        self.table
    }

    /// The statements, to be run in order in the transaction of the work, before the work. The last one returns a [`Row`].
    #[must_use]
    pub fn statements(&self, dialect: Dialect) -> Vec<Statement> {
        let Self { table, key, number, keep, pass } = self;
        let sql = Statements { dialect, table: &table.name, key };
        let over = if pass.is_some() { Over::Smaller } else { Over::Everybody };
        let take = sql.take(Taker { number: *number, keep: *keep, over });
        vec![sql.insert(*number, None, *keep), take, sql.read(false)]
    }

    /// What the row means; roll back if that is an error. No row: it was deleted at this moment; claim again.
    pub fn check<T: DeserializeOwned, E>(&self, row: Option<Row>) -> Result<Claimed<T>, fence::Error<E>> {
        let Self { table, key, keep, pass, .. } = self;
        let Some(row) = row else { return Err(fence::Error::Request(vanished(key))) };
        let record = row.record();
        if let Some(value) = record.value().map_err(fence::Error::Request)? {
            return Ok(Claimed::Done(Done { value, replayed: true, token: record.token }));
        }
        if let Some(pass) = pass.filter(|pass| pass.token() < record.token) {
            return Err(table.counters.too_late(key.as_str(), pass, record.token).into());
        }
        let Record { token, unfinished, .. } = record;
        Ok(Claimed::Yours(Ticket { table: (*table).clone(), key: key.clone(), token, unfinished, keep: *keep }))
    }
}

impl fmt::Debug for OnceClaim<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnceClaim").field("table", &self.table.name).field("key", &self.key).finish_non_exhaustive()
    }
}

/// Work that is yours to do, in the transaction that claimed it. If that is rolled back, nothing was claimed.
#[derive(Debug)]
#[must_use = "what is committed without being finished counts as begun and never finished"]
pub struct Ticket {
    table: OnceTable,
    key: Key,
    token: Token,
    unfinished: Option<Token>,
    keep: i64,
}

impl Ticket {
    /// What is to be done.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The number under which it is done: the lock's token, or one that the row gave.
    #[must_use]
    pub fn token(&self) -> Token {
        self.token
    }

    /// An earlier attempt that began outside of a transaction and recorded no end. See
    /// [`OnceAttempt::unfinished`](super::OnceAttempt::unfinished).
    #[must_use]
    pub fn unfinished(&self) -> Option<Token> {
        self.unfinished
    }

    /// The statement that records the result, to be run in the same transaction, after the work. It affects one row.
    pub fn finish(&self, dialect: Dialect, value: &impl Serialize) -> Result<Statement> {
        let Self { table, key, token, keep, .. } = self;
        let sql = Statements { dialect, table: &table.name, key };
        Ok(sql.complete(number(*token)?, &json(value)?, *keep))
    }

    /// Whether it was recorded, given how many rows were affected. Roll back if it was not, commit otherwise.
    pub fn check<T, E>(self, value: T, affected: u64) -> Result<Done<T>, fence::Error<E>> {
        if affected == 1 {
            self.table.counters.accepted();
            return Ok(Done { value, replayed: false, token: self.token });
        }
        let asked = format!("to record {:?} under token {}", self.key, self.token);
        let allowed = "the ticket, once, in the transaction that claimed it";
        Err(fence::Error::Request(Error::misuse(asked, format!("was made in {affected} rows"), allowed)))
    }
}

/// A result as it is recorded.
pub(super) fn json(value: &impl Serialize) -> Result<Vec<u8>> {
    let refuse = |e| Error::config("the result", format!("cannot be written as JSON: {e}"), "what serde_json can write");
    serde_json::to_vec(value).map_err(refuse)
}

/// A row that was there a moment ago.
pub(super) fn vanished(key: &Key) -> Error {
    Error::unavailable("the records", format!("claiming {key:?}"), Fault::StoreBusy, "the record was deleted in this moment")
}
