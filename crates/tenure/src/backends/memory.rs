//! The reference implementation: a map under a mutex. Readable as the specification of the contract.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use async_trait::async_trait;
use futures_util::future::BoxFuture;

use crate::backend::{
    Attempt, Backend, Broken, Capabilities, Claim, Client, Holder, Queue, Reach, Released, Renewal, Safety, Scope, State,
    Survival,
};
use crate::clock::{Clock, Instant};
use crate::connect::{Address, Context};
use crate::error::{Error, Fault, Result};
use crate::name::{OwnerId, Resource, Token};
use crate::signal::{Hub, Signal};

const NAME: &str = "memory";

/// Locks among the tasks and threads of one process. Clients made with [`Memory::client`] share one store.
#[derive(Debug)]
pub struct Memory {
    store: Arc<Store>,
    client: Client,
}

#[derive(Debug)]
struct Store {
    slots: Mutex<HashMap<Resource, Slot>>,
    clients: Mutex<HashMap<crate::name::ClientId, Arc<str>>>,
    hub: Hub,
    clock: Clock,
}

#[derive(Debug, Default)]
struct Slot {
    hold: Option<Hold>,
    /// Owners that were told "busy" and may come back, first come first.
    queue: Vec<OwnerId>,
    /// The largest token handed out. Never removed: a token must not come back.
    fence: Option<Token>,
}

#[derive(Debug)]
struct Hold {
    owner: OwnerId,
    token: Token,
    reserved_to: Token,
    since: SystemTime,
    until: Instant,
    note: Option<Arc<str>>,
}

impl Memory {
    /// A store of its own.
    #[must_use]
    pub fn new(client: Client, clock: Clock) -> Self {
        let store = Store { slots: Mutex::default(), clients: Mutex::default(), hub: Hub::default(), clock };
        Self { store: Arc::new(store), client: client.clone() }.client(client)
    }

    /// Another client of the same store.
    #[must_use]
    pub fn client(&self, client: Client) -> Self {
        let mut clients = self.store.clients.lock().unwrap_or_else(PoisonError::into_inner);
        clients.insert(client.id, Arc::clone(&client.about));
        Self { store: Arc::clone(&self.store), client }
    }

    fn slots(&self) -> MutexGuard<'_, HashMap<Resource, Slot>> {
        self.store.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self, resource: &Resource, slot: Option<&Slot>) -> State {
        let now = self.store.clock.now();
        let hold = slot.and_then(|s| s.hold.as_ref()).filter(|h| h.until > now);
        State {
            resource: resource.clone(),
            holders: hold.map(|h| self.holder(h, now)).into_iter().collect(),
            waiting: Some(slot.map_or(0, |s| u32::try_from(s.queue.len()).unwrap_or(u32::MAX))),
            fence: slot.and_then(|s| s.fence),
        }
    }

    fn holder(&self, hold: &Hold, now: Instant) -> Holder {
        let clients = self.store.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let note = hold.note.as_ref().or_else(|| clients.get(&hold.owner.client));
        Holder {
            owner: hold.owner.to_string(),
            token: Some(hold.reserved_to),
            since: Some(hold.since),
            expires_in: Some(hold.until.since(now)),
            note: note.map(ToString::to_string),
        }
    }
}

impl Slot {
    fn next_tokens(&mut self, count: u32) -> Result<(Token, Token)> {
        let exhausted = || Error::backend(NAME, "acquiring", Fault::TokenExhausted, "the next token would not fit 63 bits");
        let first = Token::after_now(self.fence).ok_or_else(exhausted)?;
        let last = first.plus(u64::from(count) - 1).ok_or_else(exhausted)?;
        self.fence = Some(last);
        Ok((first, last))
    }
}

