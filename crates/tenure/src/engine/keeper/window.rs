//! How many calls of one kind may be under way to a store, or to one part of it, which may serve one after the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};

use crate::clock::Instant;

/// The most renewals of one urgency: what a more urgent one may have to wait for.
const RENEWALS: usize = 4;

/// The most releases in the background: what a renewal may have to wait for. More than renewals, because each is one claim only, and
/// others wait for what is given back.
const RELEASES: usize = 128;

/// The same for calls that callers drive.
const CALLS: u64 = 256;

/// A renewal that takes longer counts no more as being worked on: one that hangs must not hold up the others.
const STALLED: Duration = Duration::from_millis(250);

/// The same for acquires and releases. A call to a far store is on its way most of the time and delays no other: thousands must not
/// take longer than one of them may.
const UNDER_WAY: Duration = Duration::from_millis(25);

/// For calls of the background, which sees each to its end.
#[derive(Debug, Clone)]
pub(super) struct Window {
    permits: Arc<Semaphore>,
    stalled: Duration,
}

impl Window {
    pub(super) fn of_renewals() -> Self {
        Self { permits: Arc::new(Semaphore::new(RENEWALS)), stalled: STALLED }
    }

    pub(super) fn of_releases() -> Self {
        Self { permits: Arc::new(Semaphore::new(RELEASES)), stalled: UNDER_WAY }
    }

    pub(super) fn is_in_use(&self) -> bool {
        Arc::strong_count(&self.permits) > 1
    }

    /// From now on no call waits.
    pub(super) fn open(&self) {
        self.permits.close();
    }

    /// Starts a call when there is room. It waits here and not at the store, where it would delay more urgent calls.
    pub(super) async fn pass<T>(&self, call: impl Future<Output = T>) -> T {
        let permit = self.permits.acquire().await;
        let mut call = std::pin::pin!(call);
        match tokio::time::timeout(self.stalled, &mut call).await {
            Ok(done) => done,
            Err(_) => {
                drop(permit);
                call.await
            }
        }
    }
}

/// For calls that callers drive. A caller may stop half-way for any time, so a call counts for a moment by the clock even if it does not
/// end, and no other call waits for longer.
#[derive(Debug, Default)]
pub(in crate::engine) struct CallWindow {
    /// How many began in a moment and are under way, for the last few moments: the number of the moment above, the count below.
    moments: [AtomicU64; 4],
    left: Notify,
}

const COUNT_BITS: u32 = 24;
const COUNT: u64 = (1 << COUNT_BITS) - 1;

/// A call under way.
#[derive(Debug)]
pub(in crate::engine) struct CallSlot<'a> {
    calls: &'a CallWindow,
    moment: u64,
}

impl Drop for CallSlot<'_> {
    fn drop(&mut self) {
        let slot = self.calls.slot(self.moment);
        let taken = |word: u64| (word >> COUNT_BITS == self.moment && word & COUNT > 0).then(|| word - 1);
        if slot.fetch_update(Ordering::AcqRel, Ordering::Acquire, taken).is_ok() {
            self.calls.left.notify_one();
        }
    }
}

impl CallWindow {
    fn slot(&self, moment: u64) -> &AtomicU64 {
        &self.moments[usize::try_from(moment % 4).unwrap_or(0)]
    }

    fn moment(now: Instant) -> u64 {
        (now.as_nanos() / u64::try_from(UNDER_WAY.as_nanos()).unwrap_or(u64::MAX)) & (u64::MAX >> COUNT_BITS)
    }

    /// How many began lately and are under way.
    fn recent(&self, moment: u64) -> u64 {
        let of = |moment: u64| match self.slot(moment).load(Ordering::Acquire) {
            word if word >> COUNT_BITS == moment => word & COUNT,
            _ => 0,
        };
        of(moment) + of(moment.wrapping_sub(1))
    }

    /// Begins a call, if there are not too many.
    pub(in crate::engine) fn try_enter(&self, now: Instant) -> Option<CallSlot<'_>> {
        let moment = Self::moment(now);
        (self.recent(moment) < CALLS).then(|| self.enter(moment))
    }

    fn enter(&self, moment: u64) -> CallSlot<'_> {
        let count = |word: u64| Some(if word >> COUNT_BITS == moment { word + 1 } else { (moment << COUNT_BITS) + 1 });
        let _always_done = self.slot(moment).fetch_update(Ordering::AcqRel, Ordering::Acquire, count);
        CallSlot { calls: self, moment }
    }

    /// Waits for another call to end, but not for long, and begins one.
    pub(in crate::engine) async fn wait(&self, now: impl Fn() -> Instant) -> CallSlot<'_> {
        drop(tokio::time::timeout(UNDER_WAY, self.left.notified()).await);
        self.enter(Self::moment(now()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_nobody_gives_back_counts_for_a_moment() {
        let calls = CallWindow::default();
        let at = |millis: u64| Instant::from_nanos(millis * 1_000_000);
        let mut kept = Vec::new();
        while let Some(place) = calls.try_enter(at(1000)) {
            kept.push(place);
        }
        assert_eq!(kept.len() as u64, CALLS);
        drop(kept.pop());
        kept.push(calls.try_enter(at(1001)).expect("one has left"));
        assert!(calls.try_enter(at(1001)).is_none());
        let late = calls.try_enter(at(1060)).expect("the others may stand still");
        // What ends after its moment takes nothing from those of another one.
        drop(kept);
        assert_eq!(calls.recent(CallWindow::moment(at(1060))), 1);
        drop(late);
        assert_eq!(calls.recent(CallWindow::moment(at(1060))), 0);
    }
}
