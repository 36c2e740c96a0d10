//! How many calls of one kind may be under way to a store, or to one part of it, which may do one after the other.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

/// The most renewals of one urgency: what a more urgent one may have to wait for.
const RENEWALS: usize = 4;

/// The most releases: what a renewal may have to wait for. More than renewals, because each is one claim only, and others wait for
/// what is given back.
const RELEASES: usize = 128;

/// A call that takes longer counts no more as being worked on: one that hangs must not hold up the others.
const STALLED: Duration = Duration::from_millis(250);

/// The same for releases. Most of the time a call to a far store is on its way and keeps nobody: thousands must not take longer than
/// one of them may.
const UNDER_WAY: Duration = Duration::from_millis(25);

#[derive(Debug, Clone)]
pub(super) struct Window {
    places: Arc<Semaphore>,
    stalled: Duration,
}

impl Window {
    pub(super) fn of_renewals() -> Self {
        Self { places: Arc::new(Semaphore::new(RENEWALS)), stalled: STALLED }
    }

    pub(super) fn of_releases() -> Self {
        Self { places: Arc::new(Semaphore::new(RELEASES)), stalled: UNDER_WAY }
    }

    pub(super) fn is_in_use(&self) -> bool {
        Arc::strong_count(&self.places) > 1
    }

    /// From now on nobody waits.
    pub(super) fn open(&self) {
        self.places.close();
    }

    /// Starts a call when it has a place. It waits here and not at the store, where it would be in the way of what is more urgent.
    pub(super) async fn pass<T>(&self, call: impl Future<Output = T>) -> T {
        let place = self.places.acquire().await;
        let mut call = std::pin::pin!(call);
        match tokio::time::timeout(self.stalled, &mut call).await {
            Ok(done) => done,
            Err(_) => {
                drop(place);
                call.await
            }
        }
    }
}
