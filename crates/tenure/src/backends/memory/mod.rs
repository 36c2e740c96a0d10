//! The reference implementation: a map under a mutex, readable as the specification of the contract.

mod open;
mod slot;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

pub use self::open::MemoryOptions;
pub(crate) use self::open::SCHEMES;
use self::slot::{Hold, Slot, Wake};
use crate::backend::{
    Attempt, Backend, Broken, Capabilities, Claim, Client, Holder, InUse, LOCAL, Losses, Mode, Opened, Permits, Queue, Released,
    Renewal, Scope, Server, State, Voter,
};
use crate::clock::{Clock, Instant};
use crate::error::Result;
use crate::name::{ClientId, OwnerId, Resource, Token};
use crate::signal::{Hub, Signal};

const NAME: &str = "memory";
static CAPABILITIES: Capabilities = Capabilities { backend: NAME, ..LOCAL };

/// Locks among the tasks and threads of one process. Clients made with [`Memory::client`] share one store.
#[derive(Debug)]
pub struct Memory {
    store: Arc<Store>,
    client: Client,
    losses: Losses,
}

/// What the store knows of a client.
#[derive(Debug)]
struct KnownClient {
    about: Arc<str>,
    losses: Losses,
}

#[derive(Debug)]
struct Store {
    slots: Mutex<HashMap<Resource, Slot>>,
    clients: Mutex<HashMap<ClientId, KnownClient>>,
    hub: Hub,
    clock: Clock,
    /// Of the client that made it.
    id: String,
    /// The leases in use, since when.
    leases: Mutex<BTreeMap<Duration, Instant>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Memory {
    /// A store of its own.
    #[must_use]
    pub fn new(client: Client, clock: Clock) -> Self {
        let (slots, clients, hub, leases) = (Mutex::default(), Mutex::default(), Hub::default(), Mutex::default());
        static STORES: AtomicU64 = AtomicU64::new(0);
        // A client may make several stores.
        let id = format!("{}/{}", client.id, STORES.fetch_add(1, Ordering::Relaxed));
        let store = Store { slots, clients, hub, clock, id, leases };
        Self::over(Arc::new(store), client)
    }

    /// Another client of the same store.
    #[must_use]
    pub fn client(&self, client: Client) -> Self {
        Self::over(Arc::clone(&self.store), client)
    }

    fn over(store: Arc<Store>, client: Client) -> Self {
        let losses = Losses::default();
        let known = KnownClient { about: Arc::clone(&client.about), losses: losses.clone() };
        lock(&store.clients).insert(client.id, known);
        Self { store, client, losses }
    }

    fn slots(&self) -> MutexGuard<'_, HashMap<Resource, Slot>> {
        lock(&self.store.slots)
    }

    fn state(&self, resource: &Resource, slot: Option<&Slot>) -> State {
        let now = self.store.clock.now();
        let Some(slot) = slot else { return State { waiting: Some(0), ..State::free(resource.clone()) } };
        let queue = slot.waiters().into_iter().filter(|(_, mode)| *mode == Mode::Fair);
        State {
            resource: resource.clone(),
            holders: slot.holds.iter().filter(|h| h.until > now).map(|h| self.holder(h, now)).collect(),
            waiting: Some(u32::try_from(slot.queue.len()).unwrap_or(u32::MAX)),
            queue: queue.map(|(owner, _)| owner.to_string()).collect(),
            permits: slot.permits.map(|of| Permits { of: of.into(), free: slot.free() }),
            count: slot.count,
            fence: slot.fence,
            nodes: Vec::new(),
        }
    }

    fn holder(&self, hold: &Hold, now: Instant) -> Holder {
        let clients = lock(&self.store.clients);
        let note = hold.note.as_ref().or_else(|| clients.get(&hold.owner.client).map(|known| &known.about));
        Holder {
            owner: hold.owner.to_string(),
            mode: hold.mode,
            token: Some(hold.reserved_to),
            since: Some(hold.since),
            expires_in: Some(hold.until.since(now)),
            note: note.map(ToString::to_string),
        }
    }

    fn ask(&self, claim: &Claim, at_least: Option<Token>) -> Result<Attempt> {
        let now = self.store.clock.now();
        let mut slots = self.slots();
        let (attempt, wake) = slots.entry(claim.resource.clone()).or_default().acquire(claim, at_least, now)?;
        self.wake(wake, &claim.resource, slots);
        if let (Attempt::Busy { holder: Some(holder), .. }, Queue::Allowed) = (&attempt, claim.queue)
            && let Some(owner) = holder.parse::<OwnerId>().ok().filter(|owner| owner.lingers())
        {
            let known = lock(&self.store.clients).get(&owner.client).map(|known| known.losses.clone());
            known.iter().for_each(|losses| losses.wanted(owner));
        }
        Ok(attempt)
    }

    fn break_all(&self, resource: &Resource, at_least: Option<Token>) -> Result<Option<Broken>> {
        let now = self.store.clock.now();
        let mut slots = self.slots();
        // Only a raised fence is worth remembering a name that nobody uses.
        if at_least.is_none() && !slots.contains_key(resource) {
            return Ok(None);
        }
        let slot = slots.entry(resource.clone()).or_default();
        slot.expire(now);
        if slot.holds.is_empty() && at_least.is_none() {
            return Ok(None);
        }
        let (fence, _) = slot.next_tokens(1, at_least)?;
        if slot.holds.is_empty() {
            return Ok(None);
        }
        let broken: Vec<Hold> = slot.holds.drain(..).collect();
        let holders = broken.iter().map(|hold| self.holder(hold, now)).collect();
        self.wake(Wake::Next, resource, slots);
        self.tell_of_losses(&broken);
        Ok(Some(Broken { holders, fence }))
    }

