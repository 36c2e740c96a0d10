//! The one way to acquire: takes a turn in the process, asks, waits to be woken, asks again. Cancel-safe on every backend.
//!
//! The caller drives it. Dropped half-way, it goes on in the background: the call under way is seen to its end and undone. [`step`]
//! decides what to do next, without time or I/O; here it is done.

mod ask;
mod step;
mod wait;

use std::sync::Arc;

use tokio::sync::oneshot;
use tracing::debug;

use self::step::{Action, End, Event, Plan, Progress};
pub(crate) use self::wait::{Patience, sleep_long};
use crate::backend::{Claim, Mode, Queue};
use crate::clock::Instant;
use crate::engine::driven::{Desk, Driven};
use crate::engine::guard::{Guard, Held};
use crate::engine::hold::Terms;
use crate::engine::turnstile::{Admission, Gate, Pass, Standing, Tried, Turn};
use crate::engine::{Acquiring, Engine, Settings};
use crate::error::{Error, Fault, Result};
use crate::name::Resource;
use crate::signal::Signal;

const ACQUIRING: &str = "acquiring";

/// What is wanted.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) resource: Resource,
    pub(crate) mode: Mode,
    pub(crate) terms: Terms,
    pub(crate) patience: Patience,
    /// Does not wait for other tasks of this process.
    pub(crate) bypass_local_queue: bool,
    /// A hold that is to become this one, under the same owner. It ends with the attempt, however that ends.
    pub(crate) converting: Option<Guard>,
}

/// What came of it.
#[derive(Debug)]
pub(crate) enum Outcome {
    Held(Guard),
    /// For modes that hold nothing: what is left.
    Done(u64),
}

type Acquired = Result<Option<Outcome>>;

/// Acquires. `None`: it was busy all the time.
///
/// Begins at once, so that the caller waits in something small.
pub(crate) fn acquire(engine: &Arc<Engine>, request: Request) -> impl Future<Output = Acquired> + Send + use<> {
    let acquiring = engine.begin();
    let asked = engine.settings.clock.now();
    let work = |desk| {
        let (busy, busy_until, waited) = (false, None, false);
        let (signal, arrivals, got, error) = (None, 0, None, None);
        let mut contender = Contender { acquiring, request, desk, asked, busy, busy_until, waited, signal, arrivals, got, error };
        async move { contender.run().await }
    };
    let driven = Driven::new(&engine.background, work);
    async { driven.await.unwrap_or(Err(Error::Closed)) }
}

/// The answer to a call that has not asked, because another call of its owner does.
pub(crate) fn not_asked<T>(engine: &Engine, request: &Request) -> Result<Option<T>> {
    if engine.is_closed() || engine.background.has_ended() {
        return Err(Error::Closed);
    }
    let arrival = if request.patience == Patience::None { 0 } else { u64::MAX };
    match Gate::new(&request.resource, request.mode) {
        Some(gate) => by_standing(engine, engine.turnstile.standing(&gate, arrival)),
        // Modes that have no turn in the process leave nothing known here.
        None => Ok(None),
    }
}

/// The answer to a task that was given no pass. A store that cannot be reached must not look like a lock that another client holds.
fn by_standing<T>(engine: &Engine, standing: Standing) -> Result<Option<T>> {
    match standing {
        Standing::Busy | Standing::WasBusy(_) => Ok(None),
        Standing::Unknown => Err(late(engine, ACQUIRING)),
        Standing::Trouble(error) => Err(error),
    }
}

/// The wait is over, and it is unknown whether the lock is busy.
pub(crate) fn late(engine: &Engine, doing: &str) -> Error {
    Error::unavailable(engine.capabilities.backend, doing, Fault::Timeout, "no answer before the wait was over")
}

