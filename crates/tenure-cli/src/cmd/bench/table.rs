//! What was measured as a table for a terminal.

use super::outcome::{Faults, Found, Holds, Outcome, Row, median};
use crate::output;

const HEAD: [&str; 9] = ["CASE", "CYCLES/S", "P50", "P99", "MAX", "LONGEST WAIT", "LEAST/MOST", "CPU/CYCLE", "CHECKED"];

/// The last line, also in JSON.
pub(super) const NOTE: &str = "Numbers of different runs or machines are not comparable: a machine or a network that is busy is slow for all. \
                               Only ratios within one run mean something.";

pub(super) fn all(backend: &str, rows: &[Row]) -> String {
    let cells: Vec<_> = rows.iter().map(cells).collect();
    let mut text = format!("store: {backend}\n");
    text.push_str(&output::table(HEAD, &cells));
    text.push('\n');
    rows.iter().for_each(|row| text.push_str(&format!("  {}\n", told(row))));
    text.push_str(&format!("\n{}\n{NOTE}\n", verdict(rows)));
    text
}

fn cells(row: &Row) -> [String; 9] {
    let id = row.case.id.to_owned();
    let Found::Rounds { rates, all } = &row.found else {
        return [id, "-".into(), "-".into(), "-".into(), "-".into(), "-".into(), "-".into(), "-".into(), "SKIPPED".into()];
    };
    let quantile = |share| all.quantile(share).map_or_else(|| "-".to_owned(), time);
    let (least, most) = (all.tasks.iter().min().unwrap_or(&0), all.tasks.iter().max().unwrap_or(&0));
    [
        id,
        rate(median(rates)),
        quantile(0.5),
        quantile(0.99),
        time(all.longest as f64),
        time(all.longest_wait as f64),
        format!("{least}/{most}"),
        time(per(all.cpu, all.total)),
        checked(row.case.checks(), all.faults),
    ]
}

/// The case in words, with what only this case has.
fn told(row: &Row) -> String {
    let head = format!("{}: {}", row.case.id, row.case.title);
    let all = match &row.found {
        Found::Skipped(why) => return format!("{head}: SKIPPED: {why}"),
        Found::Rounds { all, .. } => all,
    };
    let mut told = vec![head];
    told.extend(all.holds.as_ref().map(|holds| held(holds, all)));
    if all.crossed.count() > 0 {
        told.push(format!("hand-over between processes {}", quantiles(&all.crossed)));
    }
    if all.handed.count() > 0 {
        told.push(format!("hand-over within a process {}", quantiles(&all.handed)));
    }
    told.join("; ")
}

fn quantiles(of: &super::histogram::Histogram) -> String {
    let [p50, p99] = [0.5, 0.99].map(|share| of.quantile(share).map_or_else(|| "-".to_owned(), time));
    format!("p50 {p50}, p99 {p99}")
}

fn held(holds: &Holds, all: &Outcome) -> String {
    let Holds { count, lease, held, renewals, cpu, grown_kib } = *holds;
    let memory = grown_kib.map(|kib| format!(", {:.2} KiB of memory a hold", kib as f64 / count.max(1) as f64));
    format!(
        "{count} of them for {}, lease {}: {renewals} renewals, {} of CPU a hold ({:.2} % of one core){}; a cycle here is a lock that is taken, {} in all",
        time(held as f64),
        time(lease as f64),
        time(per(cpu, all.total)),
        100.0 * per(cpu, held),
        memory.unwrap_or_default(),
        time(all.took as f64),
    )
}

fn verdict(rows: &[Row]) -> String {
    let failed: Vec<_> = rows.iter().filter(|row| !row.is_well()).map(|row| row.case.id).collect();
    match &*failed {
        [] if rows.iter().all(|row| matches!(row.found, Found::Skipped(_))) => {
            "Nothing was measured, and nothing checked.".to_owned()
        }
        [] => "All checks held; the column CHECKED says which: one holder at a time, tokens that grow, no lock lost.".to_owned(),
        failed => format!("CHECKS FAILED in {}", failed.join(", ")),
    }
}

/// What was checked, or what was found that must not be.
fn checked(checks: &str, faults: Faults) -> String {
    let Faults { intruders, stale_tokens, lost, stuck } = faults;
    let counts = [(intruders, "INTRUDERS"), (stale_tokens, "STALE TOKENS"), (lost, "LOST"), (stuck, "STUCK")];
    let found: Vec<_> = counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
    if found.is_empty() { format!("{checks}: ok") } else { found.join(", ") }
}

pub(super) fn per(whole: u64, parts: u64) -> f64 {
    whole as f64 / parts.max(1) as f64
}

fn rate(of: f64) -> String {
    if of < 100.0 { format!("{of:.1}") } else { format!("{of:.0}") }
}

/// Nanoseconds in three digits.
pub(super) fn time(nanos: f64) -> String {
    let (of, unit) = match nanos {
        n if n < 999.5 => (n, "ns"),
        n if n < 999.5e3 => (n / 1e3, "µs"),
        n if n < 999.5e6 => (n / 1e6, "ms"),
        n => (n / 1e9, "s"),
    };
    let digits = if of >= 99.95 || unit == "ns" {
        0
    } else if of >= 9.995 {
        1
    } else {
        2
    };
    format!("{of:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::bench::cases::CASES;

    #[test]
    fn times_have_three_digits() {
        let shown = [0.0, 12.4, 999.6, 1_234.0, 56_780.0, 999_600.0, 4.5e6, 2e9, 123e9].map(time);
        assert_eq!(shown, ["0 ns", "12 ns", "1.00 µs", "1.23 µs", "56.8 µs", "1.00 ms", "4.50 ms", "2.00 s", "123 s"]);
    }

    #[test]
    fn no_more_is_said_to_be_checked_than_was() {
        let row = |found| Row { case: &CASES[4], found };
        let bad = Outcome { faults: Faults { intruders: 1, ..Faults::default() }, ..Outcome::default() };
        assert!(verdict(&[row(Found::Skipped("alone"))]).starts_with("Nothing was measured"));
        assert!(verdict(&[row(Found::of(&[Outcome::default()]))]).starts_with("All checks held"));
        let rows = [row(Found::of(&[Outcome::default(), bad]))];
        assert_eq!((verdict(&rows), rows[0].is_well()), ("CHECKS FAILED in P4".to_owned(), false));
    }

    #[test]
    fn what_must_not_be_is_counted() {
        assert_eq!(checked("tokens", Faults::default()), "tokens: ok");
        assert_eq!(checked("tokens", Faults { intruders: 2, stuck: 1, ..Faults::default() }), "2 INTRUDERS, 1 STUCK");
    }
}
