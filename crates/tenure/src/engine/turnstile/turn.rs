//! [`Turn`]: the right of one task of the process to ask the store for a name.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::taken::Taken;
use super::{Gate, Heard, Lane, Pass, Past, Turnstile, Waiter, locked};
use crate::engine::hold::Terms;
use crate::error::Error;

/// A store that answers does so in less. Until then, a task that was behind a released hold is told busy, not an outage.
const ANSWERS_WITHIN: Duration = Duration::from_millis(250);

/// The right of this process's one contender for a name. Dropping it lets the next in the queue ask the store.
#[derive(Debug)]
pub(crate) struct Turn {
    pub(super) gate: Gate,
    pub(super) stile: Turnstile,
    /// Open for as long as there is a turn.
    pub(super) lane: Arc<Mutex<Lane>>,
    /// Others shall have a chance first until then.
    pub(super) rests_until: Option<Instant>,
    /// Whether others of this process have come to wait since it has wanted this without a break.
    pub(super) has_waiters: bool,
    /// Whether other processes have been seen to want it.
    pub(super) is_contended: bool,
}

impl Turn {
    /// How many wait behind this one.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.lane(|lane| lane.waiting.len())
    }

    /// How many tokens a grant shall reserve: a block, if the hold is to linger, or if any task has waited since the lane opened. Tasks
    /// that take turns are not behind each other at the moment of a grant.
    pub(crate) fn tokens(&self, lingers: bool) -> u32 {
        if self.has_waiters || lingers { self.lane(|lane| lane.block.size()) } else { 1 }
    }

    /// So many tokens of a block were used, and so many were left.
    pub(crate) fn used_tokens(&self, used: u32, left: u32) {
        if used + left > 1 {
            self.lane(|lane| lane.block.used(used, left));
        }
    }

    /// Whether other processes want it: then the first answer is likely to be busy.
    pub(crate) fn is_contended(&self) -> bool {
        self.is_contended
    }

    /// Whether others shall have a chance first.
    pub(crate) fn rests(&self) -> bool {
        self.rests_until.is_some()
    }

    /// Leaves the lock alone, because others wait for it at the store: for so long at most, and not for longer than those
    /// behind can wait.
    pub(crate) async fn rest(&self, at_most: Duration) {
        let Some(until) = self.rests_until else { return };
        let until = Instant::now().checked_add(at_most).map_or(until, |end| end.min(until));
        let sooner = Arc::new(Notify::new());
        self.lane(|lane| {
            let behind = lane.waiting.iter().filter(|w| !w.pass.is_closed()).filter_map(|w| w.ask_by).min();
            lane.resting = Some((behind.map_or(until, |by| by.min(until)), Arc::clone(&sooner)));
        });
        let _rests = Rests(self);
        while let Some(until) = self.lane(|lane| lane.resting.as_ref().map(|(until, _)| *until))
            && timeout_at(until, sooner.notified()).await.is_ok()
        {}
    }

    /// How many have come to wait so far, if answers are shared with them.
    pub(crate) fn arrivals(&self) -> u64 {
        if self.gate.answers_are_shared() { self.lane(|lane| lane.arrivals) } else { 0 }
    }

    /// Resolves when a task comes with which the next answer will be shared.
    pub(crate) async fn newcomer(&self, known: u64) {
        let Some(came) = self.lane(|lane| lane.came.clone()) else { return std::future::pending().await };
        while self.arrivals() <= known {
            came.notified().await;
        }
    }

    /// Tells those behind that the store could not be asked.
    pub(crate) fn heard_trouble(&self, trouble: Error) {
        self.lane(|lane| lane.trouble = Some(trouble));
    }

    /// Tells those behind that the store has granted it.
    pub(crate) fn heard_grant(&self) {
        self.lane(|lane| (lane.last, lane.trouble) = (Some(Heard::Granted), None));
    }

    /// Tells those behind, of whom so many had come before the question, that another process has it: others have had their turn.
    pub(crate) fn heard_busy(&self, arrivals: u64) {
        self.lane(|lane| {
            (lane.last, lane.trouble) = (Some(Heard::Busy), None);
            (lane.refused, lane.taken, lane.contended) = (arrivals, Taken::default(), true);
        });
    }

    /// Shares an answer with the waiters that came before the question.
    pub(crate) fn share(&self, arrivals: u64, left: u64) {
        let served = self.lane(|lane| {
            let came_before = lane.waiting.partition_point(|w| w.arrival <= arrivals);
            lane.waiting.drain(..came_before).collect::<Vec<_>>()
        });
        for waiter in served {
            std::mem::drop(waiter.pass.send(Pass::Done(left)));
        }
    }

    /// The lock is given back. If others wait at the store, the next task of this process lets them go first; a task without a queue
    /// behind it does so from time to time.
    pub(crate) fn given_back(&self, others_wait: bool) {
        self.lane(|lane| {
            if others_wait {
                let next = lane.waiting.iter().any(|w| !w.pass.is_closed());
                lane.taken.again(next);
                lane.contended = true;
            } else {
                lane.taken = Taken::default();
            }
        });
    }

    /// The hold is over: it is unknown who has the lock now.
    pub(crate) fn over(&self) {
        self.lane(|lane| {
            lane.last = None;
            lane.gave_back = (lane.arrivals > 0).then(|| (lane.arrivals, Instant::now() + ANSWERS_WITHIN));
        });
    }

    /// The hold was lost, it is unknown when.
    pub(crate) fn lost(&self) {
        self.lane(|lane| (lane.last, lane.gave_back) = (None, None));
    }

    fn lane<T>(&self, look: impl FnOnce(&mut Lane) -> T) -> T {
        look(&mut locked(&self.lane))
    }

    /// The next waiter, if its terms fit a hold with these, and those who `left` before it. The turn stays with the hold. Without any
    /// waiter the hold may be left `idle` for one to come.
    pub(crate) fn next_with(&self, terms: &Terms, idle: Option<u64>, left: &mut Vec<Waiter>) -> Next {
        self.lane(|lane| match lane.next(|next| terms.allow_hand_over(next), left) {
            Some(next) => {
                lane.taken.hand_over();
                Next::Task(next)
            }
            None if lane.waiting.is_empty() && idle.is_some() => {
                lane.idle = idle;
                Next::Idle
            }
            None => Next::None,
        })
    }

    /// The hold is idle no more.
    pub(crate) fn end_idle(&self) {
        self.lane(|lane| lane.idle = None);
    }
}

/// Who has the hold after a task that has released it.
pub(crate) enum Next {
    Task(Waiter),
    /// No task for now.
    Idle,
    /// Nobody: the store is to be told.
    None,
}

/// Ends with the pause, also if that is cut off.
struct Rests<'a>(&'a Turn);

impl Drop for Rests<'_> {
    fn drop(&mut self) {
        self.0.lane(|lane| lane.resting = None);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut left = Vec::new();
        let mut lanes = self.stile.lanes();
        let (next, past) = self.lane(|lane| (lane.next(|_| true, &mut left), Past { taken: lane.taken, block: lane.block }));
        let Some(next) = next else { return lanes.end(&self.gate, past) };
        std::mem::drop(lanes);
        let turn = self.stile.turn(&self.gate, Arc::clone(&self.lane), past.taken.rests_until());
        // A waiter that left in this moment drops the turn, which passes it on to the next.
        std::mem::drop(next.pass.send(Pass::Turn(turn)));
    }
}
