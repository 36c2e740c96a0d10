//! When the program must stop: a rule without I/O, over what the guard says and what the clock shows.

use std::time::Duration;

use tenure::clock::Instant;
use tenure::{Lost, LostReason, Resource, duration};

/// The longest that a program may take to stop when the lock is not in doubt any more: it is gone.
const LONGEST_GRACE: Duration = Duration::from_secs(5);

/// How much of the lease is left when something has to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Margins {
    /// Two thirds have passed without a confirmed renewal: time to stop in good order.
    terminate: Duration,
    /// Time to stop in any order, so that nothing runs when the lease ends.
    kill: Duration,
}

impl Margins {
    fn of(lease: Duration) -> Self {
        let terminate = lease / 3;
        let kill = (lease / 10).clamp(Duration::from_millis(50), Duration::from_secs(2)).min(terminate / 2);
        Self { terminate, kill }
    }

    fn without_warden(self, lease_ends: Instant) -> Deadlines {
        let terminate = lease_ends.before((self.terminate + self.kill) / 2);
        Deadlines { terminate: Some(terminate), kill: lease_ends.before(self.kill / 2) }
    }
}

/// By when the program is stopped by its guardian if the warden stands still: a little later than the warden would do it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Deadlines {
    /// `None` when it has been asked to end already.
    pub(super) terminate: Option<Instant>,
    pub(super) kill: Instant,
}

/// What is to be done to the program's group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Terminate,
    Kill,
}

/// Why the program is stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Why {
    Unconfirmed,
    /// The warden itself was not there in time, and the guardian has acted.
    StoodStill,
    Lost(Lost),
    MaxHold,
}

/// The answer of [`Warden::look`].
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) order: Option<Order>,
    /// When to look again at the latest.
    pub(super) wake: Option<Instant>,
}

/// Watches one hold. The decision to stop the program is final, whatever the store says later.
#[derive(Debug)]
pub(super) struct Warden {
    margins: Margins,
    max_hold: Option<(Duration, Instant)>,
    /// The end of the lease as last seen while it was valid.
    lease_ends: Instant,
    /// What the guardian knows.
    deadlines: Deadlines,
    ending: Option<Ending>,
}

#[derive(Debug)]
struct Ending {
    why: Why,
    kill_at: Instant,
    killed: bool,
}

impl Warden {
    /// `granted` is when the lock was granted, `lease` for how long.
    pub(super) fn new(granted: Instant, lease: Duration, max_hold: Option<Duration>) -> Self {
        let max_hold = max_hold.map(|max| (max, granted.after(max)));
        let (margins, lease_ends) = (Margins::of(lease), granted.after(lease));
        Self { margins, max_hold, lease_ends, deadlines: margins.without_warden(lease_ends), ending: None }
    }

    /// Says when the lease ends. Its first word may have been long on its way.
    pub(super) fn ends(mut self, lease_ends: Instant) -> Self {
        self.lease_ends = lease_ends;
        self.deadlines = self.margins.without_warden(lease_ends);
        self
    }

    /// What the guardian must know after the last look.
    pub(super) fn deadlines(&self) -> Deadlines {
        self.deadlines
    }

    /// Whether the guardian has acted by now, for a program that has ended.
    pub(super) fn stood_still(&mut self, now: Instant) -> bool {
        let late = self.ending.is_none() && self.deadlines.terminate.is_some_and(|at| now >= at);
        if late {
            self.ending = Some(Ending { why: Why::StoodStill, kill_at: self.deadlines.kill, killed: false });
        }
        late
    }

