//! Whether holders exclude each other and tokens grow, and how long a hand-over takes.
//!
//! Holders leave a note inside: within a process in memory, between processes in a file. Nothing of it is locked: the lock that
//! is measured must do. In the file (little-endian words): who is inside, when the last one left, its token, who it was;
//! then a byte for each task, for locks with several holders.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use tenure_bench::clock;
use tenure_bench::histogram::Counts;

const SLOTS: u64 = 32;
/// The bytes of tasks that are read at once.
const CROWD: usize = 64;
const PERMITS: usize = 8;

/// How many may be inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Names of their own: only tokens are looked at.
    Apart,
    One,
    /// Readers, or one writer.
    Shared,
    Permits,
}

enum Place {
    Memory([AtomicU64; 4]),
    File(File),
}

pub(crate) struct Check {
    rule: Rule,
    place: Place,
    /// The first task of this process, and how many it has.
    first: u64,
    tasks: u64,
    pub(crate) intruders: AtomicU64,
    pub(crate) stale: AtomicU64,
    pub(crate) has_tokens: AtomicU64,
    pub(crate) handed: Counts,
    pub(crate) crossed: Counts,
}

impl Check {
    pub(crate) fn new(rule: Rule, file: Option<&Path>, process: usize, tasks: usize) -> std::io::Result<Self> {
        let place = match file {
            Some(path) => Place::File(File::options().read(true).write(true).open(path)?),
            None => Place::Memory(Default::default()),
        };
        Ok(Self {
            rule,
            place,
            first: (process * tasks) as u64,
            tasks: tasks as u64,
            intruders: AtomicU64::new(0),
            stale: AtomicU64::new(0),
            has_tokens: AtomicU64::new(0),
            handed: Counts::default(),
            crossed: Counts::default(),
        })
    }

    /// After a grant. `before` is the last token of this task.
    pub(crate) fn enter(&self, task: u64, write: bool, token: Option<u64>, before: u64, granted: u64) {
        if token.is_some() && self.has_tokens.load(Ordering::Relaxed) == 0 {
            self.has_tokens.store(1, Ordering::Relaxed);
        }
        match self.rule {
            Rule::Apart => self.compare(token, before),
            Rule::One => self.enter_alone(task, token, granted),
            Rule::Shared | Rule::Permits => self.enter_beside(task, write),
        }
    }

    /// Just before the release.
    pub(crate) fn leave(&self, task: u64, token: Option<u64>) {
        let me = self.first + task;
        match self.rule {
            Rule::Apart => {}
            Rule::One => self.put_words([0, clock::now(), token.unwrap_or(0), me + 1]),
            Rule::Shared | Rule::Permits => self.put_slot(me, 0),
        }
    }

    fn enter_alone(&self, task: u64, token: Option<u64>, granted: u64) {
        let me = self.first + task + 1;
        let [inside, left, last_token, last] = self.words();
        if inside != 0 {
            self.intruders.fetch_add(1, Ordering::Relaxed);
        }
        self.compare(token, last_token);
        self.put_inside(me);
        if last != 0 && last != me && inside == 0 {
            let ours = self.first < last && last <= self.first + self.tasks;
            let counts = if ours { &self.handed } else { &self.crossed };
            counts.add(granted.saturating_sub(left));
        }
    }

    fn enter_beside(&self, task: u64, write: bool) {
        let me = self.first + task;
        let mut slots = [0; CROWD];
        if let Place::File(file) = &self.place {
            let _short = file.read_at(&mut slots, SLOTS);
        }
        let others = slots.iter().enumerate().filter(|(slot, _)| *slot as u64 != me).map(|(_, state)| *state);
        let bad = match self.rule {
            Rule::Permits => others.filter(|state| *state != 0).count() >= PERMITS,
            _ if write => others.clone().any(|state| state != 0),
            _ => others.clone().any(|state| state == 2),
        };
        self.intruders.fetch_add(u64::from(bad), Ordering::Relaxed);
        self.put_slot(me, if write { 2 } else { 1 });
    }