/// One acquisition under way.
struct Contender {
    /// The engine, which knows that this is under way.
    acquiring: Acquiring,
    request: Request,
    /// Where the caller waits for the answer.
    desk: Desk<Acquired>,
    asked: Instant,
    /// Whether it was busy when last asked: at the store, or in this process.
    busy: bool,
    /// Until when the hold of another task of this process, just released, counts as busy.
    busy_until: Option<tokio::time::Instant>,
    /// Whether it was busy at any time.
    waited: bool,
    signal: Option<Signal>,
    /// How many had come to share the answer when the store was last asked.
    arrivals: u64,
    /// What the store has given.
    got: Option<Outcome>,
    /// The last one.
    error: Option<Error>,
}

impl Contender {
    fn engine(&self) -> &Arc<Engine> {
        &self.acquiring.engine
    }

    fn settings(&self) -> &Settings {
        &self.engine().settings
    }

    async fn run(&mut self) {
        let Some(gate) = self.gate() else {
            self.acquiring.waits();
            return self.contend(None).await;
        };
        let (arrival, pass) = match self.request.patience {
            Patience::None => match self.engine().turnstile.try_enter(&gate, &self.request.terms) {
                Tried::Beside => return self.contend(None).await,
                Tried::Turn(turn) => (0, Some(Pass::Turn(turn))),
                Tried::Idle { arrival, pass, owner } => (arrival, self.pass_of(&gate, arrival, pass, Some(owner)).await),
                Tried::Taken => (0, None),
            },
            patience => {
                let entry = self.engine().turnstile.enter(&gate, &self.request.terms, || patience.left(self.settings()));
                self.acquiring.waits();
                match entry {
                    Admission::Now(turn) => (0, Some(Pass::Turn(turn))),
                    Admission::Later { arrival, pass, idle } => (arrival, self.pass_of(&gate, arrival, pass, idle).await),
                }
            }
        };
        match pass {
            Some(Pass::Turn(turn)) => self.contend(Some(turn)).await,
            Some(Pass::Held(held)) => self.reply(Ok(Some(self.granted(held, self.settings().clock.now())))),
            Some(Pass::Done(left)) => self.reply(Ok(Some(Outcome::Done(left)))),
            None => self.reply(by_standing(self.engine(), self.engine().turnstile.standing(&gate, arrival))),
        }
    }

    /// What this task, which came to wait as the one with this number, is given. At once, if a hold was idle.
    async fn pass_of(&mut self, gate: &Gate, arrival: u64, mut pass: oneshot::Receiver<Pass>, idle: Option<u64>) -> Option<Pass> {
        if let Some(owner) = idle {
            self.engine().keeper.resume(owner);
            if let Ok(pass) = pass.try_recv() {
                return Some(pass);
            }
        }
        Box::pin(self.wait_for_turn(gate, arrival, pass)).await
    }

    /// Where this one waits for others of its process, if it does.
    fn gate(&self) -> Option<Gate> {
        let Request { resource, mode, patience, bypass_local_queue, converting, .. } = &self.request;
        let gate = Gate::new(resource, *mode)?;
        // What may be shared is not busy because another task of this process asks. And a hold that is converted may be what the
        // tasks in the queue wait for.
        let shared = mode.is_shared() || gate.answers_are_shared();
        let bypass = *bypass_local_queue || shared && *patience == Patience::None || converting.is_some();
        (!bypass).then_some(gate)
    }

    fn claim(&self, turn: Option<&Turn>) -> Claim {
        let Request { resource, mode, terms, patience, converting, .. } = &self.request;
        let engine = self.engine();
        // Only a hold that keeps its turn can be handed over.
        let turn = turn.filter(|_| engine.capabilities.token_blocks && !mode.is_shared());
        let lingers = turn.is_some() && *mode == Mode::Exclusive && !terms.fixed && !terms.linger.is_zero();
        let owner = || if lingers { engine.owners.next_lingering() } else { engine.owners.next() };
        Claim {
            resource: resource.clone(),
            owner: converting.as_ref().map_or_else(owner, Guard::owner_id),
            mode: *mode,
            queue: if *patience == Patience::None { Queue::Never } else { Queue::Allowed },
            lease: terms.lease,
            tokens: turn.map_or(1, |turn| turn.tokens(lingers)),
            note: terms.note.clone(),
        }
    }

