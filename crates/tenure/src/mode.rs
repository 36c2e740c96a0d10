//! [`Mode`]: how a resource is locked, and what follows from it for the engine.

use std::fmt;

/// How a resource is locked. A name is used in one way: as a lock, as a read/write lock, for permits or as a latch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// By one owner alone.
    Exclusive,
    /// By one owner alone, in order of arrival: an owner is not granted while another one is before it in the queue.
    /// A queue position ends with its [waiter's lease](crate::backend::Claim::position_lease) unless its owner asks again.
    Fair,
    /// Together with other readers. Refused while a writer waits and others read, so that the writer gets its turn.
    Read,
    /// By one owner alone, without readers. An owner that reads is as busy as any other.
    Write,
    /// As [`Read`](Self::Read), by an owner that holds it as [`Write`](Self::Write), under the same token: its hold becomes that
    /// of a reader. Busy if it does not hold it (any more): it is never granted again, because another owner may have written since.
    Downgrade,
    /// As so many of the name's permits.
    Permits {
        /// How many, at least one.
        take: u32,
        /// How many there are, if the store knows of no number yet; zero leaves that to others.
        of: u32,
    },
    /// Holds nothing: sets how many permits there are. Never busy.
    Resize {
        /// The new number. Permits that are held above it are not taken away, but none is granted.
        of: u32,
    },
    /// Holds nothing: sets the count of a latch. Busy while it has one.
    SetCount {
        /// The count.
        of: u32,
    },
    /// Holds nothing: counts a latch down by one, once per owner, and wakes the waiters at zero. Never busy.
    CountDown,
    /// Holds nothing: busy until the latch's count is zero, or there is no such latch.
    CountZero,
    /// Holds nothing: removes a latch, which wakes all its waiters. Never busy.
    RemoveCount,
}

impl Mode {
    /// Whether a grant is a hold, which is renewed and released. Otherwise it is [`Attempt::Done`](crate::backend::Attempt::Done).
    #[must_use]
    pub const fn holds(self) -> bool {
        matches!(self, Self::Exclusive | Self::Fair | Self::Read | Self::Write | Self::Downgrade | Self::Permits { .. })
    }

    /// How a grant is held from then on.
    #[must_use]
    pub const fn held_as(self) -> Self {
        if matches!(self, Self::Downgrade) { Self::Read } else { self }
    }

    /// Whether asking again after a busy answer may help: a hold ends, and a latch opens.
    #[must_use]
    pub const fn waits(self) -> bool {
        (self.holds() && !matches!(self, Self::Downgrade)) || matches!(self, Self::CountZero)
    }

    /// Whether a queue position is a reason to refuse others. Then each store keeps one, its owner keeps it alive, and a
    /// release ends it.
    #[must_use]
    pub const fn keeps_position(self) -> bool {
        matches!(self, Self::Fair | Self::Write)
    }

    /// Whether several owners may hold at the same time.
    #[must_use]
    pub const fn is_shared(self) -> bool {
        matches!(self, Self::Read | Self::Downgrade | Self::Permits { .. })
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exclusive => "exclusive locks",
            Self::Fair => "fair locks",
            Self::Read | Self::Write | Self::Downgrade => "read/write locks",
            Self::Permits { .. } | Self::Resize { .. } => "permits",
            Self::SetCount { .. } | Self::CountDown | Self::CountZero | Self::RemoveCount => "latches",
        })
    }
}

/// Whether a store carries a mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    /// It does.
    Yes,
    /// It does not, and why; empty if the reason is obvious.
    No(&'static str),
}

/// Which modes a store carries besides [`Mode::Exclusive`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Modes {
    /// [`Mode::Fair`].
    pub fair: Support,
    /// [`Mode::Read`], [`Mode::Write`] and [`Mode::Downgrade`].
    pub shared: Support,
    /// [`Mode::Permits`] and [`Mode::Resize`].
    pub permits: Support,
    /// The modes of a latch.
    pub latch: Support,
}

impl Modes {
    /// All of them.
    pub const ALL: Self = Self { fair: Support::Yes, shared: Support::Yes, permits: Support::Yes, latch: Support::Yes };
    /// [`Mode::Exclusive`] alone.
    pub const EXCLUSIVE: Self = Self::exclusive_for("");

    /// [`Mode::Exclusive`] alone, for one reason.
    #[must_use]
    pub const fn exclusive_for(why: &'static str) -> Self {
        Self { fair: Support::No(why), shared: Support::No(why), permits: Support::No(why), latch: Support::No(why) }
    }

    /// Whether a mode is carried, and why not.
    #[must_use]
    pub const fn support(self, mode: Mode) -> Support {
        match mode {
            Mode::Exclusive => Support::Yes,
            Mode::Fair => self.fair,
            Mode::Read | Mode::Write | Mode::Downgrade => self.shared,
            Mode::Permits { .. } | Mode::Resize { .. } => self.permits,
            Mode::SetCount { .. } | Mode::CountDown | Mode::CountZero | Mode::RemoveCount => self.latch,
        }
    }

    /// Whether a mode is among them.
    #[must_use]
    pub const fn carry(self, mode: Mode) -> bool {
        matches!(self.support(mode), Support::Yes)
    }
}
