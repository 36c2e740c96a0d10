//! The in-process queue: however many tasks want one name, one of them asks the store. First come, first served.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::backend::Mode;
use crate::error::Error;
use crate::guard::Held;
use crate::hold::Terms;
use crate::name::Resource;

#[derive(Debug, Clone, Default)]
pub(crate) struct Turnstile(Arc<Mutex<HashMap<Gate, Lane>>>);

/// A name, and the way in which it is wanted: readers do not stand in line behind writers of the same process.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Gate {
    resource: Resource,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Exclusive,
    Read,
    Write,
    Permits,
    CountZero,
}

impl Gate {
    /// Where claims of this mode wait for each other. `None`: each asks for itself, be it because nobody else of this
    /// process may come before it out of turn, or because it is never busy.
    pub(crate) fn new(resource: &Resource, mode: Mode) -> Option<Self> {
        let kind = match mode {
            Mode::Exclusive => Kind::Exclusive,
            Mode::Read => Kind::Read,
            Mode::Write => Kind::Write,
            Mode::Permits { .. } => Kind::Permits,
            Mode::CountZero => Kind::CountZero,
            Mode::Fair | Mode::Downgrade | Mode::Resize { .. } | Mode::SetCount { .. } | Mode::CountDown | Mode::RemoveCount => {
                return None;
            }
        };
        Some(Self { resource: resource.clone(), kind })
    }
}

/// A gate at which somebody of this process holds or asks.
#[derive(Debug, Default)]
struct Lane {
    waiting: VecDeque<Waiter>,
    /// What the store answered the one who asks, if that was an error: then nobody knows that the lock is busy.
    trouble: Option<Error>,
}

#[derive(Debug)]
struct Waiter {
    terms: Terms,
    pass: oneshot::Sender<Pass>,
}

/// What the one who waits is given.
pub(crate) enum Pass {
    /// The right to ask the store.
    Turn(Turn),
    /// The hold itself, handed over by the one before without a round trip.
    Held(Held),
}

impl std::fmt::Debug for Pass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Turn(_) => "Turn",
            Self::Held(_) => "Held",
        })
    }
}

pub(crate) enum Entry {
    Now(Turn),
    Later(oneshot::Receiver<Pass>),
}

impl Turnstile {
    /// Takes the turn, or a place in line.
    pub(crate) fn enter(&self, gate: &Gate, terms: &Terms) -> Entry {
        let mut lanes = self.lanes();
        if let Some(lane) = lanes.get_mut(gate) {
            let (pass, later) = oneshot::channel();
            if lane.waiting.len() == lane.waiting.capacity() {
                // Those who left are met again only when the lane moves, which may be never.
                lane.waiting.retain(|w| !w.pass.is_closed());
                lane.waiting.reserve(lane.waiting.len() + 1);
            }
            lane.waiting.push_back(Waiter { terms: terms.clone(), pass });
            return Entry::Later(later);
        }
        lanes.insert(gate.clone(), Lane::default());
        Entry::Now(Turn { gate: gate.clone(), stile: self.clone() })
    }

    /// Takes the turn only if nobody of this process has it.
    pub(crate) fn try_enter(&self, gate: &Gate) -> Option<Turn> {
        let mut lanes = self.lanes();
        if lanes.contains_key(gate) {
            return None;
        }
        lanes.insert(gate.clone(), Lane::default());
        Some(Turn { gate: gate.clone(), stile: self.clone() })
    }

    /// What keeps the one who asks from an answer, if something does.
    pub(crate) fn trouble(&self, gate: &Gate) -> Option<Error> {
        self.lanes().get(gate).and_then(|lane| lane.trouble.clone())
    }

    fn lanes(&self) -> MutexGuard<'_, HashMap<Gate, Lane>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next one in line who still waits, if `fits`; the lane goes when nobody does.
    fn next(&self, gate: &Gate, keep_lane: bool, fits: impl Fn(&Terms) -> bool) -> Option<Waiter> {
        let mut lanes = self.lanes();
        let lane = lanes.get_mut(gate)?;
        while lane.waiting.front().is_some_and(|w| w.pass.is_closed()) {
            lane.waiting.pop_front();
        }
        match lane.waiting.front() {
            Some(next) if fits(&next.terms) => lane.waiting.pop_front(),
            Some(_) => None,
            None => {
                if !keep_lane {
                    lanes.remove(gate);
                }
                None
            }
        }
    }
}

/// The right of this process's one contender for a name. Dropping it lets the next one in line ask the store.
#[derive(Debug)]
pub(crate) struct Turn {
    gate: Gate,
    stile: Turnstile,
}

impl Turn {
    /// How many wait behind this one.
    pub(crate) fn waiting(&self) -> usize {
        self.stile.lanes().get(&self.gate).map_or(0, |lane| lane.waiting.len())
    }

    /// Tells those behind what the store answered last.
    pub(crate) fn heard(&self, trouble: Option<Error>) {
        if let Some(lane) = self.stile.lanes().get_mut(&self.gate) {
            lane.trouble = trouble;
        }
    }

    /// Gives a hold to the next in line whose terms allow it, for one of the reserved tokens. The turn stays with the
    /// hold.
    pub(crate) fn hand_over(&self, terms: &Terms, tokens: &mut u32, mut make: impl FnMut(Terms) -> Held) -> bool {
        while *tokens > 0
            && let Some(next) = self.stile.next(&self.gate, true, |t| terms.allow_hand_over(t))
        {
            *tokens -= 1;
            // A waiter that left in this moment gives its hold back through `Held`'s drop; the keeper knows that by now
            // another one is there. Its token is used up.
            if next.pass.send(Pass::Held(make(next.terms))).is_ok() {
                return true;
            }
        }
        false
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(next) = self.stile.next(&self.gate, false, |_| true) {
            let turn = Self { gate: self.gate.clone(), stile: self.stile.clone() };
            // A waiter that left in this moment drops the turn, which passes it on to the next.
            std::mem::drop(next.pass.send(Pass::Turn(turn)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn those_who_left_do_not_pile_up_behind_a_long_hold() {
        let name = Resource::new("a").expect("a name");
        let (stile, name) = (Turnstile::default(), Gate::new(&name, Mode::Exclusive).expect("a gate"));
        let terms = Terms { lease: Duration::from_secs(30), fixed: false, max_hold: None, note: None };
        let Entry::Now(turn) = stile.enter(&name, &terms) else { panic!("nobody was there") };
        let stays = stile.enter(&name, &terms);
        for _ in 0..10_000 {
            drop(stile.enter(&name, &terms));
        }
        assert!(turn.waiting() < 10, "{} in line", turn.waiting());
        drop(turn);
        let Entry::Later(mut stays) = stays else { panic!("it had to wait") };
        assert!(matches!(stays.try_recv(), Ok(Pass::Turn(_))));
    }
}
