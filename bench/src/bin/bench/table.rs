//! A case as a table in Markdown. A column that nobody has a number for is left out.

use std::fmt::Write;

use crate::results::{CaseResult, Row, ends, median};

type Cell = Box<dyn Fn(&Row) -> Option<String>>;

pub(crate) fn of(case: &CaseResult) -> String {
    let columns = match &*case.scenario {
        "hold" => of_holds(case),
        "crash" => of_crashes(),
        "command" => vec![("ms", cell(|row| Some(shown(row.median(|lap| 1000.0 / lap.rate)))))],
        _ => of_cycles(case),
    };
    let columns: Vec<_> =
        columns.into_iter().filter(|(_, cell)| case.rows.iter().any(|row| measured(row) && cell(row).is_some())).collect();
    let mut text = "| |".to_owned();
    columns.iter().for_each(|(title, _)| text.extend([" ", title, " |"]));
    text.push_str(" |\n|---|");
    text.push_str(&"---|".repeat(columns.len() + 1));
    text.push('\n');
    for row in &case.rows {
        let _infallible = write!(text, "| {} |", row.contender);
        for (_, cell) in &columns {
            let shown = if measured(row) { cell(row) } else { None };
            text.extend([" ", &shown.unwrap_or_else(|| "–".to_owned()), " |"]);
        }
        let _infallible = writeln!(text, " {} |", remarks(row));
    }
    text
}

fn measured(row: &Row) -> bool {
    !row.laps.is_empty()
}

fn remarks(row: &Row) -> String {
    let mut remarks = row.faults();
    remarks.iter_mut().for_each(|fault| *fault = format!("**{fault}**"));
    remarks.extend(row.trouble.as_deref().map(|trouble| trouble.replace(['|', '\n'], " ")));
    remarks.join(", ")
}

fn cell(of: impl Fn(&Row) -> Option<String> + 'static) -> Cell {
    Box::new(of)
}

fn of_cycles(case: &CaseResult) -> Vec<(&'static str, Cell)> {
    let best = case.best_peer(|row| case.processes == 1 || row.serves_all()).map(|row| row.contender.clone());
    let (by_limit, by_best) = (beside(case, Some(case.limit.clone())), beside(case, best));
    let crowd = case.rows.iter().any(|row| row.laps.iter().any(|lap| lap.tasks.len() > 1));
    vec![
        ("cycles/s (least–most)", cell(|row| Some(spread(&row.each(|lap| lap.rate))))),
        ("× limit", by_limit),
        ("× best peer", by_best),
        ("wait p50 µs", cell(|row| row.quantile(|lap| &lap.waits, 0.5).map(shown))),
        ("wait p99 µs", cell(|row| row.quantile(|lap| &lap.waits, 0.99).map(shown))),
        ("longest wait ms", cell(|row| Some(shown(row.each(|lap| lap.longest_wait_ms).into_iter().fold(0.0, f64::max))))),
        (
            "hand-over in a process p50 / p99 µs",
            cell(|row| pair(row.quantile(|lap| &lap.handed, 0.5), row.quantile(|lap| &lap.handed, 0.99))),
        ),
        (
            "hand-over between processes p50 / p99 µs",
            cell(|row| pair(row.quantile(|lap| &lap.crossed, 0.5), row.quantile(|lap| &lap.crossed, 0.99))),
        ),
        ("tasks least–most", cell(move |row| crowd.then(|| served(row, |lap| &lap.tasks)))),
        ("processes least–most", cell(|row| (row.laps[0].processes.len() > 1).then(|| served(row, |lap| &lap.processes)))),
        (
            "commands sent / run",
            cell(|row| {
                let (sent, run) = (row.median(|lap| lap.sent), row.median(|lap| lap.commands));
                (run > 0.0).then(|| format!("{sent:.2} / {run:.2}"))
            }),
        ),
        ("server CPU µs", cell(|row| Some(row.median(|lap| lap.server_us)).filter(|us| *us > 0.0).map(shown))),
        ("client CPU µs", cell(|row| Some(shown(row.median(|lap| lap.client_us))))),
        ("allocations", cell(|row| row.median_if(|lap| lap.allocations).map(shown))),
        ("others on the CPU, cores", cell(|row| row.median_if(|lap| lap.others).map(shown))),
    ]
}

fn of_holds(case: &CaseResult) -> Vec<(&'static str, Cell)> {
    let seconds = case.periods * 10.0;
    let (periods, percent) = (case.periods, move |us: f64| format!("{:.2}", us / seconds / 1e4));
    vec![
        ("locked in a second", cell(|row| Some(shown(row.median(|lap| lap.rate))))),
        ("client CPU % of a core", cell(move |row| Some(percent(row.median(|lap| lap.client_us * lap.cycles as f64))))),
        ("server CPU % of a core", cell(move |row| Some(percent(row.median(|lap| lap.server_us * lap.cycles as f64))))),
        (
            "commands sent in a period of 10 s",
            cell(move |row| Some(shown(row.median(|lap| lap.sent * lap.cycles as f64 / periods)))),
        ),
        ("client bytes a hold", cell(|row| row.median_if(|lap| lap.client_bytes).map(shown))),
        ("server bytes a hold", cell(|row| row.median_if(|lap| lap.server_bytes).map(shown))),
    ]
}

fn of_crashes() -> Vec<(&'static str, Cell)> {
    vec![
        ("from the kill to the next grant, ms", cell(|row| row.median_if(|lap| lap.after_kill_ms).map(shown))),
        ("after the end of the lease, ms", cell(|row| row.median_if(|lap| lap.after_lease_ms).map(shown))),
        ("at most", cell(|row| row.laps.iter().filter_map(|lap| lap.after_lease_ms).reduce(f64::max).map(shown))),
    ]
}

/// Rates beside one contender, by round.
fn beside(case: &CaseResult, other: Option<String>) -> Cell {
    let case = case.clone();
    cell(move |row| case.ratio(&row.contender, other.as_ref()?, |lap| lap.rate).map(|ratio| format!("{ratio:.2}")))
}

/// Of the round in the middle.
fn served(row: &Row, of: impl Fn(&crate::results::Lap) -> &Vec<u64>) -> String {
    let middle = median(&row.each(|lap| lap.rate));
    let near = row.laps.iter().min_by(|a, b| (a.rate - middle).abs().total_cmp(&(b.rate - middle).abs()));
    let (least, most) = near.map(|lap| ends(of(lap))).unwrap_or_default();
    format!("{least}–{most}")
}

fn pair(one: Option<f64>, other: Option<f64>) -> Option<String> {
    Some(format!("{} / {}", shown(one?), shown(other?)))
}

fn spread(of: &[f64]) -> String {
    let (least, most) = (of.iter().copied().fold(f64::MAX, f64::min), of.iter().copied().fold(0.0, f64::max));
    format!("{} ({}–{})", shown(median(of)), shown(least), shown(most))
}

/// Three digits, and thousands apart.
pub(crate) fn shown(number: f64) -> String {
    let size = number.abs();
    if size < 10.0 {
        return format!("{number:.2}");
    }
    if size < 100.0 {
        return format!("{number:.1}");
    }
    let digits = format!("{:.0}", size);
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(' ');
        }
        text.push(digit);
    }
    if number < 0.0 { format!("-{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::shown;

    #[test]
    fn numbers_have_three_digits_or_thousands_apart() {
        let found = [0.5, 12.34, 123.4, 1234.0, 1_234_567.0, -1500.0].map(shown);
        assert_eq!(found, ["0.50", "12.3", "123", "1 234", "1 234 567", "-1 500"]);
    }
}