    /// To be called whenever something may have changed, and at the time that the last call named.
    pub(super) fn look(&mut self, now: Instant, expires_in: Duration, lost: Option<&Lost>) -> Step {
        let kill_by = match lost {
            Some(lost) if lost.reason == LostReason::Expired => now,
            Some(_) => self.lease_ends.min(now.after(LONGEST_GRACE)),
            None => {
                self.lease_ends = now.after(expires_in);
                self.lease_ends.before(self.margins.kill)
            }
        };
        let fresh = self.ending.is_none();
        if fresh {
            self.ending = self.verdict(now, expires_in, lost, kill_by);
        }
        if self.ending.is_none() {
            self.stood_still(now);
        }
        self.deadlines = self.margins.without_warden(self.lease_ends);
        let Some(ending) = &mut self.ending else {
            let unconfirmed = now.after(expires_in.saturating_sub(self.margins.terminate));
            let max = self.max_hold.map(|(_, at)| at);
            return Step { order: None, wake: Some(max.map_or(unconfirmed, |max| max.min(unconfirmed))) };
        };
        // What happens later can only shorten the time to stop.
        ending.kill_at = ending.kill_at.min(kill_by);
        self.deadlines = Deadlines { terminate: None, kill: ending.kill_at.after(self.margins.kill / 2) };
        if ending.killed {
            return Step { order: None, wake: None };
        }
        if now >= ending.kill_at {
            ending.killed = true;
            return Step { order: Some(Order::Kill), wake: None };
        }
        Step { order: fresh.then_some(Order::Terminate), wake: Some(ending.kill_at) }
    }

    fn verdict(&self, now: Instant, expires_in: Duration, lost: Option<&Lost>, kill_by: Instant) -> Option<Ending> {
        let ending = |why, kill_at| Some(Ending { why, kill_at, killed: false });
        if let Some(lost) = lost {
            return ending(Why::Lost(lost.clone()), kill_by);
        }
        if expires_in <= self.margins.terminate {
            return ending(Why::Unconfirmed, kill_by);
        }
        let (_, max) = self.max_hold.filter(|(_, max)| now >= *max)?;
        ending(Why::MaxHold, max.after(self.margins.terminate.min(LONGEST_GRACE)))
    }

    /// Whether the program is being stopped.
    pub(super) fn is_ending(&self) -> bool {
        self.ending.is_some()
    }

