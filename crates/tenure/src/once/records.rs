//! [`Records`]: what was begun and what is done, in any store.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use serde::de::DeserializeOwned;

use super::Key;
use crate::error::{Error, Result};
use crate::name::Token;

/// A store of records: one per key.
///
/// **Every verb can be repeated**: a lost reply is asked for again, and the answer is the same. So a record keeps the token of the
/// attempt before beside that of the last one. An expired record is not there. Nothing waits and nothing retries here:
/// [`Ledger`](super::Ledger) bounds and repeats calls. [`MemoryRecords`](super::MemoryRecords) is the specification.
#[async_trait]
pub trait Records: fmt::Debug + Send + Sync {
    /// Marks work as begun, unless it is done, or a larger token has begun it.
    async fn begin(&self, key: &Key, begin: Begin) -> Result<Begun>;

    /// Records the result, unless a larger token has begun since. Also if there is no mark any more: work may take
    /// longer than marks are kept.
    async fn finish(&self, key: &Key, token: Token, result: &[u8], keep: Duration) -> Result<Finished>;

    /// What is known of a key.
    async fn look(&self, key: &Key) -> Result<Option<Record>>;

    /// Forgets the record, if it is that of this token. Returns the token of the record that is there afterwards.
    async fn forget(&self, key: &Key, token: Token) -> Result<Option<Token>>;

    /// Deletes expired records, where the store does not do so by itself, and returns how many. [`Ledger`](super::Ledger) calls it now
    /// and then.
    async fn sweep(&self) -> Result<u64>;
}

/// How work is begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Begin {
    /// Under which token.
    pub token: Token,
    /// How long the mark is kept.
    pub keep: Duration,
    /// Whether to begin also if an earlier attempt began and recorded no end.
    pub repeat: bool,
}

/// What came of beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Begun {
    /// It is yours to do.
    Yours {
        /// An earlier attempt that began and never said that it finished.
        unfinished: Option<Token>,
    },
    /// It is done.
    Done {
        /// By whom.
        token: Token,
        /// With which result.
        result: Vec<u8>,
    },
    /// An earlier attempt began and never said that it finished, and it is not to be repeated. Nothing was changed.
    Unfinished {
        /// Whose that was.
        token: Token,
    },
    /// A larger token has begun it. Nothing was changed.
    Stale {
        /// That token.
        seen: Token,
    },
}

/// What came of recording a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finished {
    /// It is there.
    Recorded,
    /// A larger token has begun or done it since. Nothing was changed.
    Stale {
        /// That token.
        seen: Token,
    },
}

/// What is known of a key.
#[derive(Clone, PartialEq, Eq)]
pub struct Record {
    /// The token of the last attempt.
    pub token: Token,
    /// An attempt before it that began and recorded no end.
    pub unfinished: Option<Token>,
    /// The result, if it is done.
    pub result: Option<Vec<u8>>,
    /// For how long it has been there, by the store's own clock: since it began, or since it was done.
    pub age: Duration,
}

impl Record {
    /// The result in its own type. `None` if it is not done.
    pub fn value<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        let refuse = |e: serde_json::Error| {
            let asked = format!("the result recorded under token {}", self.token);
            Error::config(asked, format!("is not what is asked for: {e}"), "the type that was recorded")
        };
        self.result.as_deref().map(|json| serde_json::from_slice(json).map_err(refuse)).transpose()
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Results may be personal, and are no business of a log.
        let Self { token, unfinished, result, age } = self;
        let mut shown = f.debug_struct("Record");
        shown.field("token", token).field("unfinished", unfinished).field("done", &result.is_some()).field("age", age).finish()
    }
}
