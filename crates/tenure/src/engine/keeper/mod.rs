//! What keeps holds: renews them in batches, gives back what guards drop, and knows a loss by the deadline even if every call
//! hangs.
//!
//! Tasks that take and give back write into the [`book`] themselves. The keeper's own [`task`] looks into it when something is
//! due; a lock that is taken and given back before that does not wake it. [`release`] gives a hold back; [`window`] keeps many
//! calls from being in the way of a renewal.

mod book;
mod release;
mod task;
mod under_way;
mod window;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tracing::{debug, warn};

use self::book::{Book, Entry};
pub(crate) use self::release::Release;
use self::task::Task;
pub(crate) use self::under_way::UnderWay;
pub(super) use self::window::Place;
use self::window::{Calls, Window};
use crate::backend::{Claim, Losses, Pushes, Suspect};
use crate::clock::Instant;
use crate::engine::Settings;
use crate::engine::background::Background;
use crate::engine::driven::Driven;
use crate::engine::guard::Held;
use crate::engine::hold::Hold;
use crate::engine::turnstile::{Pass, Turn, Waiter};
use crate::error::Result;
use crate::lost::{Lost, LostReason};

/// Where watching a hold costs something, holds that last longer than this are watched.
const WATCHED_AFTER: Duration = Duration::from_millis(100);

/// After that time, at a moment that many holds share: the keeper wakes once for all of them.
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
    calls: Calls,
    releases: Window,
    releasing: UnderWay,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.wake.notify_one();
    }
}

/// What has become of a hold that was given back.
pub(crate) enum GivenBack {
    /// It was over before.
    Over(Lost),
    /// Nothing is left to do: the next task of this process has it.
    HandedOver,
    /// The store is to be told.
    ToRelease(Release),
}

/// What is left of a hold that was lost.
type Leftover = Option<Release>;

impl Keeper {
    /// Starts the keeper's task.
    pub(crate) fn start(settings: Settings, background: &Background) -> Self {
        let (wake, releases) = (Arc::new(Notify::new()), Window::of_releases());
        let (book, calls, releasing) = (Mutex::default(), Calls::default(), UnderWay::default());
        let shared = Arc::new(Shared {
            settings: settings.clone(),
            background: background.clone(),
            book,
            wake,
            calls,
            releases,
            releasing,
        });
        let task = Task::new(settings, Arc::downgrade(&shared), Arc::clone(&shared.wake), background.clone());
        background.spawn(task.run());
        Self(shared)
    }

    /// Takes care of a new hold and returns what gives it back.
    pub(crate) fn keep(&self, hold: Hold, turn: Option<Turn>, until: Instant, now: Instant) -> Held {
        let hold = Arc::new(hold);
        let mut entry = Entry::new(Arc::clone(&hold), turn, until);
        let mut due = if hold.terms.fixed { entry.ends() } else { now.after(until.since(now) / 3).min(entry.ends()) };
        if self.0.settings.backend.capabilities().pushes_losses == Pushes::Renewed {
            due = due.min(next_beat(now));
            entry.is_to_be_watched();
        }
        self.0.settings.counters.holding.up();
        let mut book = self.0.book();
        if book.closed {
            drop(book);
            // Nobody would renew it, nor tell of its end.
            self.0.settings.counters.holding.down();
            hold.lose(LostReason::Closed);
            self.release_in_background(Release::new(hold.claim.clone(), entry.turn, now));
            return Held::new(hold, self.clone());
        }
        let (before, wake) = book.keep(entry, due);
        drop(book);
        before.into_iter().for_each(|before| self.0.removed(&before));
        if wake {
            self.0.wake.notify_one();
        }
        Held::new(hold, self.clone())
    }