    fn compare(&self, token: Option<u64>, before: u64) {
        if token.is_some_and(|token| token <= before) {
            self.stale.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn words(&self) -> [u64; 4] {
        match &self.place {
            Place::Memory(words) => std::array::from_fn(|i| words[i].load(Ordering::Acquire)),
            Place::File(file) => {
                let mut bytes = [0; 32];
                let _short = file.read_at(&mut bytes, 0);
                let (words, _) = bytes.as_chunks::<8>();
                std::array::from_fn(|i| u64::from_le_bytes(words[i]))
            }
        }
    }

    fn put_words(&self, new: [u64; 4]) {
        match &self.place {
            Place::Memory(words) => {
                // Who is inside goes last: by it the others are seen.
                (0..4).rev().for_each(|i| words[i].store(new[i], Ordering::Release));
            }
            Place::File(file) => {
                let mut bytes = [0; 32];
                (0..4).for_each(|i| bytes[i * 8..][..8].copy_from_slice(&new[i].to_le_bytes()));
                let _short = file.write_at(&bytes, 0);
            }
        }
    }

    fn put_inside(&self, me: u64) {
        match &self.place {
            Place::Memory(words) => words[0].store(me, Ordering::Release),
            Place::File(file) => {
                let _short = file.write_at(&me.to_le_bytes(), 0);
            }
        }
    }

    fn put_slot(&self, slot: u64, state: u8) {
        if let Place::File(file) = &self.place {
            let _short = file.write_at(&[state], SLOTS + slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn intruders(check: &Check) -> u64 {
        check.intruders.load(Ordering::Relaxed)
    }

    /// Two processes of four tasks that share a file.
    fn processes(rule: Rule) -> ([Check; 2], tempfile::NamedTempFile) {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), [0; 4096]).expect("written");
        ([0, 1].map(|process| Check::new(rule, Some(file.path()), process, 4).expect("opened")), file)
    }

    #[test]
    fn one_who_enters_before_the_other_has_left_is_seen() {
        let memory = Check::new(Rule::One, None, 0, 4).expect("memory");
        let ([one, other], _file) = processes(Rule::One);
        for (one, other) in [(&memory, &memory), (&one, &other)] {
            one.enter(0, true, Some(1), 0, clock::now());
            one.leave(0, Some(1));
            other.enter(1, true, Some(2), 0, clock::now());
            assert_eq!(intruders(other), 0, "the other had left");
            one.enter(2, true, Some(3), 0, clock::now());
            assert_eq!(intruders(one), 1, "the other was still inside");
        }
    }

    #[test]
    fn a_token_that_does_not_grow_is_seen() {
        let ([one, other], _file) = processes(Rule::One);
        one.enter(0, true, Some(7), 0, clock::now());
        one.leave(0, Some(7));
        other.enter(0, true, Some(7), 0, clock::now());
        assert_eq!(other.stale.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_hand_over_is_counted_by_who_had_it_before() {
        let ([one, other], _file) = processes(Rule::One);
        for (check, task) in [(&one, 0), (&one, 0), (&one, 1), (&other, 0)] {
            check.enter(task, true, None, 0, clock::now());
            check.leave(task, None);
        }
        let counts = [&one.handed, &one.crossed, &other.handed, &other.crossed].map(|counts| counts.total().count());
        assert_eq!(counts, [1, 0, 0, 1], "the same task again is no hand-over");
    }

    #[test]
    fn readers_share_and_writers_do_not() {
        let ([one, other], _file) = processes(Rule::Shared);
        one.enter(0, false, None, 0, 0);
        other.enter(0, false, None, 0, 0);
        assert_eq!([&one, &other].map(intruders), [0, 0], "two readers");
        one.enter(1, true, None, 0, 0);
        assert_eq!(intruders(&one), 1, "a writer beside readers");
        other.enter(1, false, None, 0, 0);
        assert_eq!(intruders(&other), 1, "a reader beside a writer");
    }

    #[test]
    fn the_ninth_of_eight_permits_is_seen() {
        let ([one, other], _file) = processes(Rule::Permits);
        (0..4).for_each(|task| one.enter(task, false, None, 0, 0));
        (0..4).for_each(|task| other.enter(task, false, None, 0, 0));
        assert_eq!([&one, &other].map(intruders), [0, 0]);
        other.enter(4, false, None, 0, 0);
        assert_eq!(intruders(&other), 1);
    }
}
