//! [`Mutex`]: one holder at any time.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Broken, Claim, State};
use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::hold::Terms;
use crate::locker::Locker;
use crate::name::Resource;
use crate::owner::{Entered, Owner};
use crate::wait::{self, Patience, Request};

/// A lock that one owner at a time can hold, re-entrant by [`Owner`].
///
/// [`lock`](Self::lock), [`lock_within`](Self::lock_within) and [`try_lock`](Self::try_lock) keep the lock alive until
/// the guard is dropped, unless [`lease_fixed`](Self::lease_fixed) was called. That somebody else has the lock is a
/// value, not an error. The futures own what they need: they can be spawned.
#[derive(Debug, Clone)]
#[must_use = "a mutex does nothing until it is locked"]
pub struct Mutex {
    locker: Locker,
    resource: Result<Resource>,
    lease: Duration,
    fixed: bool,
    max_hold: Option<Duration>,
    note: Option<Arc<str>>,
    owner: Option<Owner>,
}

impl Mutex {
    pub(crate) fn new(locker: Locker, resource: Result<Resource>) -> Self {
        let lease = locker.core.lease;
        Self { locker, resource, lease, fixed: false, max_hold: None, note: None, owner: None }
    }

    /// The lease, instead of the locker's: how long the lock outlives a crashed holder. The lock is renewed.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self.fixed = false;
        self
    }

    /// A lease that is not renewed: the lock ends by itself, and says so through [`Guard::lost`].
    pub fn lease_fixed(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self.fixed = true;
        self
    }

    /// The longest that a guard may be held; then it is lost. Bounds a guard that was forgotten.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.max_hold = Some(max_hold);
        self
    }

    /// Words for those who ask who holds the lock, up to 4096 bytes.
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into().into());
        self
    }

    /// Whose nested calls re-enter; otherwise the owner of the [scope](Owner::scope), if there is one.
    pub fn owner(mut self, owner: &Owner) -> Self {
        self.owner = Some(owner.clone());
        self
    }

    /// Waits until the lock is held. Fails when the store is unavailable for longer than the retry policy allows.
    ///
    /// # Cancel safety
    /// Safe: dropping the future leaves neither a lock nor a place in line behind.
    pub fn lock(&self) -> impl Future<Output = Result<Guard>> + Send + use<> {
        let asked = self.clone();
        async move { asked.acquire(Patience::Endless).await?.ok_or(Error::Closed) }
    }

    /// As [`lock`](Self::lock), for a limited time. `None`: somebody else had the lock all the time. Zero asks once, as
    /// [`try_lock`](Self::try_lock) does.
    ///
    /// # Cancel safety
    /// As [`lock`](Self::lock).
    pub fn lock_within(&self, wait: Duration) -> impl Future<Output = Result<Option<Guard>>> + Send + use<> {
        let asked = self.clone();
        async move {
            let until = asked.locker.core.settings.clock.now().after(wait);
            asked.acquire(if wait.is_zero() { Patience::None } else { Patience::Until(until) }).await
        }
    }

    /// Asks once. `None`: somebody else has the lock. An unavailable store is reported at once.
    ///
    /// # Cancel safety
    /// As [`lock`](Self::lock).
    pub fn try_lock(&self) -> impl Future<Output = Result<Option<Guard>>> + Send + use<> {
        let asked = self.clone();
        async move { asked.acquire(Patience::None).await }
    }

    /// Who holds the lock and how many wait.
    ///
    /// # Cancel safety
    /// Safe: it only reads.
    pub fn inspect(&self) -> impl Future<Output = Result<State>> + Send + use<> {
        let asked = self.clone();
        async move { asked.locker.inspect(asked.resource?).await }
    }

    /// Ends the hold of whoever has the lock, and raises the fence above its token in the same step: the broken holder
    /// is told at its next renewal, and a storage that checks tokens refuses it as soon as the next holder has written.
    /// `None` if nobody held it.
    ///
    /// # Cancel safety
    /// The break may or may not have happened.
    pub fn break_hold(&self) -> impl Future<Output = Result<Option<Broken>>> + Send + use<> {
        let asked = self.clone();
        async move { asked.locker.break_hold(asked.resource?).await }
    }

    pub(crate) async fn acquire(&self, patience: Patience) -> Result<Option<Guard>> {
        let (request, owner) = self.request(patience)?;
        let core = &self.locker.core;
        let Some(owner) = owner else { return Self::answer(wait::start(core, request)).await };
        let slot = owner.slot(core, &request.resource);
        let entered = match slot.try_enter()? {
            Some(entered) => entered,
            // Another call of this owner is acquiring the same name.
            None if patience == Patience::None => return Ok(None),
            None => {
                let Some(entered) = core.within(patience, slot.enter()).await else { return Ok(None) };
                entered?
            }
        };
        match entered {
            Entered::Again(guard) => {
                core.settings.counters.reentered.up();
                Ok(Some(guard))
            }
            Entered::First(place) => {
                let guard = Self::answer(wait::start(core, request)).await?;
                if let Some(guard) = &guard {
                    place.note(guard);
                }
                Ok(guard)
            }
        }
    }

    async fn answer(receiver: tokio::sync::oneshot::Receiver<Result<Option<Guard>>>) -> Result<Option<Guard>> {
        receiver.await.unwrap_or(Err(Error::Closed))
    }

    fn request(&self, patience: Patience) -> Result<(Request, Option<Owner>)> {
        if self.locker.core.is_closed() {
            return Err(Error::Closed);
        }
        let resource = self.resource.clone()?;
        let drift = self.locker.core.settings.drift.allowance(self.lease);
        if drift >= self.lease {
            let asked = format!("a lease of {:?}", self.lease);
            return Err(Error::config(asked, format!("is over before it begins, less {drift:?} for drift"), "a longer lease"));
        }
        let note: Option<Arc<str>> = self.note.as_deref().map(Claim::check_note).transpose()?;
        let terms = Terms { lease: Claim::check_lease(self.lease)?, fixed: self.fixed, max_hold: self.max_hold, note };
        Ok((Request { resource, terms, patience }, self.owner.clone().or_else(Owner::current)))
    }
}
