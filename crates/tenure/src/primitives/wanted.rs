//! What every primitive is made of: a name, the terms of its holds, and the way to the engine.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Broken, Claim, Mode, State};
use crate::engine::Engine;
use crate::engine::acquire::{self, Outcome, Patience, Request};
use crate::engine::guard::Guard;
use crate::engine::hold::Terms;
use crate::engine::owner::{Entered, Owner};
use crate::error::{Error, Result};
use crate::invalid::Invalid;
use crate::name::Resource;

/// A name that has been checked. A bad one is reported by the first call that uses it.
pub(crate) type Named = Result<Resource, Invalid>;

/// A name, and on which terms it is wanted.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) engine: Arc<Engine>,
    pub(crate) resource: Named,
    pub(crate) lease: Duration,
    pub(crate) fixed: bool,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) note: Option<Arc<str>>,
    pub(crate) owner: Option<Owner>,
    /// Whether each asks the store for itself, so that no hold is handed over inside the process.
    pub(crate) alone: bool,
}

/// The options that all locks have in common. The type has a field `wanted`.
macro_rules! options {
    () => {
        /// The lease, instead of the locker's: how long a hold outlives a crashed holder. Holds are renewed.
        pub fn lease(mut self, lease: std::time::Duration) -> Self {
            (self.wanted.lease, self.wanted.fixed) = (lease, false);
            self
        }

        /// A lease that is not renewed: the hold ends by itself, and says so through [`Guard::lost`](crate::Guard::lost).
        pub fn lease_fixed(mut self, lease: std::time::Duration) -> Self {
            (self.wanted.lease, self.wanted.fixed) = (lease, true);
            self
        }

        /// The longest that a guard may be held; then it is lost. Bounds a guard that was forgotten.
        pub fn max_hold(mut self, max_hold: std::time::Duration) -> Self {
            self.wanted.max_hold = Some(max_hold);
            self
        }

        /// Words for those who ask who holds it, up to 4096 bytes.
        pub fn note(mut self, note: impl Into<String>) -> Self {
            self.wanted.note = Some(note.into().into());
            self
        }
    };
}
pub(crate) use options;

impl Wanted {
    pub(crate) fn new(engine: Arc<Engine>, resource: Named) -> Self {
        let lease = engine.lease;
        Self { engine, resource, lease, fixed: false, max_hold: None, note: None, owner: None, alone: false }
    }

    /// For how long to wait: zero asks once.
    pub(crate) fn patience(&self, wait: Duration) -> Patience {
        if wait.is_zero() { Patience::None } else { Patience::Until(self.engine.settings.clock.now().after(wait)) }
    }

    /// Asks, in the name of the owner if there is one: its nested calls share one hold.
    pub(crate) async fn acquire(&self, mode: Mode, patience: Patience) -> Result<Option<Guard>> {
        let request = self.request(mode, patience)?;
        match self.owner.clone().or_else(Owner::current) {
            None => self.hold(request).await,
            // Apart, so that what most wait in is small.
            Some(owner) => Box::pin(self.acquire_as(owner, request)).await,
        }
    }

    async fn acquire_as(&self, owner: Owner, request: Request) -> Result<Option<Guard>> {
        let (engine, mode, patience) = (&self.engine, request.mode, request.patience);
        let slot = owner.slot(engine, &request.resource);
        let entered = match slot.try_enter()? {
            Some(entered) => entered,
            // Another call of this owner is acquiring the same name.
            None if patience == Patience::None => return acquire::not_asked(engine, &request),
            None => {
                let Some(entered) = engine.within_or_closed(patience, slot.enter()).await else {
                    return acquire::not_asked(engine, &request);
                };
                entered?
            }
        };
        match entered {
            Entered::Again(guard) => {
                may_reenter(&guard, mode)?;
                engine.settings.counters.reentered.up();
                Ok(Some(guard))
            }
            Entered::First(place) => {
                let guard = self.hold(request).await?;
                if let Some(guard) = &guard {
                    place.note(&slot, guard);
                }
                Ok(guard)
            }
        }
    }

    /// Asks for a hold that no other call shares.
    pub(crate) async fn acquire_anew(&self, mode: Mode, patience: Patience) -> Result<Option<Guard>> {
        self.hold(self.request(mode, patience)?).await
    }

