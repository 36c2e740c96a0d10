//! What a process has had of a lock for which others wait, and when it lets them go first.

use std::time::Duration;

use tokio::time::Instant;

/// The first pause of a process that has had its share of a lock for which others wait at the store. It doubles while no other takes
/// the lock, for processes that are slow to hear that it is free.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
/// How often it doubles: up to 640 ms.
const MOST_DOUBLINGS: u32 = 7;
/// How often the longest pause is made again if no other process came in any of them. The waiters at the store may be stopped, or only
/// listen: they cost a tenth then, and still find their turn.
const PAUSE_EVERY: Duration = Duration::from_millis(6400);
/// The share of a process without a local queue: so many holds of a lock for which others wait.
const SHARE: u32 = 16;
/// A process that comes back later has left the lock to others.
const COMES_BACK: Duration = Duration::from_secs(1);

/// What this process has had of a lock while others waited for it at the store, and was not refused since.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Taken {
    /// How often it had the lock since its last share was full.
    grants: u32,
    /// How many shares it had.
    shares: u32,
    last: Option<Instant>,
    /// The others go first until then.
    rests_until: Option<Instant>,
}

impl Taken {
    /// It was given back, and others wait.
    pub(super) fn again(&mut self, share_is_full: bool) {
        let now = Instant::now();
        self.grants = self.grants.saturating_add(1);
        self.last = Some(now);
        if share_is_full || self.grants >= SHARE {
            let rested_lately = self.rests_until.is_some_and(|until| now < until + PAUSE_EVERY);
            if self.shares <= MOST_DOUBLINGS || !rested_lately {
                self.rests_until = Some(now + FIRST_PAUSE * (1 << self.shares.min(MOST_DOUBLINGS)));
            }
            (self.grants, self.shares) = (0, self.shares.saturating_add(1));
        }
    }

    /// It was handed over inside the process.
    pub(super) fn hand_over(&mut self) {
        self.grants = self.grants.saturating_add(1);
    }

    /// Until when the next one of this process leaves the lock alone, if it does.
    pub(super) fn rests_until(&self) -> Option<Instant> {
        self.rests_until.filter(|until| *until > Instant::now())
    }

    /// Whether it is to be remembered.
    pub(super) fn matters(&self) -> bool {
        self.last.is_some_and(|last| last.elapsed() < COMES_BACK)
    }
}
