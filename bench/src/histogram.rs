//! Counts of durations, in buckets that every language can compute: the power of two, and 32 steps within it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

/// How many durations fell into each bucket.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Histogram(BTreeMap<u32, u64>);

impl Histogram {
    pub fn merge(&mut self, other: &Self) {
        for (bucket, count) in &other.0 {
            *self.0.entry(*bucket).or_default() += count;
        }
    }

    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.values().sum()
    }

    /// The middle of the bucket that this share of all durations reaches, in nanoseconds. `None` if there are none.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let wanted = (share * self.count() as f64).ceil().max(1.0);
        let mut seen = 0;
        self.0.iter().find_map(|(bucket, count)| {
            seen += count;
            (seen as f64 >= wanted).then(|| middle(*bucket))
        })
    }
}

/// The same while it is counted, by many threads.
#[derive(Debug)]
pub struct Counts(Vec<AtomicU64>);

impl Default for Counts {
    fn default() -> Self {
        Self((0..64 * 32).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Counts {
    pub fn add(&self, nanos: u64) {
        self.0[bucket(nanos) as usize].fetch_add(1, Ordering::Relaxed);
    }

    #[must_use]
    pub fn total(&self) -> Histogram {
        let counts = self.0.iter().map(|count| count.load(Ordering::Relaxed));
        Histogram((0..).zip(counts).filter(|(_, count)| *count > 0).collect())
    }
}

fn bucket(nanos: u64) -> u32 {
    let nanos = nanos.max(32);
    let power = nanos.ilog2();
    // Below 64 steps: it fits.
    power * 32 + ((nanos >> (power - 5)) as u32 - 32)
}

fn middle(bucket: u32) -> f64 {
    let step = 2_f64.powi(i32::try_from(bucket / 32).unwrap_or(0) - 5);
    (f64::from(bucket % 32 + 32) + 0.5) * step
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
        }
    }

    #[test]
    fn quantiles_count_from_the_shortest() {
        let counts = Counts::default();
        (1..=100).for_each(|n| counts.add(n * 1_000_000));
        let histogram = counts.total();
        assert!((histogram.quantile(0.5).expect("some") / 50e6 - 1.0).abs() < 0.02);
        assert!((histogram.quantile(0.99).expect("some") / 99e6 - 1.0).abs() < 0.02);
    }
}
