//! Counters and histograms of one locker: a locker that makes its users wait must show it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::backend::NodeState;

/// What a locker has done so far. Read with [`Locker::stats`](crate::Locker::stats).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Locks granted by the store.
    pub granted: u64,
    /// Locks handed to the next task of this process without asking the store.
    pub handed_over: u64,
    /// Re-entries, which cost nothing.
    pub reentered: u64,
    /// Answers "busy" to `try_lock` and waits that ended without a lock.
    pub not_granted: u64,
    /// Requests that failed because the store was unavailable or refused.
    pub errors: u64,
    /// Holds renewed.
    pub renewed: u64,
    /// Renewals that failed or got no answer.
    pub renewal_failures: u64,
    /// Holds given back.
    pub released: u64,
    /// Holds lost.
    pub lost: u64,
    /// Writes under this locker's guards that a [fence](crate::fence) has refused.
    pub stale: u64,
    /// Tasks waiting now.
    pub waiting: u64,
    /// Holds now.
    pub holding: u64,
    /// How long granted requests waited.
    pub wait: Histogram,
    /// How long locks were held.
    pub hold: Histogram,
    /// The stores that the locker's store is made of, and how they are; empty if it is one.
    pub nodes: Vec<NodeState>,
}

/// Durations counted in buckets of powers of two of a microsecond.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Histogram {
    /// `buckets[i]` counts durations below `2^i` µs that are in no smaller bucket; the last one takes the rest.
    pub buckets: [u64; 32],
    /// The sum of all.
    pub total: Duration,
}

impl Histogram {
    /// How many durations were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// An upper bound of the given quantile (0 to 1), exact to a factor of two. `None` if nothing was counted.
    #[must_use]
    pub fn quantile(&self, q: f64) -> Option<Duration> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
        let rank = ((count as f64 * q.clamp(0.0, 1.0)).ceil() as u64).max(1);
        let mut seen = 0;
        let bucket = self.buckets.iter().position(|n| {
            seen += n;
            seen >= rank
        });
        bucket.map(|i| Duration::from_micros(1 << i))
    }
}

#[derive(Debug)]
struct LiveHistogram {
    buckets: [AtomicU64; 32],
    nanos: AtomicU64,
}

impl Default for LiveHistogram {
    fn default() -> Self {
        Self { buckets: std::array::from_fn(|_| AtomicU64::new(0)), nanos: AtomicU64::new(0) }
    }
}

impl LiveHistogram {
    fn record(&self, d: Duration) {
        let micros = u64::try_from(d.as_micros()).unwrap_or(u64::MAX);
        let bucket = (64 - micros.leading_zeros() as usize).min(self.buckets.len() - 1);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn read(&self) -> Histogram {
        Histogram {
            buckets: std::array::from_fn(|i| self.buckets[i].load(Ordering::Relaxed)),
            total: Duration::from_nanos(self.nanos.load(Ordering::Relaxed)),
        }
    }
}

/// The live counters behind [`Stats`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) granted: Count,
    pub(crate) handed_over: Count,
    pub(crate) reentered: Count,
    pub(crate) not_granted: Count,
    pub(crate) errors: Count,
    pub(crate) renewed: Count,
    pub(crate) renewal_failures: Count,
    pub(crate) released: Count,
    pub(crate) lost: Count,
    pub(crate) stale: Count,
    pub(crate) waiting: Count,
    pub(crate) holding: Count,
    wait: LiveHistogram,
    hold: LiveHistogram,
}

#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn up(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn down(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counters {
    pub(crate) fn waited(&self, d: Duration) {
        self.wait.record(d);
    }

    pub(crate) fn held(&self, d: Duration) {
        self.hold.record(d);
    }

    pub(crate) fn read(&self) -> Stats {
        Stats {
            granted: self.granted.read(),
            handed_over: self.handed_over.read(),
            reentered: self.reentered.read(),
            not_granted: self.not_granted.read(),
            errors: self.errors.read(),
            renewed: self.renewed.read(),
            renewal_failures: self.renewal_failures.read(),
            released: self.released.read(),
            lost: self.lost.read(),
            stale: self.stale.read(),
            waiting: self.waiting.read(),
            holding: self.holding.read(),
            wait: self.wait.read(),
            hold: self.hold.read(),
            nodes: Vec::new(),
        }
    }
}
