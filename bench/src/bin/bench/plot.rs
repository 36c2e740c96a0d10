//! A case as bars with their spread, in SVG that can be read on light and on dark.

use std::fmt::Write;

use crate::results::{CaseResult, Row, median};
use crate::table::shown;

const WIDTH: f64 = 760.0;
const LABELS: f64 = 130.0;
const NUMBERS: f64 = 90.0;
const LINE: f64 = 24.0;
const TOP: f64 = 44.0;

const STYLE: &str = "<style>
text { font: 13px system-ui, sans-serif; fill: #24292f }
.ground { fill: #fff }
.title { font-weight: 600 }
.ours { fill: #2f6feb } .peer { fill: #9aa4af } .limit { fill: #d29922 }
.spread { stroke: #24292f; stroke-width: 1.5 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .ground { fill: #0d1117 }
  .ours { fill: #58a6ff } .peer { fill: #6e7681 } .limit { fill: #bb8009 }
  .spread { stroke: #e6edf3 }
}
</style>";

/// What a plot shows of a row.
struct Measure {
    unit: &'static str,
    of: fn(&crate::results::Lap) -> f64,
}

fn measure(case: &CaseResult) -> Measure {
    match &*case.scenario {
        "crash" => {
            Measure { unit: "ms from the kill to the next grant; less is better", of: |lap| lap.after_kill_ms.unwrap_or(0.0) }
        }
        "command" => Measure { unit: "ms; less is better", of: |lap| 1000.0 / lap.rate },
        "hold" => Measure { unit: "µs of client CPU for each hold; less is better", of: |lap| lap.client_us },
        _ => Measure { unit: "cycles in a second; more is better", of: |lap| lap.rate },
    }
}

pub(crate) fn of(case: &CaseResult) -> String {
    let Measure { unit, of } = measure(case);
    let rows: Vec<&Row> = case.rows.iter().filter(|row| !row.laps.is_empty()).collect();
    let most = rows.iter().flat_map(|row| row.each(of)).fold(0.0, f64::max).max(1e-9);
    let least = rows.iter().map(|row| row.median(of)).filter(|of| *of > 0.0).fold(f64::MAX, f64::min);
    // Rates lie far apart: then a step to the right is a factor.
    let scale = if most / least > 50.0 { Scale::log(least, most) } else { Scale::linear(most) };
    let height = TOP + LINE * rows.len() as f64 + 10.0;
    let mut svg = format!("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\n{STYLE}\n");
    // A page may be dark where the system is light: what is written stands on ground of its own.
    let _infallible = writeln!(svg, "<rect class=\"ground\" width=\"{WIDTH}\" height=\"{height}\"/>");
    let log = if scale.log { ", logarithmic" } else { "" };
    let _infallible = writeln!(svg, "<text class=\"title\" x=\"0\" y=\"15\">{}: {}</text>", case.id, escaped(&case.title));
    let _infallible =
        writeln!(svg, "<text x=\"0\" y=\"33\">{unit}{log}; the line is from the least to the most of all rounds</text>");
    for (at, row) in (0_i32..).zip(rows) {
        bar(&mut svg, row, &row.each(of), &scale, TOP + LINE * f64::from(at));
    }
    svg.push_str("</svg>\n");
    svg
}

fn bar(svg: &mut String, row: &Row, found: &[f64], scale: &Scale, y: f64) {
    let middle = median(found);
    let (least, most) = (found.iter().copied().fold(f64::MAX, f64::min), found.iter().copied().fold(0.0, f64::max));
    let class = if row.is_peer() {
        "peer"
    } else if row.is_ours() || row.contender == "one node" {
        "ours"
    } else {
        "limit"
    };
    let (text, line) = (y + 15.0, y + 10.0);
    let [from, to] = [least, most].map(|of| LABELS + scale.at(of));
    let width = scale.at(middle);
    let mark = if row.faults().is_empty() { "" } else { " ✗" };
    let _infallible = writeln!(
        svg,
        "<text x=\"0\" y=\"{text}\">{name}{mark}</text><rect class=\"{class}\" x=\"{LABELS}\" y=\"{y}\" width=\"{width:.1}\" height=\"18\" rx=\"2\"/>\
         <line class=\"spread\" x1=\"{from:.1}\" x2=\"{to:.1}\" y1=\"{line}\" y2=\"{line}\"/>\
         <text x=\"{:.1}\" y=\"{text}\">{}</text>",
        to.max(LABELS + width) + 6.0,
        shown(middle),
        name = escaped(&row.contender),
    );
}

struct Scale {
    log: bool,
    least: f64,
    most: f64,
}

impl Scale {
    fn linear(most: f64) -> Self {
        Self { log: false, least: 0.0, most }
    }

    /// Begins below the least, so that it is seen.
    fn log(least: f64, most: f64) -> Self {
        Self { log: true, least: (least / 2.0).ln(), most: most.ln() }
    }

    fn at(&self, of: f64) -> f64 {
        let of = if self.log { of.max(1e-9).ln() } else { of };
        ((of - self.least) / (self.most - self.least)).clamp(0.0, 1.0) * (WIDTH - LABELS - NUMBERS)
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
