//! The rules of all modes, for stores that keep the holds and the queue of each name.

use std::time::Duration;

use crate::backend::Mode;
use crate::clock::Instant;

/// How long readers leave a free lock to queued writers: time enough to hear of it and to ask.
pub(crate) const GRACE: Duration = Duration::from_millis(300);

/// Whose turn it is when a lock comes free while a writer waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Turn {
    /// First come, first served: a writer was the last, and readers have a turn too.
    #[default]
    Open,
    /// The writers': readers have had theirs.
    Writers,
    /// The writers' until then: a reader has found the lock free, so a writer may be on its way.
    WritersUntil(Instant),
}

impl Turn {
    /// For how long a reader that asks now leaves a free lock to queued writers.
    pub(crate) fn left_to_writers(self, now: Instant) -> Option<Duration> {
        match self {
            Self::Open => None,
            Self::Writers => Some(GRACE),
            Self::WritersUntil(end) => Some(end.since(now).min(GRACE)).filter(|left| !left.is_zero()),
        }
    }

    /// The writers' turn once a reader has asked. It ends within the grace, whatever was stored.
    pub(crate) fn begun(self, now: Instant) -> Self {
        self.left_to_writers(now).map_or(self, |left| Self::WritersUntil(now.after(left)))
    }
}

/// The answer to a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    /// The owner holds it already: the hold at this index goes on.
    Again(usize),
    /// A downgrade: the hold at this index changes its mode.
    Change(usize),
    /// A new hold.
    Grant,
    Busy,
}

/// Decides on a claim by the holds and the queue, first come first. `number` is that of the permits. `writers_turn` says whether a free
/// lock is left to queued writers.
pub(crate) fn decide<O: PartialEq>(
    me: &O,
    mode: Mode,
    holds: &[(O, Mode)],
    queue: &[(O, Mode)],
    number: u32,
    writers_turn: bool,
) -> Decision {
    if let Some(mine) = holds.iter().position(|(owner, _)| owner == me) {
        return match (holds[mine].1, mode) {
            (Mode::Write, Mode::Downgrade) => Decision::Change(mine),
            (Mode::Read, Mode::Write) | (Mode::Write, Mode::Read) => Decision::Busy,
            _ => Decision::Again(mine),
        };
    }
    let granted = match mode {
        Mode::Downgrade => false,
        Mode::Fair => holds.is_empty() && first_queued(queue).is_none_or(|first| first == me),
        Mode::Read => {
            // A queued writer comes first, or readers that come and go would keep it out forever. So it does while it is on its way
            // to a free lock: nearer readers would always be first.
            let may_pass = holds.is_empty() && !writers_turn;
            holds.iter().all(|(_, mode)| *mode == Mode::Read) && (may_pass || !has_writer(me, queue))
        }
        Mode::Permits { take, .. } => {
            let only_permits = holds.iter().all(|(_, mode)| matches!(mode, Mode::Permits { .. }));
            only_permits && held(holds) + u64::from(take) <= u64::from(number)
        }
        _ => holds.is_empty(),
    };
    if granted { Decision::Grant } else { Decision::Busy }
}

/// Whether another owner waits to write.
pub(crate) fn has_writer<O: PartialEq>(me: &O, queue: &[(O, Mode)]) -> bool {
    queue.iter().any(|(owner, mode)| *mode == Mode::Write && owner != me)
}

/// The first in the queue of a fair lock.
pub(crate) fn first_queued<O>(queue: &[(O, Mode)]) -> Option<&O> {
    queue.iter().find(|(_, mode)| *mode == Mode::Fair).map(|(owner, _)| owner)
}

/// How many permits are held.
pub(crate) fn held<O>(holds: &[(O, Mode)]) -> u64 {
    holds.iter().map(|(_, mode)| if let Mode::Permits { take, .. } = mode { u64::from(*take) } else { 0 }).sum()
}

#[cfg(test)]
mod tests {
    use super::Decision::{Again, Busy, Change, Grant};
    use super::*;

    const READ: Mode = Mode::Read;
    const WRITE: Mode = Mode::Write;
    const FAIR: Mode = Mode::Fair;

    fn permits(take: u32) -> Mode {
        Mode::Permits { take, of: 3 }
    }

    #[test]
    fn each_mode_has_its_rule() {
        type Row<'a> = (Mode, &'a [(&'a str, Mode)], &'a [(&'a str, Mode)], Decision);
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
        for (mode, holds, queue, expected) in rows {
            assert_eq!(decide(&"me", *mode, holds, queue, 3, false), *expected, "{mode:?} of {holds:?} behind {queue:?}");
            // Only readers of a free lock leave it to others, and only to writers.
            let leaves = *mode == READ && holds.is_empty() && queue.iter().any(|(_, mode)| *mode == WRITE);
            let expected = if leaves { Busy } else { *expected };
            assert_eq!(decide(&"me", *mode, holds, queue, 3, true), expected, "{mode:?} of {holds:?} behind {queue:?}");
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
