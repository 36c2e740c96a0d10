//! Counts of durations, in buckets within 2 % of each other: the power of two, and 32 steps within it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

const STEPS: u32 = 32;

/// How many durations fell into each bucket.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Histogram(BTreeMap<u32, u64>);

impl Histogram {
    pub(super) fn merge(&mut self, other: &Self) {
        for (bucket, count) in &other.0 {
            *self.0.entry(*bucket).or_default() += count;
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.0.values().sum()
    }

    /// The middle of the bucket that this share of all durations reaches, in nanoseconds. `None` if there are none.
    pub(super) fn quantile(&self, share: f64) -> Option<f64> {
        let wanted = (share * self.count() as f64).ceil().max(1.0);
        let mut seen = 0;
        self.0.iter().find_map(|(bucket, count)| {
            seen += count;
            (seen as f64 >= wanted).then(|| from(*bucket).midpoint(from(bucket + 1)))
        })
    }

    /// The same in coarser steps: from which to which duration in nanoseconds, and how many.
    pub(super) fn bins(&self, per_power: u32) -> Vec<Bin> {
        let width = STEPS / per_power.clamp(1, STEPS);
        let mut bins: BTreeMap<u32, u64> = BTreeMap::new();
        for (bucket, count) in &self.0 {
            *bins.entry(bucket / width * width).or_default() += count;
        }
        bins.into_iter().map(|(first, count)| Bin { from: from(first), to: from(first + width), count }).collect()
    }
}

/// Some durations that lie close together.
pub(super) struct Bin {
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) count: u64,
}

/// The same while it is counted, by many threads.
pub(super) struct Counts {
    buckets: Vec<AtomicU64>,
    longest: AtomicU64,
}

impl Default for Counts {
    fn default() -> Self {
        Self { buckets: (0..64 * STEPS).map(|_| AtomicU64::new(0)).collect(), longest: AtomicU64::new(0) }
    }
}

impl Counts {
    pub(super) fn add(&self, nanos: u64) {
        if let Some(count) = self.buckets.get(bucket(nanos) as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.longest.fetch_max(nanos, Ordering::Relaxed);
    }

    pub(super) fn total(&self) -> Histogram {
        let counts = self.buckets.iter().map(|count| count.load(Ordering::Relaxed));
        Histogram((0..).zip(counts).filter(|(_, count)| *count > 0).collect())
    }

    /// The longest duration, exactly.
    pub(super) fn longest(&self) -> u64 {
        self.longest.load(Ordering::Relaxed)
    }
}

fn bucket(nanos: u64) -> u32 {
    let nanos = nanos.max(u64::from(STEPS));
    let power = nanos.ilog2();
    // Below twice the steps: it fits.
    power * STEPS + ((nanos >> (power - STEPS.ilog2())) as u32 - STEPS)
}

/// Where a bucket begins.
fn from(bucket: u32) -> f64 {
    let step = 2_f64.powi(i32::try_from(bucket / STEPS).unwrap_or(0) - 5);
    f64::from(bucket % STEPS + STEPS) * step
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_within_two_percent_of_what_was_added() {
        for nanos in [40, 1_000, 77_600, 1_234_567, 9_876_543_210] {
            let counts = Counts::default();
            counts.add(nanos);
            let found = counts.total().quantile(0.5).expect("one was added");
            assert!((found / nanos as f64 - 1.0).abs() < 0.02, "{nanos} is found as {found}");
            assert_eq!(counts.longest(), nanos);
        }
    }

    #[test]
    fn quantiles_count_from_the_shortest_and_bins_lose_nothing() {
        let counts = Counts::default();
        (1..=100).for_each(|n| counts.add(n * 1_000_000));
        let histogram = counts.total();
        assert!((histogram.quantile(0.5).expect("some") / 50e6 - 1.0).abs() < 0.02);
        assert!((histogram.quantile(0.99).expect("some") / 99e6 - 1.0).abs() < 0.02);
        let bins = histogram.bins(8);
        assert_eq!(bins.iter().map(|bin| bin.count).sum::<u64>(), 100);
        assert!(bins.iter().all(|bin| bin.from < bin.to));
        assert!(Histogram::default().quantile(0.5).is_none());
    }

    #[test]
    fn the_shortest_and_the_longest_have_a_bucket() {
        let counts = Counts::default();
        [0, u64::MAX].into_iter().for_each(|nanos| counts.add(nanos));
        assert_eq!(counts.total().count(), 2);
    }
}