    /// Turns a hold that no other guard shares into another one, which the owner re-enters from then on.
    pub(crate) async fn change(&self, guard: Guard, mode: Mode) -> Result<Guard> {
        let mut request = self.request(mode, Patience::Endless)?;
        // Kept to the end: another call of its owner must find either hold, and not the moment between them.
        let slot = guard.shared().slot().cloned();
        let place = match &slot {
            Some(slot) => {
                let place = self.engine.within_or_closed(Patience::Endless, slot.lock()).await;
                Some((slot, place.ok_or(Error::Closed)?))
            }
            None => None,
        };
        guard.check()?;
        let alone = place.as_ref().map_or_else(|| guard.hold_count() == 1, |(_, place)| place.close(&guard));
        if !alone {
            let problem = "was asked for with a guard that others share by re-entry";
            return Err(Error::misuse("a change of a hold", problem, "the only guard of its hold"));
        }
        // The old hold is renewed until it is changed, and such a renewal may arrive after that: it must not end sooner what the new
        // one counts on.
        request.terms.lease = request.terms.lease.min(guard.lease());
        request.converting = Some(guard);
        let guard = self.hold(request).await?.ok_or(Error::Closed)?;
        if let Some((slot, place)) = place {
            place.note(slot, &guard);
        }
        Ok(guard)
    }

    /// Has something done that holds nothing. `None`: it was busy all the time.
    pub(crate) async fn ask(&self, mode: Mode, patience: Patience) -> Result<Option<u64>> {
        match acquire::acquire(&self.engine, self.request(mode, patience)?).await? {
            Some(Outcome::Done(left)) => Ok(Some(left)),
            Some(Outcome::Held(_)) | None => Ok(None),
        }
    }

    fn hold(&self, request: Request) -> impl Future<Output = Result<Option<Guard>>> + Send + use<> {
        let acquired = acquire::acquire(&self.engine, request);
        async {
            match acquired.await? {
                Some(Outcome::Held(guard)) => Ok(Some(guard)),
                Some(Outcome::Done(_)) | None => Ok(None),
            }
        }
    }

    pub(crate) async fn inspect(self) -> Result<State> {
        self.engine.inspect(self.resource?).await
    }

    pub(crate) async fn break_hold(self) -> Result<Option<Broken>> {
        self.engine.break_hold(self.resource?).await
    }

    fn request(&self, mode: Mode, patience: Patience) -> Result<Request> {
        let engine = &self.engine;
        if engine.is_closed() {
            return Err(Error::Closed);
        }
        engine.capabilities.refuse(mode)?;
        let resource = self.resource.clone()?;
        let drift = engine.settings.drift.allowance(self.lease);
        if drift >= self.lease {
            let asked = format!("a lease of {:?}", self.lease);
            return Err(Error::config(asked, format!("is over before it begins, less {drift:?} for drift"), "a longer lease"));
        }
        let note = self.note.as_deref().map(Claim::check_note).transpose()?;
        let lease = engine.capabilities.leases.fit(self.lease)?;
        let terms = Terms { lease, fixed: self.fixed, max_hold: self.max_hold, note };
        Ok(Request { resource, mode, terms, patience, bypass_local_queue: self.alone, converting: None })
    }
}

/// Whether an owner that has this hold has what it asks for.
fn may_reenter(guard: &Guard, wanted: Mode) -> Result<()> {
    let name = guard.resource();
    match (guard.mode(), wanted) {
        (Mode::Exclusive | Mode::Fair, Mode::Exclusive | Mode::Fair) | (Mode::Write, Mode::Write | Mode::Read) => Ok(()),
        (Mode::Read, Mode::Read) => Ok(()),
        (Mode::Read, _) => {
            let problem = "is asked for by an owner that reads it, and would wait for itself";
            let allowed = "to write first and then downgrade, or to release the read lock before";
            Err(Error::misuse(format!("the write lock of {name:?}"), problem, allowed))
        }
        (held, _) => {
            let problem = format!("is held by the same owner for {held}");
            Err(Error::misuse(format!("the name {name:?} for {wanted}"), problem, "one kind of lock per name"))
        }
    }
}
