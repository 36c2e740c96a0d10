//! Asking the store once, and what follows from its answer.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tracing::debug;

use super::step::Event;
use super::wait::sleep_long;
use super::{ACQUIRING, Contender, Outcome};
use crate::backend::{Attempt, Claim, Retry};
use crate::clock::{Instant, deadline};
use crate::engine::driven::{BackendCall, at_once, bounded, poll_call, unanswered};
use crate::engine::guard::Guard;
use crate::engine::hold::Hold;
use crate::engine::turnstile::Turn;
use crate::engine::{Engine, Settings};
use crate::error::{Error, Fault, Result};
use crate::name::Token;

impl Contender {
    /// One question. If the caller's time is up first, the caller is answered; the call is still seen to its end, so
    /// that the release that follows cannot overtake it.
    pub(super) async fn ask(&mut self, claim: &Claim, turn: &mut Option<Turn>) -> Event {
        let engine = Arc::clone(self.engine());
        let Settings { backend, clock, .. } = &engine.settings;
        let calls = engine.keeper.calls();
        let mut sent = clock.now();
        let slot = match calls.try_enter(sent) {
            Some(slot) => slot,
            None => {
                let slot = Box::pin(calls.wait(|| clock.now())).await;
                // Without a caller the grant would only have to be undone.
                if self.is_stopped() {
                    return Event::Stopped;
                }
                sent = clock.now();
                slot
            }
        };
        self.arrivals = turn.as_ref().map_or(0, Turn::arrivals);
        let mut call = backend.acquire(claim);
        let result = match at_once(&**backend, ACQUIRING, &mut call).await {
            Some(result) => result,
            // Boxed: the future of an answer at once stays small.
            None => Box::pin(self.answer_to(&engine, call)).await,
        };
        drop(slot);
        self.heard(claim, turn, sent, result)
    }

    /// Waits for the answer to a question that was sent a moment ago.
    async fn answer_to(&mut self, engine: &Engine, mut call: BackendCall<'_, Attempt>) -> Result<Attempt> {
        let Settings { backend, timeout, clock, .. } = &engine.settings;
        let limit = clock.now().after(*timeout);
        if let Some(answer) = self.answer_or_stop(engine, &mut call, limit).await {
            return answer;
        }
        self.time_is_up(ACQUIRING);
        bounded(limit.since(clock.now()), &**backend, ACQUIRING, call).await
    }

    /// `None` if the caller's time is up first, the caller has gone or the locker closes.
    async fn answer_or_stop(
        &self,
        engine: &Engine,
        call: &mut BackendCall<'_, Attempt>,
        limit: Instant,
    ) -> Option<Result<Attempt>> {
        let Settings { backend, clock, timeout, .. } = &engine.settings;
        let give_up = self.gives_up_at();
        let mut closing = pin!(engine.closing(self.asked.as_nanos()));
        // One timer for both.
        let mut time = pin!(sleep_long(limit.min(give_up).since(clock.now())));
        // It was polled when it was sent, by the same task.
        let mut is_polled = true;
        std::future::poll_fn(|cx| {
            if self.is_stopped() || closing.as_mut().poll(cx).is_ready() {
                return Poll::Ready(None);
            }
            if !std::mem::replace(&mut is_polled, false)
                && let Poll::Ready(answer) = poll_call(&**backend, ACQUIRING, call, cx)
            {
                return Poll::Ready(Some(answer));
            }
            let late = || (limit <= give_up).then(|| Err(unanswered(&**backend, ACQUIRING, *timeout)));
            time.as_mut().poll(cx).map(|()| late())
        })
        .await
    }

    fn heard(&mut self, claim: &Claim, turn: &mut Option<Turn>, sent: Instant, result: Result<Attempt>) -> Event {
        match result {
            Ok(Attempt::Granted { token, valid_for }) => self.grant(claim, turn, sent, (token, valid_for)),
            Ok(Attempt::Done { left }) => {
                turn.iter().for_each(|turn| {
                    turn.heard_grant();
                    turn.share(self.arrivals, left);
                });
                self.got = Some(Outcome::Done(left));
                Event::Done
            }
            Ok(Attempt::Busy { retry: Retry::OnSignal { within }, .. }) => {
                self.heard_busy(turn.as_ref());
                Event::Busy { within }
            }
            Ok(Attempt::Busy { retry: Retry::After(pause), .. }) => {
                self.heard_busy(turn.as_ref());
                Event::Collided { pause }
            }
            Err(error) => self.failed(claim, turn.as_ref(), error),
        }
    }

    fn grant(&mut self, claim: &Claim, turn: &mut Option<Turn>, sent: Instant, (token, valid_for): (Token, Duration)) -> Event {
        let engine = Arc::clone(self.engine());
        let Settings { clock, drift, counters, .. } = &engine.settings;
        let until = deadline(sent, valid_for, *drift);
        // One of a reserved block, where the store knows only the whole.
        let token = self.request.converting.as_ref().map_or(token, Guard::token);
        let held_as = Claim { mode: claim.mode.held_as(), ..claim.clone() };
        let now = clock.now();
        if now >= until {
            // The answer took longer than the lease. Asking again is the same question.
            let late = format!("granted for {valid_for:?}, but the answer came too late");
            let error = Error::unavailable(engine.capabilities.backend, ACQUIRING, Fault::Timeout, late);
            return self.failed(claim, turn.as_ref(), error);
        }
        // The old one's release may be under way by now: one word decides whether there was still something to change.
        if let Some(old) = self.request.converting.take()
            && let Err(lost) = old.superseded()
        {
            self.error = Some(lost.into());
            return Event::Failed { transient: false };
        }
        let hold = Hold::new(held_as, token, self.request.terms.clone(), clock.clone(), sent, until);
        turn.iter().for_each(Turn::heard_grant);
        counters.granted.up();
        let held = engine.keeper.keep(hold, turn.take_if(|_| !claim.mode.is_shared()), until, now);
        self.got = Some(self.granted(held, now));
        Event::Granted
    }

    fn heard_busy(&mut self, turn: Option<&Turn>) {
        turn.into_iter().for_each(|turn| turn.heard_busy(self.arrivals));
        (self.busy, self.waited) = (true, true);
    }

    fn failed(&mut self, claim: &Claim, turn: Option<&Turn>, error: Error) -> Event {
        (self.busy, self.busy_until) = (false, None);
        self.settings().counters.errors.up();
        turn.into_iter().for_each(|turn| turn.heard_trouble(error.clone()));
        debug!(name = ?claim.resource, %error, "acquire failed");
        let transient = error.is_transient();
        self.error = Some(error);
        Event::Failed { transient }
    }
}
