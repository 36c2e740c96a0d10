//! What each node of a quorum says of a name, as a table and JSON.

use std::time::Duration;

use serde::Serialize;
use tenure::backend::{Holder, NodeReport, NodeState, Standing, State};

use crate::output::{self, millis, printable, seconds};
use crate::states::{HolderJson, held_for, who};

/// Clocks that differ by less are not worth a word.
const CLOCKS_DIFFER_MS: u64 = 500;

/// One line per node; nothing for a store that is one.
pub(crate) fn table(state: &State) -> String {
    let rows: Vec<_> = state.nodes.iter().map(|node| [printable(&node.node.name), said(node, state)]).collect();
    if rows.is_empty() { String::new() } else { format!("\n{}", output::table(["NODE", "SAYS"], &rows)) }
}

/// `held by backup for 12s, token 7; quarantined for 3s; clock 60.0 s ahead`
fn said(node: &NodeReport, state: &State) -> String {
    let NodeReport { node: NodeState { standing, clock_ahead_ms, .. }, holders, .. } = node;
    let mut said = match holders {
        Ok(holders) if holders.is_empty() => vec!["free".to_owned()],
        Ok(holders) => holders.iter().map(|holder| held(holder, state)).collect(),
        Err(why) => vec![format!("did not answer: {}", printable(&why.said))],
    };
    match standing {
        Standing::Quarantined { left } => said.push(format!("quarantined for {}", seconds(*left))),
        Standing::Refused { why } => said.push(format!("refused: {}", printable(why))),
        // Who did not answer is away, and has just been said to be.
        Standing::Away { why } if holders.is_ok() => said.push(format!("away: {}", printable(why))),
        Standing::Away { .. } | Standing::Counts => {}
    }
    said.extend(clock_ahead_ms.filter(|ms| ms.unsigned_abs() > CLOCKS_DIFFER_MS).map(clock));
    said.join("; ")
}

/// A holder that the quorum does not know as one is shown with its id, for its words may be the same.
fn held(holder: &Holder, state: &State) -> String {
    let (who, owner) = (who(holder), printable(&holder.owner));
    let known = state.holders.iter().any(|merged| merged.owner == holder.owner);
    let who = if known || who == owner { who } else { format!("{who} ({owner})") };
    let since = held_for(holder).map(|d| format!(" for {}", seconds(d))).unwrap_or_default();
    let token = holder.token.map(|token| format!(", token {token}")).unwrap_or_default();
    let left = holder.expires_in.map(|left| format!(", {} of lease left", seconds(left))).unwrap_or_default();
    format!("held by {who}{since}{token}{left}")
}

/// `clock 60.0 s ahead`
fn clock(ahead_ms: i64) -> String {
    let off = Duration::from_millis(ahead_ms.unsigned_abs()).as_secs_f64();
    format!("clock {off:.1} s {}", if ahead_ms < 0 { "behind" } else { "ahead" })
}

/// A node in JSON. Field names are stable.
#[derive(Serialize)]
pub(crate) struct NodeJson<'a> {
    name: &'a str,
    /// `counts`, `quarantined`, `away` or `refused`.
    standing: &'static str,
    /// Why it is away or refused.
    why: Option<&'a str>,
    quarantine_left_ms: Option<u64>,
    /// Negative if it is behind.
    clock_ahead_ms: Option<i64>,
    /// Absent with an error.
    holders: Option<Vec<HolderJson<'a>>>,
    error: Option<&'a str>,
}

impl<'a> NodeJson<'a> {
    pub(crate) fn new(node: &'a NodeReport) -> Self {
        let NodeReport { node: NodeState { name, standing, clock_ahead_ms, .. }, holders, .. } = node;
        let (word, why, left) = match standing {
            Standing::Counts => ("counts", None, None),
            Standing::Quarantined { left } => ("quarantined", None, Some(millis(*left))),
            Standing::Away { why } => ("away", Some(&**why), None),
            Standing::Refused { why } => ("refused", Some(&**why), None),
        };
        Self {
            name,
            standing: word,
            why,
            quarantine_left_ms: left,
            clock_ahead_ms: *clock_ahead_ms,
            holders: holders.as_ref().ok().map(|holders| holders.iter().map(HolderJson::new).collect()),
            error: holders.as_ref().err().map(|trouble| &*trouble.said),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure::backend::Mode;
    use tenure::{Fault, NodeTrouble, Resource, Token};

    fn holder(owner: &str) -> Holder {
        let mut holder = Holder::new(owner, Mode::Exclusive);
        (holder.token, holder.note) = (Some(Token::new(7)), Some("backup".to_owned()));
        holder
    }

    #[test]
    fn every_node_says_what_it_knows_and_whether_it_counts() -> tenure::Result<()> {
        let why = || "it is gone".to_owned();
        let gone = || NodeTrouble::new("n", why(), Some(Fault::Connection));
        let mut state = State::free(Resource::new("x")?);
        state.holders = vec![holder("o")];
        let left = Duration::from_millis(12_300);
        let quarantined = || Standing::Quarantined { left };
        for (standing, clock_ahead_ms, holders, expected) in [
            (Standing::Counts, Some(500), Ok(vec![]), "free"),
            (Standing::Counts, None, Ok(vec![holder("o")]), "held by backup, token 7"),
            (Standing::Counts, None, Ok(vec![holder("p")]), "held by backup (p), token 7"),
            (quarantined(), Some(60_000), Ok(vec![]), "free; quarantined for 12s; clock 60.0 s ahead"),
            (quarantined(), Some(-501), Err(gone()), "did not answer: it is gone; quarantined for 12s; clock 0.5 s behind"),
            (Standing::Away { why: why() }, None, Err(gone()), "did not answer: it is gone"),
            (Standing::Away { why: why() }, None, Ok(vec![]), "free; away: it is gone"),
            (Standing::Refused { why: why() }, None, Ok(vec![]), "free; refused: it is gone"),
        ] {
            let mut node = NodeState::new("n", standing);
            node.clock_ahead_ms = clock_ahead_ms;
            assert_eq!(said(&NodeReport::new(node, holders), &state), expected);
        }
        assert_eq!(table(&state), "", "one store");
        Ok(())
    }
}
