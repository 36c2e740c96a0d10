//! [`Gate`]: which claims of a process wait for each other.

use crate::backend::Mode;
use crate::name::Resource;

/// A name, and the way in which it is wanted: readers do not stand in line behind writers of the same process.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Gate {
    resource: Resource,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Exclusive,
    Read,
    Write,
    Permits,
    CountZero,
}

impl Gate {
    /// Where claims of this mode wait for each other. `None`: each asks for itself, be it because nobody else of this
    /// process may come before it out of turn, or because it is never busy.
    pub(crate) fn new(resource: &Resource, mode: Mode) -> Option<Self> {
        let kind = match mode {
            Mode::Exclusive => Kind::Exclusive,
            Mode::Read => Kind::Read,
            Mode::Write => Kind::Write,
            Mode::Permits { .. } => Kind::Permits,
            Mode::CountZero => Kind::CountZero,
            Mode::Fair | Mode::Downgrade | Mode::Resize { .. } | Mode::SetCount { .. } | Mode::CountDown | Mode::RemoveCount => {
                return None;
            }
        };
        Some(Self { resource: resource.clone(), kind })
    }

    /// Whether several may be granted at a time.
    pub(super) fn is_shared(&self) -> bool {
        matches!(self.kind, Kind::Read | Kind::Permits)
    }

    /// Whether an answer is everybody's who came before the question: what is asked for is a state, not a hold.
    pub(crate) fn answers_are_shared(&self) -> bool {
        self.kind == Kind::CountZero
    }
}
