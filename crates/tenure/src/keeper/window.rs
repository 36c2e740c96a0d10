//! How many calls of one kind may be under way to one part of a store, which may do one after the other.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

/// The most renewals of one urgency: what a more urgent one may have to wait for.
const RENEWALS: usize = 4;

/// The most releases: what a renewal may have to wait for. More than renewals, because each is one claim only, and others wait for
/// what is given back.
const RELEASES: usize = 64;

/// A call that takes longer counts no more as being worked on: one that hangs must not hold up the others.
const STALLED: Duration = Duration::from_millis(250);

#[derive(Debug, Clone)]
pub(super) struct Window(Arc<Semaphore>);

impl Window {
    pub(super) fn of_renewals() -> Self {
        Self(Arc::new(Semaphore::new(RENEWALS)))
    }

    pub(super) fn of_releases() -> Self {
        Self(Arc::new(Semaphore::new(RELEASES)))
    }

    pub(super) fn is_in_use(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// From now on nobody waits.
    pub(super) fn open(&self) {
        self.0.close();
    }

    /// Starts a call when it has a place. It waits here and not at the store, where it would be in the way of what is more urgent.
    pub(super) async fn pass<T>(&self, call: impl Future<Output = T>) -> T {
        let place = self.0.acquire().await;
        let mut call = std::pin::pin!(call);
        match tokio::time::timeout(STALLED, &mut call).await {
            Ok(done) => done,
            Err(_) => {
                drop(place);
                call.await
            }
        }
    }
}
