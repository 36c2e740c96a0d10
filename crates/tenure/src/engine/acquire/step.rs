//! What to do next, as a pure function of what has happened: the rules of one acquisition, without time or I/O.

use std::time::Duration;

/// How often an acquisition that does not wait asks again because others asked in the same moment.
pub(super) const MOST_COLLISIONS: u32 = 4;

/// What stays the same during one acquisition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Plan {
    /// Asks once instead of waiting.
    pub(super) once: bool,
    /// Whether a busy answer is worth another question: a hold comes free, a latch opens.
    pub(super) waits: bool,
    /// A hold is to be changed under the same owner. Busy means that there is none any more.
    pub(super) converts: bool,
    /// Whether to subscribe before the first question, because a busy answer is likely: then it needs no second one.
    pub(super) watch_first: bool,
    /// Whether to subscribe after a failure: the signal also tells that the store is back.
    pub(super) watch_after_failure: bool,
    /// Whether a busy answer leaves a position in the store's queue.
    pub(super) keeps_position: bool,
    /// Other processes go first.
    pub(super) rests: bool,
    /// Failures in a row after which the error is reported.
    pub(super) attempts: u32,
}

/// One acquisition, as far as its next step depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Progress {
    plan: Plan,
    phase: Phase,
    subscribed: bool,
    failures: u32,
    collisions: u32,
    /// Whether the store's last answer was busy.
    pub(super) busy: bool,
    /// Whether the store may know this owner: then it must be told to forget it.
    pub(super) undo: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    New,
    Asking,
    /// Between two questions. A subscription that does not stand is made up for by asking again within this time.
    Waiting {
        within: Duration,
    },
    /// After a failure.
    Failed,
    Ended,
}

/// What has happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    Begin,
    /// Whether the subscription stands.
    Subscribed(bool),
    /// The hold is there.
    Granted,
    /// What holds nothing is done.
    Done,
    /// Another client has it. Asking again may help on a signal, or after this long.
    Busy {
        within: Duration,
    },
    /// Several asked at the same moment.
    Collided {
        pause: Duration,
    },
    Failed {
        transient: bool,
    },
    /// A wait has come to its end.
    Woken,
    /// The caller's time is up, the caller has gone, or the locker closes.
    Stopped,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// Leave the lock to other processes for a moment.
    Rest,
    Subscribe,
    Ask,
    /// Wait so long, and not longer than until the signal fires.
    AwaitSignal {
        within: Duration,
    },
    /// Wait so long, whatever fires.
    Sleep {
        pause: Duration,
    },
    /// Wait as the retry policy says after so many failures; zero: not at all.
    BackOff {
        failures: u32,
    },
    End(End),
}

/// How it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Granted,
    Done,
    /// Another client has it, or the caller waits no more.
    NotGranted,
    /// The hold that was to be changed is gone.
    Revoked,
    /// The last error is the answer.
    Failed,
}

impl Progress {
    pub(super) fn new(plan: Plan) -> Self {
        Self { plan, phase: Phase::New, subscribed: false, failures: 0, collisions: 0, busy: false, undo: false }
    }

    /// The next step. After [`Action::End`] every event is answered by the same kind of end.
    pub(super) fn step(mut self, event: Event) -> (Self, Action) {
        let action = self.next(event);
        if let Action::End(_) = action {
            self.phase = Phase::Ended;
        }
        (self, action)
    }

    fn next(&mut self, event: Event) -> Action {
        if self.phase == Phase::Ended {
            return Action::End(End::NotGranted);
        }
        match event {
            Event::Begin if self.plan.rests => Action::Rest,
            Event::Begin | Event::Woken => self.ask(),
            Event::Subscribed(stands) => self.subscribed(stands),
            Event::Granted => Action::End(End::Granted),
            Event::Done => Action::End(End::Done),
            Event::Busy { within } => self.busy(within),
            Event::Collided { pause } => self.collided(pause),
            Event::Failed { transient } => self.failed(transient),
            Event::Stopped if self.phase == Phase::Failed => Action::End(End::Failed),
            Event::Stopped => Action::End(End::NotGranted),
        }
    }

    fn ask(&mut self) -> Action {
        if self.phase == Phase::New && self.plan.watch_first && self.may_subscribe() {
            return Action::Subscribe;
        }
        self.phase = Phase::Asking;
        Action::Ask
    }

    fn may_subscribe(&self) -> bool {
        !self.subscribed && !self.plan.once && self.plan.waits
    }

    fn subscribed(&mut self, stands: bool) -> Action {
        self.subscribed = stands;
        match self.phase {
            Phase::Failed => self.back_off(),
            // It may have come free before the subscription stood. Without one, polls.
            Phase::Waiting { within } if !stands => Action::Sleep { pause: within },
            _ => {
                self.phase = Phase::Asking;
                Action::Ask
            }
        }
    }

    fn heard_busy(&mut self) {
        (self.failures, self.busy) = (0, true);
        self.undo |= self.plan.keeps_position;
    }

    fn busy(&mut self, within: Duration) -> Action {
        self.heard_busy();
        if self.plan.converts {
            return Action::End(End::Revoked);
        }
        if self.plan.once || !self.plan.waits {
            return Action::End(End::NotGranted);
        }
        self.phase = Phase::Waiting { within };
        if self.subscribed { Action::AwaitSignal { within } } else { Action::Subscribe }
    }

    fn collided(&mut self, pause: Duration) -> Action {
        self.heard_busy();
        self.collisions += 1;
        if self.plan.once && self.collisions > MOST_COLLISIONS {
            return Action::End(End::NotGranted);
        }
        self.phase = Phase::Waiting { within: pause };
        Action::Sleep { pause }
    }

    fn failed(&mut self, transient: bool) -> Action {
        (self.undo, self.busy) = (true, false);
        self.failures += 1;
        self.phase = Phase::Failed;
        // A connection may have gone stale: a caller that asks once asks a second time.
        let attempts = if self.plan.once { 2 } else { self.plan.attempts };
        if !transient || self.failures >= attempts {
            return Action::End(End::Failed);
        }
        if self.plan.watch_after_failure && self.may_subscribe() {
            return Action::Subscribe;
        }
        self.back_off()
    }

    fn back_off(&self) -> Action {
        Action::BackOff { failures: if self.plan.once { 0 } else { self.failures } }
    }
}

#[cfg(test)]
mod tests;
