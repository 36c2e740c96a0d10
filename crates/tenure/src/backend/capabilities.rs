//! What a store can promise.

use std::time::Duration;

use crate::duration;
use crate::error::{Error, Result};
use crate::mode::{Mode, Modes, Support};

/// What a backend can promise, with the options it was made with.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// The store's name in errors and labels.
    pub backend: &'static str,
    /// How far its locks reach.
    pub reach: Reach,
    /// How many stores it is made of; 1 unless it is a quorum.
    pub nodes: u32,
    /// What it carries besides exclusive locks, and why not the rest. The engine asks for no other mode.
    pub modes: Modes,
    /// Which leases it takes. The engine asks for no other.
    pub leases: Leases,
    /// The most claims that one [`renew`](super::Backend::renew) takes; `usize::MAX` where one call keeps a whole session alive.
    pub batch: usize,
    /// Whether a grant can reserve more than one token.
    pub token_blocks: bool,
    /// Whether a busy answer to [`Queue::Allowed`](super::Queue::Allowed) leaves a queue position, which a release must give up.
    pub queues: bool,
    /// Whether [`watch`](super::Backend::watch) costs no round trip. Then the engine watches before it asks, and needs no second question
    /// after a busy answer.
    pub watch_first: bool,
    /// Whether another server takes over when one fails. Then `lock` tries for a minute before it reports an error: a failover takes time.
    pub fails_over: bool,
    /// Whether and when the store pushes the loss of a hold, through its [`Losses`](super::Losses).
    pub pushes_losses: Pushes,
    /// What a lock survives.
    pub safety: Safety,
}

/// A store of one process or machine that carries everything: where others differ, they say so.
pub(crate) const LOCAL: Capabilities = Capabilities {
    backend: "",
    reach: Reach::Process,
    nodes: 1,
    modes: Modes::ALL,
    leases: Leases::ANY,
    batch: 256,
    token_blocks: true,
    queues: true,
    watch_first: true,
    fails_over: false,
    pushes_losses: Pushes::Granted,
    safety: Safety {
        holder_pause: Survival::FenceOnly,
        store_restart: Survival::Together,
        power_loss: Survival::Together,
        failover: Survival::Together,
        clock_jump: Survival::Lock,
    },
};

impl Capabilities {
    /// A store for all clients that connect, with exclusive locks alone and no promises. Set the fields of what it has beside that.
    #[must_use]
    pub const fn new(backend: &'static str) -> Self {
        Self {
            backend,
            reach: Reach::Network,
            modes: Modes::EXCLUSIVE,
            token_blocks: false,
            queues: false,
            watch_first: false,
            pushes_losses: Pushes::Never,
            safety: Safety::NOTHING,
            ..LOCAL
        }
    }

    /// Refuses a mode that the store does not carry, and says why where that is not obvious.
    pub fn refuse(&self, mode: Mode) -> Result<()> {
        match self.modes.support(mode) {
            Support::Yes => Ok(()),
            Support::No("") => Err(Error::unsupported(self.backend, mode)),
            Support::No(why) => Err(Error::Unsupported { backend: self.backend, what: format!("{mode}: {why}") }),
        }
    }
}

/// From when on a store pushes the loss of a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pushes {
    /// Never: a loss is noticed by the next renewal.
    Never,
    /// As soon as the hold is granted.
    Granted,
    /// Once it was renewed: watching has a cost, and most holds are short. The engine renews early a hold that lasts longer than a moment.
    Renewed,
}

/// A range of leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leases {
    /// The shortest, in whole steps.
    pub shortest: Duration,
    /// The longest, in whole steps.
    pub longest: Duration,
    /// What the store counts in.
    pub step: Duration,
}

impl Leases {
    /// The widest range: 10 ms to 24 h, in milliseconds.
    pub const ANY: Self =
        Self { shortest: Duration::from_millis(10), longest: Duration::from_secs(24 * 60 * 60), step: Duration::from_millis(1) };

    /// The lease in whole steps, rounded up: a hold never ends sooner than was asked for. Refuses one out of the range.
    pub fn fit(&self, lease: Duration) -> Result<Duration> {
        if !(self.shortest..=self.longest).contains(&lease) {
            let allowed = format!("{} to {}", shown(self.shortest), shown(self.longest));
            return Err(Error::config(format!("a lease of {lease:?}"), "is out of range", allowed));
        }
        let step = self.step.as_nanos().max(1);
        let steps = u64::try_from(lease.as_nanos().div_ceil(step) * step);
        Ok(steps.map_or(self.longest, Duration::from_nanos).min(self.longest))
    }

    /// What both ranges take. Empty (the shortest above the longest) if there is no such lease.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            shortest: self.shortest.max(other.shortest),
            longest: self.longest.min(other.longest),
            step: self.step.max(other.step),
        }
    }
}

/// As people say it: a day of leases is 24 hours.
fn shown(d: Duration) -> String {
    if d == Leases::ANY.longest { "24h".to_owned() } else { duration::show(d) }
}

/// How far a lock reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reach {
    /// The tasks and threads of one process.
    Process,
    /// The processes of one machine.
    Machine,
    /// All that can connect to the server.
    Network,
}

/// What a lock on this store survives, and what only the fence survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Safety {
    /// A holder that is paused past its lease and goes on.
    pub holder_pause: Survival,
    /// The store's process is killed and comes back.
    pub store_restart: Survival,
    /// The store's machine loses power.
    pub power_loss: Survival,
    /// A replica replaces the server that granted the lock.
    pub failover: Survival,
    /// The store's wall clock is set.
    pub clock_jump: Survival,
}

impl Safety {
    /// Nothing is promised.
    pub const NOTHING: Self = Self {
        holder_pause: Survival::Nothing,
        store_restart: Survival::Nothing,
        power_loss: Survival::Nothing,
        failover: Survival::Nothing,
        clock_jump: Survival::Nothing,
    };
}

/// How much is left after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Survival {
    /// Holds go on, and no other owner gets in.
    Lock,
    /// Two owners may believe that they hold it; their tokens differ.
    FenceOnly,
    /// Holders and store go down together.
    Together,
    /// Nothing is promised.
    Nothing,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_rounded_up_to_whole_steps_of_the_store() {
        let seconds = Leases { shortest: Duration::from_secs(2), longest: Duration::from_secs(90), step: Duration::from_secs(1) };
        let fit = |millis| seconds.fit(Duration::from_millis(millis)).map(|lease| lease.as_secs());
        assert_eq!((fit(2000).unwrap(), fit(2001).unwrap(), fit(89_999).unwrap(), fit(90_000).unwrap()), (2, 3, 90, 90));
        for out_of_range in [1999, 90_001] {
            let error = fit(out_of_range).expect_err("refused").to_string();
            assert!(error.contains("is out of range; allowed: 2s to 1m30s"), "{error}");
        }
        assert_eq!(Leases::ANY.fit(Duration::from_nanos(10_000_001)).unwrap(), Duration::from_millis(11));
        let error = Leases::ANY.fit(Duration::ZERO).expect_err("refused").to_string();
        assert!(error.contains("is out of range; allowed: 10ms to 24h"), "{error}");
    }

    #[test]
    fn several_stores_take_what_each_of_them_takes() {
        let seconds = Leases { shortest: Duration::from_secs(2), longest: Duration::from_secs(90), step: Duration::from_secs(1) };
        assert_eq!((Leases::ANY.and(seconds), seconds.and(Leases::ANY)), (seconds, seconds));
    }
}
