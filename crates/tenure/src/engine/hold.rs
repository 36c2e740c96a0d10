//! [`Hold`]: one grant, shared by its guards, the keeper and whoever watches it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;

use crate::backend::Claim;
use crate::clock::{Clock, Instant};
use crate::lost::{Lost, LostReason};
use crate::name::Token;

/// How certain a guard is of its hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HoldState {
    /// Granted, and renewed in time.
    Held,
    /// A renewal is overdue or the store does not answer; still valid until the deadline.
    Unsure,
    /// Over. Never taken back.
    Lost,
}

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

/// The two ends of a hold, in the place of its deadline.
const LOST: u64 = 0;
const RELEASED: u64 = 1;
/// The earliest deadline.
const EARLIEST: u64 = 2;

fn is_over(word: u64) -> bool {
    word < EARLIEST
}

#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) claim: Claim,
    pub(crate) token: Token,
    pub(crate) terms: Terms,
    pub(crate) clock: Clock,
    /// When this hold began, for its guard.
    pub(crate) since: Instant,
    /// Valid until then, in nanoseconds of the clock. [`LOST`] and [`RELEASED`] are final: one word decides whether it is over
    /// and how, so that a hold that once said it is lost can never be extended by a renewal that comes in at the same moment,
    /// and one that is given back is never taken for lost.
    deadline: AtomicU64,
    overdue: AtomicBool,
    /// Why it was lost; set right after the word.
    lost: OnceLock<Lost>,
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
            deadline: AtomicU64::new(deadline.as_nanos().max(EARLIEST)),
            overdue: AtomicBool::new(false),
            lost: OnceLock::new(),
            changed: Notify::new(),
        }
    }

    /// Whether the hold is valid at this moment. Wait-free.
    pub(crate) fn is_valid(&self) -> bool {
        !self.is_over() && self.is_valid_at(self.clock.now())
    }

    fn is_over(&self) -> bool {
        is_over(self.deadline.load(Ordering::Acquire))
    }

    /// Whether the hold is valid at a moment that is now.
    fn is_valid_at(&self, now: Instant) -> bool {
        let mut until = self.deadline.load(Ordering::Acquire);
        loop {
            if is_over(until) {
                return false;
            }
            if now.as_nanos() < until {
                return true;
            }
            match self.deadline.compare_exchange(until, LOST, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    self.tell(Some(self.expiry_reason()));
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
            word if is_over(word) => None,
            nanos => Some(Instant::from_nanos(nanos)),
        }
    }

    pub(crate) fn state(&self) -> HoldState {
        if !self.is_valid() {
            return HoldState::Lost;
        }
        let late = !self.terms.fixed && self.expires_in() < self.terms.lease / 3;
        if late || self.overdue.load(Ordering::Relaxed) { HoldState::Unsure } else { HoldState::Held }
    }

    pub(crate) fn expires_in(&self) -> Duration {
        self.deadline().map_or(Duration::ZERO, |d| d.since(self.clock.now()))
    }

    /// Moves the deadline. False if the hold is over, also if only now.
    pub(crate) fn extend(&self, deadline: Instant) -> bool {
        self.overdue.store(false, Ordering::Relaxed);
        let mut until = self.deadline.load(Ordering::Acquire);
        loop {
            if is_over(until) || !self.is_valid() {
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
        self.end(LOST, Some(reason))
    }

    /// Ends the hold as given back; false if it had ended before.
    pub(crate) fn give_back(&self) -> bool {
        self.mark_released(self.clock.now())
    }

    /// The same for one who knows the time.
    pub(crate) fn mark_released(&self, now: Instant) -> bool {
        // A deadline that has passed unseen is a loss, not a release.
        self.is_valid_at(now) && self.end(RELEASED, None)
    }

    fn end(&self, word: u64, reason: Option<LostReason>) -> bool {
        let mut until = self.deadline.load(Ordering::Acquire);
        while !is_over(until) {
            match self.deadline.compare_exchange(until, word, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    self.tell(reason);
                    return true;
                }
                Err(now) => until = now,
            }
        }
        false
    }

    /// Tells those who wait for the end. Called once, by who has moved the word.
    fn tell(&self, lost: Option<LostReason>) {
        if let Some(reason) = lost {
            let first = self.lost.set(self.loss(reason)).is_ok();
            debug_assert!(first);
        }
        self.changed.notify_waiters();
    }

    /// Whether it was given back.
    pub(crate) fn is_released(&self) -> bool {
        self.deadline.load(Ordering::Acquire) == RELEASED
    }

    /// Whether it is known to be lost. A deadline that has passed unseen is not.
    pub(crate) fn is_lost(&self) -> bool {
        self.deadline.load(Ordering::Acquire) == LOST
    }

    pub(crate) fn expiry_reason(&self) -> LostReason {
        if self.terms.fixed { LostReason::LeaseEnded } else { LostReason::Expired }
    }

    pub(crate) fn loss(&self, reason: LostReason) -> Lost {
        Lost { resource: self.claim.resource.clone(), token: self.token, reason }
    }

    /// Why a hold that is over was lost.
    pub(crate) fn why(&self) -> Lost {
        // Not there yet between the two steps of the one that ends it, and never there after a release.
        self.lost.get().cloned().unwrap_or_else(|| self.loss(self.expiry_reason()))
    }

    /// Resolves when the hold is over.
    pub(crate) async fn wait_for_end(&self) -> Ended {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            // Also notices a deadline that the keeper has not come to yet.
            if !self.is_valid() {
                if self.is_released() {
                    return Ended::Released;
                }
                if let Some(lost) = self.lost.get() {
                    return Ended::Lost(lost.clone());
                }
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests;
