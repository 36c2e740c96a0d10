//! What a store knows of a name, as tables, sentences and JSON.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use tenure::backend::{Holder, Mode, Permits, State};

use crate::nodes::NodeJson;
use crate::output::{self, millis, printable, seconds};

const HEAD: [&str; 7] = ["NAME", "MODE", "TOKEN", "HELD FOR", "LEASE LEFT", "WAITING", "HOLDER"];

/// The holders of some names as a table; a name without any has a row too.
pub(crate) fn table(states: &[State]) -> String {
    let mut rows = Vec::new();
    for state in states {
        rows.extend(state.holders.iter().map(|holder| row(state, Some(holder))));
        if state.holders.is_empty() {
            rows.push(row(state, None));
        }
    }
    output::table(HEAD, &rows)
}

fn row(state: &State, holder: Option<&Holder>) -> [String; 7] {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    [
        printable(state.resource.as_str()),
        holder.map_or_else(|| without_holder(state), |holder| mode(holder, state.permits)),
        or_dash(holder.and_then(|h| h.token).map(|t| t.to_string())),
        or_dash(holder.and_then(held_for).map(seconds)),
        or_dash(holder.and_then(|h| h.expires_in).map(seconds)),
        or_dash(state.waiting.map(|n| n.to_string())),
        or_dash(holder.map(who)),
    ]
}

/// `1 permit (2 of 3 taken)`
fn mode(holder: &Holder, permits: Option<Permits>) -> String {
    let Mode::Permits { take, .. } = holder.mode else { return word(holder.mode).to_owned() };
    let all = permits.map(|permits| format!(" ({})", taken(permits))).unwrap_or_default();
    format!("{take} {}{all}", if take == 1 { "permit" } else { "permits" })
}

fn without_holder(state: &State) -> String {
    match (state.count, state.permits) {
        (Some(count), _) => format!("count {count}"),
        (None, Some(permits)) => taken(permits),
        (None, None) => "free".to_owned(),
    }
}

fn taken(permits: Permits) -> String {
    format!("{} of {} taken", permits.of - permits.free, permits.of)
}

/// How a name is held, in one word that does not change.
fn word(mode: Mode) -> &'static str {
    match mode {
        Mode::Exclusive => "exclusive",
        Mode::Fair => "fair",
        Mode::Read => "read",
        Mode::Write => "write",
        Mode::Permits { .. } => "permits",
        _ => "other",
    }
}

/// The text about a free name.
pub(crate) fn idle(state: &State) -> String {
    let name = printable(state.resource.as_str());
    let last = state.fence.map(|token| format!("; the last token was {token}")).unwrap_or_default();
    match (state.count, state.permits) {
        // Not all stores can tell the one from the other.
        (Some(n), Some(_)) => format!("{name} counts {n}: a latch, or permits of which none is taken\n"),
        (Some(n), None) => format!("{name} is a latch with {n} to go\n"),
        (None, Some(permits)) if permits.of <= 0 => format!("{name} has no permits{last}\n"),
        (None, Some(permits)) => format!("{name} is free: {}{last}\n", taken(permits)),
        (None, None) => format!("{name} is free{last}\n"),
    }
}

/// `exports: 2 of 3 permits are taken`
pub(crate) fn numbered(state: &State) -> String {
    let name = printable(state.resource.as_str());
    let Some(Permits { of, free }) = state.permits else { return format!("{name} has no number of permits\n") };
    format!("{name}: {} of {of} {} taken\n", of - free, if of == 1 { "permit is" } else { "permits are" })
}

/// The queue, the next owner first; an empty text if it is empty.
pub(crate) fn queue(state: &State) -> String {
    let rows: Vec<_> = (1..).zip(&state.queue).map(|(n, owner): (u32, _)| [n.to_string(), printable(owner)]).collect();
    if rows.is_empty() { String::new() } else { format!("\n{}", output::table(["IN QUEUE", "OWNER"], &rows)) }
}

