//! The report of a story as a table for a terminal.

use std::time::Duration;

use tenure::duration;
use tenure_lab::{Report, Row};

use crate::output;

const HEAD: [&str; 7] = ["WAY", "HOW", "SOLD", "OVERSOLD", "STALE", "WAITED", "REQUESTS"];

pub(crate) fn story(report: &Report) -> String {
    let rows: Vec<_> = report.rows.iter().map(cells).collect();
    // Without microseconds.
    let took = Duration::from_millis(output::millis(report.took));
    let mut text = format!("{}  {} ({})\n", report.id, report.title, duration::show(took));
    text.push_str(&output::table(HEAD, &rows));
    for row in &report.rows {
        text.push_str(&format!("  {}: {}\n", row.way.name(), row.verdict));
        row.failures().for_each(|what| text.push_str(&format!("  {}: NOT SO: {what}\n", row.way.name())));
    }
    text.push_str(&format!("  {}\n", report.lesson));
    text
}

fn cells(row: &Row) -> [String; 7] {
    let way = row.way.name().to_owned();
    if row.skipped {
        return [&way, row.how, "-", "-", "-", "-", "-"].map(str::to_owned);
    }
    let sold = format!("{} of {}", row.sold, row.stock);
    let [oversold, stale, requests] = [row.oversold, row.stale_writes, row.requests].map(|n| n.to_string());
    [way, row.how.to_owned(), sold, oversold, stale, row.waited_shown(), requests]
}

/// The last line.
pub(crate) fn summary(reports: &[Report]) -> String {
    let which = |is_so: fn(&Report) -> bool| {
        let ids: Vec<_> = reports.iter().filter(|report| is_so(report)).map(|report| report.id).collect();
        (!ids.is_empty()).then(|| ids.join(", "))
    };
    let failed = which(|report| !report.held);
    let skipped = which(Report::skipped).map(|ids| format!("; SKIPPED: {ids}")).unwrap_or_default();
    match (reports.len(), failed) {
        (1, None) if !skipped.is_empty() => "this story was SKIPPED\n".to_owned(),
        (1, None) => "all that this story claims is so\n".to_owned(),
        (n, None) => format!("all that these {n} stories claim is so{skipped}\n"),
        (_, Some(ids)) => format!("NOT SO: {ids}{skipped}\n"),
    }
}