    /// Ends a hold as given back.
    pub(crate) fn give_back(&self, hold: &Arc<Hold>) -> GivenBack {
        let Settings { clock, counters, .. } = &self.0.settings;
        let now = clock.now();
        if !hold.mark_released(now) {
            return GivenBack::Over(hold.why());
        }
        // Dropped after the book is free: those who left may hold what is given back with them.
        let mut left = Vec::new();
        let mut book = self.0.book();
        // Nobody would look after it.
        let closed = book.closed;
        // Under its owner there is another hold by now, or none any more.
        let Some(entry) = book.of(hold) else { return GivenBack::HandedOver };
        let held_for = now.since(hold.since);
        counters.held(held_for);
        counters.released.up();
        debug!(name = ?hold.claim.resource, token = %hold.token, ?held_for, "released");
        if !closed && let Some((next, held)) = self.next_holder(entry, now, &mut left) {
            // The next one may have less time. Always: the keeper may have taken it off the schedule, to find it given back.
            let due = entry.due().min(entry.ends());
            let wake = book.schedule_at(hold.claim.owner.number, due);
            drop(book);
            if wake {
                self.0.wake.notify_one();
            }
            // One that has left in this moment drops the hold, which gives it back in turn: its token is used up.
            if next.pass.send(Pass::Held(held)).is_ok() {
                counters.handed_over.up();
            }
            return GivenBack::HandedOver;
        }
        let Some(entry) = book.remove(hold.claim.owner.number) else { return GivenBack::HandedOver };
        drop(book);
        self.0.removed(&entry);
        let revoked = hold.loss(LostReason::Revoked);
        GivenBack::ToRelease(Release::new(hold.claim.clone(), entry.turn, now).or_lost(revoked))
    }

    /// Passes a hold to the next task in the queue under the next reserved token, without a round trip.
    fn next_holder(&self, entry: &mut Entry, now: Instant, left: &mut Vec<Waiter>) -> Option<(Waiter, Held)> {
        if !entry.can_be_handed_over(now) {
            return None;
        }
        let next = entry.turn.as_ref()?.next_with(&entry.hold.terms, left)?;
        entry.spare_tokens -= 1;
        let hold = &entry.hold;
        // In range: the store has reserved it.
        let token = hold.token.plus(1).unwrap_or(hold.token);
        let handed = Hold::new(hold.claim.clone(), token, next.terms.clone(), hold.clock.clone(), now, entry.until);
        entry.hold = Arc::new(handed);
        Some((next, Held::new(Arc::clone(&entry.hold), self.clone())))
    }

    /// Counts a write that came too late for its fence.
    pub(crate) fn note_stale(&self) {
        self.0.settings.counters.stale.up();
    }

    /// Takes note that the store has said that a hold is gone.
    pub(crate) fn ended(&self, hold: &Arc<Hold>) {
        self.lose(hold, LostReason::Revoked);
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

    pub(crate) fn release_in_background(&self, release: Release) {
        let work = release.run(self.clone(), None);
        self.0.background.spawn(work);
    }

    fn lose(&self, hold: &Arc<Hold>, reason: LostReason) {
        if let Some(leftover) = self.0.lose(hold, reason) {
            self.release_in_background(leftover);
        }
    }

    pub(crate) fn background(&self) -> &Background {
        &self.0.background
    }

    pub(super) fn calls(&self) -> &Calls {
        &self.0.calls
    }

    fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// Ends and gives back everything; resolves when that is done or the time is up.
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
            Suspect::All => book.claimants().into_iter().fold(false, |wake, owner| book.suspect(owner, now) | wake),
        };
        drop(book);
        if wake {
            self.wake.notify_one();
        }
    }

    /// Nobody of this process has it any more.
    fn removed(&self, entry: &Entry) {
        self.settings.counters.holding.down();
        entry.turn.iter().for_each(Turn::over);
    }

    /// Ends this very hold: under its owner there may be another one by now.
    fn lose(&self, hold: &Arc<Hold>, reason: LostReason) -> Leftover {
        // False if the guard has read the clock first, or was given back in this moment. Not under the book: those who are told
        // may give back what they hold.
        hold.lose(reason);
        let mut book = self.book();
        let entry = book.of(hold)?;
        let given_back = hold.is_released();
        if given_back && reason != LostReason::Closed {
            // Its release is about to begin, and knows who waits for the answer. What is gone must not be handed over.
            if reason == LostReason::Revoked {
                entry.spare_tokens = 0;
            }
            return None;
        }
        let entry = book.remove(hold.claim.owner.number)?;
        drop(book);
        self.removed(&entry);
        let turn = entry.turn;
        let now = self.settings.clock.now();
        if given_back {
            return Some(Release::new(hold.claim.clone(), turn, now));
        }
        turn.iter().for_each(Turn::lost);
        let held_for = now.since(hold.since);
        self.settings.counters.lost.up();
        self.settings.counters.held(held_for);
        warn!(name = ?hold.claim.resource, token = %hold.token, %reason, ?held_for, "lost");
        if reason == LostReason::Revoked {
            return None;
        }
        // Nobody waits for it, but those in the queue at the store need not sit out what is left of the lease.
        Some(Release::new(hold.claim.clone(), turn, now))
    }
}
