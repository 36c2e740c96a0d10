//! [`Hold`]: one grant, shared by its guards, the keeper and whoever watches it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;

use crate::backend::Claim;
use crate::clock::{Clock, Instant};
use crate::guard::{Lost, LostReason, State};
use crate::name::Token;

/// How long a hold lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) lease: Duration,
    /// Ends by itself after the lease instead of being renewed.
    pub(crate) fixed: bool,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) note: Option<Arc<str>>,
}

impl Terms {
    /// Whether a hold with these terms can be handed to a waiter with those: the store has been told lease and note.
    pub(crate) fn allow_hand_over(&self, next: &Self) -> bool {
        !self.fixed && !next.fixed && self.lease == next.lease && self.note == next.note
    }
}

const OVER: u64 = 0;

#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) claim: Claim,
    pub(crate) token: Token,
    pub(crate) terms: Terms,
    pub(crate) clock: Clock,
    /// When this hold began, for its guard.
    pub(crate) since: Instant,
    /// Valid until then, in nanoseconds of the clock. [`OVER`] is final: one word decides, so that a hold that
    /// once said it is lost can never be extended by a renewal that comes in at the same moment.
    deadline: AtomicU64,
    overdue: AtomicBool,
    ended: OnceLock<Ended>,
    changed: Notify,
}

#[derive(Debug, Clone)]
pub(crate) enum Ended {
    Released,
    Lost(Lost),
}

impl Hold {
    pub(crate) fn new(claim: Claim, token: Token, terms: Terms, clock: Clock, since: Instant, deadline: Instant) -> Self {
        Self {
            claim,
            token,
            terms,
            clock,
            since,
            deadline: AtomicU64::new(deadline.as_nanos()),
            overdue: AtomicBool::new(false),
            ended: OnceLock::new(),
            changed: Notify::new(),
        }
    }

    /// Whether the hold is valid at this moment. Wait-free.
    pub(crate) fn is_valid(&self) -> bool {
        let mut until = self.deadline.load(Ordering::Acquire);
        loop {
            if until == OVER {
                return false;
            }
            if self.clock.now().as_nanos() < until {
                return true;
            }
            match self.deadline.compare_exchange(until, OVER, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    self.finish(Ended::Lost(self.loss(self.expiry_reason())));
                    return false;
                }
                // A renewal or the end came in between. A renewal may be too late itself.
                Err(now) => until = now,
            }
        }
    }

    /// Until when the hold is valid; `None` when it is over.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match self.deadline.load(Ordering::Acquire) {
            OVER => None,
            nanos => Some(Instant::from_nanos(nanos)),
        }
    }

    pub(crate) fn state(&self) -> State {
        if !self.is_valid() {
            return State::Lost;
        }
        let late = !self.terms.fixed && self.expires_in() < self.terms.lease / 3;
        if late || self.overdue.load(Ordering::Relaxed) { State::Unsure } else { State::Held }
    }

    pub(crate) fn expires_in(&self) -> Duration {
        self.deadline().map_or(Duration::ZERO, |d| d.since(self.clock.now()))
    }

    /// Moves the deadline. False if the hold is over, also if only now.
    pub(crate) fn extend(&self, deadline: Instant) -> bool {
        self.overdue.store(false, Ordering::Relaxed);
        let mut until = self.deadline.load(Ordering::Acquire);
        loop {
            if until == OVER || !self.is_valid() {
                return false;
            }
            // Replies may come in another order than the requests went out.
            let later = until.max(deadline.as_nanos());
            match self.deadline.compare_exchange(until, later, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(now) => until = now,
            }
        }
    }

    /// A renewal failed or got no answer.
    pub(crate) fn mark_overdue(&self) {
        self.overdue.store(true, Ordering::Relaxed);
    }

    /// Ends the hold as lost; false if it had ended before.
    pub(crate) fn lose(&self, reason: LostReason) -> bool {
        self.end(Ended::Lost(self.loss(reason)))
    }

    /// Ends the hold as given back; false if it had ended before.
    pub(crate) fn give_back(&self) -> bool {
        // A deadline that has passed unseen is a loss, not a release.
        self.is_valid() && self.end(Ended::Released)
    }

    fn end(&self, ended: Ended) -> bool {
        let was = self.deadline.swap(OVER, Ordering::AcqRel);
        if was != OVER {
            self.finish(ended);
        }
        was != OVER
    }

    fn finish(&self, ended: Ended) {
        // Only the one that moved the deadline to OVER comes here.
        let first = self.ended.set(ended).is_ok();
        debug_assert!(first);
        self.changed.notify_waiters();
    }

    pub(crate) fn expiry_reason(&self) -> LostReason {
        if self.terms.fixed { LostReason::LeaseEnded } else { LostReason::Expired }
    }

    pub(crate) fn loss(&self, reason: LostReason) -> Lost {
        Lost { resource: self.claim.resource.clone(), token: self.token, reason }
    }

    /// How the hold ended, if it has.
    pub(crate) fn ended(&self) -> Option<&Ended> {
        self.ended.get()
    }

    /// Why a hold that is over was lost.
    pub(crate) fn why(&self) -> Lost {
        match self.ended() {
            Some(Ended::Lost(lost)) => lost.clone(),
            // Between the two steps of the one that ends it.
            _ => self.loss(self.expiry_reason()),
        }
    }

    /// Resolves when the hold is over.
    pub(crate) async fn wait_for_end(&self) -> Ended {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            // Also notices a deadline that the keeper has not come to yet.
            if !self.is_valid()
                && let Some(ended) = self.ended()
            {
                return ended.clone();
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Mode, Queue};
    use crate::name::{ClientId, OwnerIds, Resource};

    const LEASE: Duration = Duration::from_secs(30);

    fn hold(clock: &Clock) -> Hold {
        let claim = Claim {
            resource: Resource::new("a").expect("a name"),
            owner: OwnerIds::new(ClientId::random().expect("random bits")).next(),
            mode: Mode::Exclusive,
            queue: Queue::Never,
            lease: LEASE,
            tokens: 1,
            at_least: None,
            note: None,
        };
        let terms = Terms { lease: LEASE, fixed: false, max_hold: None, note: None };
        let now = clock.now();
        Hold::new(claim, Token::new(1), terms, clock.clone(), now, now.after(LEASE))
    }

    #[test]
    fn a_hold_that_is_over_is_never_extended() {
        let clock = Clock::for_tests();
        let ends: [fn(&Hold, &Clock); 4] = [
            // Seen by its guard.
            |hold, clock| {
                clock.jump(LEASE);
                assert!(!hold.is_valid());
            },
            // Seen by nobody yet.
            |_, clock| clock.jump(LEASE),
            |hold, _| assert!(hold.lose(LostReason::Revoked)),
            |hold, _| assert!(hold.give_back()),
        ];
        for end in ends {
            let hold = hold(&clock);
            assert!(hold.extend(clock.now().after(LEASE)));
            end(&hold, &clock);
            assert!(!hold.extend(clock.now().after(LEASE)));
            assert!(!hold.is_valid() && hold.deadline().is_none() && hold.ended().is_some());
            assert!(!hold.lose(LostReason::Closed) && !hold.give_back(), "it ends once");
        }
    }
}
