//! Fences for keys in Redis: each write is one script that compares the token and writes.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use tenure::fence::redis::{Decrement, RedisFence};
//!
//! let locker = tenure::Locker::connect("redis://localhost").await?;
//! let connection = redis::Client::open("redis://localhost")?.get_multiplexed_async_connection().await?;
//! let fence = RedisFence::new(connection);
//!
//! let guard = locker.mutex("stock:1001").lock().await?;
//! match fence.decrement("stock:1001:units", 3, &guard).await? {
//!     Decrement::Left(n) => println!("sold, {n} left"),
//!     Decrement::Short { have } => println!("only {have} there"),
//! }
//! fence.set("stock:1001:seller", "alice", &guard).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Where the largest token is
//! In a second key in the same slot: `tenure_fence:{key}` for `key`, `tenure_fence_tag:a{b}c` for a key with a hash tag. It stays when
//! the key is deleted or expires, so that a fence never goes down; a client that deletes it, or a server that evicts it (`maxmemory-policy allkeys-*`, with
//! [`forget_after`](RedisFence::forget_after) also `volatile-*`), loses the token. **A fence lasts as long as its server's data**: what a restart or a failover loses of it is lost.
//!
//! # Asking again
//! [`set`](RedisFence::set) and [`delete`](RedisFence::delete) may be repeated after an error that leaves open whether they were
//! carried out. **[`decrement`](RedisFence::decrement) may not**: it would be taken twice. The cluster client of redis-rs
//! repeats calls without an answer by itself, up to 16 times unless `ClusterClientBuilder::retries` says otherwise.

mod marks;
mod names;

use std::fmt;
use std::sync::LazyLock;
use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::{ErrorKind, FromRedisValue, RedisError, RedisResult, ServerErrorKind, ToSingleRedisArg, cmd};

pub use self::marks::RedisMarks;
use super::{FenceCounters, FenceStats, Pass, decimal};
use crate::backends::redis::scripts::{MORE, Source};
use crate::name::Token;

/// Why a fenced write to Redis did not happen.
pub type Error = super::Error<RedisError>;

const FENCE: &str = include_str!("redis/scripts/fence.lua");
const TEXT: &str = include_str!("redis/scripts/text.lua");

static SET: LazyLock<Source> = LazyLock::new(|| Source::new(&[MORE, FENCE, TEXT, include_str!("redis/scripts/set.lua")]));
static DELETE: LazyLock<Source> = LazyLock::new(|| Source::new(&[MORE, FENCE, TEXT, include_str!("redis/scripts/delete.lua")]));
static DECREMENT: LazyLock<Source> = LazyLock::new(|| Source::new(&[MORE, FENCE, include_str!("redis/scripts/decrement.lua")]));

/// Writes strings and numbers to Redis, unless a larger token has written the key.
///
/// Over any connection of redis-rs that can be cloned: multiplexed, managed, or to a cluster. Clones of a fence count together.
#[derive(Clone)]
pub struct RedisFence<C> {
    connection: C,
    forget_after: Option<Duration>,
    counters: FenceCounters,
}

/// What a decrement did that was not refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Decrement {
    /// It was taken, and this is left.
    Left(u64),
    /// There is less than that; nothing was taken.
    Short {
        /// What there is. Others may have put it below zero.
        have: i64,
    },
}

impl<C: ConnectionLike + Clone> RedisFence<C> {
    /// A fence that remembers forever.
    pub fn new(connection: C) -> Self {
        Self { connection, forget_after: None, counters: FenceCounters::default() }
    }

    /// Forgets the token of a key that has not been written for so long.
    ///
    /// **What is forgotten is not refused**: a holder that was paused for longer than this, and writes then, is let through. So take a
    /// time that is longer than anything can be paused, retried or queued, a week rather than an hour. It saves the memory of
    /// fences whose keys are gone. All writers of a key must set the same: the last one decides.
    #[must_use]
    pub fn forget_after(self, idle: Duration) -> Self {
        Self { forget_after: Some(idle), ..self }
    }

    /// What it has let through and refused.
    #[must_use]
    pub fn stats(&self) -> FenceStats {
        self.counters.stats()
    }

