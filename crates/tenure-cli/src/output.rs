//! What is printed: messages, tables and JSON. Names and notes come from the store and are not to be trusted.

use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use tenure::backend::{Holder, State};
use tenure::duration;
use unicode_width::UnicodeWidthStr;

/// Prints a message on stderr. A stderr that is closed is no reason to stop.
pub(crate) fn say(message: &str) {
    drop(writeln!(std::io::stderr(), "tenure: {}", printable(message)));
}

/// Escapes what a terminal would act upon (control and formatting characters) and keeps all that can be read.
pub(crate) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut pair = String::from("a");
    for c in text.chars() {
        if matches!(c, '\'' | '"' | '\\') {
            shown.push(c);
            continue;
        }
        // Behind another character, accents are left alone.
        pair.truncate(1);
        pair.push(c);
        shown.extend(pair.escape_debug().skip(1));
    }
    shown
}

/// Cuts a printable text to a number of terminal columns.
pub(crate) fn cut(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let mut shown = String::new();
    for c in text.chars() {
        shown.push(c);
        if shown.width() >= columns {
            shown.pop();
            break;
        }
    }
    shown.push('…');
    shown
}

/// Columns aligned by what the eye sees; the last one is as long as it is.
pub(crate) fn table<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> String {
    let mut widths = head.map(str::width);
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.width());
        }
    }
    let mut text = String::new();
    for row in std::iter::once(&head.map(str::to_owned)).chain(rows) {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', width.saturating_sub(cell.width()) + 2));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Prints on stdout.
pub(crate) fn print(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Prints one JSON document on stdout.
pub(crate) fn print_json(value: &impl Serialize) -> std::io::Result<()> {
    let json = serde_json::to_string_pretty(value)?;
    let mut text = String::with_capacity(json.len() + 1);
    for c in json.chars() {
        // JSON leaves DEL and the C1 controls as they are; terminals do not. They occur in strings only.
        if c.is_control() && c != '\n' {
            text.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            text.push(c);
        }
    }
    text.push('\n');
    print(&text)
}

const HEAD: [&str; 6] = ["NAME", "TOKEN", "HELD FOR", "LEASE LEFT", "WAITING", "HOLDER"];

/// The holders of some locks as a table.
pub(crate) fn states_table(states: &[State]) -> String {
    let rows: Vec<_> = states.iter().flat_map(|state| state.holders.iter().map(|holder| row(state, holder))).collect();
    table(HEAD, &rows)
}

fn row(state: &State, holder: &Holder) -> [String; 6] {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    [
        printable(state.resource.as_str()),
        or_dash(holder.token.map(|t| t.to_string())),
        or_dash(held_for(holder).map(seconds)),
        or_dash(holder.expires_in.map(seconds)),
        or_dash(state.waiting.map(|n| n.to_string())),
        who(holder),
    ]
}

/// The holder's own words, or else its id.
pub(crate) fn who(holder: &Holder) -> String {
    printable(holder.note.as_deref().filter(|note| !note.is_empty()).unwrap_or(&holder.owner))
}

/// Since when, as a duration; zero if the clocks disagree.
pub(crate) fn held_for(holder: &Holder) -> Option<Duration> {
    holder.since.map(|since| SystemTime::now().duration_since(since).unwrap_or_default())
}

/// A duration without the decimals that nobody reads.
pub(crate) fn seconds(d: Duration) -> String {
    let whole = if d < Duration::from_secs(1) { Duration::from_millis(millis(d)) } else { Duration::from_secs(d.as_secs()) };
    duration::show(whole)
}

/// A lock in JSON. Field names are stable.
#[derive(Serialize)]
pub(crate) struct StateJson<'a> {
    name: &'a str,
    held: bool,
    holders: Vec<HolderJson<'a>>,
    waiting: Option<u32>,
    fence: Option<String>,
}

impl<'a> StateJson<'a> {
    pub(crate) fn new(state: &'a State) -> Self {
        Self {
            name: state.resource.as_str(),
            held: !state.holders.is_empty(),
            holders: state.holders.iter().map(HolderJson::new).collect(),
            waiting: state.waiting,
            fence: state.fence.map(|t| t.to_string()),
        }
    }
}

/// A holder in JSON.
#[derive(Serialize)]
pub(crate) struct HolderJson<'a> {
    owner: &'a str,
    /// A string: 63 bits do not fit the numbers of JavaScript.
    token: Option<String>,
    since_unix_ms: Option<u64>,
    held_ms: Option<u64>,
    expires_in_ms: Option<u64>,
    note: Option<&'a str>,
}

impl<'a> HolderJson<'a> {
    pub(crate) fn new(holder: &'a Holder) -> Self {
        let since = holder.since.map(|since| since.duration_since(UNIX_EPOCH).unwrap_or_default());
        Self {
            owner: &holder.owner,
            token: holder.token.map(|t| t.to_string()),
            since_unix_ms: since.map(millis),
            held_ms: held_for(holder).map(millis),
            expires_in_ms: holder.expires_in.map(millis),
            note: holder.note.as_deref(),
        }
    }
}

fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_act_upon_is_escaped() {
        for (text, shown) in [
            ("backup 'a' \"b\" c\\d", "backup 'a' \"b\" c\\d"),
            ("日本 naïve e\u{301} 🎉", "日本 naïve e\u{301} 🎉"),
            ("\u{1b}[2J\r\n\0", "\\u{1b}[2J\\r\\n\\0"),
            ("\u{9b}31m", "\\u{9b}31m"),
            ("a\u{202e}b", "a\\u{202e}b"),
        ] {
            assert_eq!(printable(text), shown);
        }
    }

    #[test]
    fn wide_characters_take_two_columns() {
        let rows = [["日本".to_owned(), "x".to_owned()], ["ab".to_owned(), "y".to_owned()]];
        assert_eq!(table(["N", "H"], &rows), "N     H\n日本  x\nab    y\n");
        assert_eq!(cut("日本日本", 5), "日本…");
        assert_eq!(cut("short", 5), "short");
    }

    #[test]
    fn durations_are_shown_in_whole_seconds() {
        assert_eq!(seconds(Duration::from_millis(12_345)), "12s");
        assert_eq!(seconds(Duration::from_micros(250_700)), "250ms");
        assert_eq!(seconds(Duration::from_secs(182)), "3m2s");
        assert_eq!(seconds(Duration::ZERO), "0s");
    }
}
