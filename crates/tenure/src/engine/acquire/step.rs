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
    /// Whether a busy answer leaves a place in the queue behind.
    pub(super) keeps_place: bool,
    /// Other processes go first.
    pub(super) rests: bool,
    /// Failures in a row after which the error is reported.
    pub(super) attempts: u32,
}

/// One acquisition, as far as its next step depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct State {
    plan: Plan,
    phase: Phase,
    subscribed: bool,
    failures: u32,
    collisions: u32,
    /// Whether somebody else had the lock when the store was last asked.
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
    Rested,
    /// Whether the subscription stands.
    Subscribed(bool),
    /// The hold is there.
    Granted,
    /// What holds nothing is done.
    Done,
    /// Somebody else has it. Asking again may help on a signal, or after this long.
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
    /// Somebody else has it, or nobody waits for the answer any more.
    NotGranted,
    /// The hold that was to be changed is gone.
    Revoked,
    /// The last error is the answer.
    Failed,
}

impl State {
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
            Event::Begin | Event::Rested | Event::Woken => self.ask(),
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
        self.undo |= self.plan.keeps_place;
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
        // A connection may have gone stale: also who asks once asks a second time.
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
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WITHIN: Duration = Duration::from_secs(7);
    const PAUSE: Duration = Duration::from_millis(3);
    const BUSY: Event = Event::Busy { within: WITHIN };
    const COLLIDED: Event = Event::Collided { pause: PAUSE };
    const FAILED: Event = Event::Failed { transient: true };
    const REFUSED: Event = Event::Failed { transient: false };
    const WAITS: Plan = Plan {
        once: false,
        waits: true,
        converts: false,
        watch_first: false,
        watch_after_failure: false,
        keeps_place: false,
        rests: false,
        attempts: 3,
    };
    const ONCE: Plan = Plan { once: true, ..WAITS };

    /// What is done after each of these events in a row.
    fn walk(plan: Plan, events: &[Event]) -> (State, Vec<Action>) {
        let mut actions = Vec::new();
        let end = events.iter().fold(State::new(plan), |state, event| {
            let (state, action) = state.step(*event);
            actions.push(action);
            state
        });
        (end, actions)
    }

    #[test]
    fn every_walk_is_as_in_the_table() {
        use Action::{Ask, AwaitSignal, BackOff, End as Ends, Rest, Sleep, Subscribe};
        use Event::{Begin, Done, Granted, Rested, Stopped, Subscribed, Woken};
        let first = Plan { watch_first: true, ..WAITS };
        let signal = AwaitSignal { within: WITHIN };
        let again = |failures| BackOff { failures };
        let (won, lost) = (Ends(End::Granted), Ends(End::NotGranted));
        let told = Plan { watch_after_failure: true, ..WAITS };
        let table: [(Plan, &[Event], &[Action]); 19] = [
            (WAITS, &[Begin, Granted], &[Ask, won]),
            (WAITS, &[Begin, Done], &[Ask, Ends(End::Done)]),
            // Asked again as soon as the subscription stands, and then on each signal.
            (WAITS, &[Begin, BUSY, Subscribed(true), BUSY, Woken, Granted], &[Ask, Subscribe, Ask, signal, Ask, won]),
            (first, &[Begin, Subscribed(true), BUSY, Woken, Granted], &[Subscribe, Ask, signal, Ask, won]),
            // Without a subscription it polls, and tries to subscribe after each busy answer.
            (
                first,
                &[Begin, Subscribed(false), BUSY, Subscribed(false), Woken],
                &[Subscribe, Ask, Subscribe, Sleep { pause: WITHIN }, Ask],
            ),
            (Plan { rests: true, ..first }, &[Begin, Rested, Subscribed(true)], &[Rest, Subscribe, Ask]),
            (Plan { rests: true, ..WAITS }, &[Begin, Stopped], &[Rest, lost]),
            (ONCE, &[Begin, BUSY], &[Ask, lost]),
            (Plan { watch_first: true, ..ONCE }, &[Begin, BUSY], &[Ask, lost]),
            (ONCE, &[Begin, FAILED, Woken, Granted], &[Ask, again(0), Ask, won]),
            (ONCE, &[Begin, FAILED, Woken, FAILED], &[Ask, again(0), Ask, Ends(End::Failed)]),
            (WAITS, &[Begin, FAILED, Woken, FAILED, Woken, FAILED], &[Ask, again(1), Ask, again(2), Ask, Ends(End::Failed)]),
            (WAITS, &[Begin, REFUSED], &[Ask, Ends(End::Failed)]),
            // An answer in between, and failures are counted anew.
            (
                WAITS,
                &[Begin, FAILED, Woken, COLLIDED, Woken, FAILED],
                &[Ask, again(1), Ask, Sleep { pause: PAUSE }, Ask, again(1)],
            ),
            (WAITS, &[Begin, FAILED, Stopped], &[Ask, again(1), Ends(End::Failed)]),
            // The signal tells that the store is back; one subscription serves for all failures.
            (told, &[Begin, FAILED, Subscribed(true), Woken, FAILED], &[Ask, Subscribe, again(1), Ask, again(2)]),
            (Plan { once: true, ..told }, &[Begin, FAILED], &[Ask, again(0)]),
            (Plan { converts: true, ..WAITS }, &[Begin, BUSY], &[Ask, Ends(End::Revoked)]),
            (Plan { waits: false, ..WAITS }, &[Begin, BUSY], &[Ask, lost]),
        ];
        for (row, (plan, events, expected)) in table.into_iter().enumerate() {
            assert_eq!(walk(plan, events).1, expected, "row {row}");
        }
    }

