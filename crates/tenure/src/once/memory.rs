//! Records of one process, and the specification of all others.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use super::Key;
use super::records::{Begin, Begun, Finished, Record, Records};
use crate::clock::{Clock, Instant};
use crate::error::Result;
use crate::name::Token;

/// Records of one process: gone with it. For tests, and for work whose effects are gone with the process too.
#[derive(Debug, Default)]
pub struct MemoryRecords {
    entries: Mutex<HashMap<Key, Entry>>,
    clock: Clock,
}

#[derive(Debug)]
struct Entry {
    token: Token,
    earlier: Option<Token>,
    result: Option<Vec<u8>>,
    since: Instant,
    expires: Instant,
}

impl MemoryRecords {
    /// On a clock of the test's own.
    #[must_use]
    pub fn on(clock: Clock) -> Self {
        Self { clock, ..Self::default() }
    }

    /// Those whose time is not up, and the present.
    fn fresh(&self, key: &Key) -> (MutexGuard<'_, HashMap<Key, Entry>>, Instant) {
        let now = self.clock.now();
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.get(key).is_some_and(|entry| entry.expires <= now) {
            entries.remove(key);
        }
        (entries, now)
    }
}

#[async_trait]
impl Records for MemoryRecords {
    async fn begin(&self, key: &Key, Begin { token, keep, repeat }: Begin) -> Result<Begun> {
        let (mut entries, now) = self.fresh(key);
        let earlier = match entries.get(key) {
            None => None,
            Some(Entry { result: Some(result), token, .. }) => return Ok(Begun::Done { token: *token, result: result.clone() }),
            Some(mine) if mine.token == token => return Ok(Begun::Yours { unfinished: mine.earlier }),
            Some(other) if other.token > token => return Ok(Begun::Stale { seen: other.token }),
            Some(other) if !repeat => return Ok(Begun::Unfinished { token: other.token }),
            Some(other) => Some(other.token),
        };
        entries.insert(key.clone(), Entry { token, earlier, result: None, since: now, expires: now.after(keep) });
        Ok(Begun::Yours { unfinished: earlier })
    }

    async fn finish(&self, key: &Key, token: Token, result: &[u8], keep: Duration) -> Result<Finished> {
        let (mut entries, now) = self.fresh(key);
        let earlier = match entries.get(key) {
            Some(other) if other.token > token => return Ok(Finished::Stale { seen: other.token }),
            Some(mine) if mine.token == token && mine.result.is_some() => return Ok(Finished::Recorded),
            Some(mine) if mine.token == token => mine.earlier,
            Some(_) | None => None,
        };
        let result = Some(result.to_vec());
        entries.insert(key.clone(), Entry { token, earlier, result, since: now, expires: now.after(keep) });
        Ok(Finished::Recorded)
    }

    async fn look(&self, key: &Key) -> Result<Option<Record>> {
        let (entries, now) = self.fresh(key);
        Ok(entries.get(key).map(|Entry { token, earlier, result, since, .. }| Record {
            token: *token,
            unfinished: *earlier,
            result: result.clone(),
            age: now.since(*since),
        }))
    }

    async fn forget(&self, key: &Key, token: Token) -> Result<Option<Token>> {
        let (mut entries, _) = self.fresh(key);
        if entries.get(key).is_some_and(|entry| entry.token == token) {
            entries.remove(key);
        }
        Ok(entries.get(key).map(|entry| entry.token))
    }

    async fn sweep(&self) -> Result<u64> {
        let now = self.clock.now();
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let before = entries.len();
        entries.retain(|_, entry| entry.expires > now);
        Ok(u64::try_from(before - entries.len()).unwrap_or(u64::MAX))
    }
}
