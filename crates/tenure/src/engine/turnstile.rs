//! The in-process queue: however many tasks want one name, one of them asks the store. First come, first served.

mod block;
mod gate;
mod taken;
mod turn;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use self::block::Block;
pub(crate) use self::block::LEAST as LEAST_HAND_OVERS;
pub(crate) use self::gate::Gate;
use self::taken::Taken;
pub(crate) use self::turn::{Next, Turn};
use crate::engine::guard::Held;
use crate::engine::hold::Terms;
use crate::error::Error;

/// Its lock is taken before that of a lane.
#[derive(Debug, Clone, Default)]
pub(crate) struct Turnstile(Arc<Mutex<Lanes>>);

#[derive(Debug, Default)]
struct Lanes {
    open: HashMap<Gate, Arc<Mutex<Lane>>>,
    /// What was taken a moment ago at gates that have no lane now.
    past: HashMap<Gate, Past>,
}

/// What a lane leaves behind for the next one.
#[derive(Debug, Clone, Copy, Default)]
struct Past {
    taken: Taken,
    block: Block,
}

impl Past {
    fn matters(&self) -> bool {
        self.taken.matters() || self.block.matters()
    }
}

/// A gate at which a task of this process holds or asks.
#[derive(Debug, Default)]
struct Lane {
    waiting: VecDeque<Waiter>,
    /// The store's last answer, if it was an error: then the lock is not known to be busy.
    trouble: Option<Error>,
    /// The store's last answer, if that still holds.
    last: Option<Heard>,
    /// How many had come when the last hold of this process was released, and until when that counts as busy for them.
    gave_back: Option<(u64, Instant)>,
    /// How many have come to wait so far.
    arrivals: u64,
    /// How many of them had come before the question that the store answered with busy.
    refused: u64,
    taken: Taken,
    /// How many tokens the next grant reserves.
    block: Block,
    /// The hold that stays with the process although no task has it, by the number of its owner.
    idle: Option<u64>,
    /// Whether other processes have been seen to want it.
    contended: bool,
    /// Tells the asking task of a newcomer, where that is a reason to ask again.
    came: Option<Arc<Notify>>,
    /// Until when the asking task leaves the lock to others, and what tells it that this is too long.
    resting: Option<(Instant, Arc<Notify>)>,
}

impl Lane {
    fn new(gate: &Gate, past: Past) -> Self {
        let came = gate.answers_are_shared().then(Arc::default);
        let Past { taken, block } = past;
        Self { contended: taken.matters(), taken, block, came, ..Self::default() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Heard {
    Granted,
    Busy,
}

/// A task that waits for its turn.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) terms: Terms,
    arrival: u64,
    /// By then the store must be asked, to have an answer before its time is up. `None`: it has all the time.
    ask_by: Option<Instant>,
    pub(crate) pass: oneshot::Sender<Pass>,
}

/// What is known to a task that leaves without an answer of its own.
#[derive(Debug)]
pub(crate) enum Standing {
    /// Another client or task has it.
    Busy,
    /// A task of this process had it when this one came, and has just released it: until then it counts as busy.
    WasBusy(Instant),
    /// The store has told no task of this process.
    Unknown,
    /// The store cannot tell.
    Trouble(Error),
}

/// What a waiter is given.
pub(crate) enum Pass {
    /// The right to ask the store.
    Turn(Turn),
    /// The hold itself, handed over by the one before without a round trip.
    Held(Held),
    /// The store's answer to a question that one asked for all: what is left.
    Done(u64),
}

impl std::fmt::Debug for Pass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pass")
    }
}

/// What a task that waits is given at once.
pub(crate) enum Admission {
    Now(Turn),
    /// With the owner of a hold that no task has: it is to be [resumed](crate::engine::keeper::Keeper::resume) for this one.
    Later {
        arrival: u64,
        pass: oneshot::Receiver<Pass>,
        idle: Option<u64>,
    },
}

/// What a task that does not wait is given.
pub(crate) enum Tried {
    Turn(Turn),
    /// The task that has the turn leaves the lock to other processes for now. This one may ask beside it.
    Beside,
    /// As [`Admission::Later`]: no task has it.
    Idle {
        arrival: u64,
        pass: oneshot::Receiver<Pass>,
        owner: u64,
    },
    Taken,
}

impl Turnstile {
    /// Takes the turn, or a position in the queue, for a task that waits so long.
    pub(crate) fn enter(&self, gate: &Gate, terms: &Terms, wait: impl FnOnce() -> Duration) -> Admission {
        let mut lanes = self.lanes();
        if let Some(lane) = lanes.open.get(gate) {
            let mut locked = locked(lane);
            let lane = &mut *locked;
            let (pass, later) = oneshot::channel();
            let mut left = VecDeque::new();
            if lane.waiting.len() == lane.waiting.capacity() {
                // Those who left would stay until the lane moves, which may be never.
                let all = std::mem::take(&mut lane.waiting);
                (left, lane.waiting) = all.into_iter().partition(|w| w.pass.is_closed());
                lane.waiting.reserve(lane.waiting.len() + 1);
            }
            lane.arrivals += 1;
            let arrival = lane.arrivals;
            let ask_by = Instant::now().checked_add(wait() / 2);
            lane.waiting.push_back(Waiter { terms: terms.clone(), arrival, ask_by, pass });
            let sooner = match (ask_by, &mut lane.resting) {
                (Some(ask_by), Some((until, sooner))) if ask_by < *until => {
                    *until = ask_by;
                    Some(Arc::clone(sooner))
                }
                _ => None,
            };
            let (came, idle) = (lane.came.clone(), lane.idle.take());
            drop(locked);
            drop(lanes);
            // Not under the lock: a task that is woken may drop what takes it.
            drop(left);
            sooner.into_iter().chain(came).for_each(|one| one.notify_one());
            return Admission::Later { arrival, pass: later, idle };
        }
        let (lane, rests_until) = lanes.begin(gate);
        drop(lanes);
        Admission::Now(self.turn(gate, lane, rests_until))
    }