    /// Why the program is being stopped, in words.
    pub(super) fn reason(&self, name: &Resource) -> Option<String> {
        Some(match &self.ending.as_ref()?.why {
            Why::Unconfirmed => format!("lost {name}: the store confirmed no renewal for two thirds of the lease"),
            Why::StoodStill => format!("lost {name}: tenure itself stood still for two thirds of the lease"),
            Why::Lost(lost) => format!("lost {name}: {}", lost.reason),
            Why::MaxHold => {
                let max = self.max_hold.map_or(Duration::ZERO, |(max, _)| max);
                format!("gave {name} up: it was held for {}, as long as --max-hold allows", duration::show(max))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure::Token;

    const START: Instant = Instant::from_nanos(1_000_000_000_000);

    fn s(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    fn at(seconds: f64) -> Instant {
        START.after(s(seconds))
    }

    fn lost(reason: LostReason) -> tenure::Result<Lost> {
        Ok(Lost::new(Resource::new("x")?, Token::new(1), reason))
    }

    fn step(order: Option<Order>, wake: f64) -> Step {
        Step { order, wake: Some(at(wake)) }
    }

    const KILLED: Step = Step { order: Some(Order::Kill), wake: None };

    #[test]
    fn margins_leave_time_for_sigkill_at_every_lease() {
        for (lease, terminate, kill) in [(30.0, 10.0, 2.0), (3.0, 1.0, 0.3), (0.3, 0.1, 0.05), (0.03, 0.01, 0.005)] {
            assert_eq!(Margins::of(s(lease)), Margins { terminate: s(terminate), kill: s(kill) });
        }
    }

    #[test]
    fn renewals_keep_it_quiet() {
        let mut warden = Warden::new(START, s(30.0), None);
        assert_eq!(warden.look(at(0.0), s(30.0), None), step(None, 20.0));
        assert_eq!(warden.look(at(20.0), s(20.0), None), step(None, 30.0));
        assert!(!warden.is_ending());
    }

    #[test]
    fn without_renewals_sigterm_comes_at_two_thirds_and_sigkill_before_the_end() {
        let mut warden = Warden::new(START, s(30.0), None);
        assert_eq!(warden.look(at(20.0), s(10.0), None), step(Some(Order::Terminate), 28.0));
        assert_eq!(warden.look(at(27.0), s(3.0), None), step(None, 28.0));
        assert_eq!(warden.look(at(28.0), s(2.0), None), KILLED);
        assert_eq!(warden.look(at(29.0), s(1.0), None), Step { order: None, wake: None });
    }

    #[test]
    fn the_guardian_acts_after_the_warden_and_before_the_lease_ends() {
        let known = |terminate: f64, kill| Deadlines { terminate: Some(at(terminate)), kill: at(kill) };
        assert_eq!(Warden::new(START, s(30.0), None).ends(at(27.0)).deadlines(), known(21.0, 26.0));
        let mut warden = Warden::new(START, s(30.0), None);
        assert_eq!(warden.deadlines(), known(24.0, 29.0));
        warden.look(at(10.0), s(25.0), None);
        assert_eq!(warden.deadlines(), known(29.0, 34.0));
        assert!(!warden.stood_still(at(28.9)));
        warden.look(at(25.0), s(10.0), None);
        assert_eq!(warden.deadlines(), Deadlines { terminate: None, kill: at(34.0) });
        assert!(!warden.stood_still(at(34.0)), "it has decided by itself");
    }

    #[test]
    fn what_the_guardian_has_begun_is_not_taken_back_by_a_renewal() {
        let mut warden = Warden::new(START, s(30.0), None);
        assert_eq!(warden.look(at(24.5), s(30.0), None), step(Some(Order::Terminate), 29.0));
        assert!(warden.is_ending());
        assert_eq!(warden.look(at(29.0), s(25.0), None), KILLED);
    }

    #[test]
    fn a_late_renewal_does_not_take_sigterm_back() {
        let mut warden = Warden::new(START, s(30.0), None);
        assert_eq!(warden.look(at(20.0), s(10.0), None), step(Some(Order::Terminate), 28.0));
        assert_eq!(warden.look(at(21.0), s(29.0), None), step(None, 28.0));
        assert!(warden.is_ending());
        assert_eq!(warden.look(at(28.0), s(25.0), None), KILLED);
    }

    #[test]
    fn a_broken_lock_gets_the_rest_of_its_lease_but_five_seconds_at_most() -> tenure::Result<()> {
        let revoked = lost(LostReason::Revoked)?;
        let mut warden = Warden::new(START, s(30.0), None);
        warden.look(at(1.0), s(29.0), None);
        assert_eq!(warden.look(at(10.0), s(0.0), Some(&revoked)), step(Some(Order::Terminate), 15.0));
        assert_eq!(warden.look(at(12.0), s(0.0), Some(&revoked)), step(None, 15.0));
        assert_eq!(warden.look(at(15.0), s(0.0), Some(&revoked)), KILLED);

        let mut warden = Warden::new(START, s(3.0), None);
        warden.look(at(0.0), s(3.0), None);
        assert_eq!(warden.look(at(1.0), s(0.0), Some(&revoked)), step(Some(Order::Terminate), 3.0));
        Ok(())
    }

    #[test]
    fn an_expired_lock_is_killed_at_once() -> tenure::Result<()> {
        let mut warden = Warden::new(START, s(30.0), None);
        warden.look(at(1.0), s(29.0), None);
        assert_eq!(warden.look(at(5.0), s(0.0), Some(&lost(LostReason::Expired)?)), KILLED);
        Ok(())
    }

    #[test]
    fn max_hold_ends_with_a_grace_that_a_loss_cuts_short() -> tenure::Result<()> {
        let mut warden = Warden::new(START, s(30.0), Some(s(7.0)));
        assert_eq!(warden.look(at(0.0), s(30.0), None), step(None, 7.0));
        assert_eq!(warden.look(at(7.0), s(25.0), None), step(Some(Order::Terminate), 12.0));
        assert_eq!(warden.look(at(8.0), s(5.0), None), step(None, 11.0));
        assert_eq!(warden.look(at(9.0), s(0.0), Some(&lost(LostReason::Expired)?)), KILLED);
        Ok(())
    }
}
