//! The texts about a lock that is waited for, or was refused.

use std::time::Duration;

use tenure::backend::{Holder, Mode, State};

use crate::output;
use crate::plan::Job;
use crate::states;

/// `waiting 12s for deploy — held for 3m2s by host 4711 backup.sh (18s of lease left), 2 waiting`
pub(super) fn waiting(state: &State, waited: Option<Duration>, position: Option<usize>) -> String {
    let waited = waited.map(|d| format!(" {}", output::seconds(d))).unwrap_or_default();
    let mut text = format!("waiting{waited} for {}{}", output::printable(state.resource.as_str()), held(state));
    if let Some(position) = position {
        text.push_str(&format!(", position {position} of {} in the queue", state.queue.len()));
    } else if let Some(waiting) = state.waiting.filter(|n| *n > 1) {
        // One of them is ourselves.
        text.push_str(&format!(", {waiting} waiting"));
    }
    text
}

/// Why there is no lock, for a call that does not wait (any longer).
pub(super) fn refusal(state: Option<&State>, job: &Job) -> String {
    let name = &job.name;
    let held = state.map(held).unwrap_or_default();
    let read_only = |state: &State| !state.holders.is_empty() && state.holders.iter().all(|h| h.mode == Mode::Read);
    match job.mode {
        Mode::Permits { .. } => format!("no permit of {name} is free{held}"),
        // Readers do not keep a reader out.
        Mode::Read if state.is_some_and(read_only) => format!("a writer waits for {name}{held}"),
        // Free by now, or left to a writer that is on its way.
        Mode::Read if state.is_some_and(|state| state.holders.is_empty()) => format!("a writer has {name}, or waits for it"),
        _ => format!("{name} is busy{held}"),
    }
}

/// ` — held for 3m2s by host 4711 backup.sh (18s of lease left)`, of several holders the one that has had it for the
/// longest time; an empty text if it is free.
fn held(state: &State) -> String {
    let longest = state.holders.iter().min_by_key(|holder| (holder.since.is_none(), holder.since));
    let Some(longest) = longest else { return String::new() };
    let since = states::held_for(longest).map(|d| format!(" for {}", output::seconds(d)));
    let left = longest.expires_in.map(|left| format!(" ({} of lease left)", output::seconds(left))).unwrap_or_default();
    let who = states::who(longest);
    match (several(state), since) {
        (None, since) => format!(" — held{} by {who}{left}", since.unwrap_or_default()),
        (Some(several), Some(since)) => format!(" — {several}, the longest{since} by {who}{left}"),
        (Some(several), None) => format!(" — {several}, among others by {who}{left}"),
    }
}

/// How many hold, where there can be several.
fn several(state: &State) -> Option<String> {
    if let Some(permits) = state.permits.filter(|permits| permits.of > 1) {
        let of = permits.of;
        return Some(match permits.free {
            ..=0 => format!("all {of} permits are taken"),
            free => format!("{} of {of} permits are taken", of - free),
        });
    }
    let readers = |holder: &Holder| holder.mode == Mode::Read;
    match state.holders.len() {
        0 | 1 => None,
        n if state.holders.iter().all(readers) => Some(format!("held by {n} readers")),
        n => Some(format!("held by {n}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;
    use tenure::Resource;
    use tenure::backend::Permits;

    fn holder(mode: Mode, held: u64, note: &str) -> Holder {
        let mut holder = Holder::new("o", mode);
        holder.since = SystemTime::now().checked_sub(Duration::from_secs(held));
        holder.expires_in = Some(Duration::from_millis(18_500));
        holder.note = Some(note.to_owned());
        holder
    }

    #[test]
    fn the_line_tells_who_is_waited_for() -> tenure::Result<()> {
        let mut state = State::free(Resource::new("deploy")?);
        (state.holders, state.waiting) = (vec![holder(Mode::Exclusive, 182, "host 4711 backup.sh")], Some(2));
        let full = "waiting 12s for deploy — held for 3m2s by host 4711 backup.sh (18s of lease left)";
        assert_eq!(waiting(&state, Some(Duration::from_secs(12)), None), format!("{full}, 2 waiting"));
        state.queue = ["a", "b", "c"].map(str::to_owned).into();
        assert_eq!(waiting(&state, Some(Duration::from_secs(12)), Some(2)), format!("{full}, position 2 of 3 in the queue"));
        state.holders.clear();
        state.waiting = None;
        assert_eq!(waiting(&state, None, None), "waiting for deploy");
        Ok(())
    }

    #[test]
    fn of_several_holders_the_longest_is_told() -> tenure::Result<()> {
        let mut state = State::free(Resource::new("x")?);
        let longest = "the longest for 3m2s by b (18s of lease left)";
        state.holders = vec![holder(Mode::Read, 5, "a"), holder(Mode::Read, 182, "b"), holder(Mode::Read, 7, "c")];
        assert_eq!(held(&state), format!(" — held by 3 readers, {longest}"));
        state.holders = [("a", 5), ("b", 182)].map(|(who, s)| holder(Mode::Permits { take: 1, of: 0 }, s, who)).into();
        for (of, free, told) in [(2, 0, "all 2 permits are taken"), (1, -1, "held by 2"), (3, 1, "2 of 3 permits are taken")] {
            state.permits = Some(Permits { of, free });
            assert_eq!(held(&state), format!(" — {told}, {longest}"));
        }
        Ok(())
    }
}
