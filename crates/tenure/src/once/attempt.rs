//! [`OnceAttempt`]: what the work is told about its attempt; and the steps of an attempt.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::error::Error;
use super::ledger::Ledger;
use super::table::json;
use super::{Finished, Key};
use crate::engine::guard::{Guard, Watcher, step_under};
use crate::fence::Pass;
use crate::name::Token;
use crate::stats::Counters;

/// The result of work that is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Done<T> {
    /// What the work returned.
    pub value: T,
    /// Whether it was done by an earlier call.
    pub replayed: bool,
    /// Under which token it was done.
    pub token: Token,
}

/// What the work is told about its attempt. It is a [`Pass`]: show it at a fence.
#[derive(Clone)]
pub struct OnceAttempt {
    key: Key,
    token: Token,
    unfinished: Option<Token>,
    watcher: Watcher,
    counters: Arc<Counters>,
}

impl OnceAttempt {
    /// What is to be done.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The fencing token of this attempt. Send it along with each write.
    #[must_use]
    pub fn token(&self) -> Token {
        self.token
    }

    /// The earlier attempt that began and recorded no end: it crashed, failed, was dropped or could not record. **All,
    /// some or nothing of the work may be done already.** `None`: no earlier attempt is known.
    #[must_use]
    pub fn unfinished(&self) -> Option<Token> {
        self.unfinished
    }

    /// Whether the lock is held at this moment.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.watcher.is_valid()
    }
}

impl Pass for OnceAttempt {
    fn token(&self) -> Token {
        self.token
    }

    fn refused(&self) {
        self.counters.stale.up();
    }
}

impl fmt::Debug for OnceAttempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, token, unfinished, .. } = self;
        f.debug_struct("OnceAttempt")
            .field("key", key)
            .field("token", token)
            .field("unfinished", unfinished)
            .finish_non_exhaustive()
    }
}

/// Whether there is something to do.
pub(crate) enum Start<T> {
    Yours(Started),
    Done(Done<T>),
}

/// Work that is marked as begun.
pub(crate) struct Started {
    ledger: Ledger,
    key: Key,
    guard: Guard,
    unfinished: Option<Token>,
}

impl Started {
    pub(super) fn new(ledger: &Ledger, key: &Key, guard: Guard, unfinished: Option<Token>) -> Self {
        Self { ledger: ledger.clone(), key: key.clone(), guard, unfinished }
    }

    pub(crate) fn attempt(&self) -> OnceAttempt {
        let Self { ledger, key, guard, unfinished } = self;
        let counters = Arc::clone(&ledger.locker.engine.settings.counters);
        OnceAttempt { key: key.clone(), token: guard.token(), unfinished: *unfinished, watcher: guard.watcher(), counters }
    }

    /// Runs the work to its end, or until the lock is lost.
    pub(crate) async fn work<T, E, F>(&self, work: F) -> Result<F::Output, Error<T, E>>
    where
        F: Future,
    {
        // Work that has come to its end counts, also if the lock was lost in the same moment: the record decides.
        let done = step_under(self.guard.lost(), || self.guard.check(), work).await;
        done.map_err(|lost| Error::Stopped { key: self.key.clone(), lost })
    }

    /// Records the result of the work, and gives the lock back.
    pub(crate) async fn end<T: Serialize, E>(self, done: Result<T, E>) -> Result<Done<T>, Error<T, E>> {
        let Self { ledger, key, guard, .. } = self;
        let token = guard.token();
        let ended = match done {
            Ok(value) => record(&ledger, &key, &guard, value).await,
            Err(error) => Err(Error::Failed { key, token, error }),
        };
        give_back(guard).await;
        ended
    }
}

async fn record<T: Serialize, E>(ledger: &Ledger, key: &Key, guard: &Guard, value: T) -> Result<Done<T>, Error<T, E>> {
    let token = guard.token();
    let finished = match json(&value) {
        Ok(result) => ledger.finish(key, token, result).await,
        Err(e) => Err(e),
    };
    let seen = match finished {
        Ok(Finished::Recorded) => token,
        Ok(Finished::Stale { seen }) => seen,
        Err(cause) => return Err(Error::Unrecorded { key: key.clone(), token, value, cause }),
    };
    match ledger.counters.check(key.as_str(), guard, seen) {
        Ok(()) => Ok(Done { value, replayed: false, token }),
        Err(stale) => Err(Error::DoneTwice { stale, value }),
    }
}

/// Waits for it: a process that ends now would keep the next one waiting for a lease.
pub(super) async fn give_back(guard: Guard) {
    if let Err(error) = guard.release().await {
        tracing::debug!(%error, "the lock of work that is over is not given back");
    }
}
