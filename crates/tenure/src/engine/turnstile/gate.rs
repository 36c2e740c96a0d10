//! [`Gate`]: which claims of a process wait for each other.

use crate::backend::Mode;
use crate::name::Resource;

/// A name, and how it is wanted: readers do not queue behind writers of the same process.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Gate {
    resource: Resource,
    mode: Mode,
}

impl Gate {
    /// Where claims of this mode wait for each other. `None`: each asks for itself, because its queue is at the store or because it
    /// is never busy.
    pub(crate) fn new(resource: &Resource, mode: Mode) -> Option<Self> {
        let mode = match mode {
            Mode::Exclusive | Mode::Read | Mode::Write | Mode::CountZero => mode,
            // However many are taken.
            Mode::Permits { .. } => Mode::Permits { take: 0, of: 0 },
            Mode::Fair | Mode::Downgrade | Mode::Resize { .. } | Mode::SetCount { .. } | Mode::CountDown | Mode::RemoveCount => {
                return None;
            }
        };
        Some(Self { resource: resource.clone(), mode })
    }

    /// Whether several may be granted at a time.
    pub(super) fn is_shared(&self) -> bool {
        self.mode.is_shared()
    }

    /// Whether an answer serves all who came before the question: a state is asked for, not a hold.
    pub(crate) fn answers_are_shared(&self) -> bool {
        self.mode == Mode::CountZero
    }
}
