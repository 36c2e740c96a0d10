//! [`Lost`]: a hold is over, and why.

use std::fmt;

use crate::name::{Resource, Token};

/// The hold was lost: stop writing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the lock {resource:?} (token {token}) was lost: {reason}")]
#[non_exhaustive]
pub struct Lost {
    /// What was locked.
    pub resource: Resource,
    /// The token of the lost hold.
    pub token: Token,
    /// Why.
    pub reason: LostReason,
}

impl Lost {
    /// For tests of code that is told of a loss.
    #[must_use]
    pub fn new(resource: Resource, token: Token, reason: LostReason) -> Self {
        Self { resource, token, reason }
    }
}

/// Why a hold was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LostReason {
    /// The store did not confirm a renewal before the lease ended, or this process stood still.
    Expired,
    /// The store says that the hold is gone: broken by force, deleted, or lost in a restart.
    Revoked,
    /// A fixed lease has ended.
    LeaseEnded,
    /// It was held longer than `max_hold` allows.
    MaxHold,
    /// The locker was closed while the guard was alive.
    Closed,
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "the lease ended before a renewal was confirmed",
            Self::Revoked => "the store says that the hold is gone",
            Self::LeaseEnded => "its fixed lease ended",
            Self::MaxHold => "it was held longer than max_hold",
            Self::Closed => "the locker was closed",
        })
    }
}
