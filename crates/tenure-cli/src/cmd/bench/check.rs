//! Whether holders exclude each other and tokens grow, and how long a hand-over takes.
//!
//! A holder leaves a note inside and takes it away before it releases: within a process in memory, between processes in a file. Nothing of it is
//! locked: the lock that is measured must do. The words: who is inside, when the last one left, its token, who it was.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

use super::clock;
use super::histogram::Counts;

/// Bytes of the file.
const NOTE: usize = 32;
/// Where in it the last holder stands.
const LAST: u64 = 24;

/// Prepares the file for a round: its first grant is no hand-over of an earlier one.
pub(super) fn prepare(file: &File) -> std::io::Result<()> {
    file.write_all_at(&[0; 8], LAST)
}

enum Place {
    /// Names of their own: only tokens are looked at.
    None,
    Memory([AtomicU64; 4]),
    File(File),
}

pub(super) struct Check {
    place: Place,
    /// The first task of this process, and how many it has.
    first: u64,
    tasks: u64,
    /// Grants while another holder was inside.
    pub(super) intruders: AtomicU64,
    /// Tokens that were not larger than the one before.
    pub(super) stale: AtomicU64,
    /// From just before a release to after the grant to another task of this process.
    pub(super) handed: Counts,
    /// The same between processes.
    pub(super) crossed: Counts,
}

impl Check {
    /// For names of which no two tasks want the same.
    pub(super) fn apart() -> Self {
        Self::at(Place::None, 0, 0)
    }

    /// For one name and the tasks of this process.
    pub(super) fn within(tasks: usize) -> Self {
        Self::at(Place::Memory(Default::default()), 0, tasks)
    }

    /// For one name and several processes with as many tasks each. The file is theirs together.
    pub(super) fn between(file: File, process: usize, tasks: usize) -> Self {
        Self::at(Place::File(file), process, tasks)
    }

    fn at(place: Place, process: usize, tasks: usize) -> Self {
        Self {
            place,
            first: (process * tasks) as u64,
            tasks: tasks as u64,
            intruders: AtomicU64::new(0),
            stale: AtomicU64::new(0),
            handed: Counts::default(),
            crossed: Counts::default(),
        }
    }

    /// After a grant. `before` is the last token of this task.
    pub(super) fn enter(&self, task: usize, token: u64, before: u64, granted: u64) {
        if matches!(self.place, Place::None) {
            return self.compare(token, before);
        }
        let me = self.first + task as u64 + 1;
        let [inside, left, last_token, last] = self.words();
        self.put_inside(me);
        if inside != 0 {
            self.intruders.fetch_add(1, Ordering::Relaxed);
        }
        self.compare(token, last_token.max(before));
        if last != 0 && last != me && inside == 0 {
            let ours = self.first < last && last <= self.first + self.tasks;
            let counts = if ours { &self.handed } else { &self.crossed };
            counts.add(granted.saturating_sub(left));
        }
    }

    /// Just before the release.
    pub(super) fn leave(&self, task: usize, token: u64) {
        if matches!(self.place, Place::None) {
            return;
        }
        let me = self.first + task as u64 + 1;
        if self.words()[0] != me {
            self.intruders.fetch_add(1, Ordering::Relaxed);
        }
        self.put_words([0, clock::now(), token, me]);
    }

    fn compare(&self, token: u64, before: u64) {
        if token <= before {
            self.stale.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn words(&self) -> [u64; 4] {
        match &self.place {
            Place::None => [0; 4],
            Place::Memory(words) => std::array::from_fn(|i| words[i].load(Ordering::Acquire)),
            Place::File(file) => {
                let mut bytes = [0; NOTE];
                let _short = file.read_at(&mut bytes, 0);
                let (words, _) = bytes.as_chunks::<8>();
                std::array::from_fn(|i| u64::from_le_bytes(words[i]))
            }
        }
    }

    fn put_words(&self, new: [u64; 4]) {
        match &self.place {
            Place::None => {}
            // Who is inside goes last: by it the others are seen.
            Place::Memory(words) => (0..4).rev().for_each(|i| words[i].store(new[i], Ordering::Release)),
            Place::File(file) => {
                let _short = file.write_at(new.map(u64::to_le_bytes).as_flattened(), 0);
            }
        }
    }

    fn put_inside(&self, me: u64) {
        match &self.place {
            Place::None => {}
            Place::Memory(words) => words[0].store(me, Ordering::Release),
            Place::File(file) => {
                let _short = file.write_at(&me.to_le_bytes(), 0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(check: &Check) -> [u64; 2] {
        [&check.intruders, &check.stale].map(|count| count.load(Ordering::Relaxed))
    }

    /// Two processes of four tasks that share a file.
    fn processes() -> [Check; 2] {
        let file = tempfile::tempfile().expect("a file");
        prepare(&file).expect("written");
        [0, 1].map(|process| Check::between(file.try_clone().expect("a file"), process, 4))
    }

    #[test]
    fn one_who_enters_before_the_other_has_left_is_seen() {
        let memory = Check::within(4);
        let [one, other] = processes();
        for (one, other) in [(&memory, &memory), (&one, &other)] {
            one.enter(0, 1, 0, clock::now());
            one.leave(0, 1);
            other.enter(1, 2, 0, clock::now());
            assert_eq!(seen(other), [0, 0], "the other had left");
            one.enter(2, 3, 0, clock::now());
            assert_eq!(seen(one), [1, 0], "the other was still inside");
            other.leave(1, 2);
            assert!(seen(other)[0] > 0, "another note is in its place");
        }
    }

    #[test]
    fn a_token_that_does_not_grow_is_seen() {
        let [one, other] = processes();
        one.enter(0, 7, 0, clock::now());
        one.leave(0, 7);
        other.enter(0, 7, 0, clock::now());
        assert_eq!(seen(&other), [0, 1]);
        let apart = Check::apart();
        apart.enter(0, 8, 7, clock::now());
        apart.enter(0, 8, 8, clock::now());
        assert_eq!(seen(&apart), [0, 1]);
    }

    #[test]
    fn a_hand_over_is_counted_by_who_had_it_before() {
        let [one, other] = processes();
        for (token, (check, task)) in (1..).zip([(&one, 0), (&one, 0), (&one, 1), (&other, 0)]) {
            check.enter(task, token, 0, clock::now());
            check.leave(task, token);
        }
        let counts = [&one.handed, &one.crossed, &other.handed, &other.crossed].map(|counts| counts.total().count());
        assert_eq!(counts, [1, 0, 0, 1], "the same task again is no hand-over");
    }
}