    #[test]
    fn collisions_are_not_waited_out_for_ever_by_one_that_asks_once() {
        let mut events = vec![Event::Begin];
        for _ in 0..MOST_COLLISIONS {
            events.extend([COLLIDED, Event::Woken]);
        }
        events.push(COLLIDED);
        assert_eq!(walk(ONCE, &events).1.last(), Some(&Action::End(End::NotGranted)));
        let (_, waits) = walk(WAITS, &events);
        assert_eq!(waits.last(), Some(&Action::Sleep { pause: PAUSE }));
    }

    #[test]
    fn the_store_is_told_to_forget_what_it_may_know() {
        let place = Plan { keeps_place: true, ..WAITS };
        for (plan, events, undo) in [
            (WAITS, &[Event::Begin, BUSY][..], false),
            (place, &[Event::Begin, BUSY], true),
            (WAITS, &[Event::Begin, FAILED], true),
            (ONCE, &[Event::Begin, REFUSED], true),
            (place, &[Event::Begin], false),
        ] {
            assert_eq!(walk(plan, events).0.undo, undo, "{plan:?} {events:?}");
        }
    }

    fn plans() -> impl Strategy<Value = Plan> {
        let flags = proptest::array::uniform7(any::<bool>());
        (flags, 1_u32..5).prop_map(|([once, waits, converts, watch_first, watch_after_failure, keeps_place, rests], attempts)| {
            Plan { once, waits, converts, watch_first, watch_after_failure, keeps_place, rests, attempts }
        })
    }

    /// What can come of an action, chosen by a number.
    fn outcome(action: Action, choice: u8) -> Event {
        let answers = [Event::Granted, Event::Done, BUSY, COLLIDED, FAILED, REFUSED];
        match action {
            Action::Ask if choice % 7 == 6 => Event::Stopped,
            Action::Ask => answers[usize::from(choice % 7)],
            Action::Subscribe => Event::Subscribed(choice.is_multiple_of(2)),
            _ if choice.is_multiple_of(5) => Event::Stopped,
            Action::Rest => Event::Rested,
            _ => Event::Woken,
        }
    }

    proptest! {
        #[test]
        fn whatever_the_store_answers_the_rules_hold(plan in plans(), choices in proptest::collection::vec(any::<u8>(), 1..60)) {
            let (mut state, mut action) = State::new(plan).step(Event::Begin);
            let (mut failures, mut questions, mut subscribed, mut unclear) = (0, 0, false, false);
            for choice in choices {
                let event = outcome(action, choice);
                let before = action;
                (state, action) = state.step(event);
                match event {
                    FAILED | REFUSED => (failures, unclear) = (failures + 1, true),
                    BUSY | Event::Collided { .. } => (failures, unclear) = (0, unclear || plan.keeps_place),
                    Event::Subscribed(stands) => subscribed = stands,
                    _ => {}
                }
                questions += u32::from(before == Action::Ask && event != Event::Stopped);
                prop_assert!(failures <= if plan.once { 2 } else { plan.attempts }, "asked on after {failures} failures");
                prop_assert_eq!(state.undo, unclear, "what the store may know is undone, and nothing else");
                if plan.once {
                    prop_assert!(!matches!(action, Action::Subscribe | Action::AwaitSignal { .. }), "it does not wait");
                    prop_assert!(questions <= 2 * (MOST_COLLISIONS + 1), "asked {questions} times");
                }
                if let Action::AwaitSignal { .. } = action {
                    prop_assert!(subscribed, "nothing would wake it");
                }
                match event {
                    Event::Stopped => prop_assert!(matches!(action, Action::End(End::NotGranted | End::Failed))),
                    Event::Granted => prop_assert_eq!(action, Action::End(End::Granted)),
                    Event::Failed { transient: false } => prop_assert_eq!(action, Action::End(End::Failed)),
                    _ => {}
                }
                if let Action::End(_) = action {
                    let (_, after) = state.step(Event::Woken);
                    prop_assert!(matches!(after, Action::End(_)), "it has ended");
                    return Ok(());
                }
            }
        }
    }
}
