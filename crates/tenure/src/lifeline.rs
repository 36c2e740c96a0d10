//! The lifeline: it tells other clients that this client lives, where a store has one.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

/// Where a store leaves it, and those find it who shall keep it. Empty where deaths are noticed by the lease alone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lifeline(Arc<Mutex<Option<OwnedFd>>>);

impl Lifeline {
    /// Another one, or none any more.
    #[cfg(feature = "sqlite")]
    pub(crate) fn set(&self, lifeline: Option<OwnedFd>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = lifeline;
    }

    /// One more descriptor of it.
    pub(crate) fn another(&self) -> Option<OwnedFd> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).as_ref()?.try_clone().ok()
    }
}
