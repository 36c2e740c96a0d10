//! [`Hold`]: one grant, shared by its guards, the keeper and its watchers.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;

use crate::backend::Claim;
use crate::clock::{Clock, Instant};
use crate::lost::{Lost, LostReason};
use crate::name::{Resource, Token};

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
    /// How long it stays with the process after its first release, for the next task that asks.
    pub(crate) linger: Duration,
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
    /// Valid until then, in nanoseconds of the clock. [`LOST`] and [`RELEASED`] are final. One word decides whether and how the hold
    /// is over: a renewal at the moment of a loss cannot extend it, and a release is never taken for a loss.
    deadline: AtomicU64,
    overdue: AtomicBool,
    /// Why it was lost; set right after the word.
    lost: OnceLock<Lost>,
    changed: Notify,
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
        let expired = |until: u64| (!is_over(until) && until <= now.as_nanos()).then_some(LOST);
        match self.deadline.fetch_update(Ordering::AcqRel, Ordering::Acquire, expired) {
            Ok(_) => {
                self.tell(Some(self.expiry_reason()));
                false
            }
            Err(until) => !is_over(until),
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
        // Replies may come in another order than the requests went out.
        let later = |until: u64| (!is_over(until)).then(|| until.max(deadline.as_nanos()));
        self.is_valid() && self.deadline.fetch_update(Ordering::AcqRel, Ordering::Acquire, later).is_ok()
    }

    /// A renewal failed or got no answer.
    pub(crate) fn mark_overdue(&self) {
        self.overdue.store(true, Ordering::Relaxed);
    }

    /// Ends the hold as lost; false if it had ended before.
    pub(crate) fn lose(&self, reason: LostReason) -> bool {
        self.end(LOST, Some(reason))
    }

    /// Ends the hold as given back at a moment that is now; false if it had ended before.
    pub(crate) fn mark_released(&self, now: Instant) -> bool {
        // A deadline that has passed unseen is a loss, not a release.
        self.is_valid_at(now) && self.end(RELEASED, None)
    }

    fn end(&self, word: u64, reason: Option<LostReason>) -> bool {
        let end = |until: u64| (!is_over(until)).then_some(word);
        let ended = self.deadline.fetch_update(Ordering::AcqRel, Ordering::Acquire, end).is_ok();
        if ended {
            self.tell(reason);
        }
        ended
    }

    /// Tells the waiters for the end. Called once, after the word has moved.
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

    /// Resolves when the hold is over: with `Some` when it was lost, with `None` when it was released.
    pub(crate) async fn wait_for_end(&self) -> Option<Lost> {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            // Also notices a deadline that the keeper has not come to yet.
            if !self.is_valid() {
                if self.is_released() {
                    return None;
                }
                if let Some(lost) = self.lost.get() {
                    return Some(lost.clone());
                }
            }
            changed.await;
        }
    }
}

/// A view of a hold that does not keep it: for the task that must stop when the lock is lost.
#[derive(Debug, Clone)]
pub struct Watcher {
    pub(super) hold: Arc<Hold>,
}

impl Watcher {
    /// The name.
    #[must_use]
    pub fn resource(&self) -> &Resource {
        &self.hold.claim.resource
    }

    /// As [`Guard::token`](crate::Guard::token).
    #[must_use]
    pub fn token(&self) -> Token {
        self.hold.token
    }

    /// As [`Guard::is_valid`](crate::Guard::is_valid); false also after a regular release.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.hold.is_valid()
    }

    /// Resolves when the hold is over: with `Some` when it was lost, with `None` when it was given back.
    ///
    /// # Cancel safety
    /// Safe: nothing is missed.
    pub async fn ended(&self) -> Option<Lost> {
        self.hold.wait_for_end().await
    }
}

#[cfg(test)]
mod tests;
