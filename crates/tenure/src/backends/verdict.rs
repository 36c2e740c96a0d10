//! The rules of all modes, for stores that keep a list of holds and a line per name.

use crate::backend::Mode;

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

/// Judges a claim by what is held and who is in line, the first first. `number` is that of the permits.
pub(crate) fn verdict<O: PartialEq>(me: &O, mode: Mode, holds: &[(O, Mode)], line: &[(O, Mode)], number: u32) -> Verdict {
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
        Mode::Read if holds.is_empty() => true,
        Mode::Read => {
            // A writer in line comes first, or readers who come and go would keep it out for ever.
            let writer = line.iter().any(|(owner, mode)| *mode == Mode::Write && owner != me);
            holds.iter().all(|(_, mode)| *mode == Mode::Read) && !writer
        }
        Mode::Permits { take, .. } => {
            let only_permits = holds.iter().all(|(_, mode)| matches!(mode, Mode::Permits { .. }));
            only_permits && held(holds) + u64::from(take) <= u64::from(number)
        }
        _ => holds.is_empty(),
    };
    if granted { Verdict::Grant } else { Verdict::Busy }
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
            assert_eq!(verdict(&"me", *mode, holds, line, 3), *expected, "{mode:?} of {holds:?} behind {line:?}");
        }
    }
}
