//! How things are printed: messages, tables and JSON. Names and notes come from the store and are not trusted.

pub(crate) mod voice;

use std::io::Write;
use std::time::Duration;

use serde::Serialize;
use tenure::duration;
use unicode_width::UnicodeWidthStr;

/// Prints a message on stderr. A stderr that is closed is no reason to stop.
pub(crate) fn say(message: &str) {
    voice::write(format!("tenure: {}\n", printable(message)));
}

/// Adds a line to a message.
pub(crate) fn add(detail: &str) {
    voice::write(format!("  {}\n", printable(detail)));
}

/// Escapes what a terminal would act upon (control and formatting characters) and keeps all that can be read.
pub(crate) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_plain(c) { shown.push(c) } else { shown.extend(c.escape_debug()) }
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

/// Draws a line on the terminal of stderr, over the one that is there.
pub(crate) fn draw_over(text: &str) {
    // Serial lines and fresh pseudo-terminals do not know their size.
    let columns = rustix::termios::tcgetwinsize(std::io::stderr()).ok().map(|size| usize::from(size.ws_col)).filter(|n| *n > 0);
    // A line that is as wide as the terminal would break and not be drawn over.
    let text = cut(text, columns.unwrap_or(100).saturating_sub(1));
    voice::write(format!("\r{text}\x1b[K"));
}

/// Erases the line that was drawn over.
pub(crate) fn erase_line() {
    voice::write("\r\x1b[K".to_owned());
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
    print(&(escaped(&serde_json::to_string_pretty(value)?) + "\n"))
}

/// JSON with what a terminal would act upon, or show as something else (DEL, C1 controls, characters that turn the direction
/// of text or have no width), written as `\uXXXX`. JSON leaves them as they are; they occur in its strings only.
fn escaped(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        if c == '\n' || is_plain(c) {
            text.push(c);
        } else {
            c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| text.push_str(&format!("\\u{unit:04x}")));
        }
    }
    text
}

/// Whether a character is shown as itself. Behind another one, accents are.
fn is_plain(c: char) -> bool {
    matches!(c, '\'' | '"' | '\\') || ['a', c].iter().collect::<String>().escape_debug().skip(1).eq([c])
}

/// A duration without needless decimals.
pub(crate) fn seconds(d: Duration) -> String {
    let whole = if d < Duration::from_secs(1) { Duration::from_millis(millis(d)) } else { Duration::from_secs(d.as_secs()) };
    duration::show(whole)
}

/// Whole milliseconds.
pub(crate) fn millis(d: Duration) -> u64 {
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
    fn json_keeps_its_meaning_and_shows_nothing_that_acts() {
        let text =
            "日本 e\u{301} 🎉 \\ \"q\" \u{202e}evil\u{2066}\u{200f}\u{feff}\u{7f}\u{9b}\u{e0041}\u{2028}\n\u{1b}\u{ad}\u{200b}";
        let json = escaped(&serde_json::to_string_pretty(&[text]).expect("json"));
        assert_eq!(serde_json::from_str::<[String; 1]>(&json).expect("json"), [text]);
        assert!(
            json.contains("日本 e\u{301} 🎉") && json.contains("\\u202eevil\\u2066") && json.contains("\\udb40\\udc41"),
            "{json}"
        );
        let acts = [
            '\u{202e}',
            '\u{2066}',
            '\u{200f}',
            '\u{feff}',
            '\u{7f}',
            '\u{9b}',
            '\u{e0041}',
            '\u{2028}',
            '\u{1b}',
            '\u{ad}',
            '\u{200b}',
        ];
        assert!(!json.contains(acts), "{json}");
        assert!(!printable(text).contains(acts));
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