/// The holder's own words, or else its id.
pub(crate) fn who(holder: &Holder) -> String {
    printable(holder.note.as_deref().filter(|note| !note.is_empty()).unwrap_or(&holder.owner))
}

/// Since when, as a duration; zero if the clocks disagree.
pub(crate) fn held_for(holder: &Holder) -> Option<Duration> {
    holder.since.map(|since| SystemTime::now().duration_since(since).unwrap_or_default())
}

/// A name in JSON. Field names are stable.
#[derive(Serialize)]
pub(crate) struct StateJson<'a> {
    name: &'a str,
    held: bool,
    holders: Vec<HolderJson<'a>>,
    waiting: Option<u32>,
    /// The queue of a fair lock, the next owner first.
    #[serde(rename = "line")]
    queue: &'a [String],
    permits: Option<PermitsJson>,
    /// Of a latch.
    count: Option<u64>,
    fence: Option<String>,
    /// What each node of a quorum says; absent for other stores.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    nodes: Vec<NodeJson<'a>>,
}

impl<'a> StateJson<'a> {
    pub(crate) fn new(state: &'a State) -> Self {
        Self {
            name: state.resource.as_str(),
            held: !state.holders.is_empty(),
            holders: state.holders.iter().map(HolderJson::new).collect(),
            waiting: state.waiting,
            queue: &state.queue,
            permits: state.permits.map(|Permits { of, free }| PermitsJson { of, free, taken: of - free }),
            count: state.count,
            fence: state.fence.map(|t| t.to_string()),
            nodes: state.nodes.iter().map(NodeJson::new).collect(),
        }
    }
}

/// The permits of a name in JSON.
#[derive(Serialize)]
struct PermitsJson {
    of: i64,
    free: i64,
    taken: i64,
}

/// A holder in JSON.
#[derive(Serialize)]
pub(crate) struct HolderJson<'a> {
    owner: &'a str,
    mode: &'static str,
    /// How many permits it has, where it has some.
    permits: Option<u32>,
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
            mode: word(holder.mode),
            permits: if let Mode::Permits { take, .. } = holder.mode { Some(take) } else { None },
            token: holder.token.map(|t| t.to_string()),
            since_unix_ms: since.map(millis),
            held_ms: held_for(holder).map(millis),
            expires_in_ms: holder.expires_in.map(millis),
            note: holder.note.as_deref(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure::{Resource, Token};

    fn holder(mode: Mode) -> Holder {
        Holder::new("o", mode)
    }

    #[test]
    fn what_nobody_holds_says_what_it_is() -> tenure::Result<()> {
        let mut free = State::free(Resource::new("x")?);
        free.fence = Some(Token::new(7));
        let permits = |of, free| Some(Permits { of, free });
        for (count, permits, said, mode) in [
            (None, None, "x is free; the last token was 7\n", "free"),
            (Some(3), None, "x is a latch with 3 to go\n", "count 3"),
            (Some(3), permits(3, 3), "x counts 3: a latch, or permits of which none is taken\n", "count 3"),
            (None, permits(3, 3), "x is free: 0 of 3 taken; the last token was 7\n", "0 of 3 taken"),
            (None, permits(0, 0), "x has no permits; the last token was 7\n", "0 of 0 taken"),
        ] {
            let mut state = free.clone();
            (state.count, state.permits) = (count, permits);
            assert_eq!((&*idle(&state), &*without_holder(&state)), (said, mode));
        }
        Ok(())
    }

    #[test]
    fn every_holder_has_a_row_with_its_mode() -> tenure::Result<()> {
        let mut state = State::free(Resource::new("x")?);
        state.permits = Some(Permits { of: 4, free: 1 });
        state.holders = [1, 2].map(|take| holder(Mode::Permits { take, of: 0 })).into();
        let expected = "\
NAME  MODE                      TOKEN  HELD FOR  LEASE LEFT  WAITING  HOLDER
x     1 permit (3 of 4 taken)   -      -         -           -        o
x     2 permits (3 of 4 taken)  -      -         -           -        o
";
        assert_eq!(table(&[state]), expected);
        Ok(())
    }
}
