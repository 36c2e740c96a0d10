//! [`Marks`] in Redis.

use std::fmt;
use std::sync::LazyLock;
use std::time::Duration;

use async_trait::async_trait;
use redis::aio::ConnectionLike;

use super::{FENCE, MORE, Source, millis, names, run};
use crate::backends::redis::fault::sort;
use crate::error::{Error, Fault, Result};
use crate::fence::decimal;
use crate::fence::marks::Marks;
use crate::name::Token;

/// How long the server may take to answer.
const TIMEOUT: Duration = Duration::from_secs(10);

static RAISE: LazyLock<Source> = LazyLock::new(|| Source::new(&[MORE, FENCE, include_str!("scripts/raise.lua")]));

/// The largest token of each resource, in keys `tenure_mark:resource` of Redis: for services of several processes.
///
/// A mark is not the fence of a key with the same name.
#[derive(Clone)]
pub struct RedisMarks<C> {
    connection: C,
    forget_after: Option<Duration>,
}

impl<C: ConnectionLike + Clone> RedisMarks<C> {
    /// Marks that stay forever.
    pub fn new(connection: C) -> Self {
        Self { connection, forget_after: None }
    }

    /// Forgets the mark of a resource that was not written for so long. **What is forgotten is not refused**; see
    /// [`RedisFence::forget_after`](super::RedisFence::forget_after).
    #[must_use]
    pub fn forget_after(self, idle: Duration) -> Self {
        Self { forget_after: Some(idle), ..self }
    }
}

#[async_trait]
impl<C: ConnectionLike + Clone + Send + Sync> Marks for RedisMarks<C> {
    async fn raise(&self, resource: &str, token: Token) -> Result<Token> {
        let doing = || format!("raising the mark of {resource:?}");
        let idle = self.forget_after.map_or(Ok(0), |idle| millis("forget_after", idle))?;
        let args = [decimal(token)?.into_bytes(), idle.to_string().into_bytes()];
        let key = names::mark_of(resource);
        let reply = tokio::time::timeout(TIMEOUT, run(&self.connection, &RAISE, &[&key], &args)).await;
        let late = |_| Error::unavailable("redis", doing(), Fault::Timeout, format!("no answer within {TIMEOUT:?}"));
        let reply: Vec<String> = reply.map_err(late)?.map_err(|e| sort(&doing(), &e))?;
        let seen = reply.first().and_then(|seen| seen.parse().ok());
        seen.ok_or_else(|| Error::backend("redis", doing(), Fault::Protocol, "the answer has another form than expected"))
    }
}

impl<C> fmt::Debug for RedisMarks<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisMarks").field("forget_after", &self.forget_after).finish_non_exhaustive()
    }
}
