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
    keeps_position: false,
    rests: false,
    attempts: 3,
};
const ONCE: Plan = Plan { once: true, ..WAITS };

/// What is done after each of these events in a row.
fn walk(plan: Plan, events: &[Event]) -> (Progress, Vec<Action>) {
    let mut actions = Vec::new();
    let end = events.iter().fold(Progress::new(plan), |state, event| {
        let (state, action) = state.step(*event);
        actions.push(action);
        state
    });
    (end, actions)
}

#[test]
fn every_walk_is_as_in_the_table() {
    use Action::{Ask, AwaitSignal, BackOff, End as Ends, Rest, Sleep, Subscribe};
    use Event::{Begin, Done, Granted, Stopped, Subscribed, Woken};
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
        (Plan { rests: true, ..first }, &[Begin, Woken, Subscribed(true)], &[Rest, Subscribe, Ask]),
        (Plan { rests: true, ..WAITS }, &[Begin, Stopped], &[Rest, lost]),
        (ONCE, &[Begin, BUSY], &[Ask, lost]),
        (Plan { watch_first: true, ..ONCE }, &[Begin, BUSY], &[Ask, lost]),
        (ONCE, &[Begin, FAILED, Woken, Granted], &[Ask, again(0), Ask, won]),
        (ONCE, &[Begin, FAILED, Woken, FAILED], &[Ask, again(0), Ask, Ends(End::Failed)]),
        (WAITS, &[Begin, FAILED, Woken, FAILED, Woken, FAILED], &[Ask, again(1), Ask, again(2), Ask, Ends(End::Failed)]),
        (WAITS, &[Begin, REFUSED], &[Ask, Ends(End::Failed)]),
        // An answer in between, and failures are counted anew.
        (WAITS, &[Begin, FAILED, Woken, COLLIDED, Woken, FAILED], &[Ask, again(1), Ask, Sleep { pause: PAUSE }, Ask, again(1)]),
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
    let place = Plan { keeps_position: true, ..WAITS };
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
    (flags, 1_u32..5).prop_map(|([once, waits, converts, watch_first, watch_after_failure, keeps_position, rests], attempts)| {
        Plan { once, waits, converts, watch_first, watch_after_failure, keeps_position, rests, attempts }
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
        _ => Event::Woken,
    }
}

proptest! {
    #[test]
    fn whatever_the_store_answers_the_rules_hold(plan in plans(), choices in proptest::collection::vec(any::<u8>(), 1..60)) {
        let (mut state, mut action) = Progress::new(plan).step(Event::Begin);
        let (mut failures, mut questions, mut subscribed, mut unclear) = (0, 0, false, false);
        for choice in choices {
            let event = outcome(action, choice);
            let before = action;
            (state, action) = state.step(event);
            match event {
                FAILED | REFUSED => (failures, unclear) = (failures + 1, true),
                BUSY | Event::Collided { .. } => (failures, unclear) = (0, unclear || plan.keeps_position),
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
