//! The scenarios: P1 to P11, some of them in several cases.

/// Where the locks are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Redis,
    /// Servers behind wires on which everything takes a millisecond.
    Wires,
    /// A folder of this machine.
    Local,
}

#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    pub(crate) scenario: &'static str,
    pub(crate) place: Place,
    pub(crate) processes: usize,
    pub(crate) tasks: usize,
    pub(crate) one_name: bool,
    pub(crate) section_us: u64,
    pub(crate) mode: &'static str,
    pub(crate) contenders: &'static [&'static str],
    /// Beside whom rates are given.
    pub(crate) limit: &'static str,
}

impl Case {
    /// Whether `P3` means it, for one.
    pub(crate) fn is_in(&self, group: &str) -> bool {
        self.id.strip_prefix(group).is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
    }
}

const EVERYBODY: &[&str] = &[
    "raw",
    "raw-bg",
    "tenure",
    "tenure-drop",
    "tenure-fair",
    "tenure-linger",
    "tenure-plain",
    "rslock",
    "rlock",
    "redisson",
    "redisson-fenced",
    "redisson-fair",
    "redsync",
    "rueidislock",
    "node-redlock",
    "redis-py",
];
/// Those that keep a lock alive by themselves.
const KEEPERS: &[&str] = &["tenure", "tenure-plain", "rlock", "redisson", "rueidislock"];
const WITH_LEASE: &[&str] = &[
    "tenure",
    "tenure-fair",
    "tenure-plain",
    "rslock",
    "rlock",
    "redisson",
    "redsync",
    "rueidislock",
    "node-redlock",
    "redis-py",
];
const SHARED: &[&str] = &["tenure", "rlock", "redisson"];
const REDISSON: &[&str] = &["tenure", "redisson"];
const QUORUM: &[&str] = &["one node", "tenure", "rslock", "redsync", "node-redlock"];
const LOCAL: &[&str] = &["tenure", "tenure-linger", "rusqlite", "flock", "flock-thread", "fs4"];
const COMMANDS: &[&str] = &["tenure run", "tenure run (sqlite)", "flock(1)", "redis-cli + sh"];

const CYCLES: Case = Case {
    id: "",
    title: "",
    scenario: "cycles",
    place: Place::Redis,
    processes: 1,
    tasks: 1,
    one_name: false,
    section_us: 0,
    mode: "mutex",
    contenders: EVERYBODY,
    limit: "raw",
};

const CROWD: Case = Case { processes: 4, tasks: 4, one_name: true, ..CYCLES };
const EMBEDDED: Case = Case { place: Place::Local, contenders: LOCAL, limit: "rusqlite", ..CYCLES };

pub(crate) fn all() -> Vec<Case> {
    vec![
        Case { id: "P1", title: "one task, one name: lock and unlock in sequence", ..CYCLES },
        Case { id: "P2", title: "64 tasks, each on a name of its own", tasks: 64, ..CYCLES },
        Case { id: "P3", title: "16 tasks of one process, one name, nothing done inside", tasks: 16, one_name: true, ..CYCLES },
        Case {
            id: "P3-100us",
            title: "16 tasks of one process, one name, 100 µs of work inside",
            tasks: 16,
            one_name: true,
            section_us: 100,
            ..CYCLES
        },
        Case { id: "P4", title: "4 processes of 4 tasks, one name", ..CROWD },
        Case {
            id: "P5",
            title: "1000 waiters of one process on one name, drained",
            scenario: "drain",
            tasks: 1000,
            one_name: true,
            ..CYCLES
        },
        Case {
            id: "P5-10",
            title: "1000 waiters of 10 processes on one name, drained",
            scenario: "drain",
            processes: 10,
            tasks: 100,
            one_name: true,
            ..CYCLES
        },
        Case { id: "P6", title: "many locks held", scenario: "hold", contenders: KEEPERS, limit: "tenure", ..CYCLES },
        Case {
            id: "P7-rw",
            title: "4 processes of 4 tasks, read-write 15 : 1",
            mode: "rw",
            contenders: SHARED,
            limit: "tenure",
            ..CROWD
        },
        Case {
            id: "P7-fair",
            title: "4 processes of 4 tasks, fair",
            mode: "fair",
            contenders: REDISSON,
            limit: "tenure",
            ..CROWD
        },
        Case {
            id: "P7-semaphore",
            title: "4 processes of 4 tasks, a semaphore of 8",
            mode: "semaphore",
            contenders: REDISSON,
            limit: "tenure",
            ..CROWD
        },
        Case {
            id: "P8",
            title: "one task, a quorum of 5 over wires of 1 ms",
            place: Place::Wires,
            contenders: QUORUM,
            limit: "one node",
            ..CYCLES
        },
        Case {
            id: "P9",
            title: "the holder is killed: when the next one has the lock",
            scenario: "crash",
            one_name: true,
            contenders: WITH_LEASE,
            limit: "tenure",
            ..CYCLES
        },
        Case { id: "P10-1", title: "embedded: one task, one name", ..EMBEDDED },
        Case { id: "P10-2", title: "embedded: 64 tasks, each on a name of its own", tasks: 64, ..EMBEDDED },
        Case { id: "P10-3", title: "embedded: 16 tasks of one process, one name", tasks: 16, one_name: true, ..EMBEDDED },
        Case {
            id: "P10-4",
            title: "embedded: 4 processes of 4 tasks, one name",
            processes: 4,
            tasks: 4,
            one_name: true,
            ..EMBEDDED
        },
        Case {
            id: "P11",
            title: "a program under a lock: the whole process",
            scenario: "command",
            contenders: COMMANDS,
            limit: "flock(1)",
            ..CYCLES
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_its_number_and_not_one_that_begins_with_it() {
        let of = |group| all().iter().filter(|case| case.is_in(group)).map(|case| case.id).collect::<Vec<_>>();
        assert_eq!(of("P1"), ["P1"]);
        assert_eq!(of("P3"), ["P3", "P3-100us"]);
        assert_eq!(of("P10"), ["P10-1", "P10-2", "P10-3", "P10-4"]);
        assert_eq!(of("P10-2"), ["P10-2"]);
    }

    #[test]
    fn every_contender_is_known() {
        for case in all() {
            for name in case.contenders.iter().filter(|name| **name != "one node") {
                assert!(crate::contenders::named(name).is_some(), "{name} of {} is not in the list", case.id);
            }
        }
    }
}
