//! What the driver is told on its input, and how it answers.

use std::io::Write;

use serde::Serialize;

pub(crate) enum Order {
    /// Take the name of a round before anybody else.
    Gate(u64),
    /// Run a round, from a moment on the shared clock.
    Go { round: u64, start: u64 },
    /// Go on with what waits for it.
    Release,
}

/// The next order; `None` at the end of the input.
pub(crate) fn next() -> Option<Order> {
    let mut line = String::new();
    if std::io::stdin().read_line(&mut line).ok()? == 0 {
        return None;
    }
    let mut words = line.split_whitespace();
    let verb = words.next()?;
    let mut number = || words.next().and_then(|word| word.parse().ok());
    match verb {
        "gate" => Some(Order::Gate(number()?)),
        "go" => Some(Order::Go { round: number()?, start: number()? }),
        "release" => Some(Order::Release),
        _ => None,
    }
}

pub(crate) fn word(word: &str) {
    write(word);
}

pub(crate) fn say(line: &impl Serialize) {
    write(&serde_json::to_string(line).expect("plain data"));
}

fn write(line: &str) {
    let mut out = std::io::stdout().lock();
    // Nobody may be there any more.
    let _ended = writeln!(out, "{line}").and_then(|()| out.flush());
}
