//! [`Guard`]: the proof of a hold, as users have it.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::AtomicBool;
#[cfg(feature = "blocking")]
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use crate::backend::Mode;
use crate::engine::driven::Driven;
use crate::engine::hold::Hold;
pub use crate::engine::hold::{HoldState, Watcher};
use crate::engine::keeper::{AfterRelease, Keeper};
use crate::engine::owner::{Reentry, Slot};
use crate::error::{Error, Result};
use crate::lost::{Lost, LostReason};
use crate::name::{OwnerId, Resource, Token};

/// A lock that is held. Dropping it gives the lock back, in the background.
///
/// Every guard carries a fencing [token](Self::token). Three states: [held, unsure, lost](HoldState); lost is final.
///
/// # What drop does
/// The last guard of a hold hands the release to the locker's background thread: drop never blocks, never panics, and
/// works outside of a runtime and after one has ended. **Release on drop is not immediate**: use
/// [`release`](Self::release) to wait for it, or [`Locker::close`](crate::Locker::close) before the process exits.
#[must_use = "dropping the guard gives the lock back at once"]
#[clippy::has_significant_drop]
pub struct Guard {
    held: Arc<Held>,
}

/// What gives the hold back when its last guard goes.
pub(crate) struct Held {
    hold: Arc<Hold>,
    keeper: Keeper,
    /// How its owner re-enters it, if it has one.
    reentry: OnceLock<Reentry>,
}

impl Held {
    pub(crate) fn new(hold: Arc<Hold>, keeper: Keeper) -> Self {
        Self { hold, keeper, reentry: OnceLock::new() }
    }

    /// Lets its owner re-enter it by way of this slot, while the flag says so.
    pub(crate) fn noted_in(&self, slot: &Arc<Slot>) -> Arc<AtomicBool> {
        Arc::clone(&self.reentry.get_or_init(|| Reentry::by(slot)).open)
    }

    pub(crate) fn slot(&self) -> Option<&Arc<Slot>> {
        self.reentry.get().map(|noted| &noted.slot)
    }

    pub(crate) fn hold(&self) -> &Arc<Hold> {
        &self.hold
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let AfterRelease::ToSend(release) = self.keeper.mark_released(&self.hold) {
            self.keeper.enqueue_release(release);
        }
    }
}

impl Guard {
    pub(crate) fn new(held: Arc<Held>) -> Self {
        Self { held }
    }

    pub(crate) fn shared(&self) -> &Arc<Held> {
        &self.held
    }

    fn hold(&self) -> &Arc<Hold> {
        &self.held.hold
    }

    /// Ends re-entry: from now on its owner waits as others do.
    #[cfg(feature = "blocking")]
    pub(crate) fn end_reentry(&self) {
        self.held.reentry.get().into_iter().for_each(|noted| noted.open.store(false, Ordering::Release));
    }

    /// Counts a write that came too late for its fence.
    pub(crate) fn note_stale(&self) {
        self.held.keeper.note_stale();
    }

    /// Ends this guard because the store says that there is no such hold.
    pub(crate) fn revoked(self) -> Lost {
        self.held.keeper.lose(self.hold(), LostReason::Revoked);
        self.hold().why()
    }

    /// Ends this guard because another one takes over its hold, with nothing left to release. Fails if the hold was over.
    pub(crate) fn superseded(self) -> Result<(), Lost> {
        let hold = self.hold();
        if hold.mark_released(hold.clock.now()) { Ok(()) } else { Err(hold.why()) }
    }

    /// The fencing token: larger than that of every earlier holder. Send it along with each write.
    #[must_use]
    pub fn token(&self) -> Token {
        self.hold().token
    }

    /// What is locked.
    #[must_use]
    pub fn resource(&self) -> &Resource {
        &self.hold().claim.resource
    }

    /// The owner as the store knows it.
    #[must_use]
    pub fn owner_id(&self) -> OwnerId {
        self.hold().claim.owner
    }

