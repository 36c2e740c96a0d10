//! Redlock as its documentation has it: the same lock at several servers, granted by a majority in time.

use std::time::{Duration, Instant};

use redis::Cmd;

use crate::error::Result;
use crate::protocol::RedlockSpec;
use crate::setnx_lock::{RELEASE, Watchdog, connect, unique};

/// A lock that was granted.
pub(crate) struct Redlock {
    ports: Vec<u16>,
    key: String,
    value: String,
    valid_until: Instant,
    watchdog: Option<Watchdog>,
}

impl Redlock {
    /// Asks each server once, one after the other.
    pub(crate) fn take(who: &str, lock: &RedlockSpec) -> Option<Self> {
        let start = Instant::now();
        let value = unique(who);
        let mut set = redis::cmd("SET");
        set.arg(&lock.key).arg(&value).arg("NX").arg("PX").arg(crate::millis(lock.ttl));
        let votes = lock.ports.iter().filter(|port| matches!(ask::<Option<String>>(**port, &set), Ok(Some(_)))).count();
        let drift = lock.ttl / 100 + Duration::from_millis(2);
        let valid_until = start + lock.ttl.saturating_sub(drift);
        let (ports, key) = (lock.ports.clone(), lock.key.clone());
        let mut redlock = Self { ports, key, value, valid_until, watchdog: None };
        if votes * 2 <= lock.ports.len() || !redlock.is_valid() {
            // Also where it failed: the answer may have been lost.
            redlock.give_back();
            return None;
        }
        redlock.watchdog = lock.renewed.then(|| Watchdog::start(lock.ports.clone(), &lock.key, &redlock.value, lock.ttl));
        Some(redlock)
    }

    /// As far as its own clock says. One that is renewed takes that for granted.
    pub(crate) fn is_valid(&self) -> bool {
        self.watchdog.is_some() || Instant::now() < self.valid_until
    }

    /// Whether something renews it still. Its users have no way to ask.
    pub(crate) fn is_renewed(&self) -> bool {
        self.watchdog.as_ref().is_some_and(Watchdog::is_at_work)
    }

    /// False if a majority does not have it any more.
    pub(crate) fn give_back(self) -> bool {
        drop(self.watchdog);
        let mut release = redis::cmd("EVAL");
        release.arg(RELEASE).arg(1).arg(&self.key).arg(&self.value);
        let released = self.ports.iter().filter(|port| matches!(ask::<bool>(**port, &release), Ok(true))).count();
        released * 2 > self.ports.len()
    }
}

fn ask<T: redis::FromRedisValue>(port: u16, command: &Cmd) -> Result<T> {
    Ok(command.query(&mut connect(port)?)?)
}
