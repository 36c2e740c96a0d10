//! The rules of all modes, for stores that keep a list of holds and a line per name.

use std::time::Duration;

use crate::backend::Mode;
use crate::clock::Instant;

/// How long readers leave a free lock to the writers in line: time enough to hear of it and to ask.
pub(crate) const GRACE: Duration = Duration::from_millis(300);

/// Whose turn it is when a lock comes free while a writer stands in line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Turn {
    /// Whoever comes first has it: a writer was the last, and readers shall come to their turn too.
    #[default]
    Open,
    /// The writers': some have read since.
    Writers,
    /// The writers' until then. A reader that asked has seen the lock free, so that a writer may be on its way.
    WritersUntil(Instant),
}

impl Turn {
    /// For how long a reader that asks now must leave a free lock to the writers in line.
    pub(crate) fn left_to_writers(self, now: Instant) -> Option<Duration> {
        match self {
            Self::Open => None,
            Self::Writers => Some(GRACE),
            Self::WritersUntil(end) => Some(end.since(now).min(GRACE)).filter(|left| !left.is_zero()),
        }
    }

    /// That of the writers, once a reader has asked. It ends within a grace, whatever was written there.
    pub(crate) fn begun(self, now: Instant) -> Self {
        self.left_to_writers(now).map_or(self, |left| Self::WritersUntil(now.after(left)))
    }
}

/// What is to be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The owner has it already: the hold at this place goes on.
    Again(usize),
    /// The owner writes and wants to read from now on: the hold at this place changes its mode.
    Change(usize),
    /// A new hold.
    Grant,
    Busy,
}

/// Judges a claim by what is held and who is in line, the first first. `number` is that of the permits, `writers_turn` says whether a
/// free lock is left to the writers in line.
pub(crate) fn verdict<O: PartialEq>(
    me: &O,
    mode: Mode,
    holds: &[(O, Mode)],
    line: &[(O, Mode)],
    number: u32,
    writers_turn: bool,
) -> Verdict {
    if let Some(mine) = holds.iter().position(|(owner, _)| owner == me) {
        return match (holds[mine].1, mode) {
            (Mode::Write, Mode::Downgrade) => Verdict::Change(mine),
            (Mode::Read, Mode::Write) | (Mode::Write, Mode::Read) => Verdict::Busy,
            _ => Verdict::Again(mine),
        };
    }
    let granted = match mode {
        Mode::Downgrade => false,
        Mode::Fair => holds.is_empty() && first_in_line(line).is_none_or(|first| first == me),
        Mode::Read => {
            // A writer in line comes first, or readers who come and go would keep it out for ever. While it is on its way to a
            // free lock, too: those who are nearer would always be there before it.
            let may_pass = holds.is_empty() && !writers_turn;
            holds.iter().all(|(_, mode)| *mode == Mode::Read) && (may_pass || !has_writer(me, line))
        }
        Mode::Permits { take, .. } => {
            let only_permits = holds.iter().all(|(_, mode)| matches!(mode, Mode::Permits { .. }));
            only_permits && held(holds) + u64::from(take) <= u64::from(number)
        }
        _ => holds.is_empty(),
    };
    if granted { Verdict::Grant } else { Verdict::Busy }
}

/// Whether a writer stands in line.
pub(crate) fn has_writer<O: PartialEq>(me: &O, line: &[(O, Mode)]) -> bool {
    line.iter().any(|(owner, mode)| *mode == Mode::Write && owner != me)
}

/// Whose turn it is among those who stand in line for a fair lock.
pub(crate) fn first_in_line<O>(line: &[(O, Mode)]) -> Option<&O> {
    line.iter().find(|(_, mode)| *mode == Mode::Fair).map(|(owner, _)| owner)
}

/// How many permits are held.
pub(crate) fn held<O>(holds: &[(O, Mode)]) -> u64 {
    holds.iter().map(|(_, mode)| if let Mode::Permits { take, .. } = mode { u64::from(*take) } else { 0 }).sum()
}

