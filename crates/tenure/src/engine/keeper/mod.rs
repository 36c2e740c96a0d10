//! Keeps holds: renews them in batches, releases those that guards drop, and declares a loss by the deadline even if every call hangs.
//!
//! Callers write into the [`book`] themselves. The keeper's own [`task`] reads it when something is due; a lock that is released
//! before that does not wake it. [`release`] tells the store; [`window`] keeps many calls from delaying a renewal.

mod book;
mod linger;
mod release;
mod task;
mod under_way;
mod window;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tracing::{debug, warn};

use self::book::{Book, KeptHold};
use self::linger::Passed;
pub(crate) use self::release::Release;
use self::task::Task;
pub(crate) use self::under_way::UnderWay;
use self::window::{CallWindow, Window};
use crate::backend::{Claim, Losses, Pushes, Suspect};
use crate::clock::Instant;
use crate::engine::Settings;
use crate::engine::background::Background;
use crate::engine::driven::Driven;
use crate::engine::guard::Held;
use crate::engine::hold::{Hold, Terms};
use crate::engine::turnstile::{Pass, Turn, Waiter};
use crate::error::Result;
use crate::lost::{Lost, LostReason};

/// Where watching a hold costs something, holds that last longer than this are watched.
const WATCHED_AFTER: Duration = Duration::from_millis(100);

/// A moment after that time which many holds share: the keeper wakes once for all of them.
fn next_beat(now: Instant) -> Instant {
    let beat = u64::try_from(WATCHED_AFTER.as_nanos()).unwrap_or(u64::MAX);
    Instant::from_nanos((now.as_nanos() / beat).saturating_add(2).saturating_mul(beat))
}

/// The way to the keeper. It ends when the locker and all guards are gone.
#[derive(Debug, Clone)]
pub(crate) struct Keeper(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    settings: Settings,
    background: Background,
    book: Mutex<Book>,
    /// Wakes the task.
    wake: Arc<Notify>,
    /// Calls that callers drive, and releases in the background.
    calls: CallWindow,
    releases: Window,
    releasing: UnderWay,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.wake.notify_one();
    }
}

/// What is left to do after a hold was marked as released.
pub(crate) enum AfterRelease {
    /// Nothing: it was over before.
    Over(Lost),
    /// Nothing: the next task of this process has it.
    HandedOver,
    /// The store is to be told.
    ToSend(Release),
}

impl Keeper {
    /// Starts the keeper's task.
    pub(crate) fn start(settings: Settings, background: &Background) -> Self {
        let shared = Arc::new(Shared {
            settings,
            background: background.clone(),
            book: Mutex::default(),
            wake: Arc::default(),
            calls: CallWindow::default(),
            releases: Window::of_releases(),
            releasing: UnderWay::default(),
        });
        background.spawn(Task::new(&shared).run());
        Self(shared)
    }

    /// Takes care of a new hold and returns what gives it back.
    pub(crate) fn keep(&self, hold: Hold, turn: Option<Turn>, until: Instant, now: Instant) -> Held {
        let hold = Arc::new(hold);
        let mut entry = KeptHold::new(Arc::clone(&hold), turn, until);
        let mut due = if hold.terms.fixed { entry.ends() } else { now.after(until.since(now) / 3).min(entry.ends()) };
        if self.0.settings.backend.capabilities().pushes_losses == Pushes::Renewed {
            due = due.min(next_beat(now));
            entry.is_to_be_watched();
        }
        self.0.settings.counters.holding.up();
        let mut book = self.0.book();
        if book.closed {
            drop(book);
            // No task would renew it, or declare its loss.
            self.0.settings.counters.holding.down();
            hold.lose(LostReason::Closed);
            self.enqueue_release(Release::new(hold.claim.clone(), entry.turn, now));
            return Held::new(hold, self.clone());
        }
        let (before, wake) = book.keep(entry, due);
        drop(book);
        before.iter().for_each(|before| self.removed(before));
        if wake {
            self.0.wake.notify_one();
        }
        Held::new(hold, self.clone())
    }

    /// Ends a hold as given back, and hands it to the next task of this process if there is one.
    pub(crate) fn mark_released(&self, hold: &Arc<Hold>) -> AfterRelease {
        let Settings { clock, counters, .. } = &self.0.settings;
        let now = clock.now();
        if !hold.mark_released(now) {
            return AfterRelease::Over(hold.why());
        }
        // Dropped after the book is unlocked: the waker of a waiter that left may own a guard.
        let mut left = Vec::new();
        let mut book = self.0.book();
        // A closed book renews nothing, so nothing is handed over.
        let closed = book.closed;
        // Under its owner there is another hold by now, or none any more.
        let Some(entry) = book.of(hold) else { return AfterRelease::HandedOver };
        let held_for = now.since(hold.since);
        counters.held(held_for);
        counters.released.up();
        debug!(name = ?hold.claim.resource, token = %hold.token, ?held_for, "released");
        let times = entry.times();
        if !closed && let Some(passed) = self.pass_on(entry, now, times, &mut left) {
            // The next one may have less time. Always: the keeper may have taken it off the schedule, to find it given back.
            let due = if entry.idle.is_some() { entry.ends() } else { times.due.min(entry.ends()) };
            let wake = book.schedule_at(hold.claim.owner.number, due);
            drop(book);
            if wake {
                self.0.wake.notify_one();
            }
            match passed {
                Passed::On(next, held) => self.hand_over(next, held),
                Passed::Idle => counters.holding.down(),
            }
            return AfterRelease::HandedOver;
        }
        let Some(entry) = book.remove(hold.claim.owner.number) else { return AfterRelease::HandedOver };
        drop(book);
        self.removed(&entry);
        let revoked = hold.loss(LostReason::Revoked);
        AfterRelease::ToSend(Release::new(hold.claim.clone(), entry.turn, now).or_lost(revoked))
    }

