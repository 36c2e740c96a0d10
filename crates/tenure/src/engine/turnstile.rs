//! The in-process queue: however many tasks want one name, one of them asks the store. First come, first served.

mod taken;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout_at};

use self::taken::Taken;
use crate::backend::Mode;
use crate::engine::guard::Held;
use crate::engine::hold::Terms;
use crate::error::Error;
use crate::name::Resource;

/// A store that answers does so in less: who stood behind a hold that was given back is not told of an outage before that.
const ANSWERS_WITHIN: Duration = Duration::from_millis(250);

#[derive(Debug, Clone, Default)]
pub(crate) struct Turnstile(Arc<Mutex<Lanes>>);

#[derive(Debug, Default)]
struct Lanes {
    open: HashMap<Gate, Lane>,
    /// What was taken at gates that nobody of this process stands at now, but did a moment ago.
    taken: HashMap<Gate, Taken>,
}

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

    /// Whether several may be granted at a time.
    fn is_shared(&self) -> bool {
        matches!(self.kind, Kind::Read | Kind::Permits)
    }

    /// Whether an answer is everybody's who came before the question: what is asked for is a state, not a hold.
    pub(crate) fn answers_are_shared(&self) -> bool {
        self.kind == Kind::CountZero
    }
}

/// A gate at which somebody of this process holds or asks.
#[derive(Debug)]
struct Lane {
    waiting: VecDeque<Waiter>,
    /// What the store answered the one who asks, if that was an error: then nobody knows that the lock is busy.
    trouble: Option<Error>,
    /// What the store answered last, if it has and that still holds.
    last: Option<Heard>,
    /// How many had come when the last hold of this process was given back, and until when it counts that they know of it.
    gave_back: Option<(u64, Instant)>,
    /// How many have come to wait so far.
    arrivals: u64,
    /// So many of them had come before the store was asked and said that it is busy.
    refused: u64,
    taken: Taken,
    /// Whether other processes have been seen to want it.
    contended: bool,
    /// Tells the one who asks that somebody has come, where that is a reason to ask again.
    came: Option<Arc<Notify>>,
    /// Until when the one who asks leaves the lock to others, and how it is told that this is too long.
    resting: Option<(Instant, Arc<Notify>)>,
}

impl Lane {
    fn new(gate: &Gate, taken: Taken) -> Self {
        let came = gate.answers_are_shared().then(Arc::default);
        Self {
            waiting: VecDeque::new(),
            trouble: None,
            last: None,
            gave_back: None,
            arrivals: 0,
            refused: 0,
            contended: taken.matters(),
            taken,
            came,
            resting: None,
        }
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

/// What is known to one who leaves without an answer of its own.
#[derive(Debug)]
pub(crate) enum Standing {
    /// Somebody else has it.
    Busy,
    /// A task of this process had it when this one came, and has given it back only now: until then it counts as busy.
    WasBusy(Instant),
    /// The store has not said so to anybody here.
    Unknown,
    /// The store cannot tell.
    Trouble(Error),
}

/// What the one who waits is given.
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
        f.write_str(match self {
            Self::Turn(_) => "Turn",
            Self::Held(_) => "Held",
            Self::Done(_) => "Done",
        })
    }
}

pub(crate) enum Entry {
    Now(Turn),
    Later { arrival: u64, pass: oneshot::Receiver<Pass> },
}

/// What one finds who does not wait.
pub(crate) enum Tried {
    Turn(Turn),
    /// The one who has the turn leaves the lock to others for now: it is no answer to this one, who may ask beside it.
    Alone,
    Taken,
}

impl Turnstile {
    /// Takes the turn, or a place in line, for one who waits so long.
    pub(crate) fn enter(&self, gate: &Gate, terms: &Terms, wait: impl FnOnce() -> Duration) -> Entry {
        let mut lanes = self.lanes();
        if let Some(lane) = lanes.open.get_mut(gate) {
            let (pass, later) = oneshot::channel();
            if lane.waiting.len() == lane.waiting.capacity() {
                // Those who left are met again only when the lane moves, which may be never.
                lane.waiting.retain(|w| !w.pass.is_closed());
                lane.waiting.reserve(lane.waiting.len() + 1);
            }
            lane.arrivals += 1;
            let arrival = lane.arrivals;
            let ask_by = Instant::now().checked_add(wait() / 2);
            lane.waiting.push_back(Waiter { terms: terms.clone(), arrival, ask_by, pass });
            if let (Some(ask_by), Some((until, sooner))) = (ask_by, &mut lane.resting)
                && ask_by < *until
            {
                *until = ask_by;
                sooner.notify_one();
            }
            if let Some(came) = &lane.came {
                came.notify_one();
            }
            return Entry::Later { arrival, pass: later };
        }
        let lane = lanes.begin(gate);
        Entry::Now(self.turn(gate, lane, lane.taken.rests_until()))
    }

