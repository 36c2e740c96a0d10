//! The reference implementation: a map under a mutex. Readable as the specification of the contract.

mod slot;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;

use self::slot::{Hold, Slot, Wake};
use crate::backend::{
    Attempt, Backend, Broken, Capabilities, Claim, Client, Holder, InUse, Leases, Losses, Mode, Modes, Opened, Permits, Pushes,
    Reach, Released, Renewal, Safety, Scope, Server, State, Survival, Voter,
};
use crate::clock::{Clock, Instant};
use crate::error::{Error, Result};
use crate::name::{ClientId, OwnerId, Resource, Token};
use crate::signal::{Hub, Signal};
use crate::store::{Address, Context, Opening, Scheme, Sealed, StoreOptions};

const NAME: &str = "memory";
static CAPABILITIES: Capabilities = Capabilities {
    backend: NAME,
    reach: Reach::Process,
    nodes: 1,
    modes: Modes::ALL,
    leases: Leases::ANY,
    batch: 256,
    token_blocks: true,
    queues: true,
    watch_first: true,
    fails_over: false,
    pushes_losses: Pushes::Granted,
    safety: Safety {
        holder_pause: Survival::FenceOnly,
        store_restart: Survival::Together,
        power_loss: Survival::Together,
        failover: Survival::Together,
        clock_jump: Survival::Lock,
    },
};

/// Locks among the tasks and threads of one process. Clients made with [`Memory::client`] share one store.
#[derive(Debug)]
pub struct Memory {
    store: Arc<Store>,
    client: Client,
    losses: Losses,
}

/// What the store knows of a client.
#[derive(Debug)]
struct Known {
    about: Arc<str>,
    losses: Losses,
}

