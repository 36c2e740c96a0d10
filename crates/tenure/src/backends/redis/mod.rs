//! Redis, wherever it runs: Redisson's lock layout, or the plain string lock.
//!
//! Each verb is one script, so taking a free lock is one round trip and giving it back another. Who is asked is a
//! [`route`]'s business.

mod calls;
mod channels;
mod cluster;
mod dial;
pub(crate) mod fault;
mod inspect;
mod introduce;
mod keys;
mod known;
mod link;
mod map;
mod open;
mod question;
mod replicas;
mod reply;
mod rounds;
mod route;
pub(crate) mod scripts;
mod sentinel;
mod shared;
pub(crate) mod slots;
mod url;
mod wire;

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use redis::{Value, cmd};
use tokio::task::JoinHandle;
use tracing::warn;

use self::fault::NAME;
use self::keys::Layout;
use self::known::KnownClients;
use self::link::Answer;
pub(crate) use self::open::open;
use self::question::Question;
use self::replicas::Sync;
use self::reply::{array, is_redisson_field, text, token_of, unexpected};
use self::route::Router;
use self::scripts::{Scripts, Source};
use self::shared::{Wake, lock};
use self::wire::{Call, Renews};
use crate::backend::{
    Attempt, Backend, Broken, Capabilities, Claim, Client, Member, Mode, Modes, Queue, Reach, Released, Renewal, Safety, Scope,
    Server, State, Survival,
};
use crate::clock::{Clock, Instant};
use crate::error::{Error, Fault, Result};
use crate::name::{Resource, Token};
use crate::signal::Signal;

/// How long the client's own record lives at least. It is written anew before it can end under a hold.
const RECORD_LIFE: Duration = Duration::from_secs(600);

#[derive(Debug)]
struct Redis {
    router: Arc<Router>,
    layout: Layout,
    scripts: &'static Scripts,
    /// In milliseconds; zero: for ever.
    token_idle: String,
    /// Whether semaphores are Redisson's plain counters.
    counters: bool,
    /// Who else must have a grant before it counts.
    sync: Option<Sync>,
    fails_over: bool,
    client: Client,
    clock: Clock,
    timeout: Duration,
    known_clients: KnownClients,
    /// Until when the client's record lives, and how many connections had been made when it was written.
    record: Mutex<(Instant, u64)>,
    wake: Wake,
}

impl Redis {
    /// Writes who we are, if the record would end before a hold of this lease does, or if the server may have lost it
    /// since. Only for those who ask who holds a lock: no lock fails or waits for want of it, least of all for a server
    /// that has nothing else to do with it.
    fn keep_record(&self, lease: Duration) -> Option<JoinHandle<()>> {
        let now = self.clock.now();
        let life = RECORD_LIFE.max(lease * 2);
        {
            let mut record = lock(&self.record);
            let connections = self.router.shared.connections.load(Ordering::Relaxed);
            if record.0 >= now.after(lease) && record.1 == connections {
                return None;
            }
            *record = (now.after(life), connections);
        }
        let (router, key) = (Arc::clone(&self.router), keys::client(self.client.id));
        let mut set = cmd("SET");
        set.arg(&key).arg(&*self.client.about).arg("PX").arg(life.as_millis().to_string());
        Some(self.router.shared.runtime.spawn(async move {
            let ask = router.ask("writing the client's record", router.slot_of_key(&key), Question::Command(&set));
            drop(tokio::time::timeout(router.shared.timeout, ask).await);
        }))
    }

    /// Sees a call to its end, and the client's record too if that is soon.
    async fn recorded<T>(&self, lease: Duration, call: impl Future<Output = T>) -> T {
        let record = self.keep_record(lease);
        let answer = call.await;
        if let Some(record) = record {
            drop(tokio::time::timeout(Duration::from_millis(50), record).await);
        }
        answer
    }

    async fn eval(&self, doing: &str, slot: u16, source: &Source, keys: &[&str], args: &[&str]) -> Result<Answer> {
        self.router.ask(doing, slot, Question::Script { source, keys, args }).await
    }