    /// Tells every client: each knows its own holds by their owners.
    fn tell_of_losses(&self, holds: &[Hold]) {
        let all: Vec<Losses> = lock(&self.store.clients).values().map(|known| known.losses.clone()).collect();
        all.iter().for_each(|losses| holds.iter().for_each(|hold| losses.suspect(hold.owner)));
    }

    /// Wakes the waiters that asking again may help.
    fn wake(&self, wake: Wake, resource: &Resource, slots: MutexGuard<'_, HashMap<Resource, Slot>>) {
        let first = slots.get(resource).and_then(Slot::first_queued);
        drop(slots);
        if wake == Wake::Next {
            self.store.hub.fire(resource.as_str());
            if let Some(first) = first {
                self.store.hub.fire(&position_key(resource, first));
            }
        }
    }
}

#[async_trait]
impl Voter for Memory {
    async fn vote(&self, claim: &Claim, at_least: Option<Token>) -> Result<Attempt> {
        self.ask(claim, at_least)
    }

    async fn break_above(&self, resource: &Resource, at_least: Token) -> Result<Option<Broken>> {
        self.break_all(resource, Some(at_least))
    }

    async fn identify(&self, longest: Duration) -> Result<Server> {
        let now = self.store.clock.now();
        let mut leases = lock(&self.store.leases);
        leases.entry(longest).or_insert(now);
        let leases = leases.iter().map(|(lease, since)| InUse { lease: *lease, for_long: now.since(*since) }).collect();
        let clock_micros = Token::after_now(None).map_or(0, Token::get);
        Ok(Server { id: self.store.id.clone(), up: None, replica: false, clock_micros, leases, connection: 0 })
    }

    fn connection(&self) -> u64 {
        0
    }
}

/// The hub's key of one owner in the queue of a fair lock.
fn position_key(resource: &Resource, owner: OwnerId) -> String {
    format!("{resource}\0{owner}")
}

#[async_trait]
impl Backend for Memory {
    fn capabilities(&self) -> &Capabilities {
        &CAPABILITIES
    }

    fn partition(&self, _: &Resource) -> u32 {
        0
    }

    async fn acquire(&self, claim: &Claim) -> Result<Attempt> {
        self.ask(claim, None)
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Renewal>> {
        let now = self.store.clock.now();
        let mut slots = self.slots();
        let renew = |claim: &Claim| {
            let holds = slots.get_mut(&claim.resource).map(|slot| slot.holds.iter_mut());
            match holds.into_iter().flatten().find(|hold| hold.owner == claim.owner && hold.until > now) {
                Some(hold) => {
                    hold.until = now.after(claim.lease);
                    Renewal::Extended { valid_for: claim.lease }
                }
                None => Renewal::Gone,
            }
        };
        Ok(claims.iter().map(renew).collect())
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        let now = self.store.clock.now();
        let mut slots = self.slots();
        let Some(slot) = slots.get_mut(&claim.resource) else { return Ok(Released::NotHeld) };
        let left = slot.leave(claim.owner);
        let hold = slot.holds.iter().position(|hold| hold.owner == claim.owner).map(|index| slot.holds.remove(index));
        let others_wait = slot.queue.iter().any(|waiter| waiter.owner.client != claim.owner.client);
        self.wake(if hold.is_some() { Wake::Next } else { left }, &claim.resource, slots);
        let held = hold.is_some_and(|hold| hold.until > now);
        Ok(if held { Released::Yes { others_wait } } else { Released::NotHeld })
    }

    async fn watch(&self, claim: &Claim) -> Result<Signal> {
        let (name, owner) = (&claim.resource, claim.owner);
        let key = if claim.mode == Mode::Fair { position_key(name, owner) } else { name.as_str().to_owned() };
        Ok(self.store.hub.listen(&key).0)
    }

    async fn inspect(&self, scope: Scope<'_>) -> Result<Vec<State>> {
        let slots = self.slots();
        match scope {
            Scope::One(resource) => Ok(vec![self.state(resource, slots.get(resource))]),
            Scope::Prefix(prefix) => {
                let under = slots.iter().filter(|(r, _)| r.as_str().starts_with(prefix));
                let mut states: Vec<State> = under.map(|(r, s)| self.state(r, Some(s))).collect();
                states.retain(|s| !s.holders.is_empty() || s.count.is_some());
                states.sort_by(|a, b| a.resource.cmp(&b.resource));
                Ok(states)
            }
        }
    }

    async fn break_hold(&self, resource: &Resource) -> Result<Option<Broken>> {
        self.break_all(resource, None)
    }

    async fn close(&self) -> Result<()> {
        lock(&self.store.clients).remove(&self.client.id);
        Ok(())
    }
}

impl From<Arc<Memory>> for Opened {
    fn from(store: Arc<Memory>) -> Self {
        let losses = store.losses.clone();
        Self::of_voter(store).with_losses(losses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_break_of_a_name_that_nobody_uses_leaves_nothing_behind() {
        let client = Client { id: ClientId::random().expect("random bits"), about: "a test".into() };
        let memory = Memory::new(client, Clock::for_tests());
        let name = Resource::new("nobody").expect("a name");
        assert!(memory.break_hold(&name).await.expect("asked").is_none());
        assert!(memory.slots().is_empty());
    }
}