#[cfg(test)]
mod tests {
    use super::Verdict::{Again, Busy, Change, Grant};
    use super::*;

    const READ: Mode = Mode::Read;
    const WRITE: Mode = Mode::Write;
    const FAIR: Mode = Mode::Fair;

    fn permits(take: u32) -> Mode {
        Mode::Permits { take, of: 3 }
    }

    #[test]
    fn each_mode_has_its_rule() {
        type Row<'a> = (Mode, &'a [(&'a str, Mode)], &'a [(&'a str, Mode)], Verdict);
        let rows: &[Row<'_>] = &[
            (Mode::Exclusive, &[], &[("b", FAIR)], Grant),
            (Mode::Exclusive, &[("b", Mode::Exclusive)], &[], Busy),
            (Mode::Exclusive, &[("me", Mode::Exclusive)], &[], Again(0)),
            (FAIR, &[], &[], Grant),
            (FAIR, &[], &[("me", FAIR), ("b", FAIR)], Grant),
            (FAIR, &[], &[("b", FAIR), ("me", FAIR)], Busy),
            (FAIR, &[], &[("b", Mode::Exclusive), ("me", FAIR)], Grant),
            (READ, &[("b", READ)], &[], Grant),
            (READ, &[("b", WRITE)], &[], Busy),
            (READ, &[("b", READ)], &[("c", WRITE)], Busy),
            (READ, &[], &[("c", WRITE)], Grant),
            (READ, &[("b", READ), ("me", READ)], &[("c", WRITE)], Again(1)),
            (Mode::Downgrade, &[("me", WRITE)], &[("c", WRITE)], Change(0)),
            (Mode::Downgrade, &[("me", READ)], &[], Again(0)),
            (Mode::Downgrade, &[], &[], Busy),
            (Mode::Downgrade, &[("b", READ)], &[], Busy),
            (WRITE, &[("b", READ)], &[], Busy),
            (WRITE, &[("me", READ)], &[], Busy),
            (WRITE, &[], &[("c", WRITE)], Grant),
            (permits(1), &[("b", permits(2))], &[], Grant),
            (permits(2), &[("b", permits(2))], &[], Busy),
            (permits(2), &[("b", permits(2)), ("me", permits(2))], &[], Again(1)),
            // A name that is used in two ways is busy, not free.
            (permits(1), &[("b", Mode::Exclusive)], &[], Busy),
            (READ, &[("b", Mode::Exclusive)], &[], Busy),
            (WRITE, &[("b", permits(1))], &[], Busy),
            (FAIR, &[("b", READ)], &[], Busy),
        ];
        for (mode, holds, line, expected) in rows {
            assert_eq!(verdict(&"me", *mode, holds, line, 3, false), *expected, "{mode:?} of {holds:?} behind {line:?}");
            // Only readers of a free lock leave it to others, and only to writers.
            let leaves = *mode == READ && holds.is_empty() && line.iter().any(|(_, mode)| *mode == WRITE);
            let expected = if leaves { Busy } else { *expected };
            assert_eq!(verdict(&"me", *mode, holds, line, 3, true), expected, "{mode:?} of {holds:?} behind {line:?}");
        }
    }

    #[test]
    fn a_free_lock_is_left_to_writers_for_a_grace() {
        let now = Instant::from_nanos(1_000_000_000);
        let left = |turn: Turn, after| turn.left_to_writers(now.after(after));
        let begun = Turn::Writers.begun(now);
        assert_eq!(left(Turn::Open, Duration::ZERO), None);
        assert_eq!(left(Turn::Writers, Duration::from_secs(9)), Some(GRACE), "it begins with the first reader that asks");
        assert_eq!(left(begun, GRACE / 3), Some(GRACE * 2 / 3));
        assert_eq!(left(begun, GRACE), None);
        assert_eq!(begun.begun(now.after(GRACE / 2)), begun, "it does not begin anew");
        let endless = Turn::WritersUntil(now.after(Duration::from_secs(3600)));
        assert_eq!(endless.begun(now), begun);
        assert_eq!(Turn::Open.begun(now), Turn::Open);
    }
}
