//! How long a caller waits, and what ends a wait before its time.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::select;
use tokio::sync::oneshot;

use super::Contender;
use super::step::Event;
use crate::backend::Claim;
use crate::clock::Instant;
use crate::engine::Settings;
use crate::engine::driven::bounded;
use crate::engine::turnstile::{Gate, Pass, Standing, Turn};

/// The least time between a failed attempt and the next, if the policy's pause is not shorter.
const LEAST_PAUSE: Duration = Duration::from_millis(100);

/// How long an answer waits for what was begun to be undone.
const UNDONE_WITHIN: Duration = Duration::from_millis(50);

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

    /// How much of it is left.
    pub(super) fn left(self, settings: &Settings) -> Duration {
        match self {
            Self::None | Self::Endless => Duration::MAX,
            Self::Until(when) => when.since(settings.clock.now()),
        }
    }
}

impl Contender {
    /// Whether the caller waits no more.
    pub(super) fn is_stopped(&self) -> bool {
        self.engine().is_closed() || !self.desk.is_open()
    }

    /// When the caller's time is up.
    pub(super) fn gives_up_at(&self) -> Instant {
        match self.request.patience {
            // Both questions together take no longer than one call may.
            Patience::None => self.asked.after(self.settings().timeout),
            patience => patience.bound(),
        }
    }

    /// Runs a wait until the caller's time is up, the caller has gone or the locker closes.
    pub(super) async fn unless_stopped(&self, wait: impl Future<Output = ()>) -> Event {
        let engine = self.engine();
        let mut wait = pin!(wait);
        let mut closing = pin!(engine.closing(self.asked.as_nanos()));
        let mut time = pin!(async { sleep_long(self.gives_up_at().since(engine.settings.clock.now())).await });
        std::future::poll_fn(|cx| {
            // A caller that has gone leaves this to the background, which polls it then.
            if self.is_stopped() {
                return Poll::Ready(Event::Stopped);
            }
            // First, because many waits are over at once and need no timer.
            if wait.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Event::Woken);
            }
            let stopped = closing.as_mut().poll(cx).is_ready() || time.as_mut().poll(cx).is_ready();
            if stopped { Poll::Ready(Event::Stopped) } else { Poll::Pending }
        })
        .await
    }

    /// Waits for the turn of this task, which came to wait as the one with this number.
    pub(super) async fn wait_for_turn(&mut self, gate: &Gate, arrival: u64, mut later: oneshot::Receiver<Pass>) -> Option<Pass> {
        let mut got = None;
        let wait = async { got = (&mut later).await.ok() };
        if self.unless_stopped(wait).await == Event::Stopped {
            // A pass that came at this moment goes back by being dropped.
            return None;
        }
        if matches!(got, Some(Pass::Turn(_))) {
            // The store's answer to the task before counts until there is one for this task.
            match self.engine().turnstile.standing(gate, arrival) {
                Standing::Busy => (self.busy, self.waited) = (true, true),
                Standing::WasBusy(until) => (self.busy_until, self.waited) = (Some(until), true),
                Standing::Unknown | Standing::Trouble(_) => {}
            }
        } else {
            self.waited = true;
        }
        got
    }

    /// Lets others at the store go first, but keeps half of the caller's time to ask.
    pub(super) async fn rest(&mut self, turn: Option<&Turn>) -> Event {
        let Some(turn) = turn else { return Event::Woken };
        let left = self.request.patience.left(self.settings());
        self.unless_stopped(turn.rest(left / 2)).await
    }

    /// Waits for a signal, or for a task with which the next answer will be shared.
    pub(super) async fn await_signal(&mut self, turn: Option<&Turn>, within: Duration) -> Event {
        let arrivals = self.arrivals;
        let Some(mut signal) = self.signal.take() else { return Event::Woken };
        let newcomer = async {
            match turn {
                Some(turn) => turn.newcomer(arrivals).await,
                None => std::future::pending().await,
            }
        };
        let woken = async {
            select(pin!(signal.fired()), pin!(newcomer)).await;
        };
        let event = self.unless_stopped(timeout(within, woken)).await;
        self.signal = Some(signal);
        event
    }

    /// Waits after a failure. The signal also tells that the store is back; but firings that come with the errors must not use up all
    /// attempts in a burst.
    pub(super) async fn back_off(&mut self, failures: u32) -> Event {
        let pause = if failures == 0 { Duration::ZERO } else { self.settings().retry.pause(failures) };
        let Some(mut signal) = self.signal.take() else { return self.unless_stopped(tokio::time::sleep(pause)).await };
        let least = pause.min(LEAST_PAUSE);
        let wait = async {
            tokio::time::sleep(least).await;
            timeout(pause - least, signal.fired()).await;
        };
        let event = self.unless_stopped(wait).await;
        self.signal = Some(signal);
        event
    }

    /// Subscribes. If the caller's time is up first, the caller is answered.
    pub(super) async fn subscribe(&mut self, claim: &Claim) -> Event {
        let engine = Arc::clone(self.engine());
        let Settings { backend, timeout, .. } = &engine.settings;
        let mut signal = None;
        let call = bounded(*timeout, &**backend, "subscribing", backend.watch(claim));
        if self.unless_stopped(async { signal = call.await.ok() }).await == Event::Stopped {
            self.time_is_up("subscribing");
        }
        self.signal = signal;
        Event::Subscribed(self.signal.is_some())
    }

    /// Has the store forget the claim. Waits for that, but not for long: the next question must not take what is left of this claim
    /// for another client's lock.
    pub(super) async fn undo(&self, claim: Claim) {
        let undone = self.engine().keeper.forget(claim);
        self.unless_stopped(timeout(UNDONE_WITHIN, async { drop(undone.await) })).await;
    }
}

pub(super) async fn timeout(after: Duration, wait: impl Future<Output = ()>) {
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