    /// Sets a key, without an end. May be repeated.
    pub async fn set(&self, key: &str, value: impl ToSingleRedisArg, pass: &dyn Pass) -> Result<(), Error> {
        self.put(key, &value, 0, pass).await
    }

    /// Sets a key that ends by itself; its fence does not. May be repeated; the time then begins again.
    pub async fn set_for(&self, key: &str, value: impl ToSingleRedisArg, ttl: Duration, pass: &dyn Pass) -> Result<(), Error> {
        self.put(key, &value, millis("the time to live", ttl).map_err(Error::Request)?, pass).await
    }

    /// Deletes a key and keeps its fence. Says whether there was something to delete, and may be repeated.
    pub async fn delete(&self, key: &str, pass: &dyn Pass) -> Result<bool, Error> {
        let reply = self.ask(&DELETE, key, vec![], pass).await?;
        Ok(reply.get(1).is_some_and(|deleted| deleted == "1"))
    }

    /// Takes so many away from a number if there are as many; a key that is not there has none. Its time to live stays as it is.
    ///
    /// **Not to be repeated** after an error that leaves open whether it was carried out: it would be taken twice.
    pub async fn decrement(&self, key: &str, by: u64, pass: &dyn Pass) -> Result<Decrement, Error> {
        let reply = self.ask(&DECREMENT, key, vec![by.to_string().into_bytes()], pass).await?;
        let read = || match &*reply {
            [_, left, taken] if taken == "1" => Some(Decrement::Left(left.parse().ok()?)),
            [_, have, _] => Some(Decrement::Short { have: have.parse().ok()? }),
            _ => None,
        };
        read().ok_or_else(unexpected)
    }

    async fn put(&self, key: &str, value: &impl ToSingleRedisArg, ttl: u64, pass: &dyn Pass) -> Result<(), Error> {
        let args = [value.to_redis_args(), vec![ttl.to_string().into_bytes()]].concat();
        self.ask(&SET, key, args, pass).await.map(drop)
    }

    async fn ask(&self, source: &Source, key: &str, more: Vec<Vec<u8>>, pass: &dyn Pass) -> Result<Vec<String>, Error> {
        let fence = names::fence_of(key).map_err(Error::Request)?;
        let token = decimal(pass.token()).map_err(Error::Request)?;
        let idle = self.forget_after.map_or(Ok(0), |idle| millis("forget_after", idle)).map_err(Error::Request)?;
        let args = [vec![token.into_bytes(), idle.to_string().into_bytes()], more].concat();
        let reply: Vec<String> = run(&self.connection, source, &[&fence, key], &args).await.map_err(Error::Store)?;
        let seen = reply.first().and_then(|seen| seen.parse::<Token>().ok()).ok_or_else(unexpected)?;
        self.counters.check(key, pass, seen)?;
        Ok(reply)
    }
}

impl<C> fmt::Debug for RedisFence<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisFence")
            .field("forget_after", &self.forget_after)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

/// A script goes by its hash, or by its text if the server does not know it.
async fn run<T: FromRedisValue>(
    connection: &(impl ConnectionLike + Clone),
    source: &Source,
    keys: &[&str],
    args: &[Vec<u8>],
) -> RedisResult<T> {
    let call = |verb, body: &str| cmd(verb).arg(body).arg(keys.len()).arg(keys).arg(args).take();
    let mut connection = connection.clone();
    match call("EVALSHA", &source.hash).query_async(&mut connection).await {
        Err(e) if e.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
            call("EVAL", &source.text).query_async(&mut connection).await
        }
        answer => answer,
    }
}

/// A time as Redis takes it.
fn millis(what: &str, time: Duration) -> crate::Result<u64> {
    const LONGEST: u64 = 100 * 365 * 24 * 3_600_000;
    let millis = u64::try_from(time.as_millis()).ok().filter(|millis| (1..=LONGEST).contains(millis));
    let asked = || format!("{what} of {time:?}");
    millis.ok_or_else(|| crate::Error::config(asked(), "does not fit", "1ms to a hundred years of 365 days"))
}

fn unexpected() -> Error {
    Error::Store(RedisError::from((ErrorKind::UnexpectedReturnType, "the answer of a fence has another form than expected")))
}
