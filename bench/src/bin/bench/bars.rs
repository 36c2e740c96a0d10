//! The bars: what the library must reach, and whether it does.

use std::fmt::Write;

use crate::results::{CaseResult, Lap, Row, median};

#[derive(Debug)]
pub(crate) struct Verdict {
    case: String,
    what: String,
    found: f64,
    bar: String,
    met: bool,
    /// Whether the machine was left alone: else the number says nothing, and is neither met nor missed.
    quiet: bool,
}

impl Verdict {
    pub(crate) fn is_met(&self) -> bool {
        self.met && self.quiet
    }

    fn word(&self) -> &'static str {
        match (self.quiet, self.met) {
            (false, _) => "disturbed",
            (true, true) => "met",
            (true, false) => "MISSED",
        }
    }
}

#[derive(Clone, Copy)]
enum Bar {
    AtLeast(f64),
    AtMost(f64),
    /// Fails at the number itself.
    Below(f64),
}

/// Those that take no token and tell nobody.
const PLAIN: [&str; 2] = ["rslock", "rlock"];
const RATE: fn(&Lap) -> f64 = |lap| lap.rate;

/// Judges what was measured; a bar whose contenders did not run is left out.
pub(crate) fn judge(results: &[CaseResult]) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for case in results {
        let mut of_case = OfCase { case, verdicts: &mut verdicts };
        of_case.judge();
    }
    verdicts
}

/// Each as a line, met or missed.
pub(crate) fn list(verdicts: &[Verdict]) -> String {
    let mut text = String::new();
    for verdict in verdicts {
        let Verdict { case, what, found, bar, .. } = verdict;
        let _infallible = writeln!(text, "{:<9} {case}: {what}: {} ({bar})", verdict.word(), shown(*found));
    }
    text
}

/// The same as a table.
pub(crate) fn table(verdicts: &[Verdict]) -> String {
    let mut text = "| | scenario | what | found | bar |\n|---|---|---|---|---|\n".to_owned();
    for verdict in verdicts {
        let Verdict { case, what, found, bar, .. } = verdict;
        let _infallible = writeln!(text, "| {} | {case} | {what} | {} | {bar} |", verdict.word(), shown(*found));
    }
    text
}

fn shown(found: f64) -> String {
    if found.abs() >= 100.0 { format!("{found:.0}") } else { format!("{found:.2}") }
}

struct OfCase<'a> {
    case: &'a CaseResult,
    verdicts: &'a mut Vec<Verdict>,
}

