//! How many calls of one kind may be under way to a store, or to one part of it, which may do one after the other.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};

/// The most renewals of one urgency: what a more urgent one may have to wait for.
const RENEWALS: usize = 4;

/// The most calls that take and give back: what a renewal may have to wait for. More than renewals, because each is one claim
/// only, and others wait for what is given back.
const CALLS: usize = 256;

/// So many of them need no timer.
const FEW_CALLS: usize = 96;

/// A renewal that takes longer counts no more as being worked on: one that hangs must not hold up the others.
const STALLED: Duration = Duration::from_millis(250);

/// The same for calls that take and give back. Most of the time a call to a far store is on its way and keeps nobody: thousands
/// must not take longer than one of them may.
const UNDER_WAY: Duration = Duration::from_millis(25);

#[derive(Debug, Clone)]
pub(in crate::engine) struct Window {
    places: Arc<Semaphore>,
}

impl Window {
    pub(super) fn of_renewals() -> Self {
        Self { places: Arc::new(Semaphore::new(RENEWALS)) }
    }

    pub(super) fn of_calls() -> Self {
        Self { places: Arc::new(Semaphore::new(CALLS)) }
    }

    pub(super) fn is_in_use(&self) -> bool {
        Arc::strong_count(&self.places) > 1
    }

    /// From now on nobody waits.
    pub(super) fn open(&self) {
        self.places.close();
    }

    /// A place for a call that begins while there are few. It keeps it to its end, without a timer.
    pub(in crate::engine) fn try_enter(&self) -> Option<SemaphorePermit<'_>> {
        let few = self.places.available_permits() > CALLS - FEW_CALLS;
        few.then(|| self.places.try_acquire().ok()).flatten()
    }

    /// Starts a call when it has a place. It waits here and not at the store, where it would be in the way of what is more urgent.
    pub(in crate::engine) async fn pass<T>(&self, call: impl Future<Output = T>) -> T {
        self.pass_until(UNDER_WAY, call).await
    }

    /// The same for a renewal.
    pub(super) async fn pass_urgent<T>(&self, call: impl Future<Output = T>) -> T {
        self.pass_until(STALLED, call).await
    }

    /// Starts a call when it has a place, which it keeps for so long.
    async fn pass_until<T>(&self, stalled: Duration, call: impl Future<Output = T>) -> T {
        let place = self.places.acquire().await;
        let mut call = std::pin::pin!(call);
        match tokio::time::timeout(stalled, &mut call).await {
            Ok(done) => done,
            Err(_) => {
                drop(place);
                call.await
            }
        }
    }
}
