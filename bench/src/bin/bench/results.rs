//! What was measured, and how it is summed up: medians over the rounds, ratios within a round.

use serde::{Deserialize, Serialize};
use tenure_bench::histogram::Histogram;
use tenure_bench::outcome::Outcome;

use crate::contenders::{self, Kind};
use crate::server::Info;

/// One round of one contender: all of its processes.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Lap {
    /// Cycles in a second.
    pub(crate) rate: f64,
    pub(crate) cycles: u64,
    pub(crate) tasks: Vec<u64>,
    pub(crate) processes: Vec<u64>,
    pub(crate) waits: Histogram,
    pub(crate) handed: Histogram,
    pub(crate) crossed: Histogram,
    pub(crate) longest_wait_ms: f64,
    pub(crate) intruders: u64,
    pub(crate) stale_tokens: Option<u64>,
    pub(crate) stuck: u64,
    /// Cores that were busy with something else.
    pub(crate) others: Option<f64>,
    /// The rest is for each cycle, or for each hold.
    pub(crate) sent: f64,
    pub(crate) commands: f64,
    pub(crate) server_us: f64,
    pub(crate) client_us: f64,
    pub(crate) allocations: Option<f64>,
    pub(crate) client_bytes: Option<f64>,
    pub(crate) server_bytes: Option<f64>,
    /// From the kill to the next grant, and how much of it was after the end of the lease.
    pub(crate) after_kill_ms: Option<f64>,
    pub(crate) after_lease_ms: Option<f64>,
}

impl Lap {
    /// Sums up the processes of a round. `seconds` is its length if it has one; otherwise it lasted as long as the slowest.
    pub(crate) fn of(outcomes: &[Outcome], info: &Info, seconds: Option<f64>) -> Self {
        let slowest = outcomes.iter().filter_map(|outcome| outcome.took_us).fold(0.0, f64::max) / 1e6;
        let cycles: u64 = outcomes.iter().map(|outcome| outcome.cycles).sum();
        let total: u64 = outcomes.iter().map(|outcome| outcome.total).sum();
        let each = 1.0 / (total.max(1) as f64);
        let merged = |of: fn(&Outcome) -> &Histogram| {
            let mut sum = Histogram::default();
            outcomes.iter().for_each(|outcome| sum.merge(of(outcome)));
            sum
        };
        let allocations: Option<u64> = outcomes.iter().map(|outcome| outcome.allocations).sum();
        Self {
            rate: cycles as f64 / seconds.unwrap_or(slowest).max(1e-9),
            cycles,
            tasks: outcomes.iter().flat_map(|outcome| outcome.tasks.clone()).collect(),
            processes: outcomes.iter().map(|outcome| outcome.cycles).collect(),
            waits: merged(|outcome| &outcome.waits),
            handed: merged(|outcome| &outcome.handed),
            crossed: merged(|outcome| &outcome.crossed),
            longest_wait_ms: outcomes.iter().map(|outcome| outcome.longest_wait_us / 1e3).fold(0.0, f64::max),
            intruders: outcomes.iter().map(|outcome| outcome.intruders).sum(),
            stale_tokens: outcomes.iter().map(|outcome| outcome.stale_tokens).sum(),
            stuck: outcomes.iter().map(|outcome| outcome.stuck).sum(),
            sent: info.sent * each,
            commands: info.commands * each,
            server_us: info.cpu_us * each,
            client_us: outcomes.iter().map(|outcome| outcome.cpu_us).sum::<f64>() * each,
            allocations: allocations.map(|count| count as f64 * each),
            ..Self::default()
        }
    }

    /// Whether the least served process got half of what the most served one got.
    fn is_even(&self) -> bool {
        let (least, most) = ends(&self.processes);
        2 * least >= most
    }
}

/// The least and the most.
pub(crate) fn ends(of: &[u64]) -> (u64, u64) {
    (of.iter().copied().min().unwrap_or(0), of.iter().copied().max().unwrap_or(0))
}

/// All rounds of one contender in one case.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) contender: String,
    pub(crate) laps: Vec<Lap>,
    /// Why there is nothing, or less than there should be.
    pub(crate) trouble: Option<String>,
}

impl Row {
    pub(crate) fn each(&self, of: impl Fn(&Lap) -> f64) -> Vec<f64> {
        self.laps.iter().map(of).collect()
    }

    pub(crate) fn median(&self, of: impl Fn(&Lap) -> f64) -> f64 {
        median(&self.each(of))
    }

