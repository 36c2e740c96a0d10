//! A timeline as SVG. Positions are in percent and letters in pixels, so that it is readable on a phone too.

use crate::html::{escaped, put};
use crate::timeline::{During, Mark, Moment, Timeline};

const LABEL: usize = 17;
const BAR: usize = 20;
const MARK: usize = 20;
const GAP: usize = 8;
const AXIS: usize = 20;

/// What a mark takes of the width of a small screen, in percent.
const MARK_WIDTH: f64 = 6.0;
/// Where marks may be, in percent: whole ones, also at the edges.
const EDGE: f64 = 2.5;

/// One picture, with a number for each mark in the order of the marks.
pub(crate) fn picture(timeline: &Timeline, about: &str) -> String {
    let mut drawn = String::new();
    let mut top = 0;
    for (lane, name) in timeline.lanes.iter().enumerate() {
        top = draw_lane(&mut drawn, timeline, lane, name, top);
    }
    draw_axis(&mut drawn, timeline, top);
    let (height, about) = (top + AXIS, escaped(about));
    format!("<svg class=\"picture\" width=\"100%\" height=\"{height}\" role=\"img\" aria-label=\"{about}\">{drawn}</svg>")
}

/// Draws one lane and says where the next one begins.
fn draw_lane(drawn: &mut String, timeline: &Timeline, lane: usize, name: &str, top: usize) -> usize {
    let bar = top + LABEL;
    put(drawn, format_args!("<text class=\"lane\" x=\"0\" y=\"{}\">{}</text>", top + 13, escaped(name)));
    put(drawn, format_args!("<rect class=\"track\" x=\"0\" y=\"{bar}\" width=\"100%\" height=\"{BAR}\"/>"));
    for span in timeline.spans.iter().filter(|span| span.lane == lane) {
        let (x, end) = (percent(span.from_us, timeline), percent(span.to_us, timeline));
        let (width, text, kind) = ((end - x).max(0.4), escaped(&span.text), during(span.what));
        // What does not fit is cut off where the span ends.
        put(drawn, format_args!("<svg x=\"{x:.2}%\" y=\"{bar}\" width=\"{width:.2}%\" height=\"{BAR}\">"));
        put(drawn, format_args!("<title>{text}</title><rect class=\"{kind}\" width=\"100%\" height=\"100%\" rx=\"3\"/>"));
        put(drawn, format_args!("<text class=\"on {kind}-text\" x=\"5\" y=\"14\">{text}</text></svg>"));
    }
    let marks: Vec<_> = timeline.marks.iter().enumerate().filter(|(_, mark)| mark.lane == lane).collect();
    let rows = rows(marks.iter().map(|(_, mark)| place(mark, timeline)));
    let below = |row: &usize| bar + BAR + MARK * row + 12;
    for ((_, mark), row) in marks.iter().zip(&rows) {
        let (x, y, kind) = (place(mark, timeline), below(row), moment(mark.what));
        put(drawn, format_args!("<line class=\"{kind}-line\" x1=\"{x:.2}%\" x2=\"{x:.2}%\" y1=\"{bar}\" y2=\"{y}\"/>"));
    }
    // Over all lines, so that none goes through a number.
    for ((n, mark), row) in marks.iter().zip(&rows) {
        let (n, x, y, kind) = (n + 1, place(mark, timeline), below(row), moment(mark.what));
        put(drawn, format_args!("<g><title>{}</title>", escaped(&mark.text)));
        put(drawn, format_args!("<circle class=\"{kind}\" cx=\"{x:.2}%\" cy=\"{y}\" r=\"9\"/>"));
        put(drawn, format_args!("<text class=\"number\" x=\"{x:.2}%\" y=\"{}\">{n}</text></g>", y + 4));
    }
    bar + BAR + MARK * rows.iter().max().map_or(0, |row| row + 1) + GAP
}

/// Puts marks that would cover each other into rows below each other.
fn rows(places: impl Iterator<Item = f64>) -> Vec<usize> {
    let mut ends: Vec<f64> = Vec::new();
    let mut rows = Vec::new();
    for place in places {
        let free = ends.iter().position(|end| *end <= place);
        let row = free.unwrap_or(ends.len());
        if free.is_none() {
            ends.push(0.0);
        }
        ends[row] = place + MARK_WIDTH;
        rows.push(row);
    }
    rows
}

fn draw_axis(drawn: &mut String, timeline: &Timeline, top: usize) {
    put(drawn, format_args!("<line class=\"axis\" x1=\"0\" x2=\"100%\" y1=\"{top}\" y2=\"{top}\"/>"));
    let step = step(timeline.length_us);
    for at in (0..).map(|n| n * step).take_while(|at| *at <= timeline.length_us) {
        let x = percent(at, timeline);
        let anchor = if x < 5.0 {
            "start"
        } else if x > 93.0 {
            "end"
        } else {
            "middle"
        };
        let (time, y) = (time(at), top + 15);
        put(drawn, format_args!("<line class=\"axis\" x1=\"{x:.2}%\" x2=\"{x:.2}%\" y1=\"{top}\" y2=\"{}\"/>", top + 4));
        put(drawn, format_args!("<text class=\"time\" x=\"{x:.2}%\" y=\"{y}\" text-anchor=\"{anchor}\">{time}</text>"));
    }
}

/// A round step that makes two to five of a length.
fn step(length_us: u64) -> u64 {
    let mut unit = 1;
    loop {
        for step in [unit, 2 * unit, 5 * unit] {
            if length_us / step < 5 {
                return step;
            }
        }
        unit *= 10;
    }
}

/// A moment of a timeline in words.
pub(crate) fn time(us: u64) -> String {
    let d = std::time::Duration::from_micros(us);
    match us {
        1_000_000.. => format!("{:.2} s", d.as_secs_f64()),
        10_000.. => format!("{:.0} ms", d.as_secs_f64() * 1e3),
        _ => format!("{:.1} ms", d.as_secs_f64() * 1e3),
    }
}

fn place(mark: &Mark, timeline: &Timeline) -> f64 {
    percent(mark.at_us, timeline).clamp(EDGE, 100.0 - EDGE)
}

#[expect(clippy::cast_precision_loss, reason = "it is a picture")]
fn percent(us: u64, timeline: &Timeline) -> f64 {
    us as f64 * 100.0 / timeline.length_us as f64
}

fn during(what: During) -> &'static str {
    match what {
        During::Believes => "believes",
        During::Waits => "waits",
        During::Paused => "paused",
        During::Held => "held",
    }
}

/// The name of a mark's looks.
pub(crate) fn moment(what: Moment) -> &'static str {
    match what {
        Moment::Did => "did",
        Moment::Sold => "sold",
        Moment::Stale => "stale",
        Moment::Refused => "refused",
        Moment::Told => "told",
        Moment::Killed => "killed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_that_would_cover_each_other_are_put_below_each_other() {
        assert_eq!(rows([10.0, 11.0, 12.0, 16.5, 40.0].into_iter()), [0, 1, 2, 0, 0]);
    }

    #[test]
    fn the_axis_has_round_numbers() {
        for (length, expected) in [(4, 1), (5, 2), (24, 5), (120, 50), (1_000_000, 500_000), (2_300_000, 500_000)] {
            assert_eq!(step(length), expected, "{length}");
        }
    }
}