impl OfCase<'_> {
    fn judge(&mut self) {
        let id = self.case.id.clone();
        match &*id {
            "P1" => self.alone(),
            "P2" => self.apart(),
            "P3" => self.in_process(),
            "P3-100us" => self.no_peer_ahead(|_| true),
            "P4" => self.between_processes(),
            "P5" | "P5-10" => self.drained(),
            "P6" => self.held(),
            "P7-rw" | "P7-fair" | "P7-semaphore" => self.no_peer_ahead(Row::serves_all),
            "P8" => self.ratio("time beside one node", ("one node", "tenure"), RATE, Bar::AtMost(1.3)),
            "P9" => self.crashed(),
            "P10-1" => {
                self.ratio("rate beside bare rusqlite", ("tenure", "rusqlite"), RATE, Bar::AtLeast(0.6));
                self.ratio(
                    "rate with linger beside flock(2) by spawn_blocking",
                    ("tenure-linger", "flock"),
                    RATE,
                    Bar::AtLeast(1.0),
                );
            }
            "P11" => {
                self.ratio("time on Redis beside flock(1)", ("flock(1)", "tenure run"), RATE, Bar::AtMost(3.0));
                self.ratio("time on sqlite: beside flock(1)", ("flock(1)", "tenure run (sqlite)"), RATE, Bar::AtMost(3.0));
            }
            _ => {}
        }
        self.is_sound();
    }

    fn alone(&mut self) {
        if let Some(same) = self.case.same_scripts {
            self.verdict("raw sends the scripts that the library sends (1 is yes)", f64::from(u8::from(same)), Bar::AtLeast(1.0));
        }
        self.ratio("time beside raw", ("raw", "tenure"), RATE, Bar::AtMost(1.10));
        self.ratio("rate with linger beside raw", ("tenure-linger", "raw"), RATE, Bar::AtLeast(30.0));
        self.beside_plain_peers();
    }

    fn apart(&mut self) {
        self.ratio("rate beside raw", ("tenure", "raw"), RATE, Bar::AtLeast(0.90));
        self.ratio("client CPU of a cycle beside raw", ("tenure", "raw"), |lap| lap.client_us, Bar::AtMost(1.3));
        self.beside_plain_peers();
    }

    /// Beside them stands our plain layout, with its token.
    fn beside_plain_peers(&mut self) {
        for peer in PLAIN {
            self.ratio(&format!("rate of the plain layout beside {peer}"), ("tenure-plain", peer), RATE, Bar::AtLeast(0.8));
        }
        self.no_peer_ahead(|row| !PLAIN.contains(&&*row.contender));
    }

    fn in_process(&mut self) {
        self.ratio("rate beside Redisson", ("tenure", "redisson"), RATE, Bar::AtLeast(50.0));
        self.beside_best_peer(5.0, |_| true);
        self.no_peer_ahead(|_| true);
    }

    fn between_processes(&mut self) {
        self.beside_best_peer(1.3, Row::serves_all);
        self.no_peer_ahead(Row::serves_all);
        let crossed = self.case.row("tenure").and_then(|row| row.quantile(|lap| &lap.crossed, 0.5));
        if let (Some(crossed), false) = (crossed, self.case.probes.is_empty()) {
            let [trip, push] = [0, 1].map(|i| median(&self.case.probes.iter().map(|probe| probe[i]).collect::<Vec<_>>()));
            let what = format!("hand-over p50 of {crossed:.0} µs beside a round trip of {trip:.0} µs and a push of {push:.0} µs");
            self.verdict(&what, crossed / (trip + push), Bar::AtMost(1.5));
        }
        self.commands_of_a_cycle();
    }

    fn drained(&mut self) {
        self.commands_of_a_cycle();
        self.no_peer_ahead(|_| true);
    }

    fn commands_of_a_cycle(&mut self) {
        if let Some(row) = self.case.row("tenure") {
            self.verdict("commands of a hand-over", row.median(|lap| lap.sent), Bar::AtMost(3.0));
        }
    }

    fn held(&mut self) {
        let Some(row) = self.case.row("tenure") else { return };
        let lap = &row.laps[0];
        let holds = lap.cycles as f64;
        let seconds = self.case.periods * 10.0;
        self.verdict("client CPU, % of one core", lap.client_us * holds / seconds / 1e4, Bar::Below(2.0));
        self.verdict("client memory of a hold, bytes", lap.client_bytes.unwrap_or(f64::NAN), Bar::Below(1024.0));
        let commands = lap.sent * holds / self.case.periods / (holds / 100.0);
        self.verdict("commands for 100 holds and renewal period", commands, Bar::AtMost(1.0));
    }

    fn crashed(&mut self) {
        if let Some(late) = self.case.row("tenure").and_then(|row| row.median_if(|lap| lap.after_lease_ms)) {
            self.verdict("the next grant after the end of the lease, ms", late, Bar::AtMost(100.0));
        }
    }

    /// Nothing else counts if it excludes nobody.
    fn is_sound(&mut self) {
        let ours: Vec<&Row> = self.case.rows.iter().filter(|row| row.is_ours() && !row.laps.is_empty()).collect();
        let faults: u64 = ours.iter().map(|row| row.faults().len() as u64).sum();
        if !ours.is_empty() {
            self.verdict("ours that let two in, have tokens that do not grow, or are stuck", faults as f64, Bar::AtMost(0.0));
        }
    }

    fn beside_best_peer(&mut self, least: f64, counts: fn(&Row) -> bool) {
        let Some(best) = self.case.best_peer(counts).map(|row| row.contender.clone()) else { return };
        self.ratio(&format!("rate beside the best peer, {best}"), ("tenure", &best), RATE, Bar::AtLeast(least));
    }

    fn no_peer_ahead(&mut self, counts: fn(&Row) -> bool) {
        let Some(best) = self.case.best_peer(counts).map(|row| row.contender.clone()) else { return };
        self.ratio(&format!("no peer ahead: rate beside {best}"), ("tenure", &best), RATE, Bar::AtLeast(1.0));
    }

    /// The median over the rounds of the first one's number beside the second one's.
    fn ratio(&mut self, what: &str, (one, other): (&str, &str), of: fn(&Lap) -> f64, bar: Bar) {
        if let Some(found) = self.case.ratio(one, other, of) {
            self.verdict(what, found, bar);
        }
    }

    fn verdict(&mut self, what: &str, found: f64, bar: Bar) {
        // As it is shown.
        let rounded = (found * 100.0).round() / 100.0;
        let (met, bar) = match bar {
            Bar::AtLeast(least) => (rounded >= least, format!("at least {least}")),
            Bar::AtMost(most) => (rounded <= most, format!("at most {most}")),
            Bar::Below(limit) => (rounded < limit, format!("below {limit}")),
        };
        let (case, quiet) = (self.case.id.clone(), self.case.is_quiet());
        self.verdicts.push(Verdict { case, what: what.to_owned(), found, bar, met, quiet });
    }
}