    /// The median over the rounds of what not every contender has.
    pub(crate) fn median_if(&self, of: impl Fn(&Lap) -> Option<f64>) -> Option<f64> {
        let found: Vec<f64> = self.laps.iter().filter_map(of).collect();
        (!found.is_empty()).then(|| median(&found))
    }

    /// In microseconds, over all rounds.
    pub(crate) fn quantile(&self, of: impl Fn(&Lap) -> &Histogram, share: f64) -> Option<f64> {
        let mut sum = Histogram::default();
        self.laps.iter().for_each(|lap| sum.merge(of(lap)));
        sum.quantile(share).map(|nanos| nanos / 1e3)
    }

    pub(crate) fn is_ours(&self) -> bool {
        self.kind() == Some(Kind::Ours)
    }

    pub(crate) fn is_peer(&self) -> bool {
        self.kind() == Some(Kind::Peer)
    }

    fn kind(&self) -> Option<Kind> {
        contenders::named(&self.contender).map(|contender| contender.kind)
    }

    /// What it did that a lock must not do.
    pub(crate) fn faults(&self) -> Vec<String> {
        let sum = |of: fn(&Lap) -> u64| self.laps.iter().map(of).sum::<u64>();
        let counts = [
            (sum(|lap| lap.intruders), "times two were inside"),
            (sum(|lap| lap.stale_tokens.unwrap_or(0)), "tokens did not grow"),
            (sum(|lap| lap.stuck), "tasks stuck"),
        ];
        counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect()
    }

    pub(crate) fn serves_all(&self) -> bool {
        !self.laps.is_empty() && 2 * self.laps.iter().filter(|lap| lap.is_even()).count() >= self.laps.len()
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct CaseResult {
    pub(crate) id: String,
    pub(crate) title: String,
    /// What it was measured on, and how.
    pub(crate) machine: String,
    pub(crate) limit: String,
    pub(crate) scenario: String,
    pub(crate) processes: usize,
    pub(crate) rows: Vec<Row>,
    /// One round trip of a script, and one message to a listener, by round, in microseconds.
    pub(crate) probes: Vec<[f64; 2]>,
    /// What is not the same everywhere: how many were held, for how long.
    pub(crate) note: String,
    pub(crate) periods: f64,
    /// Whether raw sends the scripts that the library sends, where that was looked at.
    pub(crate) same_scripts: Option<bool>,
}

/// More than this of a core, and a round measures somebody else too. Ticks are coarse, and so is what is left of them.
const DISTURBED: f64 = 0.15;

impl CaseResult {
    /// How many rounds of all contenders were disturbed by others, and of how many.
    pub(crate) fn disturbed(&self) -> (usize, usize) {
        let others: Vec<f64> = self.rows.iter().flat_map(|row| &row.laps).filter_map(|lap| lap.others).collect();
        (others.iter().filter(|cores| **cores > DISTURBED).count(), others.len())
    }

    /// Whether its numbers can be judged: medians bear some disturbed rounds, but not many.
    pub(crate) fn is_quiet(&self) -> bool {
        let (disturbed, all) = self.disturbed();
        disturbed * 5 <= all
    }

    pub(crate) fn row(&self, contender: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.contender == contender && !row.laps.is_empty())
    }

    /// The median over the rounds of one contender's number beside another one's.
    pub(crate) fn ratio(&self, one: &str, other: &str, of: impl Fn(&Lap) -> f64) -> Option<f64> {
        let (one, other) = (self.row(one)?, self.row(other)?);
        let ratios: Vec<f64> = one.laps.iter().zip(&other.laps).map(|(one, other)| of(one) / of(other)).collect();
        Some(median(&ratios))
    }

    /// The fastest peer that does what a lock must do, among those that count.
    pub(crate) fn best_peer(&self, counts: impl Fn(&Row) -> bool) -> Option<&Row> {
        let fit = self.rows.iter().filter(|row| row.is_peer() && !row.laps.is_empty() && row.faults().is_empty() && counts(row));
        fit.max_by(|a, b| a.median(|lap| lap.rate).total_cmp(&b.median(|lap| lap.rate)))
    }
}

pub(crate) fn median(of: &[f64]) -> f64 {
    if of.is_empty() {
        return f64::NAN;
    }
    let mut sorted = of.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[half] } else { f64::midpoint(sorted[half - 1], sorted[half]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_the_middle_or_between_the_two_in_the_middle() {
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!((median(&[4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-9);
        assert!(median(&[]).is_nan());
    }
}
