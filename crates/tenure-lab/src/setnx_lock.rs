//! The lock of common libraries: `SET NX PX` with a value of its own, renewed and given back by scripts.
//!
//! It is what redis-py, redsync and node-redlock have in common; with renewal in the background, which gives up without a word when the
//! lock is gone, what Redisson's watchdog does and what users write themselves (redsync returns an error from `Extend`, node-redlock
//! has a signal, for users that check them); with a counter, what users add that know of fencing tokens.

use std::hash::{BuildHasher, RandomState};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use redis::Connection;

use crate::error::Result;
use crate::password;
use crate::protocol::SetNxSpec;

const RENEW: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0";
pub(crate) const RELEASE: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";

/// Locks and counts in one step, as Redisson's `RFencedLock` does.
const LOCK_AND_COUNT: &str =
    "if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return redis.call('incr', KEYS[2]) end return nil";

/// How long a server may take to answer: generous, because the machine may be busy.
const LIMIT: Duration = Duration::from_secs(1);

/// A lock that was granted.
pub(crate) struct SetNxLock {
    key: String,
    value: String,
    pub(crate) token: Option<u64>,
    watchdog: Option<Watchdog>,
}

impl SetNxLock {
    /// Asks once, or over and over until the wait is over.
    pub(crate) fn take(raw: &mut Connection, who: &str, lock: &SetNxSpec, wait: Option<Duration>) -> Result<Option<Self>> {
        let value = unique(who);
        let give_up = Instant::now() + wait.unwrap_or_default();
        loop {
            if let Some(token) = ask(raw, lock, &value)? {
                let ports = vec![lock.port];
                let watchdog = lock.renewed.then(|| Watchdog::start(ports, &lock.key, &value, lock.ttl));
                return Ok(Some(Self { key: lock.key.clone(), value, token, watchdog }));
            }
            let left = give_up.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            std::thread::sleep(lock.poll.min(left));
        }
    }

    /// Whether something renews it still. Its users have no way to ask.
    pub(crate) fn is_renewed(&self) -> bool {
        self.watchdog.as_ref().is_some_and(Watchdog::is_at_work)
    }

    /// Compares and deletes in one step. False if it was not ours any more.
    pub(crate) fn give_back(self, raw: &mut Connection) -> Result<bool> {
        drop(self.watchdog);
        Ok(redis::cmd("EVAL").arg(RELEASE).arg(1).arg(&self.key).arg(&self.value).query(raw)?)
    }
}

/// The token, if it counts, of a lock that was granted.
fn ask(raw: &mut Connection, lock: &SetNxSpec, value: &str) -> Result<Option<Option<u64>>> {
    let ttl = crate::millis(lock.ttl);
    if let Some(counter) = &lock.counter {
        let mut script = redis::cmd("EVAL");
        let token: Option<u64> = script.arg(LOCK_AND_COUNT).arg(2).arg(&lock.key).arg(counter).arg(value).arg(ttl).query(raw)?;
        return Ok(token.map(Some));
    }
    let granted: Option<String> = redis::cmd("SET").arg(&lock.key).arg(value).arg("NX").arg("PX").arg(ttl).query(raw)?;
    Ok(granted.map(|_| None))
}

/// Renews at a third of the time, at as many servers as there are. Like most of its kind it does not report a failure.
pub(crate) struct Watchdog {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    pub(crate) fn start(ports: Vec<u16>, key: &str, value: &str, ttl: Duration) -> Self {
        let (end, ended) = channel::<()>();
        let (key, value) = (key.to_owned(), value.to_owned());
        let renew = move |port: &u16| -> bool {
            let mut renew = redis::cmd("EVAL");
            renew.arg(RENEW).arg(1).arg(&key).arg(&value).arg(crate::millis(ttl));
            connect(*port).and_then(|mut raw| Ok(renew.query(&mut raw)?)).unwrap_or(false)
        };
        let thread = std::thread::spawn(move || {
            while ended.recv_timeout(ttl / 3) == Err(RecvTimeoutError::Timeout) {
                if ports.iter().filter(|port| renew(port)).count() * 2 <= ports.len() {
                    return;
                }
            }
        });
        Self { end: Some(end), thread: Some(thread) }
    }

    pub(crate) fn is_at_work(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.end.take());
        // So that no renewal comes after the release.
        drop(self.thread.take().map(JoinHandle::join));
    }
}

/// What only this lock has.
pub(crate) fn unique(who: &str) -> String {
    format!("{who}:{:016x}", RandomState::new().hash_one(who))
}

pub(crate) fn connect(port: u16) -> Result<Connection> {
    let raw = redis::Client::open(password::url(port, ""))?.get_connection_with_timeout(LIMIT)?;
    Ok(raw)
}
