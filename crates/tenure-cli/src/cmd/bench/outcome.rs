//! What was measured: of one process in one round, and of a case in all its rounds.

use serde::{Deserialize, Serialize};

use super::cases::Case;
use super::histogram::Histogram;

/// One round. What a case does not have is empty. Durations are in nanoseconds.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Outcome {
    /// Cycles that ended in time.
    pub(super) cycles: u64,
    /// All cycles, with those that ended after the time.
    pub(super) total: u64,
    /// By task, those that ended in time.
    pub(super) tasks: Vec<u64>,
    /// How long the round was.
    pub(super) took: u64,
    /// From the call that locks to the answer of the release.
    pub(super) latency: Histogram,
    pub(super) longest: u64,
    pub(super) longest_wait: u64,
    /// Hand-overs within a process, and between processes.
    pub(super) handed: Histogram,
    pub(super) crossed: Histogram,
    pub(super) faults: Faults,
    pub(super) cpu: u64,
    pub(super) holds: Option<Holds>,
}

/// What must not happen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Faults {
    /// Grants while another holder was inside.
    pub(super) intruders: u64,
    /// Tokens that were not larger than the one before.
    pub(super) stale_tokens: u64,
    /// Locks that were lost while they were held.
    pub(super) lost: u64,
    /// Tasks that still waited long after the end.
    pub(super) stuck: u64,
}

/// Many locks, while they are held.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct Holds {
    pub(super) count: u64,
    pub(super) lease: u64,
    pub(super) held: u64,
    pub(super) renewals: u64,
    pub(super) cpu: u64,
    /// Memory that this process had more of with all of them; `None` where the system does not tell.
    pub(super) grown_kib: Option<i64>,
}

impl Outcome {
    /// Cycles in a second.
    pub(super) fn rate(&self) -> f64 {
        if self.took == 0 { 0.0 } else { self.cycles as f64 * 1e9 / self.took as f64 }
    }

    /// A quantile of the cycles. Buckets have a width: it is not above the longest.
    pub(super) fn quantile(&self, share: f64) -> Option<f64> {
        self.latency.quantile(share).map(|nanos| nanos.min(self.longest as f64))
    }

    /// Adds what another process did at the same time.
    pub(super) fn beside(mut self, other: &Self) -> Self {
        self.tasks.extend(&other.tasks);
        self.took = self.took.max(other.took);
        self.add(other);
        self
    }

    /// Adds a later round.
    fn after(mut self, later: &Self) -> Self {
        self.tasks.resize(self.tasks.len().max(later.tasks.len()), 0);
        self.tasks.iter_mut().zip(&later.tasks).for_each(|(task, more)| *task += more);
        self.took += later.took;
        self.add(later);
        self
    }

    fn add(&mut self, other: &Self) {
        self.cycles += other.cycles;
        self.total += other.total;
        self.cpu += other.cpu;
        self.longest = self.longest.max(other.longest);
        self.longest_wait = self.longest_wait.max(other.longest_wait);
        self.latency.merge(&other.latency);
        self.handed.merge(&other.handed);
        self.crossed.merge(&other.crossed);
        self.faults.add(other.faults);
        self.holds = match (self.holds, other.holds) {
            (Some(one), Some(more)) => Some(one.after(more)),
            (one, more) => one.or(more),
        };
    }
}

impl Faults {
    pub(super) fn add(&mut self, other: Self) {
        self.intruders += other.intruders;
        self.stale_tokens += other.stale_tokens;
        self.lost += other.lost;
        self.stuck += other.stuck;
    }
}

impl Holds {
    /// Memory that a round has given back is used by the next one: only the first shows what a hold takes.
    fn after(self, later: Self) -> Self {
        Self { held: self.held + later.held, renewals: self.renewals + later.renewals, cpu: self.cpu + later.cpu, ..self }
    }
}

/// One case, after all its rounds.
pub(super) struct Row {
    pub(super) case: &'static Case,
    pub(super) found: Found,
}

pub(super) enum Found {
    /// And why.
    Skipped(&'static str),
    Rounds {
        /// Of each round.
        rates: Vec<f64>,
        all: Box<Outcome>,
    },
}

impl Found {
    pub(super) fn of(rounds: &[Outcome]) -> Self {
        let rates = rounds.iter().map(Outcome::rate).collect();
        let all = rounds.iter().fold(Outcome::default(), |all, round| all.after(round));
        Self::Rounds { rates, all: Box::new(all) }
    }
}

impl Row {
    pub(super) fn is_well(&self) -> bool {
        match &self.found {
            Found::Skipped(_) => true,
            Found::Rounds { all, .. } => all.faults == Faults::default(),
        }
    }
}

/// The middle of some rates.
pub(super) fn median(rates: &[f64]) -> f64 {
    let mut sorted = rates.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.get(middle) {
        None => 0.0,
        Some(upper) if sorted.len() % 2 == 1 => *upper,
        Some(upper) => upper.midpoint(sorted[middle - 1]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_stand_beside_each_other_and_rounds_behind() {
        let round = Outcome { cycles: 3, took: 1_000_000_000, tasks: vec![1, 2], longest: 7, ..Outcome::default() };
        let both = round.clone().beside(&round);
        assert_eq!((both.cycles, both.tasks.len(), both.took), (6, 4, 1_000_000_000));
        let Found::Rounds { rates, all } = Found::of(&[round.clone(), round]) else { unreachable!("it was made of rounds") };
        assert_eq!((all.cycles, &*all.tasks, all.took), (6, &[2, 4][..], 2_000_000_000));
        assert_eq!(rates, [3.0, 3.0]);
    }

    #[test]
    fn a_median_is_the_middle() {
        assert_eq!([&[][..], &[3.0], &[3.0, 1.0], &[9.0, 1.0, 2.0]].map(median), [0.0, 3.0, 2.0, 2.0]);
    }
}
