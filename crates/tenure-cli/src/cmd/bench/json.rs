//! What was measured as JSON. Field names are stable.

use serde::Serialize;

use super::histogram::Histogram;
use super::outcome::{Faults, Found, Holds, Row, median};
use super::table::{self, per};

#[derive(Serialize)]
pub(super) struct Report<'a> {
    backend: &'a str,
    /// Whether nothing happened that must not.
    held: bool,
    cases: Vec<CaseJson>,
    note: &'static str,
}

#[derive(Serialize)]
struct CaseJson {
    id: &'static str,
    title: &'static str,
    /// Why there is nothing.
    skipped: Option<&'static str>,
    #[serde(flatten)]
    measured: Option<Measured>,
}

#[derive(Serialize)]
struct Measured {
    cycles: u64,
    /// The median of all rounds.
    cycles_per_s: f64,
    rounds: Vec<f64>,
    /// From the call that locks to the answer of the release.
    cycle: Times,
    longest_wait_us: f64,
    least_served: u64,
    most_served: u64,
    cpu_us_per_cycle: f64,
    handed_within_process: Times,
    handed_between_processes: Times,
    faults: Faults,
    holds: Option<HoldsJson>,
    histogram: Vec<BinJson>,
}

#[derive(Serialize)]
struct Times {
    count: u64,
    p50_us: Option<f64>,
    p99_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_us: Option<f64>,
}

#[derive(Serialize)]
struct HoldsJson {
    count: u64,
    held_ms: f64,
    lease_ms: f64,
    renewals: u64,
    cpu_us_per_hold: f64,
    memory_kib_per_hold: Option<f64>,
}

#[derive(Serialize)]
struct BinJson {
    from_us: f64,
    to_us: f64,
    count: u64,
}

impl<'a> Report<'a> {
    pub(super) fn new(backend: &'a str, rows: &[Row]) -> Self {
        let held = rows.iter().all(Row::is_well);
        Self { backend, held, cases: rows.iter().map(case).collect(), note: table::NOTE }
    }
}

fn case(row: &Row) -> CaseJson {
    let (id, title) = (row.case.id, row.case.title);
    let (rates, all) = match &row.found {
        Found::Skipped(why) => return CaseJson { id, title, skipped: Some(why), measured: None },
        Found::Rounds { rates, all } => (rates, all),
    };
    let measured = Measured {
        cycles: all.cycles,
        cycles_per_s: median(rates),
        rounds: rates.clone(),
        cycle: Times {
            count: all.latency.count(),
            p50_us: all.quantile(0.5).map(micros),
            p99_us: all.quantile(0.99).map(micros),
            max_us: Some(micros(all.longest as f64)),
        },
        longest_wait_us: micros(all.longest_wait as f64),
        least_served: all.tasks.iter().min().copied().unwrap_or(0),
        most_served: all.tasks.iter().max().copied().unwrap_or(0),
        cpu_us_per_cycle: micros(per(all.cpu, all.total)),
        handed_within_process: times(&all.handed),
        handed_between_processes: times(&all.crossed),
        faults: all.faults,
        holds: all.holds.as_ref().map(|holds| holds_json(holds, all.total)),
        histogram: bins(&all.latency),
    };
    CaseJson { id, title, skipped: None, measured: Some(measured) }
}

fn times(of: &Histogram) -> Times {
    let quantile = |share| of.quantile(share).map(micros);
    Times { count: of.count(), p50_us: quantile(0.5), p99_us: quantile(0.99), max_us: None }
}

/// `of` counts the holds of all rounds.
fn holds_json(holds: &Holds, of: u64) -> HoldsJson {
    HoldsJson {
        count: holds.count,
        held_ms: holds.held as f64 / 1e6,
        lease_ms: holds.lease as f64 / 1e6,
        renewals: holds.renewals,
        cpu_us_per_hold: micros(per(holds.cpu, of)),
        memory_kib_per_hold: holds.grown_kib.map(|kib| kib as f64 / holds.count.max(1) as f64),
    }
}

fn bins(of: &Histogram) -> Vec<BinJson> {
    let json = |bin: super::histogram::Bin| BinJson { from_us: micros(bin.from), to_us: micros(bin.to), count: bin.count };
    of.bins(8).into_iter().map(json).collect()
}

fn micros(nanos: f64) -> f64 {
    nanos / 1e3
}