    async fn ask_for_lock(&self, slot: u16, claim: &Claim) -> Result<Answer> {
        let name = &claim.resource;
        let (token, note) = (self.layout.token(name), keys::note(name));
        let (owner, lease, tokens) = (claim.owner.to_string(), claim.lease_millis().to_string(), claim.tokens.to_string());
        let keys = [name.as_str(), &token, &note];
        let least = wire::least(claim.at_least, claim.tokens)?;
        let args = [&*owner, &*lease, &*tokens, &*self.token_idle, &*least, claim.note.as_deref().unwrap_or_default()];
        let without_note = usize::from(claim.note.is_none());
        let (keys, args) = (&keys[..3 - without_note], &args[..6 - without_note]);
        self.recorded(claim.lease, self.eval("acquiring", slot, &self.scripts.acquire, keys, args)).await
    }

    async fn call(&self, doing: &str, slot: u16, call: &Call) -> Result<Answer> {
        let keys: Vec<&str> = call.keys.iter().map(String::as_str).collect();
        let args: Vec<&str> = call.args.iter().map(String::as_str).collect();
        self.eval(doing, slot, call.source, &keys, &args).await
    }

    /// The command that tells those who listen.
    fn publish(&self) -> &'static str {
        if self.router.shared.sharded.load(Ordering::Relaxed) { "SPUBLISH" } else { "PUBLISH" }
    }

    /// Wakes those of this process who wait: the server does not tell us of our own writes.
    fn wake(&self, claim: &Claim) {
        self.router.shared.hub.fire(&self.layout.channel_of(claim));
    }

    /// Ends a hold and tells all but this process.
    async fn give_back(&self, claim: &Claim) -> Result<Released> {
        let name = &claim.resource;
        let slot = self.router.slot(name)?;
        let answer = if claim.mode == Mode::Exclusive {
            let note = keys::note(name);
            let keys = [name.as_str(), &note];
            let keys = &keys[..2 - usize::from(claim.note.is_none())];
            let (owner, channel) = (claim.owner.to_string(), self.layout.channel(name));
            let args = [&*owner, &*channel, self.publish()];
            self.eval("releasing", slot, &self.scripts.release, keys, &args).await?
        } else {
            self.call("releasing", slot, &self.to_release(claim)).await?
        };
        match answer.value {
            Value::Int(0) => Ok(Released::NotHeld),
            Value::Int(told) => {
                if told == 2 {
                    warn!(?name, "released, but this user may not publish: clients that listen are not woken");
                }
                Ok(Released::Yes)
            }
            _ => Err(unexpected("releasing")),
        }
    }

    /// Extends holds whose names are in one slot.
    async fn renew_slot(&self, slot: u16, kind: Renews, claims: &[&Claim]) -> Result<Vec<Renewal>> {
        let answer = match kind {
            Renews::Locks => self.renew_locks(slot, claims).await?,
            Renews::Shares => self.call("renewing", slot, &Self::to_renew_shares(claims)).await?,
            Renews::Permits => self.call("renewing", slot, &self.to_renew_permits(claims)).await?,
        };
        if let Some(sync) = self.sync {
            answer.synced("renewing", sync).await?;
        }
        let renewal = |(answer, claim): (&Value, &&Claim)| match answer {
            Value::Int(1) => Renewal::Extended { valid_for: claim.lease },
            _ => Renewal::Gone,
        };
        let answers = array(answer.value, "renewing")?;
        Ok(answers.iter().zip(claims).map(renewal).collect())
    }

    async fn renew_locks(&self, slot: u16, claims: &[&Claim]) -> Result<Answer> {
        let notes: Vec<String> = claims.iter().map(|c| keys::note(&c.resource)).collect();
        let owners: Vec<[String; 2]> = claims.iter().map(|c| [c.owner.to_string(), c.lease_millis().to_string()]).collect();
        let mut keys = Vec::with_capacity(claims.len());
        let mut args = Vec::with_capacity(3 * claims.len());
        for ((claim, note), [owner, lease]) in claims.iter().zip(&notes).zip(&owners) {
            keys.push(claim.resource.as_str());
            args.extend([&**owner, &**lease, if claim.note.is_some() { "1" } else { "0" }]);
            if claim.note.is_some() {
                keys.push(note);
            }
        }
        self.eval("renewing", slot, &self.scripts.renew, &keys, &args).await
    }

    /// While a slot moves, its keys are at two servers; each by itself is found. A note may wait for the next time.
    async fn renew_one_by_one(&self, slot: u16, claims: &[&Claim]) -> Result<Vec<Renewal>> {
        let alone = join_all(claims.iter().map(async |claim| {
            let bare = Claim { note: None, ..(*claim).clone() };
            self.renew_slot(slot, Renews::Locks, &[&bare]).await
        }));
        alone.await.into_iter().collect::<Result<Vec<_>>>().map(|all| all.concat())
    }
}

