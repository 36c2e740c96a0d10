//! What every primitive is made of: a name, the terms of its holds, and the engine to ask.

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

/// A name, and on which terms it is asked for.
#[derive(Debug, Clone)]
pub(crate) struct LockRequest {
    pub(crate) engine: Arc<Engine>,
    pub(crate) resource: Named,
    pub(crate) lease: Duration,
    pub(crate) fixed: bool,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) note: Option<Arc<str>>,
    pub(crate) linger: Duration,
    pub(crate) owner: Option<Owner>,
    /// Whether each call asks the store, so that no hold is handed over inside the process.
    pub(crate) bypass_local_queue: bool,
}

/// The methods that all locks have in common. The type has a field `request`. With `owner`, its holds are re-entrant.
macro_rules! options {
    (owner) => {
        $crate::primitives::request::options!();

        /// The owner whose nested calls re-enter; otherwise the owner of the [scope](Owner::scope), if there is one.
        pub fn owner(mut self, owner: &Owner) -> Self {
            self.request.owner = Some(owner.clone());
            self
        }
    };
    () => {
        /// The lease, instead of the locker's: how long a hold outlives a crashed holder. Holds are renewed.
        pub fn lease(mut self, lease: std::time::Duration) -> Self {
            (self.request.lease, self.request.fixed) = (lease, false);
            self
        }

        /// A lease that is not renewed: the hold ends by itself, and says so through [`Guard::lost`](crate::Guard::lost).
        pub fn lease_fixed(mut self, lease: std::time::Duration) -> Self {
            (self.request.lease, self.request.fixed) = (lease, true);
            self
        }

        /// The longest that a guard may be held; then it is lost. Bounds a guard that was forgotten.
        pub fn max_hold(mut self, max_hold: std::time::Duration) -> Self {
            self.request.max_hold = Some(max_hold);
            self
        }

        /// A note that [`inspect`](Self::inspect) shows with the holder, of up to 4096 bytes.
        pub fn note(mut self, note: impl Into<String>) -> Self {
            self.request.note = Some(note.into().into());
            self
        }

        /// The holders, and how many wait. Cancel safe: it only reads.
        pub fn inspect(&self) -> impl Future<Output = Result<State>> + Send + use<> {
            self.request.clone().inspect()
        }

        /// Ends all holds by force, and raises the fence above their tokens in the same step. The broken holder is told by the store,
        /// at its next renewal at the latest. A storage that checks tokens refuses it as soon as the next holder has written. `None` if
        /// it was not held. Cancelled, the break may or may not have happened.
        pub fn break_hold(&self) -> impl Future<Output = Result<Option<Broken>>> + Send + use<> {
            self.request.clone().break_hold()
        }
    };
}
pub(crate) use options;

impl LockRequest {
    pub(crate) fn new(engine: Arc<Engine>, resource: Named) -> Self {
        let (lease, linger) = (engine.lease, engine.linger);
        let (fixed, max_hold, note, owner, bypass_local_queue) = (false, None, None, None, false);
        Self { engine, resource, lease, fixed, max_hold, note, linger, owner, bypass_local_queue }
    }

    /// For how long to wait: zero asks once.
    pub(crate) fn patience(&self, wait: Duration) -> Patience {
        if wait.is_zero() { Patience::None } else { Patience::Until(self.engine.settings.clock.now().after(wait)) }
    }

    /// Waits until it is held.
    pub(crate) fn lock(&self, mode: Mode) -> impl Future<Output = Result<Guard>> + Send + use<> {
        let asked = self.clone();
        async move { asked.acquire(mode, Patience::Endless).await?.ok_or(Error::Closed) }
    }

    /// The same for a limited time; zero asks once.
    pub(crate) fn try_lock_for(&self, mode: Mode, wait: Duration) -> impl Future<Output = Result<Option<Guard>>> + Send + use<> {
        let asked = self.clone();
        async move { asked.acquire(mode, asked.patience(wait)).await }
    }

    /// Asks as the owner, if there is one: its nested calls share one hold.
    pub(super) async fn acquire(&self, mode: Mode, patience: Patience) -> Result<Option<Guard>> {
        let request = self.engine_request(mode, patience)?;
        match self.owner.clone().or_else(Owner::current) {
            None => self.hold(request).await,
            // Boxed, so that the usual future is small.
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
        self.hold(self.engine_request(mode, patience)?).await
    }

    /// Converts a hold that no other guard shares into another one, which the owner re-enters from then on.
    pub(crate) async fn change(&self, guard: Guard, mode: Mode) -> Result<Guard> {
        let mut request = self.engine_request(mode, Patience::Endless)?;
        // Kept to the end: another call of the owner finds either hold, and not the moment between them.
        let slot = guard.shared().slot().cloned();
        let place = match &slot {
            Some(slot) => {
                let place = self.engine.within_or_closed(Patience::Endless, slot.lock()).await;
                Some((slot, place.ok_or(Error::Closed)?))
            }
            None => None,
        };
        guard.check()?;
        let is_only = place.as_ref().map_or_else(|| guard.hold_count() == 1, |(_, place)| place.close(&guard));
        if !is_only {
            let problem = "was asked for with a guard that others share by re-entry";
            return Err(Error::misuse("a change of a hold", problem, "the only guard of its hold"));
        }
        // A renewal of the old hold may arrive after the change, and must not shorten the new one.
        request.terms.lease = request.terms.lease.min(guard.lease());
        request.converting = Some(guard);
        let guard = self.hold(request).await?.ok_or(Error::Closed)?;
        if let Some((slot, place)) = place {
            place.note(slot, &guard);
        }
        Ok(guard)
    }

    /// Asks for something that holds nothing. `None`: it was busy all the time.
    pub(crate) async fn ask(&self, mode: Mode, patience: Patience) -> Result<Option<u64>> {
        match acquire::acquire(&self.engine, self.engine_request(mode, patience)?).await? {
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

    fn engine_request(&self, mode: Mode, patience: Patience) -> Result<Request> {
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
        let terms = Terms { lease, fixed: self.fixed, max_hold: self.max_hold, note, linger: self.linger };
        Ok(Request { resource, mode, terms, patience, bypass_local_queue: self.bypass_local_queue, converting: None })
    }
}

/// Whether the hold of an owner covers what it asks for.
fn may_reenter(guard: &Guard, asked: Mode) -> Result<()> {
    let name = guard.resource();
    match (guard.mode(), asked) {
        (Mode::Exclusive | Mode::Fair, Mode::Exclusive | Mode::Fair) | (Mode::Write, Mode::Write | Mode::Read) => Ok(()),
        (Mode::Read, Mode::Read) => Ok(()),
        (Mode::Read, _) => {
            let problem = "is asked for by an owner that reads it, and would wait for itself";
            let allowed = "to write first and then downgrade, or to release the read lock before";
            Err(Error::misuse(format!("the write lock of {name:?}"), problem, allowed))
        }
        (held, _) => {
            let problem = format!("is held by the same owner for {held}");
            Err(Error::misuse(format!("the name {name:?} for {asked}"), problem, "one kind of lock per name"))
        }
    }
}