    /// Takes the turn only if nobody of this process has it.
    pub(crate) fn try_enter(&self, gate: &Gate) -> Tried {
        let mut lanes = self.lanes();
        match lanes.open.get(gate) {
            Some(Lane { resting: Some(_), .. }) => Tried::Alone,
            Some(_) => Tried::Taken,
            None => {
                let lane = lanes.begin(gate);
                Tried::Turn(self.turn(gate, lane, None))
            }
        }
    }

    fn turn(&self, gate: &Gate, lane: &Lane, rests_until: Option<Instant>) -> Turn {
        let (has_waiters, is_contended) = (lane.arrivals > 0, lane.contended);
        Turn { gate: gate.clone(), stile: self.clone(), rests_until, has_waiters, is_contended }
    }

    /// What one knows who came as this one in the lane and was given no pass.
    pub(crate) fn standing(&self, gate: &Gate, arrival: u64) -> Standing {
        match self.lanes().open.get(gate) {
            Some(Lane { trouble: Some(trouble), .. }) => Standing::Trouble(trouble.clone()),
            Some(lane) if gate.answers_are_shared() && lane.refused < arrival => Standing::Unknown,
            // One who does not wait is answered by others' asking; a task of this process has it, or is about to.
            Some(lane) if arrival > 0 && !gate.answers_are_shared() => match lane.last {
                None => match lane.gave_back {
                    Some((came, until)) if arrival <= came && Instant::now() < until => Standing::WasBusy(until),
                    _ => Standing::Unknown,
                },
                // There may be more for those who come after.
                Some(Heard::Granted) if gate.is_shared() => Standing::Unknown,
                Some(_) => Standing::Busy,
            },
            None if gate.answers_are_shared() => Standing::Unknown,
            _ => Standing::Busy,
        }
    }

    fn lanes(&self) -> MutexGuard<'_, Lanes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next one in line who still waits, if `fits`; the lane goes when nobody does.
    fn next(&self, gate: &Gate, keep_lane: bool, fits: impl Fn(&Terms) -> bool) -> Option<Waiter> {
        let mut lanes = self.lanes();
        let lane = lanes.open.get_mut(gate)?;
        while lane.waiting.front().is_some_and(|w| w.pass.is_closed()) {
            lane.waiting.pop_front();
        }
        match lane.waiting.front() {
            Some(next) if fits(&next.terms) => lane.waiting.pop_front(),
            Some(_) => None,
            None => {
                if !keep_lane {
                    lanes.end(gate);
                }
                None
            }
        }
    }
}

impl Lanes {
    /// Opens a lane, for one who may have been there a moment ago.
    fn begin(&mut self, gate: &Gate) -> &mut Lane {
        let taken = if self.taken.is_empty() { None } else { self.taken.remove(gate) };
        let taken = taken.filter(Taken::matters).unwrap_or_default();
        self.open.entry(gate.clone()).or_insert_with(|| Lane::new(gate, taken))
    }

    fn end(&mut self, gate: &Gate) {
        let Some(lane) = self.open.remove(gate) else { return };
        if lane.taken.matters() {
            if self.taken.len() == self.taken.capacity() {
                self.taken.retain(|_, taken| taken.matters());
                self.taken.reserve(self.taken.len() + 1);
            }
            self.taken.insert(gate.clone(), lane.taken);
        }
    }
}

/// The right of this process's one contender for a name. Dropping it lets the next one in line ask the store.
#[derive(Debug)]
pub(crate) struct Turn {
    gate: Gate,
    stile: Turnstile,
    /// Others shall have a chance first until then.
    rests_until: Option<Instant>,
    /// Whether others of this process have come to wait since it has wanted this without a break.
    has_waiters: bool,
    /// Whether other processes have been seen to want it.
    is_contended: bool,
}