    fn plan(&self, turn: Option<&Turn>) -> Plan {
        let Request { mode, patience, converting, .. } = &self.request;
        let can = &self.engine().capabilities;
        let once = *patience == Patience::None;
        Plan {
            once,
            waits: mode.waits(),
            converts: converting.is_some(),
            // In a queue at the store most answers are busy; so they are where other processes were seen to want it.
            watch_first: can.watch_first && (mode.keeps_position() || turn.is_some_and(Turn::is_contended)),
            watch_after_failure: can.watch_first,
            keeps_position: (can.queues || mode.keeps_position()) && !once,
            rests: turn.is_some_and(Turn::rests),
            attempts: self.settings().retry.attempts,
        }
    }

    /// Asks until there is an answer for the caller.
    async fn contend(&mut self, mut turn: Option<Turn>) {
        let claim = self.claim(turn.as_ref());
        let mut state = Progress::new(self.plan(turn.as_ref()));
        let mut event = Event::Begin;
        let end = loop {
            let action;
            (state, action) = state.step(event);
            event = match action {
                Action::End(end) => break end,
                // Without a caller the grant would only have to be undone.
                Action::Ask if self.is_stopped() => Event::Stopped,
                Action::Ask => self.ask(&claim, &mut turn).await,
                // Boxed: the future of a caller that need not wait stays small.
                Action::Rest => Box::pin(self.rest(turn.as_ref())).await,
                Action::Subscribe => Box::pin(self.subscribe(&claim)).await,
                Action::AwaitSignal { within } => Box::pin(self.await_signal(turn.as_ref(), within)).await,
                Action::Sleep { pause } => Box::pin(self.unless_stopped(tokio::time::sleep(pause))).await,
                Action::BackOff { failures } => Box::pin(self.back_off(failures)).await,
            };
        };
        self.signal = None;
        let got = self.got.take();
        if got.is_none() && state.undo && claim.mode.holds() {
            Box::pin(self.undo(claim)).await;
        }
        // Before the answer: the caller's next lock() must not find this turn.
        drop(turn);
        let answer = match (got, end) {
            (Some(got), _) => Ok(Some(got)),
            // The store knows better than the guard.
            (None, End::Revoked) => self.request.converting.take().map_or(Ok(None), |old| Err(old.revoked().into())),
            (None, End::Failed) => self.error.take().map_or(Ok(None), Err),
            (None, End::NotGranted | End::Granted | End::Done) => Ok(None),
        };
        // A hold that was not converted ends before the answer.
        drop(self.request.converting.take());
        self.reply(answer);
    }

    /// Answers a caller whose time is up while the store has yet to answer.
    fn time_is_up(&mut self, doing: &str) {
        let busy = self.busy || self.busy_until.is_some_and(|until| tokio::time::Instant::now() < until);
        self.reply(if busy { Ok(None) } else { Err(late(self.engine(), doing)) });
    }

    /// Counts a grant, and makes its guard.
    fn granted(&self, held: Held, now: Instant) -> Outcome {
        let waited = now.since(self.asked);
        self.settings().counters.waited(waited);
        let hold = held.hold();
        let (name, token) = (&hold.claim.resource, hold.token);
        if self.waited {
            debug!(?name, %token, ?waited, "waited");
        }
        debug!(?name, %token, ?waited, "granted");
        Outcome::Held(Guard::new(Arc::new(held)))
    }

    fn reply(&mut self, answer: Acquired) {
        let answer = match answer {
            Ok(None) | Err(_) if self.engine().is_closed() => Err(Error::Closed),
            other => other,
        };
        // Before the answer: an answered caller does not count as waiting.
        if self.acquiring.answered() && matches!(answer, Ok(None)) {
            self.settings().counters.not_granted.up();
        }
        // Without a caller the guard is dropped, and so released.
        drop(self.desk.answer(answer));
    }
}