    /// Takes the turn only if no task of this process has it.
    pub(crate) fn try_enter(&self, gate: &Gate, terms: &Terms) -> Tried {
        let mut lanes = self.lanes();
        match lanes.open.get(gate) {
            Some(lane) => {
                let mut lane = locked(lane);
                match lane.idle.take() {
                    Some(owner) => {
                        let (pass, later) = oneshot::channel();
                        lane.arrivals += 1;
                        let arrival = lane.arrivals;
                        lane.waiting.push_back(Waiter { terms: terms.clone(), arrival, ask_by: None, pass });
                        Tried::Idle { arrival, pass: later, owner }
                    }
                    None if lane.resting.is_some() => Tried::Beside,
                    None => Tried::Taken,
                }
            }
            None => {
                let (lane, _) = lanes.begin(gate);
                drop(lanes);
                Tried::Turn(self.turn(gate, lane, None))
            }
        }
    }

    fn turn(&self, gate: &Gate, lane: Arc<Mutex<Lane>>, rests_until: Option<Instant>) -> Turn {
        let (has_waiters, is_contended) = {
            let lane = locked(&lane);
            (lane.arrivals > 0, lane.contended)
        };
        Turn { gate: gate.clone(), stile: self.clone(), lane, rests_until, has_waiters, is_contended }
    }

    /// What is known to the waiter with this arrival that was given no pass.
    pub(crate) fn standing(&self, gate: &Gate, arrival: u64) -> Standing {
        let lanes = self.lanes();
        match lanes.open.get(gate).map(|lane| locked(lane)).as_deref() {
            Some(Lane { trouble: Some(trouble), .. }) => Standing::Trouble(trouble.clone()),
            Some(lane) if gate.answers_are_shared() && lane.refused < arrival => Standing::Unknown,
            // A task that does not wait has arrival 0, and is answered busy below: another task has the lock, or is about to.
            Some(lane) if arrival > 0 && !gate.answers_are_shared() => match lane.last {
                None => match lane.gave_back {
                    Some((came, until)) if arrival <= came && Instant::now() < until => Standing::WasBusy(until),
                    _ => Standing::Unknown,
                },
                // There may be more permits, or room for another reader.
                Some(Heard::Granted) if gate.is_shared() => Standing::Unknown,
                Some(_) => Standing::Busy,
            },
            None if gate.answers_are_shared() => Standing::Unknown,
            _ => Standing::Busy,
        }
    }

    fn lanes(&self) -> MutexGuard<'_, Lanes> {
        locked(&self.0)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Lane {
    /// The next waiter, if it `fits`. Those who `left` are to be dropped when nothing is locked: a waker may own a task and its guards.
    fn next(&mut self, fits: impl Fn(&Terms) -> bool, left: &mut Vec<Waiter>) -> Option<Waiter> {
        while self.waiting.front().is_some_and(|w| w.pass.is_closed()) {
            left.extend(self.waiting.pop_front());
        }
        self.waiting.front().is_some_and(|next| fits(&next.terms)).then(|| self.waiting.pop_front()).flatten()
    }
}

impl Lanes {
    /// Opens a lane. This process may have been there a moment ago: then others go first until the returned moment.
    fn begin(&mut self, gate: &Gate) -> (Arc<Mutex<Lane>>, Option<Instant>) {
        let past = if self.past.is_empty() { None } else { self.past.remove(gate) };
        let past = past.filter(Past::matters).unwrap_or_default();
        let lane = Arc::new(Mutex::new(Lane::new(gate, past)));
        self.open.insert(gate.clone(), Arc::clone(&lane));
        (lane, past.taken.rests_until())
    }

    /// Closes a lane without a turn.
    fn end(&mut self, gate: &Gate, past: Past) {
        self.open.remove(gate);
        if past.matters() {
            if self.past.len() == self.past.capacity() {
                self.past.retain(|_, past| past.matters());
                self.past.reserve(self.past.len() + 1);
            }
            self.past.insert(gate.clone(), past);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Mode;
    use crate::name::Resource;

    #[test]
    fn those_who_left_do_not_pile_up_behind_a_long_hold() {
        let name = Resource::new("a").expect("a name");
        let (stile, name) = (Turnstile::default(), Gate::new(&name, Mode::Exclusive).expect("a gate"));
        let terms = Terms { lease: Duration::from_secs(30), fixed: false, max_hold: None, note: None, linger: Duration::ZERO };
        let Admission::Now(turn) = stile.enter(&name, &terms, || Duration::MAX) else { panic!("nobody was there") };
        let stays = stile.enter(&name, &terms, || Duration::MAX);
        for _ in 0..10_000 {
            drop(stile.enter(&name, &terms, || Duration::MAX));
        }
        assert!(turn.waiting() < 10, "{} in the queue", turn.waiting());
        drop(turn);
        let Admission::Later { pass: mut stays, .. } = stays else { panic!("it had to wait") };
        assert!(matches!(stays.try_recv(), Ok(Pass::Turn(_))));
    }
}
