//! The other half of a lock: the storage that checks the token.
//!
//! A holder can be paused between its last look at the clock and its write; no lock can stop it then. The storage can: it
//! remembers the largest [`Token`] that it has seen, and refuses a write with a smaller one. This module is that storage side,
//! for what is commonly written to:
//!
//! | what is written | how |
//! |---|---|
//! | rows | [`sql`]: text and binds for any driver; `postgres`, `mysql`, `sqlite` and `sqlx` run them |
//! | keys in Redis | `redis` |
//! | another service | `http`: a layer that refuses, and the header that it reads |
//! | objects, files | `object`, [`mod@file`] |
//!
//! A write shows a [`Pass`]: the [`Guard`], or the [`Token`] that came with a request. A late write is refused as [`Stale`], which
//! has both tokens. Each fence counts refusals ([`FenceCounters`]), and so does the locker of the guard
//! ([`Stats::stale`](crate::Stats::stale)). **A fence never goes down.**

pub mod file;
#[cfg(feature = "http")]
pub mod http;
pub mod marks;
#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(feature = "object")]
pub mod object;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
pub mod sql;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(feature = "sqlx")]
pub mod sqlx;

use std::fmt;
use std::sync::Arc;

use crate::engine::guard::Guard;
use crate::name::Token;
use crate::stats::Count;

/// What a write shows at a fence.
pub trait Pass: Sync {
    /// The token of the hold under which the write is made.
    fn token(&self) -> Token;

    /// Is called when a fence has refused the write as stale.
    fn refused(&self);
}

/// A token that came from elsewhere.
impl Pass for Token {
    fn token(&self) -> Token {
        *self
    }

    fn refused(&self) {}
}

/// Its locker counts what is refused.
impl Pass for Guard {
    fn token(&self) -> Token {
        self.token()
    }

    fn refused(&self) {
        self.note_stale();
    }
}

impl<P: Pass + ?Sized> Pass for &P {
    fn token(&self) -> Token {
        (**self).token()
    }

    fn refused(&self) {
        (**self).refused();
    }
}

/// A token as every storage can keep it and every reader reads it.
pub(crate) fn decimal(token: Token) -> crate::Result<String> {
    let text = token.to_string();
    text.parse::<Token>()?;
    Ok(text)
}

/// The write is stale: the fence has seen a larger token. Nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
#[error("the write to {resource:?} with token {token} came too late: token {seen} has been here")]
pub struct Stale {
    /// What was to be written.
    pub resource: String,
    /// The token of the write.
    pub token: Token,
    /// The largest token that the fence has seen.
    pub seen: Token,
}

/// Another write has changed the lease since it was read. Nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
#[error("the write to {resource:?} was overtaken: its lease was {read} and is {found}")]
pub struct Overtaken {
    /// What was to be written.
    pub resource: String,
    /// The number that the writer had read.
    pub read: i64,
    /// The number that is there now.
    pub found: i64,
}

/// Why a fenced write did not happen. `E` is the driver's own error.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error<E> {
    /// The fence has seen a larger token.
    #[error(transparent)]
    Stale(#[from] Stale),
    /// Another write with the same lease came first.
    #[error(transparent)]
    Overtaken(#[from] Overtaken),
    /// The request is wrong and will stay so.
    #[error(transparent)]
    Request(crate::Error),
    /// The storage failed. Whether it was written is unknown if the connection broke.
    #[error(transparent)]
    Store(E),
}

impl<E> Error<E> {
    /// Both tokens, if the write came too late.
    #[must_use]
    pub fn stale(&self) -> Option<&Stale> {
        match self {
            Self::Stale(stale) => Some(stale),
            _ => None,
        }
    }
}

/// Counters of a fence: writes that it accepted and refused. Clones share them.
#[derive(Clone, Default)]
pub struct FenceCounters(Arc<Counters>);

#[derive(Default)]
struct Counters {
    accepted: Count,
    stale: Count,
    overtaken: Count,
}

/// The counters of a fence at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct FenceStats {
    /// Writes that were let through.
    pub accepted: u64,
    /// Writes that came too late.
    pub stale: u64,
    /// Writes that lost against another one with the same lease.
    pub overtaken: u64,
}

impl FenceCounters {
    /// The counters now.
    #[must_use]
    pub fn stats(&self) -> FenceStats {
        let Counters { accepted, stale, overtaken } = &*self.0;
        FenceStats { accepted: accepted.read(), stale: stale.read(), overtaken: overtaken.read() }
    }

    /// Compares what a write shows with the largest token that the storage has seen, this one included, and counts the answer.
    ///
    /// For programs that run a fence's statements by themselves.
    pub fn check(&self, resource: &str, pass: &(impl Pass + ?Sized), seen: Token) -> Result<(), Stale> {
        let token = pass.token();
        if seen <= token {
            self.accepted();
            return Ok(());
        }
        Err(self.too_late(resource, pass, seen))
    }

    /// Counts a write that came too late.
    pub(crate) fn too_late(&self, resource: &str, pass: &(impl Pass + ?Sized), seen: Token) -> Stale {
        let token = pass.token();
        self.0.stale.up();
        pass.refused();
        tracing::warn!(resource, %token, %seen, "a write came too late");
        Stale { resource: resource.to_owned(), token, seen }
    }

    pub(crate) fn accepted(&self) {
        self.0.accepted.up();
    }

    pub(crate) fn overtaken(&self, resource: &str, read: i64, found: i64) -> Overtaken {
        self.0.overtaken.up();
        tracing::warn!(resource, read, found, "a write was overtaken");
        Overtaken { resource: resource.to_owned(), read, found }
    }
}

impl fmt::Debug for FenceCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stats().fmt(f)
    }
}