#[async_trait]
impl Backend for Redis {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            backend: NAME,
            reach: Reach::Network,
            modes: if self.layout == Layout::Redisson { Modes::ALL } else { Modes::EXCLUSIVE },
            token_blocks: true,
            queues: false,
            watch_first: self.wake == Wake::Tracking,
            fails_over: self.fails_over,
            // A lock is as durable as the server's memory; tokens follow the clock and so outlive it.
            safety: Safety {
                holder_pause: Survival::FenceOnly,
                store_restart: Survival::FenceOnly,
                power_loss: Survival::FenceOnly,
                failover: Survival::FenceOnly,
                clock_jump: Survival::FenceOnly,
            },
        }
    }

    fn partition(&self, resource: &Resource) -> u32 {
        // A name that is refused is held by nobody.
        self.router.slot(resource).map_or(0, u32::from)
    }

    async fn acquire(&self, claim: &Claim) -> Result<Attempt> {
        let name = &claim.resource;
        if !self.capabilities().modes.carry(claim.mode) {
            return Err(self.refusal(claim.mode));
        }
        let slot = self.router.slot(name)?;
        let answer = if claim.mode == Mode::Exclusive {
            self.ask_for_lock(slot, claim).await?
        } else {
            let call = self.to_acquire(claim)?;
            self.recorded(claim.lease, self.call("acquiring", slot, &call)).await?
        };
        let Value::Array(items) = &answer.value else { return Err(unexpected("acquiring")) };
        if let ([Value::Int(1 | 2), ..], Some(sync)) = (&**items, self.sync)
            && let Err(e) = answer.synced("acquiring", sync).await
        {
            // Nobody may rely on it, so nobody shall have it. If this does not arrive either, the engine repeats it.
            if claim.mode.holds() {
                drop(self.give_back(claim).await);
            }
            return Err(e);
        }
        match &**items {
            [Value::Int(1), top, changed @ ..] => {
                if !changed.is_empty() {
                    self.wake(claim);
                }
                let top = token_of(top).ok_or_else(|| unexpected("acquiring"))?;
                let first = top.get().checked_sub(u64::from(claim.tokens) - 1).ok_or_else(|| unexpected("acquiring"))?;
                Ok(Attempt::Granted { token: Token::new(first), valid_for: claim.lease })
            }
            [Value::Int(2), Value::Int(left)] => {
                if claim.mode != Mode::CountZero {
                    self.wake(claim);
                }
                Ok(Attempt::Done { left: u64::try_from(*left).unwrap_or(0) })
            }
            [Value::Int(0), Value::Int(left), holder @ ..] => {
                let holder = holder.first().and_then(text);
                let foreign = |what: &str| Error::backend(NAME, format!("acquiring {name:?}"), Fault::ForeignFormat, what);
                let Ok(left) = u64::try_from(*left) else { return Err(foreign("the key has no expiry and is not a lock")) };
                let must_have_holder = self.layout == Layout::Redisson && claim.mode == Mode::Exclusive;
                if self.layout == Layout::Redisson && !holder.map_or(!must_have_holder, is_redisson_field) {
                    return Err(foreign("the key is a hash, but its fields are not owners of a lock"));
                }
                let mut poll_within = Duration::from_millis(left + 1);
                if claim.queue == Queue::Allowed {
                    let channel = self.layout.channel_of(claim);
                    poll_within = poll_within.min(answer.link.waits(&channel, claim.owner, answer.wake()));
                    if answer.wake() == Wake::PubSub && self.layout == Layout::Plain {
                        // Other libraries of this layout publish nothing.
                        poll_within = poll_within.min(Duration::from_millis(200));
                    }
                }
                let holder = holder.filter(|holder| *holder != "mode").map(str::to_owned);
                Ok(Attempt::Busy { poll_within, holder })
            }
            _ => Err(unexpected("acquiring")),
        }
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Renewal>> {
        let mut slots = BTreeMap::<(u16, Renews), Vec<(usize, &Claim)>>::new();
        for (i, claim) in claims.iter().enumerate() {
            let group = (self.router.slot(&claim.resource)?, Renews::of(claim.mode));
            slots.entry(group).or_default().push((i, claim));
        }
        let longest = claims.iter().map(|c| c.lease).max().unwrap_or_default();
        let ask = join_all(slots.into_iter().map(async |((slot, kind), claims)| {
            let (places, claims): (Vec<usize>, Vec<&Claim>) = claims.into_iter().unzip();
            let several = claims.len() > 1 || claims.iter().any(|claim| claim.note.is_some());
            let renewed = match self.renew_slot(slot, kind, &claims).await {
                Err(e) if e.fault() == Some(Fault::Moving) && kind == Renews::Locks && several => {
                    self.renew_one_by_one(slot, &claims).await?
                }
                renewed => renewed?,
            };
            Ok(places.into_iter().zip(renewed).collect())
        }));
        let answers = self.recorded(longest, ask).await;
        let mut answers: Vec<(usize, Renewal)> = answers.into_iter().collect::<Result<Vec<Vec<_>>>>()?.concat();
        answers.sort_by_key(|(place, _)| *place);
        Ok(answers.into_iter().map(|(_, renewal)| renewal).collect())
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        if !claim.mode.holds() {
            return Ok(Released::NotHeld);
        }
        let released = self.give_back(claim).await?;
        // Those who share may have waited for a writer that only stood in line.
        if released == Released::Yes || claim.mode == Mode::Write {
            self.wake(claim);
        }
        Ok(released)
    }

    async fn watch(&self, claim: &Claim) -> Result<Signal> {
        self.router.listen(&claim.resource, &self.layout.channel_of(claim)).await
    }

    async fn inspect(&self, scope: Scope<'_>) -> Result<Vec<State>> {
        match scope {
            Scope::One(name) => Ok(vec![self.state(name).await?]),
            Scope::Prefix(prefix) => {
                let mut states = Vec::new();
                for names in self.names(prefix).await?.chunks(64) {
                    // A key that vanished or changed in between is none of ours.
                    let found = self.bounded("listing", async { Ok(join_all(names.iter().map(|n| self.state(n))).await) });
                    states.extend(found.await?.into_iter().flatten().filter(|s| self.is_lock(s)));
                }
                Ok(states)
            }
        }
    }

    async fn break_hold(&self, name: &Resource, at_least: Option<Token>) -> Result<Option<Broken>> {
        let broken = self.break_all(name, at_least).await?;
        if broken.is_some() {
            let channels = self.layout.channels_of_key(name.as_str());
            channels.iter().for_each(|channel| self.router.shared.hub.fire(channel));
        }
        Ok(broken)
    }

    async fn introduce(&self, longest: Duration) -> Result<Server> {
        self.who_answers(longest).await
    }

    fn session(&self) -> u64 {
        self.router.session()
    }

    fn members(&self) -> Vec<Member> {
        Vec::new()
    }

    fn refusal(&self, mode: Mode) -> Error {
        Error::Unsupported { backend: NAME, what: format!("{mode} with layout=plain") }
    }

    async fn close(&self) -> Result<()> {
        let key = keys::client(self.client.id);
        let mut del = cmd("DEL");
        del.arg(&key);
        // The record ends by itself if this does not reach the server.
        drop(self.router.ask("removing the client's record", self.router.slot_of_key(&key), Question::Command(&del)).await);
        self.router.close();
        Ok(())
    }
}
