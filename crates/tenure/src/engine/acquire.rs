//! The one acquire loop: asks, waits to be woken, asks again; cancel-safe on every backend.
//!
//! It runs as a task of the locker's runtime. The caller's future only waits for the answer, so it may live on any
//! executor and be dropped at any point: the task notices, lets the call under way end, and undoes what it did.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select;
use tokio::sync::oneshot;
use tracing::debug;

use crate::backend::{Attempt, Claim, Mode, Queue, Retry};
use crate::clock::{Instant, deadline};
use crate::engine::Engine;
use crate::engine::call::bounded;
use crate::engine::guard::{Guard, Held};
use crate::engine::hold::{Hold, Terms};
use crate::engine::turnstile::{Entry, Gate, Pass, Standing, Tried, Turn};
use crate::error::{Error, Fault, Result};
use crate::name::Resource;
use crate::signal::Signal;

/// The most tokens that one grant reserves, and so the most hand-overs inside a process in a row.
const MAX_TOKENS: usize = 16;

/// The least time between a failed attempt and the next, if the policy's pause is not shorter.
const LEAST_PAUSE: Duration = Duration::from_millis(100);

/// How often one who does not wait asks again because others asked in the same moment.
const MOST_COLLISIONS: u32 = 4;

/// How long the caller is willing to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Ask once.
    None,
    Until(Instant),
    Endless,
}

impl Patience {
    pub(crate) fn bound(self) -> Instant {
        match self {
            Self::None | Self::Endless => Instant::from_nanos(u64::MAX),
            Self::Until(when) => when,
        }
    }
}

/// What is wanted.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) resource: Resource,
    pub(crate) mode: Mode,
    pub(crate) terms: Terms,
    pub(crate) patience: Patience,
    /// Asks for itself, beside others of this process.
    pub(crate) alone: bool,
    /// A hold that is to become this one, under the same owner. It ends with the attempt, however that ends.
    pub(crate) instead_of: Option<Guard>,
}

/// What came of it.
#[derive(Debug)]
pub(crate) enum Outcome {
    Held(Guard),
    /// For modes that hold nothing: what is left.
    Done(u64),
}

type Answer = oneshot::Sender<Result<Option<Outcome>>>;

/// Starts an acquisition and returns where the answer will come. Dropping the receiver cancels it.
pub(crate) fn start(core: &Arc<Engine>, request: Request) -> oneshot::Receiver<Result<Option<Outcome>>> {
    let (answer, receiver) = oneshot::channel();
    let runtime = core.runtime.clone();
    let core = Arc::clone(core);
    // Counted before it runs: closing must not overtake a task that has yet to be polled.
    let busy = core.begin();
    runtime.spawn(async move {
        let _busy = busy;
        let asked = core.settings.clock.now();
        let contender =
            Contender { core: &core, request, answer: Some(answer), asked, busy: false, busy_until: None, waited: false };
        contender.run().await;
    });
    receiver
}

/// What is told to one who did not come to ask, because another call of its owner does: what is known from that.
pub(crate) fn not_asked<T>(core: &Engine, request: &Request) -> Result<Option<T>> {
    let arrival = if request.patience == Patience::None { 0 } else { u64::MAX };
    match Gate::new(&request.resource, request.mode).map(|gate| core.turnstile.standing(&gate, arrival)) {
        Some(Standing::Unknown) => Err(late(core, "acquiring")),
        Some(Standing::Trouble(error)) => Err(error),
        // Of those who have no turn in the process nothing is known here.
        Some(Standing::Busy | Standing::WasBusy(_)) | None => Ok(None),
    }
}

/// The wait is over, and nobody knows whether the lock is busy.
pub(crate) fn late(core: &Engine, doing: &str) -> Error {
    Error::unavailable(core.capabilities.backend, doing, Fault::Timeout, "no answer before the wait was over")
}

struct Contender<'a> {
    core: &'a Arc<Engine>,
    request: Request,
    /// Taken when the caller has been answered.
    answer: Option<Answer>,
    asked: Instant,
    /// Whether somebody else had it when last asked: at the store, or in this process.
    busy: bool,
    /// Until when it counts that somebody else of this process has just had it.
    busy_until: Option<tokio::time::Instant>,
    /// Whether somebody else had it at any time.
    waited: bool,
}

/// Why a wait ended.
enum Woken {
    /// Ask (again).
    Go,
    /// The time is up, the caller has gone, or the locker is closing.
    Stop,
}

