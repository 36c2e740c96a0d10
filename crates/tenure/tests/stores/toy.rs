//! A store as another crate would bring it: written against the public interface alone, and as small as possible.
//!
//! A map under a mutex, for exclusive locks. `toy://user:password@host/name` names the same store throughout the process; the
//! first client sets its password.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tenure::backend::{
    Attempt, Backend, Broken, Capabilities, Claim, Client, Holder, Mode, Opened, Reach, Released, Renewal, Scope, State, Survival,
};
use tenure::clock::{Clock, Instant};
use tenure::secret::Secret;
use tenure::signal::{Hub, Signal};
use tenure::store::{Address, Context, Scheme};
use tenure::{Error, Fault, OwnerId, Resource, Result, Token};

pub(crate) static SCHEME: Scheme =
    Scheme::new("toy", |address, context| Box::pin(async { open(address, context) })).options(&["holder"]);

static CAPABILITIES: Capabilities = {
    let mut toy = Capabilities::new("toy");
    (toy.reach, toy.watch_first) = (Reach::Process, true);
    toy.safety.holder_pause = Survival::FenceOnly;
    toy
};

/// One client of a store.
#[derive(Debug)]
struct Toy {
    store: Arc<Store>,
    client: Client,
    tells_holder: bool,
}

#[derive(Debug)]
struct Store {
    names: Mutex<HashMap<Resource, Name>>,
    hub: Hub,
    clock: Clock,
    password: Option<Secret>,
}

/// The last token of a name stays when its hold has gone.
#[derive(Debug, Default)]
struct Name {
    fence: Option<Token>,
    hold: Option<Hold>,
}

#[derive(Debug)]
struct Hold {
    owner: OwnerId,
    token: Token,
    until: Instant,
    note: Arc<str>,
}

fn open(mut address: Address, context: Context) -> Result<Opened> {
    static STORES: Mutex<Option<HashMap<String, Arc<Store>>>> = Mutex::new(None);
    let tells_holder = address.options().one_of("holder", &[("show", true), ("hide", false)])?.unwrap_or(true);
    if !address.place().starts_with("//") {
        return Err(address.refuse("has no host", "toy://[user:password@]host/name"));
    }
    let password = address.credentials().and_then(|login| login.password()).cloned();
    let (given, clock) = (password.clone(), context.clock.clone());
    let new = || Arc::new(Store { names: Mutex::default(), hub: Hub::default(), clock, password });
    let mut stores = STORES.lock().unwrap_or_else(PoisonError::into_inner);
    let store = Arc::clone(stores.get_or_insert_default().entry(address.place().to_owned()).or_insert_with(new));
    if store.password.as_ref().map(Secret::text) != given.as_ref().map(Secret::text) {
        return Err(Error::backend("toy", "connecting", Fault::Auth, "another password was set"));
    }
    Ok(Opened::new(Arc::new(Toy { store, client: context.client, tells_holder })))
}

impl Toy {
    fn names(&self) -> MutexGuard<'_, HashMap<Resource, Name>> {
        let mut names = self.store.names.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.store.clock.now();
        names.values_mut().for_each(|name| drop(name.hold.take_if(|hold| hold.until <= now)));
        names
    }

    fn until(&self, claim: &Claim) -> Instant {
        self.store.clock.now().after(claim.lease)
    }

    fn left(&self, hold: &Hold) -> Duration {
        hold.until.since(self.store.clock.now())
    }

    fn state(&self, resource: &Resource, name: &Name) -> State {
        let mut state = State::free(resource.clone());
        state.fence = name.fence;
        if let Some(hold) = &name.hold {
            let mut holder = Holder::new(hold.owner.to_string(), Mode::Exclusive);
            (holder.token, holder.expires_in, holder.note) = (name.fence, Some(self.left(hold)), Some(hold.note.to_string()));
            state.holders.push(holder);
        }
        state
    }
}

impl Name {
    /// The next token.
    fn raise(&mut self) -> Result<Token> {
        let token = Token::after_now(self.fence);
        let token = token.ok_or_else(|| Error::backend("toy", "counting", Fault::TokenExhausted, "the last one was given"))?;
        self.fence = Some(token);
        Ok(token)
    }
}

#[async_trait]
impl Backend for Toy {
    fn capabilities(&self) -> &Capabilities {
        &CAPABILITIES
    }

    fn partition(&self, _: &Resource) -> u32 {
        0
    }

    async fn acquire(&self, claim: &Claim) -> Result<Attempt> {
        let mut names = self.names();
        let name = names.entry(claim.resource.clone()).or_default();
        let (until, valid_for) = (self.until(claim), claim.lease);
        match &mut name.hold {
            Some(hold) if hold.owner != claim.owner => {
                Ok(Attempt::busy(self.left(hold), self.tells_holder.then(|| hold.owner.to_string())))
            }
            Some(hold) => {
                hold.until = until;
                Ok(Attempt::Granted { token: hold.token, valid_for })
            }
            None => {
                let token = name.raise()?;
                let note = claim.note.clone().unwrap_or_else(|| Arc::clone(&self.client.about));
                name.hold = Some(Hold { owner: claim.owner, token, until, note });
                Ok(Attempt::Granted { token, valid_for })
            }
        }
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Renewal>> {
        let mut names = self.names();
        let renew = |claim: &Claim| match names.get_mut(&claim.resource).and_then(|name| name.hold.as_mut()) {
            Some(hold) if hold.owner == claim.owner => {
                hold.until = self.until(claim);
                Renewal::Extended { valid_for: claim.lease }
            }
            _ => Renewal::Gone,
        };
        Ok(claims.iter().map(renew).collect())
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        let mut names = self.names();
        let hold = names.get_mut(&claim.resource).and_then(|name| name.hold.take_if(|hold| hold.owner == claim.owner));
        self.store.hub.fire(claim.resource.as_str());
        Ok(if hold.is_some() { Released::Yes { others_wait: false } } else { Released::NotHeld })
    }

    async fn watch(&self, claim: &Claim) -> Result<Signal> {
        Ok(self.store.hub.listen(claim.resource.as_str()).0)
    }

    async fn inspect(&self, scope: Scope<'_>) -> Result<Vec<State>> {
        let mut names = self.names();
        match scope {
            Scope::One(resource) => Ok(vec![self.state(resource, names.entry(resource.clone()).or_default())]),
            Scope::Prefix(prefix) => {
                let under = names.iter().filter(|(resource, name)| resource.as_str().starts_with(prefix) && name.hold.is_some());
                let mut states: Vec<State> = under.map(|(resource, name)| self.state(resource, name)).collect();
                states.sort_by(|a, b| a.resource.cmp(&b.resource));
                Ok(states)
            }
        }
    }

    async fn break_hold(&self, resource: &Resource) -> Result<Option<Broken>> {
        let mut names = self.names();
        let name = names.entry(resource.clone()).or_default();
        if name.hold.is_none() {
            return Ok(None);
        }
        let (holders, fence) = (self.state(resource, name).holders, name.raise()?);
        name.hold = None;
        self.store.hub.fire(resource.as_str());
        Ok(Some(Broken { holders, fence }))
    }

    async fn close(&self) -> Result<()> {
        Ok(())
    }
}
