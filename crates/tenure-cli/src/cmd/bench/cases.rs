//! The scenarios P1 to P6, one of them in two cases. `docs/performance.md` has the same numbers.

use std::time::Duration;

/// What the tasks of a case do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Lock and release until the time is over.
    Cycles,
    /// The same in several processes.
    Processes,
    /// Wait in line behind a holder that lets go, and lock once.
    Drain,
    /// Take many locks and keep them.
    Hold,
}

pub(super) struct Case {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) kind: Kind,
    /// Of each process.
    pub(super) tasks: usize,
    /// Whether all tasks want the same name.
    pub(super) one_name: bool,
    /// How long a holder computes.
    pub(super) section: Duration,
}

/// Processes of [`Kind::Processes`].
pub(super) const PROCESSES: usize = 4;

const CYCLES: Case = Case { id: "", title: "", kind: Kind::Cycles, tasks: 1, one_name: true, section: Duration::ZERO };

pub(super) static CASES: [Case; 7] = [
    Case { id: "P1", title: "one task, one name: lock and unlock in sequence", ..CYCLES },
    Case { id: "P2", title: "64 tasks, each on a name of its own", tasks: 64, one_name: false, ..CYCLES },
    Case { id: "P3", title: "16 tasks of one process on one name", tasks: 16, ..CYCLES },
    Case {
        id: "P3-100us",
        title: "16 tasks of one process on one name, 100 µs of work inside",
        tasks: 16,
        section: Duration::from_micros(100),
        ..CYCLES
    },
    Case { id: "P4", title: "4 processes of 4 tasks on one name", kind: Kind::Processes, tasks: 4, ..CYCLES },
    Case { id: "P5", title: "1000 waiters on one name, drained", kind: Kind::Drain, tasks: 1000, ..CYCLES },
    Case { id: "P6", title: "many locks held", kind: Kind::Hold, tasks: 64, one_name: false, ..CYCLES },
];

/// What `--only` takes.
pub(crate) const GROUPS: [&str; 6] = ["P1", "P2", "P3", "P4", "P5", "P6"];

impl Case {
    /// Its scenario, which may have several cases.
    pub(super) fn group(&self) -> &'static str {
        self.id.split_once('-').map_or(self.id, |(group, _)| group)
    }

    /// What is looked at while it runs.
    pub(super) fn checks(&self) -> &'static str {
        match self {
            Self { kind: Kind::Hold, .. } => "none lost",
            // Nobody else wants these names.
            Self { one_name: false, .. } => "tokens",
            _ => "exclusion, tokens",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_can_be_asked_for() {
        let mut groups: Vec<_> = CASES.iter().map(Case::group).collect();
        groups.dedup();
        assert_eq!(groups, GROUPS);
    }
}
