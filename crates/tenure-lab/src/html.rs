//! All reports as one HTML document that fetches nothing.

use std::fmt::Write;

use crate::story::{Report, Row};
use crate::svg::{moment, picture, time};

const STYLE: &str = include_str!("html.css");

/// What the columns mean.
const COLUMNS: [(&str, &str); 5] = [
    ("sold", "units sold, of those that there were"),
    ("oversold", "units sold and not there: sold less stock, or 0"),
    (
        "stale",
        "stale writes accepted: writes that the shop took from somebody whose grant was older than that of somebody else who had \
         been granted the lock before that write",
    ),
    ("waited", "how long all together waited for the lock"),
    (
        "requests",
        "commands that clients sent to the servers, as the servers saw them; neither greetings nor what scripts did inside",
    ),
];

/// What the colours mean.
const LEGEND: [(&str, &str); 9] = [
    ("held", "the server takes somebody for the holder"),
    ("believes", "believes that it holds the lock"),
    ("waits", "waits for it"),
    ("paused", "stands still"),
    ("dot sold", "a write is accepted"),
    ("dot stale", "a stale write is accepted"),
    ("dot refused", "a write is refused"),
    ("dot told", "is told that the lock is lost"),
    ("dot killed", "is killed"),
];

/// All reports as one HTML document that fetches nothing.
pub fn page(reports: &[Report]) -> String {
    let mut page = String::from("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    page.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    page.push_str("<title>How distributed locks fail, and what stops it</title>\n");
    put(&mut page, format_args!("<style>\n{STYLE}</style>\n</head>\n<body>\n"));
    page.push_str("<h1>How distributed locks fail, and what stops it</h1>\n");
    page.push_str("<p>Each story was played on real servers, in the naive way, in the usual way, and with Tenure. ");
    put(&mut page, format_args!("Played by <code>tenure lab</code> {}.</p>\n", env!("CARGO_PKG_VERSION")));
    contents(&mut page, reports);
    page.push_str("<dl>\n");
    for (name, meaning) in COLUMNS {
        put(&mut page, format_args!("<dt>{name}</dt><dd>{meaning}</dd>\n"));
    }
    page.push_str("</dl>\n<ul class=\"legend\">\n");
    for (class, meaning) in LEGEND {
        put(&mut page, format_args!("<li><i class=\"{class}\"></i>{meaning}</li>\n"));
    }
    page.push_str("</ul>\n");
    reports.iter().for_each(|report| story(&mut page, report));
    page.push_str("</body>\n</html>\n");
    page
}

fn contents(page: &mut String, reports: &[Report]) {
    page.push_str("<div class=\"wide\"><table>\n<tr><th>story</th><th></th><th>with Tenure</th></tr>\n");
    for report in reports {
        let told = match (report.held, report.skipped()) {
            (true, false) => "as claimed",
            (true, true) => "<span class=\"bad\">skipped</span>",
            (false, _) => "<span class=\"bad\">not as claimed</span>",
        };
        let (id, title) = (report.id, escaped(report.title));
        put(page, format_args!("<tr><td><a href=\"#{id}\">{id}</a></td><td>{title}</td><td>{told}</td></tr>\n"));
    }
    page.push_str("</table></div>\n");
}

fn story(page: &mut String, report: &Report) {
    let (id, title) = (report.id, escaped(report.title));
    put(page, format_args!("<section id=\"{id}\">\n<h2>{id} · {title}</h2>\n<p>{}</p>\n", escaped(report.lesson)));
    page.push_str("<div class=\"wide\"><table>\n<tr><th>way</th>");
    COLUMNS.iter().for_each(|(name, _)| put(page, format_args!("<th class=\"n\">{name}</th>")));
    page.push_str("</tr>\n");
    report.rows.iter().for_each(|row| numbers(page, row));
    page.push_str("</table></div>\n");
    report.rows.iter().for_each(|row| way(page, report, row));
    page.push_str("</section>\n");
}

fn numbers(page: &mut String, row: &Row) {
    let way = format!("<td>{}<div class=\"soft how\">{}</div></td>", row.way.name(), escaped(row.how));
    if row.skipped {
        let nothing = "<td class=\"n\">–</td>".repeat(COLUMNS.len());
        return put(page, format_args!("<tr>{way}{nothing}</tr>\n"));
    }
    put(page, format_args!("<tr>{way}<td class=\"n\">{} of {}</td>", row.sold, row.stock));
    for n in [row.oversold, row.stale_writes] {
        put(page, format_args!("<td class=\"n{}\">{n}</td>", if n > 0 { " bad" } else { "" }));
    }
    let bad = if row.gave_up > 0 { " bad" } else { "" };
    put(page, format_args!("<td class=\"n{bad}\">{}</td><td class=\"n\">{}</td></tr>\n", row.waited_shown(), row.requests));
}

fn way(page: &mut String, report: &Report, row: &Row) {
    let (name, how, verdict) = (row.way.name(), escaped(row.how), sentence(&row.verdict));
    put(page, format_args!("<h3>{name}: {how}</h3>\n<p>{verdict}</p>\n"));
    for what in row.failures() {
        put(page, format_args!("<p class=\"bad\">Not so: {}</p>\n", escaped(what)));
    }
    let about = format!("{} {name}: who believed what, and when", report.id);
    put(page, format_args!("<figure>{}</figure>\n", picture(&row.timeline, &about)));
    if row.timeline.marks.is_empty() {
        return;
    }
    let (n, s) = (row.timeline.marks.len(), if row.timeline.marks.len() == 1 { "" } else { "s" });
    put(page, format_args!("<details><summary>{n} step{s}</summary>\n<ol>\n"));
    for mark in &row.timeline.marks {
        let (who, at) = (row.timeline.lanes.get(mark.lane).map_or("", |lane| lane), time(mark.at_us));
        let bad = if moment(mark.what) == "stale" { " class=\"bad\"" } else { "" };
        put(page, format_args!("<li{bad}>{at}: <b>{}</b> {}</li>\n", escaped(who), escaped(&mark.text)));
    }
    page.push_str("</ol></details>\n");
}

/// A line of the table as a sentence of the page.
fn sentence(line: &str) -> String {
    let mut letters = line.chars();
    let first: String = letters.next().into_iter().flat_map(char::to_uppercase).collect();
    escaped(&format!("{first}{}.", letters.as_str()))
}

/// As text of a page.
pub(crate) fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => shown.push_str("&amp;"),
            '<' => shown.push_str("&lt;"),
            '>' => shown.push_str("&gt;"),
            '"' => shown.push_str("&quot;"),
            c => shown.push(c),
        }
    }
    shown
}

/// Writing to a string does not fail.
pub(crate) fn put(text: &mut String, what: std::fmt::Arguments<'_>) {
    let _written = text.write_fmt(what);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_text() {
        assert_eq!(sentence("all < none"), "All &lt; none.");
        assert_eq!(escaped("<b> & \"c\""), "&lt;b&gt; &amp; &quot;c&quot;");
    }
}