impl Turn {
    /// How many wait behind this one.
    #[cfg(test)]
    fn waiting(&self) -> usize {
        self.lane(|lane| lane.waiting.len()).unwrap_or(0)
    }

    /// How many may want the hold after this one: many, if somebody has come to wait since this process has wanted it without a
    /// break. Those who take turns are not behind each other at the moment of a grant.
    pub(crate) fn expected(&self) -> usize {
        if self.has_waiters { usize::MAX } else { 0 }
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
        while let Some(until) = self.lane(|lane| lane.resting.as_ref().map(|(until, _)| *until)).flatten()
            && timeout_at(until, sooner.notified()).await.is_ok()
        {}
    }

    /// How many have come to wait so far, if answers are shared with them.
    pub(crate) fn arrivals(&self) -> u64 {
        if self.gate.answers_are_shared() { self.lane(|lane| lane.arrivals).unwrap_or(0) } else { 0 }
    }

    /// Resolves when somebody comes with whom the next answer will be shared.
    pub(crate) async fn newcomer(&self, known: u64) {
        let Some(came) = self.lane(|lane| lane.came.clone()).flatten() else { return std::future::pending().await };
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

    /// Tells those behind, of whom so many had come before the question, that somebody else has it. Then others have had their
    /// turn, too.
    pub(crate) fn heard_busy(&self, arrivals: u64) {
        self.lane(|lane| {
            (lane.last, lane.trouble) = (Some(Heard::Busy), None);
            (lane.refused, lane.taken, lane.contended) = (arrivals, Taken::default(), true);
        });
    }

    /// Shares an answer with those who had come before the question.
    pub(crate) fn share(&self, arrivals: u64, left: u64) {
        let served = self.lane(|lane| {
            let came_before = lane.waiting.partition_point(|w| w.arrival <= arrivals);
            lane.waiting.drain(..came_before).collect::<Vec<_>>()
        });
        for waiter in served.unwrap_or_default() {
            std::mem::drop(waiter.pass.send(Pass::Done(left)));
        }
    }

    /// The lock is given back. If others wait at the store, the next one of this process lets them go first; one who comes back
    /// alone does so from time to time.
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

    /// The hold is over: nobody knows who has it now.
    pub(crate) fn over(&self) {
        self.lane(|lane| {
            lane.last = None;
            // Nobody who came before knows of it otherwise.
            lane.gave_back = (lane.arrivals > 0).then(|| (lane.arrivals, Instant::now() + ANSWERS_WITHIN));
        });
    }

    /// The hold was lost: nobody knows since when.
    pub(crate) fn lost(&self) {
        self.lane(|lane| (lane.last, lane.gave_back) = (None, None));
    }

    fn lane<T>(&self, look: impl FnOnce(&mut Lane) -> T) -> Option<T> {
        self.stile.lanes().open.get_mut(&self.gate).map(look)
    }

    /// The next in line, if its terms allow it to have a hold with these. The turn stays with the hold.
    pub(crate) fn next_with(&self, terms: &Terms) -> Option<Waiter> {
        let next = self.stile.next(&self.gate, true, |next| terms.allow_hand_over(next))?;
        self.lane(|lane| lane.taken.hand_over());
        Some(next)
    }
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
        if let Some(next) = self.stile.next(&self.gate, false, |_| true)
            && let Some(turn) = self.lane(|lane| self.stile.turn(&self.gate, lane, lane.taken.rests_until()))
        {
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
        let Entry::Now(turn) = stile.enter(&name, &terms, || Duration::MAX) else { panic!("nobody was there") };
        let stays = stile.enter(&name, &terms, || Duration::MAX);
        for _ in 0..10_000 {
            drop(stile.enter(&name, &terms, || Duration::MAX));
        }
        assert!(turn.waiting() < 10, "{} in line", turn.waiting());
        drop(turn);
        let Entry::Later { pass: mut stays, .. } = stays else { panic!("it had to wait") };
        assert!(matches!(stays.try_recv(), Ok(Pass::Turn(_))));
    }
}
