//! The lock as common libraries write it: `SET NX PX` with a value of its own, renewed and given back by scripts.
//!
//! It is what redis-py, redsync and node-redlock have in common; with renewal, what their users add or turn on.

use std::hash::{BuildHasher, RandomState};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use redis::Connection;

use super::upset::Played;
use super::words::UsualLock;

const RENEW: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0";
pub(crate) const RELEASE: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";

/// A lock that was granted.
pub(crate) struct Usual {
    key: String,
    value: String,
    watchdog: Option<Watchdog>,
}

impl Usual {
    /// Asks once, or over and over until the wait is over.
    pub(crate) fn take(raw: &mut Connection, who: &str, lock: &UsualLock, wait: Option<Duration>) -> Played<Option<Self>> {
        let value = format!("{who}:{:016x}", RandomState::new().hash_one(who));
        let give_up = Instant::now() + wait.unwrap_or_default();
        loop {
            let ttl = millis(lock.ttl);
            let mut set = redis::cmd("SET");
            let granted: Option<String> = set.arg(&lock.key).arg(&value).arg("NX").arg("PX").arg(ttl).query(raw)?;
            if granted.is_some() {
                let watchdog = lock.renewed.then(|| Watchdog::start(lock, &value)).transpose()?;
                return Ok(Some(Self { key: lock.key.clone(), value, watchdog }));
            }
            let left = give_up.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            std::thread::sleep(lock.poll.min(left));
        }
    }

    /// Compares and deletes in one step. False if it was not ours any more.
    pub(crate) fn give_back(self, raw: &mut Connection) -> Played<bool> {
        drop(self.watchdog);
        Ok(redis::cmd("EVAL").arg(RELEASE).arg(1).arg(&self.key).arg(&self.value).query(raw)?)
    }
}

/// Renews at a third of the time. Like most of its kind it tells nobody when it fails.
struct Watchdog {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    fn start(lock: &UsualLock, value: &str) -> Played<Self> {
        let mut raw = connect(lock.port)?;
        let (end, ended) = channel::<()>();
        let (lock, value) = (lock.clone(), value.to_owned());
        let thread = std::thread::spawn(move || {
            while ended.recv_timeout(lock.ttl / 3) == Err(RecvTimeoutError::Timeout) {
                let mut renew = redis::cmd("EVAL");
                let renewed = renew.arg(RENEW).arg(1).arg(&lock.key).arg(&value).arg(millis(lock.ttl)).query::<bool>(&mut raw);
                if renewed != Ok(true) {
                    return;
                }
            }
        });
        Ok(Self { end: Some(end), thread: Some(thread) })
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.end.take());
        // So that no renewal comes after the release.
        drop(self.thread.take().map(JoinHandle::join));
    }
}

pub(crate) fn connect(port: u16) -> Played<Connection> {
    Ok(redis::Client::open(format!("redis://127.0.0.1:{port}"))?.get_connection()?)
}

fn millis(d: Duration) -> u64 {
    crate::output::millis(d)
}
