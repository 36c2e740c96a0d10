//! Lingering: a hold that no task has stays with the process for a while, and the next task that asks has it without a round trip.

use super::book::{KeptHold, Times};
use super::{Keeper, Release};
use crate::clock::Instant;
use crate::engine::guard::Held;
use crate::engine::turnstile::{Next, Turn, Waiter};

/// Of a hold that no task has.
#[derive(Debug)]
pub(super) struct Idle {
    /// Then it is given back.
    pub(super) until: Instant,
    /// When it is to be looked at and renewed, if a task has it by then.
    times: Times,
    /// There is work to do although the locker and all guards may be gone.
    _keeper: Keeper,
}

/// Who has a hold that a task has released.
pub(super) enum Passed {
    /// The next task of the process.
    On(Waiter, Held),
    /// No task for now.
    Idle,
}

impl KeptHold {
    /// Until when it may be idle, if it may. Counted from the first release: clients that cannot tell that they wait, wait for no longer
    /// than that. And not past the next renewal: only a hold that a task has is worth one.
    fn lingers(&self, now: Instant, renew_at: Instant) -> Option<Instant> {
        let linger = self.hold.terms.linger;
        if self.is_wanted || linger.is_zero() || !self.hold.claim.owner.lingers() {
            return None;
        }
        let until = self.lingers_until.unwrap_or(now.after(linger)).min(renew_at);
        (now < until).then_some(until)
    }
}

impl Keeper {
    /// Passes a hold to the next task in the queue under the next reserved token, without a round trip, or keeps it for one to come.
    pub(super) fn pass_on(&self, entry: &mut KeptHold, now: Instant, times: Times, left: &mut Vec<Waiter>) -> Option<Passed> {
        if !entry.can_be_handed_over(now) {
            return None;
        }
        let lingers = entry.lingers(now, times.renew_at);
        let owner = entry.hold.claim.owner.number;
        match entry.turn.as_ref()?.next_with(&entry.hold.terms, lingers.map(|_| owner), left) {
            Next::Task(next) => {
                let held = self.under_next_token(entry, &next.terms, now);
                Some(Passed::On(next, held))
            }
            Next::Idle => {
                let until = lingers?;
                entry.lingers_until.get_or_insert(now.after(entry.hold.terms.linger));
                entry.idle = Some(Idle { until, times, _keeper: self.clone() });
                Some(Passed::Idle)
            }
            Next::None => None,
        }
    }

    /// A task has come to wait for a hold that no task has.
    pub(crate) fn resume(&self, owner: u64) {
        let now = self.settings().clock.now();
        // Dropped after the book is unlocked, as in [`Keeper::mark_released`].
        let mut left = Vec::new();
        let mut book = self.0.book();
        let closed = book.closed;
        let Some(entry) = book.entry(owner) else { return };
        // Without one it is being given back: then the task gets the turn.
        let Some(idle) = entry.idle.take() else { return };
        let passed = if closed { None } else { self.pass_on(entry, now, idle.times, &mut left) };
        match passed {
            Some(Passed::On(next, held)) => {
                // The next one may have less time.
                let due = idle.times.due.min(entry.ends());
                let wake = book.schedule_at(owner, due);
                self.settings().counters.holding.up();
                drop(book);
                if wake {
                    self.0.wake.notify_one();
                }
                self.hand_over(next, held);
            }
            // The task has left in this moment.
            Some(Passed::Idle) => {}
            None => {
                entry.idle = Some(idle);
                let entry = book.remove(owner);
                drop(book);
                self.give_back(entry, now);
            }
        }
    }

    /// No task has come for it, or other clients want it.
    pub(super) fn end_idle(&self, owner: u64) {
        let mut book = self.0.book();
        // A task may have come in this moment.
        let Some(entry) = book.entry(owner).filter(|entry| entry.idle.is_some()) else { return };
        entry.turn.iter().for_each(Turn::end_idle);
        let entry = book.remove(owner);
        drop(book);
        self.give_back(entry, self.settings().clock.now());
    }

    fn give_back(&self, entry: Option<KeptHold>, now: Instant) {
        if let Some(entry) = entry {
            self.removed(&entry);
            self.enqueue_release(Release::new(entry.hold.claim.clone(), entry.turn, now));
        }
    }
}
