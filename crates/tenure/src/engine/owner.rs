//! [`Owner`]: who re-enters. Nested `lock()` calls of one owner on one name share one hold.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::engine::Engine;
use crate::engine::guard::{Guard, Held};
use crate::error::{Error, Result};
use crate::name::{ClientId, Resource};

tokio::task_local! {
    static CURRENT: Owner;
}

/// A handle that makes nested `lock()` calls of the same name return at once, with the same token.
///
/// Async tasks have no thread identity, so the owner is named: pass it with
/// [`Mutex::owner`](crate::Mutex::owner), or run a future in its [`scope`](Self::scope). Clones are the same owner.
///
/// ```
/// # async fn example() -> tenure::Result<()> {
/// let locker = tenure::Locker::connect("memory:").await?;
/// let owner = tenure::Owner::new();
/// owner.scope(async {
///     let outer = locker.mutex("order:7").lock().await?;
///     let inner = locker.mutex("order:7").lock().await?; // does not block itself
///     assert_eq!(outer.token(), inner.token());
///     assert_eq!(outer.hold_count(), 2);
///     Ok::<(), tenure::Error>(())
/// }).await?;
/// # locker.close().await
/// # }
/// # fn main() -> tenure::Result<()> { tokio::runtime::Runtime::new().unwrap().block_on(example()) }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Owner(Arc<Mutex<HashMap<Key, Arc<Slot>>>>);

/// A name of one locker; two lockers are two stores. Not by the locker's address: a guard outlives its locker, and the
/// next one may be put in the same place.
type Key = (ClientId, Resource);

/// One name of one owner. Concurrent calls of one owner wait for the first, then re-enter.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    noted: Mutex<Noted>,
    /// Held by the call that acquires, or changes what is noted. A noted hold is entered without it.
    acquiring: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Noted {
    held: Weak<Held>,
    /// Whether the owner may re-enter it. Read first: a look must not keep the hold even for a moment, or its release would take that
    /// for another guard.
    open: Arc<AtomicBool>,
}

/// How the owner of a hold re-enters it.
pub(crate) struct Reentry {
    /// Where its owner finds it.
    pub(super) slot: Arc<Slot>,
    /// Whether its owner may re-enter it: not once it has gone to another thread.
    pub(super) open: Arc<AtomicBool>,
}

impl Reentry {
    pub(super) fn by(slot: &Arc<Slot>) -> Self {
        Self { slot: Arc::clone(slot), open: Arc::new(AtomicBool::new(true)) }
    }
}

impl Owner {
    /// An owner that holds nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs a future in which every `lock()` is this owner's.
    pub async fn scope<F: Future>(&self, work: F) -> F::Output {
        CURRENT.scope(self.clone(), work).await
    }

    /// The owner of the scope that this code runs in.
    #[must_use]
    pub fn current() -> Option<Self> {
        CURRENT.try_with(Clone::clone).ok()
    }

    pub(crate) fn slot(&self, core: &Engine, resource: &Resource) -> Arc<Slot> {
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Forgets names that are neither held nor being asked for, so that an owner of many names does not grow.
        if slots.len() >= 64 {
            slots.retain(|_, slot| Arc::strong_count(slot) > 1 || slot.noted().held.strong_count() > 0);
        }
        Arc::clone(slots.entry((core.owners.client(), resource.clone())).or_default())
    }
}

impl Slot {
    /// The hold to re-enter, or the right to acquire one.
    pub(crate) async fn enter(&self) -> Result<Entered<'_>> {
        match self.again()? {
            Some(guard) => Ok(Entered::Again(guard)),
            None => self.first(self.acquiring.lock().await),
        }
    }

    /// As [`enter`](Self::enter), but `None` while another call of the same owner is acquiring.
    pub(crate) fn try_enter(&self) -> Result<Option<Entered<'_>>> {
        match self.again()? {
            Some(guard) => Ok(Some(Entered::Again(guard))),
            None => self.acquiring.try_lock().ok().map(|acquiring| self.first(acquiring)).transpose(),
        }
    }

    /// Looks again with the right to acquire: the call before may have noted a hold.
    fn first<'a>(&'a self, acquiring: tokio::sync::MutexGuard<'a, ()>) -> Result<Entered<'a>> {
        Ok(match self.again()? {
            Some(guard) => Entered::Again(guard),
            None => Entered::First(SlotLock { slot: self, _acquiring: acquiring }),
        })
    }

    /// The right to note another hold, whatever is noted.
    pub(crate) async fn lock(&self) -> SlotLock<'_> {
        SlotLock { slot: self, _acquiring: self.acquiring.lock().await }
    }

    /// Enters the hold that is noted, if there is one.
    fn again(&self) -> Result<Option<Guard>> {
        let held = self.noted().enter();
        let Some(guard) = held.map(Guard::new) else { return Ok(None) };
        // Entering a hold that is lost would look like a lock and be none.
        guard.check().map_err(Error::Lost)?;
        Ok(Some(guard))
    }

    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Noted {
    fn enter(&self) -> Option<Arc<Held>> {
        self.open.load(Ordering::Acquire).then(|| self.held.upgrade()).flatten()
    }
}

/// What an owner finds at a name.
pub(crate) enum Entered<'a> {
    /// Its own hold.
    Again(Guard),
    /// No hold; the right to note one.
    First(SlotLock<'a>),
}

/// The right to note a hold in a slot.
pub(crate) struct SlotLock<'a> {
    slot: &'a Slot,
    _acquiring: tokio::sync::MutexGuard<'a, ()>,
}

impl SlotLock<'_> {
    /// Ends re-entry of this guard's hold. False if other guards share it.
    pub(crate) fn close(&self, guard: &Guard) -> bool {
        // Others enter under the same lock.
        let mut noted = self.slot.noted();
        let alone = guard.hold_count() == 1;
        if alone && noted.held.as_ptr() == Arc::as_ptr(guard.shared()) {
            *noted = Noted::default();
        }
        alone
    }

    /// Notes a hold in this slot.
    pub(crate) fn note(self, slot: &Arc<Slot>, guard: &Guard) {
        let open = guard.shared().noted_in(slot);
        *self.slot.noted() = Noted { held: Arc::downgrade(guard.shared()), open };
    }
}

#[cfg(all(test, feature = "blocking"))]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::locker::Locker;

    #[tokio::test]
    async fn who_looks_at_a_hold_that_it_may_not_enter_does_not_keep_it() {
        let locker = Locker::connect("memory:").await.expect("connected");
        for _ in 0..100 {
            let guard = locker.mutex("a").owner(&Owner::new()).lock().await.expect("locked");
            let slot = guard.shared().slot().cloned().expect("noted");
            guard.end_reentry();
            let (watcher, looks) = (guard.watcher(), Arc::new(AtomicBool::new(false)));
            let (done, looking) = (Arc::clone(&looks), Arc::clone(&looks));
            let looker = std::thread::spawn(move || {
                for _ in 0..200 {
                    let first = matches!(slot.try_enter(), Ok(Some(Entered::First(_))));
                    assert!(first, "nobody re-enters it");
                    looking.store(true, Ordering::Release);
                }
            });
            while !done.load(Ordering::Acquire) {
                std::hint::spin_loop();
            }
            guard.release().await.expect("given back");
            assert!(!watcher.is_valid(), "released, and still held");
            looker.join().expect("no panic");
        }
    }
}
