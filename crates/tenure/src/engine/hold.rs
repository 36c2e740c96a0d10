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
        self.give_back_at(self.clock.now())
    }

    /// The same for one who knows the time.
    pub(crate) fn give_back_at(&self, now: Instant) -> bool {
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
mod tests {
    use super::*;
    use crate::backend::Mode;
    use crate::name::{ClientId, OwnerIds, Resource};

    const LEASE: Duration = Duration::from_secs(30);

    fn hold(clock: &Clock) -> Hold {
        let owner = OwnerIds::new(ClientId::random().expect("random bits")).next();
        let claim = Claim::new(Resource::new("a").expect("a name"), owner, Mode::Exclusive, LEASE);
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
            assert!(!hold.is_valid() && hold.deadline().is_none() && hold.is_lost() != hold.is_released());
            assert!(!hold.lose(LostReason::Closed) && !hold.give_back(), "it ends once");
        }
    }

    #[test]
    fn a_renewal_in_the_moment_of_a_release_never_takes_it_for_a_loss() {
        let clock = Clock::for_tests();
        for _ in 0..20_000 {
            let hold = hold(&clock);
            let later = clock.now().after(LEASE * 2);
            std::thread::scope(|scope| {
                let renewal = scope.spawn(|| {
                    while hold.extend(later) {}
                    hold.is_released()
                });
                assert!(hold.give_back());
                assert!(renewal.join().expect("no panic"), "a release looked like a loss");
            });
        }
    }
}