    /// How it is locked.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.hold().claim.mode
    }

    /// Whether the lock is held at this moment. A wait-free read of the lease clock; once false, always false.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.hold().is_valid()
    }

    /// [`is_valid`](Self::is_valid) for the `?` operator.
    pub fn check(&self) -> Result<(), Lost> {
        if self.is_valid() { Ok(()) } else { Err(self.hold().why()) }
    }

    /// Held, unsure or lost.
    #[must_use]
    pub fn state(&self) -> HoldState {
        self.hold().state()
    }

    /// How long the hold is valid without another renewal; zero when it is lost.
    #[must_use]
    pub fn expires_in(&self) -> Duration {
        self.hold().expires_in()
    }

    /// The lease: how long the lock outlives its last renewal at the store.
    #[must_use]
    pub fn lease(&self) -> Duration {
        self.hold().terms.lease
    }

    /// How many guards share this hold by re-entry.
    #[must_use]
    pub fn hold_count(&self) -> usize {
        Arc::strong_count(&self.held)
    }

    /// Another guard of the same hold, with the same token and without a round trip. The lock is given back when the
    /// last of them goes.
    pub fn reenter(&self) -> Result<Self, Lost> {
        self.check()?;
        Ok(Self { held: Arc::clone(&self.held) })
    }

    /// Resolves when the lock is lost: at the deadline at the latest, whatever the network does.
    ///
    /// # Cancel safety
    /// Safe: nothing is missed.
    pub async fn lost(&self) -> Lost {
        // A guard that is alive was not released.
        self.hold().wait_for_end().await.unwrap_or_else(|| self.hold().loss(LostReason::Closed))
    }

    /// An owned view of the hold for other tasks and threads. It does not keep the lock.
    #[must_use]
    pub fn watcher(&self) -> Watcher {
        Watcher { hold: Arc::clone(self.hold()) }
    }

    /// Runs a future under the lock and drops it the moment the lock is lost. `Ok` means that the lock was held from
    /// beginning to end.
    ///
    /// # Cancel safety
    /// As safe as the future that it runs.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, Lost> {
        run_under(self.lost(), || self.check(), work).await
    }

    /// Gives the lock back and waits until the store has confirmed it. With other guards of the same hold alive, only
    /// this one goes.
    ///
    /// An error says that the hold was lost before, or that the store cannot be reached; the release goes on in the
    /// background then, until the lease has ended.
    ///
    /// # Cancel safety
    /// Safe: the release goes on in the background.
    pub async fn release(self) -> Result<()> {
        // Other guards keep the hold.
        let Some(held) = Arc::into_inner(self.held) else { return Ok(()) };
        let keeper = held.keeper.clone();
        match keeper.mark_released(&held.hold) {
            AfterRelease::Over(lost) => Err(lost.into()),
            AfterRelease::HandedOver => Ok(()),
            AfterRelease::ToSend(release) => {
                drop(held);
                let background = keeper.background().clone();
                Driven::new(&background, |desk| release.run(keeper, Some(desk))).await.unwrap_or(Err(Error::Closed))
            }
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("resource", self.resource())
            .field("token", &self.token())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

/// Runs a future until a loss is told; `check` has the last word.
pub(crate) async fn run_under<F: Future>(
    lost: impl Future<Output = Lost>,
    check: impl Fn() -> Result<(), Lost>,
    work: F,
) -> Result<F::Output, Lost> {
    let done = step_under(lost, &check, work).await?;
    check().map(|()| done)
}

/// Runs a future that takes no step once the hold is lost. Whether it was when the last step ended is not asked.
pub(crate) async fn step_under<F: Future>(
    lost: impl Future<Output = Lost>,
    check: impl Fn() -> Result<(), Lost>,
    work: F,
) -> Result<F::Output, Lost> {
    let mut work = pin!(work);
    let mut lost = pin!(lost);
    std::future::poll_fn(|cx| {
        // A process that stood still must not get one more step of work done.
        if let Poll::Ready(lost) = lost.as_mut().poll(cx) {
            return Poll::Ready(Err(lost));
        }
        // A task that wakes up past its deadline may be here before the loss is told.
        check()?;
        work.as_mut().poll(cx).map(Ok)
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[tokio::test]
    async fn work_takes_no_step_past_a_deadline_that_nobody_has_told_of() {
        let lost = Lost { resource: Resource::new("a").expect("a name"), token: Token::new(1), reason: LostReason::Expired };
        let (held, steps) = (Cell::new(true), Cell::new(0));
        let check = || if held.get() { Ok(()) } else { Err(lost.clone()) };
        let work = async {
            steps.set(1);
            held.set(false);
            tokio::task::yield_now().await;
            steps.set(2);
        };
        assert_eq!(run_under(std::future::pending(), check, work).await, Err(lost.clone()));
        assert_eq!(steps.get(), 1);
    }
}