impl Contender<'_> {
    async fn run(mut self) {
        self.core.settings.counters.waiting.up();
        let Some(gate) = self.gate() else { return self.contend(None).await };
        let (arrival, pass) = match self.request.patience {
            Patience::None => match self.core.turnstile.try_enter(&gate) {
                Tried::Alone => return self.contend(None).await,
                Tried::Turn(turn) => (0, Some(Pass::Turn(turn))),
                Tried::Taken => (0, None),
            },
            _ => self.pass(&gate).await,
        };
        match pass {
            Some(Pass::Turn(turn)) => self.contend(Some(turn)).await,
            Some(Pass::Held(held)) => self.grant(held),
            Some(Pass::Done(left)) => self.reply(Ok(Some(Outcome::Done(left)))),
            // A store that cannot be reached must not look like a lock that somebody holds.
            None => match self.core.turnstile.standing(&gate, arrival) {
                Standing::Busy | Standing::WasBusy(_) => self.reply(Ok(None)),
                Standing::Unknown => self.reply(Err(late(self.core, "acquiring"))),
                Standing::Trouble(error) => self.reply(Err(error)),
            },
        }
    }

    /// Where this one waits for others of its process, if it does.
    fn gate(&self) -> Option<Gate> {
        let Request { resource, mode, patience, alone, instead_of, .. } = &self.request;
        let gate = Gate::new(resource, *mode)?;
        // What may be shared is not taken because another one of this process is asking. And those who wait may wait for
        // the very hold that is to be changed.
        let shared = mode.is_shared() || gate.answers_are_shared();
        let alone = *alone || shared && *patience == Patience::None || instead_of.is_some();
        (!alone).then_some(gate)
    }

    /// Waits for this process's turn. The number is that of this one among those who came to wait.
    async fn pass(&mut self, gate: &Gate) -> (u64, Option<Pass>) {
        let Request { terms, patience, .. } = &self.request;
        let wait = patience.bound().since(self.core.settings.clock.now());
        match self.core.turnstile.enter(gate, terms, wait) {
            Entry::Now(turn) => (0, Some(Pass::Turn(turn))),
            Entry::Later { arrival, pass: mut later } => {
                let mut got = None;
                let wait = async { got = (&mut later).await.ok() };
                match self.unless_stopped(wait).await {
                    Woken::Go => {
                        // What the one before was told is all that this one knows until it is told something itself.
                        let standing = self.core.turnstile.standing(gate, arrival);
                        self.waited = matches!(standing, Standing::Busy | Standing::WasBusy(_));
                        match standing {
                            Standing::Busy => self.busy = true,
                            Standing::WasBusy(until) => self.busy_until = Some(until),
                            Standing::Unknown | Standing::Trouble(_) => {}
                        }
                        (arrival, got)
                    }
                    // Whatever came in this moment goes back by being dropped.
                    Woken::Stop => (arrival, None),
                }
            }
        }
    }

    async fn contend(&mut self, mut turn: Option<Turn>) {
        let Engine { settings, capabilities, owners, keeper, .. } = &**self.core;
        let Request { resource, mode, terms, patience, instead_of, .. } = &self.request;
        let (mode, terms, patience) = (*mode, terms.clone(), *patience);
        // Only those who keep their turn can hand their hold over.
        let behind = turn.as_ref().filter(|_| capabilities.token_blocks && !mode.is_shared()).map_or(0, Turn::waiting);
        let behind = behind.min(MAX_TOKENS - 1);
        let claim = Claim {
            resource: resource.clone(),
            owner: instead_of.as_ref().map_or_else(|| owners.next(), Guard::owner_id),
            mode,
            queue: if patience == Patience::None { Queue::Never } else { Queue::Allowed },
            lease: terms.lease,
            tokens: u32::try_from(behind).unwrap_or(0) + 1,
            note: terms.note.clone(),
        };
        let mut signal = None;
        let (mut failures, mut collisions) = (0_u32, 0_u32);
        // Whether the store may know this owner: then it must be told to forget it.
        let mut residue = false;
        // Others who wait at the store shall have their turn. Who has little time has some of it left to ask.
        let left = patience.bound().since(settings.clock.now());
        if let Some(turn) = turn.as_ref().filter(|turn| turn.rests()) {
            self.unless_stopped(turn.rest(left / 2)).await;
        }
        let outcome = loop {
            if signal.is_none() && capabilities.watch_first && patience != Patience::None && mode.waits() {
                signal = self.watch(&claim).await;
            }
            // A question that nobody waits for is not asked: its grant would only have to be undone.
            if self.is_stopped() {
                break Ok(None);
            }
            let sent = settings.clock.now();
            let arrivals = turn.as_ref().map_or(0, Turn::arrivals);
            let error = match self.ask(&claim).await {
                Ok(Attempt::Granted { token, valid_for }) => {
                    let until = deadline(sent, valid_for, settings.drift);
                    // One of a reserved block, where the store knows only the whole.
                    let token = self.request.instead_of.as_ref().map_or(token, Guard::token);
                    let held_as = Claim { mode: mode.held_as(), ..claim.clone() };
                    let hold = Hold::new(held_as, token, terms.clone(), settings.clock.clone(), sent, until);
                    if hold.is_valid() {
                        // The old one's release may be under way by now: one word decides whether there was still something to change.
                        if let Some(old) = self.request.instead_of.take()
                            && let Err(lost) = old.superseded()
                        {
                            residue = true;
                            break Err(lost.into());
                        }
                        turn.iter().for_each(Turn::heard_grant);
                        settings.counters.granted.up();
                        let held = keeper.keep(hold, turn.take_if(|_| !mode.is_shared()), until);
                        return self.grant(held);
                    }
                    // The answer took longer than the lease. Asking again is the same question.
                    let backend = capabilities.backend;
                    let late = format!("granted for {valid_for:?}, but the answer came too late");
                    Error::unavailable(backend, "acquiring", Fault::Timeout, late)
                }
                Ok(Attempt::Done { left }) => {
                    turn.iter().for_each(|turn| {
                        turn.heard_grant();
                        turn.share(arrivals, left);
                    });
                    drop(turn);
                    return self.reply(Ok(Some(Outcome::Done(left))));
                }
                Ok(Attempt::Busy { retry: Retry::OnSignal { within }, .. }) => {
                    turn.iter().for_each(|turn| turn.heard_busy(arrivals));
                    failures = 0;
                    (self.busy, self.waited) = (true, true);
                    residue |= (capabilities.queues || mode.keeps_place()) && claim.queue == Queue::Allowed;
                    if let Some(old) = self.request.instead_of.take() {
                        // The store knows better than its guard.
                        break Err(old.revoked().into());
                    }
                    if patience == Patience::None || !mode.waits() {
                        break Ok(None);
                    }
                    let woken = match &mut signal {
                        Some(signal) => {
                            let newcomer = async {
                                match &turn {
                                    Some(turn) => turn.newcomer(arrivals).await,
                                    None => std::future::pending().await,
                                }
                            };
                            let woken = async {
                                select(pin!(signal.fired()), pin!(newcomer)).await;
                            };
                            self.unless_stopped(timeout(within, woken)).await
                        }
                        None => {
                            signal = self.watch(&claim).await;
                            // Asks once more at once: the lock may have become free before the subscription stood.
                            // Without one, polls.
                            let pause = if signal.is_some() { Duration::ZERO } else { within };
                            self.unless_stopped(tokio::time::sleep(pause)).await
                        }
                    };
                    match woken {
                        Woken::Go => continue,
                        Woken::Stop => break Ok(None),
                    }
                }
                Ok(Attempt::Busy { retry: Retry::After(pause), .. }) => {
                    turn.iter().for_each(|turn| turn.heard_busy(arrivals));
                    failures = 0;
                    collisions += 1;
                    (self.busy, self.waited) = (true, true);
                    residue |= (capabilities.queues || mode.keeps_place()) && claim.queue == Queue::Allowed;
                    if patience == Patience::None && collisions > MOST_COLLISIONS {
                        break Ok(None);
                    }
                    // Not sooner for a signal: that may come from one of those who collided.
                    match self.unless_stopped(tokio::time::sleep(pause)).await {
                        Woken::Go => continue,
                        Woken::Stop => break Ok(None),
                    }
                }
                Err(e) => e,
            };
            residue = true;
            (self.busy, self.busy_until) = (false, None);
            failures += 1;
            settings.counters.errors.up();
            turn.iter().for_each(|turn| turn.heard_trouble(error.clone()));
            debug!(name = ?claim.resource, %error, failures, "acquire failed");
            let attempts = if patience == Patience::None { 2 } else { settings.retry.attempts };
            if !error.is_transient() || failures >= attempts {
                break Err(error);
            }
            let pause = if patience == Patience::None { Duration::ZERO } else { settings.retry.pause(failures) };
            let woken = match &mut signal {
                // Fires also when a store that was away is back. Not at once: firings that come with the errors would use up all
                // attempts in a burst.
                Some(signal) => {
                    let least = pause.min(LEAST_PAUSE);
                    let wait = async {
                        tokio::time::sleep(least).await;
                        timeout(pause - least, signal.fired()).await;
                    };
                    self.unless_stopped(wait).await
                }
                None => self.unless_stopped(tokio::time::sleep(pause)).await,
            };
            if matches!(woken, Woken::Stop) {
                break Err(error);
            }
        };
        drop(signal);
        if residue && mode.holds() {
            keeper.forget(claim);
        }
        // Before the caller is answered: what it asks next must not find its own turn taken.
        drop(turn);
        drop(self.request.instead_of.take());
        self.reply(outcome);
    }

    /// One question. If the caller's time is up first, the caller is answered; the call is still seen to its end, so
    /// that the release that follows cannot overtake it.
    async fn ask(&mut self, claim: &Claim) -> Result<Attempt> {
        let core = self.core;
        let backend = &core.settings.backend;
        let mut call = pin!(bounded(core.settings.timeout, &**backend, "acquiring", backend.acquire(claim)));
        let mut result = None;
        match self.unless_stopped(async { result = Some((&mut call).await) }).await {
            Woken::Go => {}
            Woken::Stop => self.time_is_up("acquiring"),
        }
        match result {
            Some(result) => result,
            None => call.await,
        }
    }

    /// Subscribes. If the caller's time is up first, the caller is answered.
    async fn watch(&mut self, claim: &Claim) -> Option<Signal> {
        let core = self.core;
        let backend = &core.settings.backend;
        let mut signal = None;
        let call = bounded(core.settings.timeout, &**backend, "subscribing", backend.watch(claim));
        if matches!(self.unless_stopped(async { signal = call.await.ok() }).await, Woken::Stop) {
            self.time_is_up("subscribing");
        }
        signal
    }

    /// Answers a caller whose time is up while the store has yet to answer.
    fn time_is_up(&mut self, doing: &str) {
        let busy = self.busy || self.busy_until.is_some_and(|until| tokio::time::Instant::now() < until);
        self.reply(if busy { Ok(None) } else { Err(late(self.core, doing)) });
    }

    /// Whether nobody waits for the answer any more.
    fn is_stopped(&self) -> bool {
        self.core.is_closed() || self.answer.as_ref().is_none_or(oneshot::Sender::is_closed)
    }

    /// Runs a wait until the caller's time is up, the caller has gone or the locker closes.
    async fn unless_stopped(&mut self, wait: impl Future<Output = ()>) -> Woken {
        let clock = &self.core.settings.clock;
        let give_up = match self.request.patience {
            // Both questions together take no longer than one call may.
            Patience::None => self.asked.after(self.core.settings.timeout),
            patience => patience.bound(),
        };
        let left = give_up.since(clock.now());
        let mut closing = self.core.closed.subscribe();
        let Some(answer) = &mut self.answer else { return Woken::Stop };
        tokio::select! {
            biased;
            () = answer.closed() => Woken::Stop,
            _ = closing.wait_for(|closed| *closed) => Woken::Stop,
            () = wait => Woken::Go,
            () = sleep_long(left) => Woken::Stop,
        }
    }

    fn grant(&mut self, held: Held) {
        let waited = self.core.settings.clock.now().since(self.asked);
        self.core.settings.counters.waited(waited);
        let hold = held.hold();
        let (name, token) = (&hold.claim.resource, hold.token);
        if self.waited {
            debug!(?name, %token, ?waited, "waited");
        }
        debug!(?name, %token, ?waited, "granted");
        self.reply(Ok(Some(Outcome::Held(Guard::new(held)))));
    }

    fn reply(&mut self, result: Result<Option<Outcome>>) {
        let Some(answer) = self.answer.take() else { return };
        // Before the answer, so that nobody who has it finds itself counted as waiting.
        self.core.settings.counters.waiting.down();
        let result = match result {
            Ok(None) | Err(_) if self.core.is_closed() => Err(Error::Closed),
            other => other,
        };
        if matches!(result, Ok(None)) {
            self.core.settings.counters.not_granted.up();
        }
        // A guard that nobody waits for any more is dropped, and so given back.
        drop(answer.send(result));
    }
}

async fn timeout(after: Duration, wait: impl Future<Output = ()>) {
    drop(tokio::time::timeout(after, wait).await);
}

/// As tokio's sleep, which cannot reach the end of time.
pub(crate) async fn sleep_long(d: Duration) {
    if d > Duration::from_secs(365 * 24 * 60 * 60) {
        std::future::pending().await
    } else {
        tokio::time::sleep(d).await;
    }
}