#[derive(Debug)]
struct Store {
    slots: Mutex<HashMap<Resource, Slot>>,
    clients: Mutex<HashMap<ClientId, Known>>,
    hub: Hub,
    clock: Clock,
    /// Of the client that made it.
    id: String,
    /// The leases in use, since when.
    leases: Mutex<BTreeMap<Duration, Instant>>,
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
        let known = Known { about: Arc::clone(&client.about), losses: losses.clone() };
        store.clients.lock().unwrap_or_else(PoisonError::into_inner).insert(client.id, known);
        Self { store, client, losses }
    }

    fn slots(&self) -> MutexGuard<'_, HashMap<Resource, Slot>> {
        self.store.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self, resource: &Resource, slot: Option<&Slot>) -> State {
        let now = self.store.clock.now();
        let Some(slot) = slot else { return State { waiting: Some(0), ..State::free(resource.clone()) } };
        let line = slot.waiters().into_iter().filter(|(_, mode)| *mode == Mode::Fair);
        State {
            resource: resource.clone(),
            holders: slot.holds.iter().filter(|h| h.until > now).map(|h| self.holder(h, now)).collect(),
            waiting: Some(u32::try_from(slot.line.len()).unwrap_or(u32::MAX)),
            line: line.map(|(owner, _)| owner.to_string()).collect(),
            permits: slot.permits.map(|of| Permits { of: of.into(), free: slot.free() }),
            count: slot.count,
            fence: slot.fence,
            nodes: Vec::new(),
        }
    }

    fn holder(&self, hold: &Hold, now: Instant) -> Holder {
        let clients = self.store.clients.lock().unwrap_or_else(PoisonError::into_inner);
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
        Ok(attempt)
    }

    fn break_all(&self, resource: &Resource, at_least: Option<Token>) -> Result<Option<Broken>> {
        let now = self.store.clock.now();
        let mut slots = self.slots();
        let slot = match at_least {
            Some(_) => slots.entry(resource.clone()).or_default(),
            None => match slots.get_mut(resource) {
                Some(slot) => slot,
                None => return Ok(None),
            },
        };
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

    /// Tells every client: whose hold it was is known by its owner.
    fn tell_of_losses(&self, holds: &[Hold]) {
        let clients = self.store.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let all: Vec<Losses> = clients.values().map(|known| known.losses.clone()).collect();
        drop(clients);
        all.iter().for_each(|losses| holds.iter().for_each(|hold| losses.suspect(hold.owner)));
    }

    /// Wakes those for whom asking again may help.
    fn wake(&self, wake: Wake, resource: &Resource, slots: MutexGuard<'_, HashMap<Resource, Slot>>) {
        let first = slots.get(resource).and_then(Slot::first_in_line);
        drop(slots);
        if wake == Wake::Next {
            self.store.hub.fire(resource.as_str());
            if let Some(first) = first {
                self.store.hub.fire(&place_of(resource, first));
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
        let mut leases = self.store.leases.lock().unwrap_or_else(PoisonError::into_inner);
        leases.entry(longest).or_insert(now);
        let leases = leases.iter().map(|(lease, since)| InUse { lease: *lease, for_long: now.since(*since) }).collect();
        let clock_micros = Token::after_now(None).map_or(0, Token::get);
        Ok(Server { id: self.store.id.clone(), up: None, replica: false, clock_micros, leases, connection: 0 })
    }

    fn connection(&self) -> u64 {
        0
    }
}

/// Where an owner in the line of a fair lock is woken, and nobody else is.
fn place_of(resource: &Resource, owner: OwnerId) -> String {
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
        let hold = slot.holds.iter().position(|hold| hold.owner == claim.owner).map(|place| slot.holds.remove(place));
        let others_wait = slot.line.iter().any(|waiter| waiter.owner.client != claim.owner.client);
        self.wake(if hold.is_some() { Wake::Next } else { left }, &claim.resource, slots);
        let held = hold.is_some_and(|hold| hold.until > now);
        Ok(if held { Released::Yes { others_wait } } else { Released::NotHeld })
    }

    async fn watch(&self, claim: &Claim) -> Result<Signal> {
        let (name, owner) = (&claim.resource, claim.owner);
        let key = if claim.mode == Mode::Fair { place_of(name, owner) } else { name.as_str().to_owned() };
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
        let mut clients = self.store.clients.lock().unwrap_or_else(PoisonError::into_inner);
        clients.remove(&self.client.id);
        Ok(())
    }
}

impl From<Arc<Memory>> for Opened {
    fn from(store: Arc<Memory>) -> Self {
        let losses = store.losses.clone();
        Self::of_voter(store).with_losses(losses)
    }
}

pub(crate) static SCHEMES: [Scheme; 1] = [Scheme::new(NAME, open).local().own_store()];

/// The stores that have a name, for as long as somebody uses them.
static NAMED: Mutex<BTreeMap<String, Weak<Store>>> = Mutex::new(BTreeMap::new());

/// Opens `memory:` and `memory:name`.
fn open(address: Address, context: Context) -> Opening {
    Box::pin(async move {
        let name = address.place();
        let options = if name.is_empty() { MemoryOptions::new() } else { MemoryOptions::named(name) };
        options.open(context).await
    })
}

/// Locks inside of this process.
#[derive(Debug, Clone, Default)]
#[must_use = "options do nothing until a locker connects with them"]
pub struct MemoryOptions {
    name: Option<String>,
}

impl MemoryOptions {
    /// A store of its own for each locker.
    pub fn new() -> Self {
        Self::default()
    }

    /// A store that all lockers of the process share that use this name: in a test, as many processes.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: Some(name.into()) }
    }
}

impl Sealed for MemoryOptions {}

impl StoreOptions for MemoryOptions {
    fn scheme(&self) -> &'static str {
        NAME
    }

    fn place(&self) -> Option<String> {
        self.name.clone()
    }

    fn open(&self, Context { client, clock, .. }: Context) -> Opening {
        let name = self.name.clone();
        Box::pin(async move {
            let Some(name) = name else { return Ok(Arc::new(Memory::new(client, clock)).into()) };
            if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b)) {
                let allowed = "memory: or memory:name, where a name has letters, digits, ., _ and -";
                return Err(Error::config("the memory: URL", "has an address", allowed));
            }
            let mut named = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
            named.retain(|_, store| store.strong_count() > 0);
            if let Some(store) = named.get(&name).and_then(Weak::upgrade) {
                return Ok(Arc::new(Memory::over(store, client)).into());
            }
            let memory = Memory::new(client, clock);
            named.insert(name, Arc::downgrade(&memory.store));
            Ok(Arc::new(memory).into())
        })
    }
}
