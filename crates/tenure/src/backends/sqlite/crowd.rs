//! Whether callers come in a crowd. One that is alone is served fastest on its own thread; many are served fastest together, in the
//! transactions of the client's thread.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::{Mutex, PoisonError};
use std::task::Context;

/// So many different ones in a row are a crowd.
const CROWD: usize = 4;

/// Who asks, and for what. Only as good as a guess needs to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Caller {
    task: usize,
    name: u64,
}

impl Caller {
    pub(super) fn new(cx: &Context<'_>, name: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        Self { task: cx.waker().data().addr(), name: hasher.finish() }
    }

    /// Tasks that share a name come one after the other, and so does what one task asks for.
    fn could_share_a_transaction(self, other: Self) -> bool {
        self.task != other.task && self.name != other.name
    }
}

/// Who has asked of late.
#[derive(Debug, Default)]
pub(super) struct Crowd(Mutex<[Caller; CROWD]>);

impl Crowd {
    /// Notes that this one asks now, and says whether it is one of many.
    pub(super) fn has(&self, caller: Caller) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.rotate_left(1);
        last[CROWD - 1] = caller;
        let apart = |(at, one): (usize, &Caller)| last[..at].iter().all(|other| one.could_share_a_transaction(*other));
        last.iter().enumerate().all(apart)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which of those that ask are taken for one of many.
    fn taken(asking: impl IntoIterator<Item = (usize, u64)>) -> Vec<bool> {
        let crowd = Crowd::default();
        asking.into_iter().map(|(task, name)| crowd.has(Caller { task, name })).collect()
    }

    #[test]
    fn many_tasks_with_names_of_their_own_are_a_crowd_soon() {
        let taken = taken((1..=8).map(|n| (n, n as u64)));
        assert!(!taken[0] && taken[CROWD - 1..].iter().all(|is_taken| *is_taken), "{taken:?}");
    }

    #[test]
    fn one_task_or_one_name_is_none() {
        assert!(!taken((1..=20).map(|n| (1, n))).contains(&true), "one task takes many locks");
        assert!(!taken((1..=20).map(|n| (n, 1))).contains(&true), "tasks hand one lock around");
        assert!(!taken((1..=20).map(|n| (n % 3, (n % 3) as u64))).contains(&true), "few tasks");
        assert!(!taken((1..=20).map(|n| (n / 2, (n / 2) as u64))).contains(&true), "each is done before the next");
    }
}
