//! A store as another crate would bring it: written against the public interface alone, and as small as can be.
//!
//! A map under a mutex, for exclusive locks. `toy://user:password@host/name` names the same store throughout the process; who
//! opens it first sets its password.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tenure::backend::{
    Attempt, Backend, Broken, Capabilities, Claim, Client, Holder, Leases, Mode, Modes, Opened, Reach, Released, Renewal, Safety,
    Scope, State, Survival,
};
use tenure::clock::{Clock, Instant};
use tenure::secret::Secret;
use tenure::signal::{Hub, Signal};
use tenure::store::{Address, Context, Scheme};
use tenure::{Error, Fault, OwnerId, Resource, Result, Token};

pub(crate) static SCHEME: Scheme =
    Scheme::new("toy", |address, context| Box::pin(async { open(address, context) })).options(&["holder"]);

static CAPABILITIES: Capabilities = Capabilities {
    backend: "toy",
    reach: Reach::Process,
    nodes: 1,
    modes: Modes::EXCLUSIVE,
    leases: Leases::ANY,
    batch: 256,
    token_blocks: false,
    queues: false,
    watch_first: true,
    fails_over: false,
    pushes_losses: false,
    safety: Safety {
        holder_pause: Survival::FenceOnly,
        store_restart: Survival::Together,
        power_loss: Survival::Together,
        failover: Survival::Together,
        clock_jump: Survival::Lock,
    },
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
    /// The names, and what time it is.
    fn names(&self) -> (MutexGuard<'_, HashMap<Resource, Name>>, Instant) {
        let names = self.store.names.lock().unwrap_or_else(PoisonError::into_inner);
        (names, self.store.clock.now())
    }
}

impl Name {
    /// The hold, if it has not lapsed.
    fn held(&mut self, now: Instant) -> Option<&mut Hold> {
        self.hold.as_mut().filter(|hold| hold.until > now)
    }

    /// The hold of this owner, if it has not lapsed.
    fn held_by(&mut self, owner: OwnerId, now: Instant) -> Option<&mut Hold> {
        self.held(now).filter(|hold| hold.owner == owner)
    }

    fn raise(&mut self) -> Result<Token> {
        let token = Token::after_now(self.fence);
        let token = token.ok_or_else(|| Error::backend("toy", "counting", Fault::TokenExhausted, "the last one was given"))?;
        self.fence = Some(token);
        Ok(token)
    }

    fn state(&mut self, resource: &Resource, now: Instant) -> State {
        let token = self.fence;
        let holder = |hold: &mut Hold| Holder {
            owner: hold.owner.to_string(),
            mode: Mode::Exclusive,
            token,
            since: None,
            expires_in: Some(hold.until.since(now)),
            note: Some(hold.note.to_string()),
        };
        let holders = self.held(now).map(holder).into_iter().collect();
        State { holders, fence: token, ..State::free(resource.clone()) }
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
        let (mut names, now) = self.names();
        let name = names.entry(claim.resource.clone()).or_default();
        let until = now.after(claim.lease);
        if let Some(hold) = name.held(now) {
            if hold.owner != claim.owner {
                let holder = self.tells_holder.then(|| hold.owner.to_string());
                return Ok(Attempt::busy(hold.until.since(now), holder));
            }
            hold.until = until;
        } else {
            name.raise()?;
            let note = claim.note.clone().unwrap_or_else(|| Arc::clone(&self.client.about));
            name.hold = Some(Hold { owner: claim.owner, until, note });
        }
        let token = name.fence.unwrap_or(Token::new(0));
        Ok(Attempt::Granted { token, valid_for: claim.lease })
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Renewal>> {
        let (mut names, now) = self.names();
        let renew = |claim: &Claim| match names.get_mut(&claim.resource).and_then(|name| name.held_by(claim.owner, now)) {
            Some(hold) => {
                hold.until = now.after(claim.lease);
                Renewal::Extended { valid_for: claim.lease }
            }
            None => Renewal::Gone,
        };
        Ok(claims.iter().map(renew).collect())
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        let (mut names, now) = self.names();
        let Some(name) = names.get_mut(&claim.resource).filter(|name| name.held_by(claim.owner, now).is_some()) else {
            return Ok(Released::NotHeld);
        };
        name.hold = None;
        self.store.hub.fire(claim.resource.as_str());
        Ok(Released::Yes { others_wait: false })
    }

    async fn watch(&self, claim: &Claim) -> Result<Signal> {
        Ok(self.store.hub.listen(claim.resource.as_str()).0)
    }

    async fn inspect(&self, scope: Scope<'_>) -> Result<Vec<State>> {
        let (mut names, now) = self.names();
        if let Scope::One(resource) = scope {
            return Ok(vec![
                names.get_mut(resource).map_or_else(|| State::free(resource.clone()), |name| name.state(resource, now)),
            ]);
        }
        let Scope::Prefix(prefix) = scope else { return Ok(Vec::new()) };
        let under = names.iter_mut().filter(|(resource, _)| resource.as_str().starts_with(prefix));
        let mut states: Vec<State> = under.map(|(resource, name)| name.state(resource, now)).collect();
        states.retain(|state| !state.holders.is_empty());
        states.sort_by(|a, b| a.resource.cmp(&b.resource));
        Ok(states)
    }

    async fn break_hold(&self, resource: &Resource) -> Result<Option<Broken>> {
        let (mut names, now) = self.names();
        let Some(name) = names.get_mut(resource).filter(|name| name.held(now).is_some()) else { return Ok(None) };
        let holders = name.state(resource, now).holders;
        let fence = name.raise()?;
        name.hold = None;
        self.store.hub.fire(resource.as_str());
        Ok(Some(Broken { holders, fence }))
    }

    async fn close(&self) -> Result<()> {
        Ok(())
    }
}
