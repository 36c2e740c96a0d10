//! What a file may cost: SQLite believes what is in it, so it is told what to believe, and when to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rustix::time::{ClockId, clock_gettime};

use crate::retry::jitter;

/// Steps of SQLite's machine between two looks at the clock: a fraction of a millisecond.
const STEPS: i32 = 10_000;
/// How long SQLite may work on a caller's own thread.
const BRIEF: Duration = Duration::from_millis(1);
/// The longest value, far above that of a name or a note.
const LONGEST: i32 = 1 << 20;

/// How long SQLite may work before it is told to stop. Waiting for others does not count, be it for their locks or for the
/// processor: on a busy machine, what is short takes long. Each piece of work is done on one thread.
#[derive(Debug, Clone)]
pub(super) struct Bounds {
    limit: Duration,
    /// A point of the clock of work. Zero until the first look at it, which most work does not live to see.
    until: Arc<AtomicU64>,
    /// Nobody is waited for, and there is little time.
    brief: Arc<AtomicBool>,
}

impl Bounds {
    /// Bounds all that a connection does from now on. Nothing has been read yet.
    pub(super) fn set(conn: &mut Connection, limit: Duration) -> rusqlite::Result<Self> {
        let bounds = Self { limit, until: Arc::default(), brief: Arc::default() };
        let clock = bounds.clone();
        conn.progress_handler(STEPS, Some(move || clock.is_over()))?;
        conn.busy_handler(Some(bounds.clone().patience()))?;
        // We have neither triggers nor views. Those of others would run with our rights, and need not come to an end.
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false)?;
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
        conn.set_limit(Limit::SQLITE_LIMIT_LENGTH, LONGEST)?;
        conn.set_limit(Limit::SQLITE_LIMIT_SQL_LENGTH, LONGEST)?;
        conn.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0)?;
        Ok(bounds)
    }

    /// The time of another piece of work begins.
    pub(super) fn begin(&self, brief: bool) {
        self.brief.store(brief, Ordering::Relaxed);
        self.until.store(0, Ordering::Relaxed);
    }

    /// The same work has its time once more, unless it shall be brief.
    pub(super) fn restart(&self) {
        if !self.is_brief() {
            self.until.store(0, Ordering::Relaxed);
        }
    }

    fn is_brief(&self) -> bool {
        self.brief.load(Ordering::Relaxed)
    }

    fn is_over(&self) -> bool {
        let (now, until) = (worked(), self.until.load(Ordering::Relaxed));
        if until == 0 {
            let limit = if self.is_brief() { BRIEF.min(self.limit) } else { self.limit };
            let limit = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
            self.until.store(now.saturating_add(limit).max(1), Ordering::Relaxed);
        }
        until != 0 && now > until
    }

    /// SQLite's own handler sleeps up to 100 ms at a time; our transactions take a fraction of one.
    fn patience(self) -> impl FnMut(i32) -> bool + Send + 'static {
        let mut since = Instant::now();
        move |times: i32| {
            if self.is_brief() {
                return false;
            }
            if times == 0 {
                since = Instant::now();
            }
            let pause = Duration::from_micros(100) * u32::try_from(times + 1).unwrap_or(1).min(50);
            std::thread::sleep(pause / 2 + jitter(pause));
            self.restart();
            since.elapsed() < self.limit
        }
    }
}

/// How long this thread has worked, in nanoseconds.
fn worked() -> u64 {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}
