//! Records in Redis: a hash per key, which ends by itself.

use std::fmt;
use std::sync::LazyLock;
use std::time::Duration;

use async_trait::async_trait;
use redis::aio::ConnectionLike;
use redis::{FromRedisValue, Script, ScriptInvocation};

use super::Key;
use super::keep::millis;
use super::records::{Begin, Begun, Finished, Record, Records};
use crate::backends::redis::fault::sort;
use crate::error::{Error, Fault, Result};
use crate::name::Token;

const NAME: &str = "redis";

static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| {
    let script = |verb| Script::new(&[include_str!("scripts/record.lua"), verb].concat());
    Scripts {
        begin: script(include_str!("scripts/begin.lua")),
        finish: script(include_str!("scripts/finish.lua")),
        look: script(include_str!("scripts/look.lua")),
        forget: script(include_str!("scripts/forget.lua")),
    }
});

struct Scripts {
    begin: Script,
    finish: Script,
    look: Script,
    forget: Script,
}

/// Records in Redis, under `tenure:once:{key}`, over any connection that can be cloned: to one server, to a cluster, or one that
/// is made again when it breaks. **A record lives as long as Redis keeps it**: see `docs/once.md`.
#[derive(Clone)]
pub struct RedisRecords<C> {
    connection: C,
    prefix: String,
}

impl<C> RedisRecords<C> {
    /// Over this connection.
    #[must_use]
    pub fn new(connection: C) -> Self {
        Self { connection, prefix: String::new() }
    }

    /// Puts something before the names of all keys.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }
}

impl<C: ConnectionLike + Clone + Send + Sync> RedisRecords<C> {
    fn on<'a>(&self, script: &'a Script, key: &Key) -> ScriptInvocation<'a> {
        script.key(format!("{}tenure:once:{key}", self.prefix))
    }

    async fn ask<T: FromRedisValue>(&self, doing: &str, script: &ScriptInvocation<'_>) -> Result<T> {
        script.invoke_async(&mut self.connection.clone()).await.map_err(|e| sort(doing, &e))
    }
}

/// With so many digits that texts compare as numbers do.
fn digits(token: Token) -> String {
    format!("{:020}", token.get())
}

fn token(digits: &str) -> Result<Token> {
    let unknown = |_| Error::backend(NAME, "reading a record", Fault::Protocol, format!("{digits:?} is not a token"));
    digits.parse().map_err(unknown)
}

type Answer = (String, Option<String>, Option<Vec<u8>>);

#[async_trait]
impl<C: ConnectionLike + Clone + Send + Sync> Records for RedisRecords<C> {
    async fn begin(&self, key: &Key, Begin { token: mine, keep, repeat }: Begin) -> Result<Begun> {
        let mut script = self.on(&SCRIPTS.begin, key);
        script.arg(digits(mine)).arg(millis(keep)?).arg(i32::from(repeat));
        let (word, other, result): Answer = self.ask("beginning", &script).await?;
        let other = other.as_deref().map(token).transpose()?;
        match (word.as_str(), other, result) {
            ("yours", unfinished, _) => Ok(Begun::Yours { unfinished }),
            ("done", Some(token), Some(result)) => Ok(Begun::Done { token, result }),
            ("unfinished", Some(token), _) => Ok(Begun::Unfinished { token }),
            ("stale", Some(seen), _) => Ok(Begun::Stale { seen }),
            _ => Err(unknown("beginning", &word)),
        }
    }

    async fn finish(&self, key: &Key, mine: Token, result: &[u8], keep: Duration) -> Result<Finished> {
        let mut script = self.on(&SCRIPTS.finish, key);
        script.arg(digits(mine)).arg(millis(keep)?).arg(result);
        let (word, other, _): Answer = self.ask("recording", &script).await?;
        match (word.as_str(), other.as_deref().map(token).transpose()?) {
            ("recorded", _) => Ok(Finished::Recorded),
            ("stale", Some(seen)) => Ok(Finished::Stale { seen }),
            _ => Err(unknown("recording", &word)),
        }
    }

    async fn look(&self, key: &Key) -> Result<Option<Record>> {
        type Found = (String, Option<String>, Option<Vec<u8>>, u64);
        let found: Option<Found> = self.ask("looking", &self.on(&SCRIPTS.look, key)).await?;
        let Some((mine, earlier, result, age)) = found else { return Ok(None) };
        let unfinished = earlier.as_deref().map(token).transpose()?;
        Ok(Some(Record { token: token(&mine)?, unfinished, result, age: Duration::from_millis(age) }))
    }

    async fn forget(&self, key: &Key, mine: Token) -> Result<Option<Token>> {
        let mut script = self.on(&SCRIPTS.forget, key);
        script.arg(digits(mine));
        let left: Option<String> = self.ask("forgetting", &script).await?;
        left.as_deref().map(token).transpose()
    }

    /// Nothing to do: they end by themselves.
    async fn sweep(&self) -> Result<u64> {
        Ok(0)
    }
}

impl<C> fmt::Debug for RedisRecords<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisRecords").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

fn unknown(doing: &str, word: &str) -> Error {
    Error::backend(NAME, doing, Fault::Protocol, format!("the script said {word:?}"))
}