#[async_trait]
impl Backend for Memory {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            backend: NAME,
            reach: Reach::Process,
            token_blocks: true,
            queues: true,
            watch_first: true,
            fails_over: false,
            safety: Safety {
                holder_pause: Survival::FenceOnly,
                store_restart: Survival::Together,
                power_loss: Survival::Together,
                failover: Survival::Together,
                clock_jump: Survival::Lock,
            },
        }
    }

    fn partition(&self, _: &Resource) -> u32 {
        0
    }

    async fn acquire(&self, claim: &Claim) -> Result<Attempt> {
        let now = self.store.clock.now();
        let until = now.after(claim.lease);
        let mut slots = self.slots();
        let slot = slots.entry(claim.resource.clone()).or_default();
        match &mut slot.hold {
            Some(hold) if hold.owner == claim.owner && hold.until > now => {
                hold.until = until;
                return Ok(Attempt::Granted { token: hold.token, valid_for: claim.lease });
            }
            Some(hold) if hold.until > now => {
                if claim.queue == Queue::Allowed && !slot.queue.contains(&claim.owner) {
                    slot.queue.push(claim.owner);
                }
                return Ok(Attempt::Busy { poll_within: hold.until.since(now), holder: Some(hold.owner.to_string()) });
            }
            _ => {}
        }
        let (token, reserved_to) = slot.next_tokens(claim.tokens)?;
        slot.queue.retain(|waiting| *waiting != claim.owner);
        let note = claim.note.clone();
        slot.hold = Some(Hold { owner: claim.owner, token, reserved_to, since: SystemTime::now(), until, note });
        Ok(Attempt::Granted { token, valid_for: claim.lease })
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Renewal>> {
        let now = self.store.clock.now();
        let mut slots = self.slots();
        let renew = |claim: &Claim| match slots.get_mut(&claim.resource).and_then(|s| s.hold.as_mut()) {
            Some(hold) if hold.owner == claim.owner && hold.until > now => {
                hold.until = now.after(claim.lease);
                Renewal::Extended { valid_for: claim.lease }
            }
            _ => Renewal::Gone,
        };
        Ok(claims.iter().map(renew).collect())
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        let now = self.store.clock.now();
        let mut slots = self.slots();
        let Some(slot) = slots.get_mut(&claim.resource) else { return Ok(Released::NotHeld) };
        slot.queue.retain(|waiting| *waiting != claim.owner);
        let Some(hold) = slot.hold.take_if(|hold| hold.owner == claim.owner) else { return Ok(Released::NotHeld) };
        drop(slots);
        self.store.hub.fire(claim.resource.as_str());
        Ok(if hold.until > now { Released::Yes } else { Released::NotHeld })
    }

    async fn watch(&self, claim: &Claim) -> Result<Signal> {
        Ok(self.store.hub.listen(claim.resource.as_str()).0)
    }

    async fn inspect(&self, scope: Scope<'_>) -> Result<Vec<State>> {
        let slots = self.slots();
        match scope {
            Scope::One(resource) => Ok(vec![self.state(resource, slots.get(resource))]),
            Scope::Prefix(prefix) => {
                let under = slots.iter().filter(|(r, _)| r.as_str().starts_with(prefix));
                let mut states: Vec<State> = under.map(|(r, s)| self.state(r, Some(s))).collect();
                states.retain(|s| !s.holders.is_empty());
                states.sort_by(|a, b| a.resource.cmp(&b.resource));
                Ok(states)
            }
        }
    }

    async fn break_hold(&self, resource: &Resource) -> Result<Option<Broken>> {
        let now = self.store.clock.now();
        let mut slots = self.slots();
        let Some(slot) = slots.get_mut(resource) else { return Ok(None) };
        let Some(hold) = slot.hold.take().filter(|hold| hold.until > now) else { return Ok(None) };
        let (fence, _) = slot.next_tokens(1)?;
        let holder = self.holder(&hold, now);
        drop(slots);
        self.store.hub.fire(resource.as_str());
        Ok(Some(Broken { holders: vec![holder], fence }))
    }

    async fn close(&self) -> Result<()> {
        let mut clients = self.store.clients.lock().unwrap_or_else(PoisonError::into_inner);
        clients.remove(&self.client.id);
        Ok(())
    }
}

/// Opens `memory:`.
pub(crate) fn open(address: Address, context: Context) -> BoxFuture<'static, Result<Arc<dyn Backend>>> {
    Box::pin(async move {
        if !address.rest.is_empty() {
            return Err(Error::config("the memory: URL", "has an address", "memory:"));
        }
        Ok(Arc::new(Memory::new(context.client, context.clock)) as Arc<dyn Backend>)
    })
}
