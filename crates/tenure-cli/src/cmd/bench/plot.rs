//! A histogram for each case, in SVG that can be read on light and on dark, without a script.

use std::fmt::Write;

use super::histogram::Bin;
use super::outcome::{Found, Outcome, Row, median};
use super::table::time;

const WIDTH: f64 = 760.0;
const MARGIN: f64 = 16.0;
const TOP: f64 = 56.0;
/// Of one case, and of its bars within that.
const PANEL: f64 = 150.0;
const BARS: f64 = 84.0;
/// Bars for each power of two of a duration.
const PER_POWER: u32 = 8;

const STYLE: &str = "<style>
text { font: 13px system-ui, sans-serif; fill: #24292f }
.ground { fill: #fff }
.title { font-weight: 600 }
.small { font-size: 11px }
.bar { fill: #2f6feb }
.axis { stroke: #9aa4af }
.mark { stroke: #bc4c00; stroke-width: 1.5; stroke-dasharray: 4 3 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .ground { fill: #0d1117 }
  .bar { fill: #58a6ff }
  .axis { stroke: #6e7681 }
  .mark { stroke: #f0883e }
}
</style>";

/// What is drawn of one case.
struct Panel<'a> {
    row: &'a Row,
    rate: f64,
    all: &'a Outcome,
    bins: Vec<Bin>,
}

pub(super) fn svg(backend: &str, rows: &[Row]) -> String {
    let panels: Vec<_> = rows.iter().filter_map(Panel::new).collect();
    let scale = Scale::over(&panels);
    let height = TOP + PANEL * panels.len() as f64 + MARGIN;
    let mut svg = format!("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\n{STYLE}\n");
    // A page may be dark where the system is light: what is written stands on ground of its own.
    let _infallible = writeln!(svg, "<rect class=\"ground\" width=\"{WIDTH}\" height=\"{height}\"/>");
    text(&mut svg, "title", MARGIN, 22.0, &format!("tenure bench on {backend}: how long a lock and its release take"));
    let how = "To the right longer, each mark ten times the one before; the bars of a case are as high as its largest one.";
    text(&mut svg, "small", MARGIN, 40.0, how);
    for (at, panel) in (0_i32..).zip(&panels) {
        panel.draw(&mut svg, &scale, TOP + PANEL * f64::from(at));
    }
    svg.push_str("</svg>\n");
    svg
}

impl<'a> Panel<'a> {
    fn new(row: &'a Row) -> Option<Self> {
        let Found::Rounds { rates, all } = &row.found else { return None };
        Some(Self { row, rate: median(rates), all, bins: all.latency.bins(PER_POWER) })
    }

    fn draw(&self, svg: &mut String, scale: &Scale, top: f64) {
        let Self { row, rate, all, bins } = self;
        let title = format!("{}: {} ({rate:.0} cycles/s)", row.case.id, row.case.title);
        text(svg, "title", MARGIN, top + 14.0, &title);
        let base = top + 30.0 + BARS;
        let most = bins.iter().map(|bin| bin.count).max().unwrap_or(1).max(1) as f64;
        for bin in bins {
            let (from, to) = (scale.at(bin.from), scale.at(bin.to));
            // One of a million is still seen.
            let height = (BARS * bin.count as f64 / most).max(1.0);
            let (width, y, count) = ((to - from - 0.5).max(0.5), base - height, bin.count);
            let told = format!("{} to {}: {count}", time(bin.from), time(bin.to));
            let _infallible = writeln!(
                svg,
                "<rect class=\"bar\" x=\"{from:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"><title>{told}</title></rect>"
            );
        }
        line(svg, "axis", (MARGIN, base), (WIDTH - MARGIN, base));
        for tick in scale.ticks() {
            let x = scale.at(tick);
            line(svg, "axis", (x, base), (x, base + 4.0));
            text(svg, "small", x, base + 16.0, &time(tick).replace(".00", "").replace(".0", ""));
        }
        for (at, (name, share)) in (0_i32..).zip([("p50", 0.5), ("p99", 0.99)]) {
            let Some(nanos) = all.quantile(share) else { continue };
            let (x, y) = (scale.at(nanos), top + 26.0 + 12.0 * f64::from(at));
            line(svg, "mark", (x, y - 8.0), (x, base));
            text(svg, "small", x + 3.0, y, &format!("{name} {}", time(nanos)));
        }
    }
}

/// From durations to places, by their logarithms, the same for all cases.
struct Scale {
    least: f64,
    most: f64,
}

impl Scale {
    fn over(panels: &[Panel<'_>]) -> Self {
        let bins = || panels.iter().flat_map(|panel| &panel.bins);
        let least = bins().map(|bin| bin.from).fold(f64::MAX, f64::min);
        let most = bins().map(|bin| bin.to).fold(0.0, f64::max);
        if most > least { Self { least: least.ln(), most: most.ln() } } else { Self { least: 0.0, most: 1.0 } }
    }

    fn at(&self, nanos: f64) -> f64 {
        // The text of the last mark needs its place.
        let width = WIDTH - 2.0 * MARGIN - 60.0;
        MARGIN + ((nanos.max(1.0).ln() - self.least) / (self.most - self.least)).clamp(0.0, 1.0) * width
    }

    /// The powers of ten in between.
    fn ticks(&self) -> impl Iterator<Item = f64> {
        let (least, most) = (self.least, self.most);
        (0..12).map(|power| 10_f64.powi(power)).filter(move |nanos| (least..=most).contains(&nanos.ln()))
    }
}

fn text(svg: &mut String, class: &str, x: f64, y: f64, words: &str) {
    let words = words.replace('&', "&amp;").replace('<', "&lt;");
    let _infallible = writeln!(svg, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{words}</text>");
}

fn line(svg: &mut String, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
    let _infallible = writeln!(svg, "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::bench::cases::CASES;
    use crate::cmd::bench::histogram::Counts;

    #[test]
    fn what_is_drawn_lies_within_the_picture() {
        let counts = Counts::default();
        [900, 40_000, 41_000, 2_000_000_000].into_iter().for_each(|nanos| counts.add(nanos));
        let round =
            Outcome { cycles: 4, took: 1_000_000_000, latency: counts.total(), longest: counts.longest(), ..Outcome::default() };
        let rows = [
            Row { case: &CASES[0], found: Found::of(&[round]) },
            Row { case: &CASES[4], found: Found::Skipped("no other process") },
        ];
        let svg = svg("a<b", &rows);
        assert!(svg.contains("a&lt;b") && svg.contains("P1: ") && !svg.contains("P4: "), "{svg}");
        assert!(svg.contains("prefers-color-scheme: dark") && !svg.contains("<script"), "{svg}");
        for x in svg.split(" x=\"").skip(1).filter_map(|rest| rest.split('"').next()?.parse::<f64>().ok()) {
            assert!((0.0..WIDTH).contains(&x), "{x}");
        }
        assert!(!super::svg("memory", &[]).contains("NaN"));
    }
}