    /// One that has left in this moment drops the hold, which gives it back in turn: its token is used up.
    fn hand_over(&self, next: Waiter, held: Held) {
        if next.pass.send(Pass::Held(held)).is_ok() {
            self.0.settings.counters.handed_over.up();
        }
    }

    /// The next task's share of a hold. In range: the store has reserved the token.
    fn under_next_token(&self, entry: &mut KeptHold, terms: &Terms, now: Instant) -> Held {
        entry.spare_tokens -= 1;
        entry.handed_over += 1;
        let hold = &entry.hold;
        let token = hold.token.plus(1).unwrap_or(hold.token);
        let handed = Hold::new(hold.claim.clone(), token, terms.clone(), hold.clock.clone(), now, entry.until);
        entry.hold = Arc::new(handed);
        Held::new(Arc::clone(&entry.hold), self.clone())
    }

    /// Counts a write that came too late for its fence.
    pub(crate) fn note_stale(&self) {
        self.0.settings.counters.stale.up();
    }

    /// Has holds renewed at once of which the store says that they may be gone.
    pub(crate) fn hear(&self, losses: &Losses) {
        let keeper = Arc::downgrade(&self.0);
        losses.listen(move |suspect| {
            if let Some(keeper) = keeper.upgrade() {
                keeper.suspect(suspect);
            }
        });
    }

    /// Undoes a claim whose outcome is unknown, or that has a place in the queue.
    pub(crate) fn forget(&self, claim: Claim) -> Driven<Result<()>> {
        let release = Release::new(claim, None, self.0.settings.clock.now());
        Driven::new(&self.0.background, |desk| release.run(self.clone(), Some(desk)))
    }

    /// Has the background tell the store.
    pub(crate) fn enqueue_release(&self, release: Release) {
        self.0.background.spawn(release.run(self.clone(), None));
    }

    /// This process has the hold no more.
    fn removed(&self, entry: &KeptHold) {
        if entry.idle.is_none() {
            self.0.settings.counters.holding.down();
        }
        entry.turn.iter().for_each(|turn| {
            turn.used_tokens(entry.handed_over + 1, entry.spare_tokens);
            turn.over();
        });
    }

    /// Ends this very hold: its owner may have another one by now.
    pub(crate) fn lose(&self, hold: &Arc<Hold>, reason: LostReason) {
        // False if the guard has read the clock first, or was released at this moment. Not under the lock of the book: a task
        // that is told may release what it holds.
        hold.lose(reason);
        let mut book = self.0.book();
        let Some(entry) = book.of(hold) else { return };
        let released = hold.is_released();
        if released && reason != LostReason::Closed {
            // Its release is about to begin, and knows who waits for the answer. What is gone must not be handed over.
            if reason == LostReason::Revoked {
                entry.spare_tokens = 0;
            }
            return;
        }
        let Some(entry) = book.remove(hold.claim.owner.number) else { return };
        drop(book);
        self.removed(&entry);
        let turn = entry.turn;
        let now = self.0.settings.clock.now();
        if !released {
            turn.iter().for_each(Turn::lost);
            let held_for = now.since(hold.since);
            self.0.settings.counters.lost.up();
            self.0.settings.counters.held(held_for);
            warn!(name = ?hold.claim.resource, token = %hold.token, %reason, ?held_for, "lost");
        }
        // After a loss no caller waits for the release, but waiters at the store need not sit out the rest of the lease.
        if released || reason != LostReason::Revoked {
            self.enqueue_release(Release::new(hold.claim.clone(), turn, now));
        }
    }

    pub(crate) fn background(&self) -> &Background {
        &self.0.background
    }

    pub(super) fn calls(&self) -> &CallWindow {
        &self.0.calls
    }

    fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// Ends and releases everything; resolves when that is done or the time is up.
    pub(crate) async fn close(&self) {
        let holds: Vec<Arc<Hold>> = {
            let mut book = self.0.book();
            book.closed = true;
            book.holds().cloned().collect()
        };
        holds.iter().for_each(|hold| self.lose(hold, LostReason::Closed));
        // Nothing is renewed any more that releases could be in the way of.
        self.0.releases.open();
        self.0.wake.notify_one();
        // What is left then ends with its lease.
        drop(tokio::time::timeout(self.0.settings.timeout, self.0.releasing.idle()).await);
    }
}

impl Shared {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn suspect(&self, suspect: Suspect) {
        let now = self.settings.clock.now();
        let mut book = self.book();
        let wake = match suspect {
            Suspect::One(owner) => book.suspect(owner, now),
            Suspect::Wanted(owner) => book.wanted(owner, now),
            Suspect::All => {
                let owners: Vec<_> = book.holds().map(|hold| hold.claim.owner).collect();
                owners.into_iter().fold(false, |wake, owner| book.suspect(owner, now) | wake)
            }
        };
        drop(book);
        if wake {
            self.wake.notify_one();
        }
    }
}
