//! Redis, wherever it runs: Redisson's lock layout, or the plain string lock.
//!
//! Each verb is one script, so taking a free lock is one round trip and giving it back another. Who is asked is a
//! [`route`]'s business.

mod acquire;
mod calls;
mod channels;
mod cluster;
mod connection;
mod dial;
pub(crate) mod fault;
mod frames;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod handshake;
mod identify;
mod inspect;
mod keys;
mod known;
mod link;
mod listing;
mod map;
mod moving;
mod open;
mod question;
mod renew;
mod replicas;
mod reply;
mod reserved;
mod rounds;
mod route;
pub(crate) mod scripts;
mod sentinel;
mod shared;
pub(crate) mod slots;
mod tls;
mod url;
mod watched;
mod wire;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use redis::{Cmd, Value, cmd};
use tokio::task::JoinHandle;
use tracing::warn;

use self::fault::NAME;
use self::keys::Layout;
use self::known::KnownClients;
use self::link::Answer;
pub(crate) use self::open::SCHEMES;
use self::question::{Question, by_hash};
use self::replicas::Sync;
use self::reply::unexpected;
use self::route::Router;
use self::scripts::{Scripts, Source};
use self::shared::{Wake, lock};
use self::wire::Call;
use crate::backend::{
    Attempt, Backend, Broken, Capabilities, Claim, Client, Leases, Mode, Modes, Pushes, Reach, Released, Renewal, Safety, Scope,
    Server, State, Survival, Voter,
};
use crate::clock::{Clock, Instant};
use crate::error::{Fault, Result};
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
    capabilities: Capabilities,
    client: Client,
    /// What all names begin with.
    prefix: String,
    clock: Clock,
    timeout: Duration,
    known_clients: KnownClients,
    /// Until when the client's record lives, and how many connections had been made when it was written.
    record: Mutex<(Instant, u64)>,
}

/// What a server promises, by how it is used.
fn capabilities(layout: Layout, wake: Wake, fails_over: bool) -> Capabilities {
    Capabilities {
        backend: NAME,
        reach: Reach::Network,
        nodes: 1,
        modes: match layout {
            Layout::Redisson => Modes::ALL,
            Layout::Plain => Modes::exclusive_for("layout=plain has exclusive locks alone"),
        },
        leases: Leases::ANY,
        batch: 256,
        token_blocks: true,
        queues: false,
        watch_first: wake == Wake::Tracking,
        fails_over,
        // Without tracking nobody tells.
        pushes_losses: if wake == Wake::Tracking { Pushes::Renewed } else { Pushes::Never },
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
        let (router, key) = (Arc::clone(&self.router), keys::client(&self.prefix, self.client.id));
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
            written(record).await;
        }
        answer
    }

    /// Asks by a script. What it is given is written down at once, and not kept until the answer.
    fn eval<'a>(
        &'a self,
        doing: &'static str,
        slot: u16,
        source: &'static Source,
        keys: &[&str],
        args: &[&str],
    ) -> impl Future<Output = Result<Answer>> + Send + use<'a> {
        self.ask_script(doing, slot, (source, by_hash(source, keys, args)), &[])
    }

    /// The server shall tell of the next change of any of the keys that are heeded, from before the script on.
    async fn ask_script(
        &self,
        doing: &str,
        slot: u16,
        (source, by_hash): (&'static Source, Cmd),
        heeds: &[&str],
    ) -> Result<Answer> {
        self.router.ask(doing, slot, Question::Script { source, by_hash: &by_hash, heeds }).await
    }

    fn call<'a>(&'a self, doing: &'static str, slot: u16, call: &Call) -> impl Future<Output = Result<Answer>> + Send + use<'a> {
        self.ask_script(doing, slot, call.by_hash(), &[])
    }

    /// The command that tells those who listen.
    fn publish(&self) -> &'static str {
        if self.router.shared.sharded.load(Ordering::Relaxed) { "SPUBLISH" } else { "PUBLISH" }
    }

    /// Wakes those of this process who wait. The server may not let us be told, or take a while for it.
    fn wake(&self, claim: &Claim) {
        let hub = &self.router.shared.hub;
        if !hub.is_idle() {
            hub.fire(&self.layout.channel_of(claim));
        }
    }

    fn to_release_lock(&self, claim: &Claim) -> (&'static Source, Cmd) {
        let (name, source) = (&claim.resource, &self.scripts.release);
        let note = claim.note.as_ref().map(|_| keys::note(name));
        let keys = [name.as_str(), note.as_deref().unwrap_or_default()];
        let (owner, channel) = (claim.owner.to_string(), self.layout.channel(name));
        (source, by_hash(source, &keys[..1 + usize::from(note.is_some())], &[&owner, &channel, self.publish()]))
    }

    /// Ends a hold and tells all but this process.
    async fn give_back(&self, claim: &Claim) -> Result<Released> {
        let name = &claim.resource;
        let slot = self.router.slot(name)?;
        self.router.shared.watched.leave(claim);
        let call = match claim.mode {
            Mode::Exclusive => self.to_release_lock(claim),
            _ => self.to_release(claim).by_hash(),
        };
        let (source, by_hash) = &call;
        let gave = match self.router.ask("releasing", slot, Question::Script { source, by_hash, heeds: &[] }).await {
            Err(e) if e.fault() == Some(Fault::Moving) => Box::pin(self.give_back_on_the_way(slot, claim)).await?,
            gave => gave?.value,
        };
        match gave {
            Value::Int(0) => Ok(Released::NotHeld),
            Value::Int(told) => {
                if told == 2 {
                    warn!(?name, "released, but this user may not publish: clients that listen are not woken");
                }
                Ok(Released::Yes { others_wait: told == 3 })
            }
            _ => Err(unexpected("releasing")),
        }
    }
}

/// Waits for the client's record, if that is soon.
async fn written(record: JoinHandle<()>) {
    drop(tokio::time::timeout(Duration::from_millis(50), record).await);
}

#[async_trait]
impl Backend for Redis {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn partition(&self, resource: &Resource) -> u32 {
        // A name that is refused is held by nobody.
        self.router.slot(resource).map_or(0, u32::from)
    }

    async fn acquire(&self, claim: &Claim) -> Result<Attempt> {
        self.ask(claim, None).await
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Renewal>> {
        self.extend(claims).await
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        if !claim.mode.holds() {
            return Ok(Released::NotHeld);
        }
        let released = self.give_back(claim).await?;
        // Those who share may have waited for a writer that only stood in line.
        if released != Released::NotHeld || claim.mode == Mode::Write {
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
            Scope::Prefix(prefix) => self.list(prefix).await,
        }
    }

    async fn break_hold(&self, name: &Resource) -> Result<Option<Broken>> {
        self.break_all(name, None).await
    }

    async fn close(&self) -> Result<()> {
        let key = keys::client(&self.prefix, self.client.id);
        let mut del = cmd("DEL");
        del.arg(&key);
        // The record ends by itself if this does not reach the server.
        drop(self.router.ask("removing the client's record", self.router.slot_of_key(&key), Question::Command(&del)).await);
        self.router.close();
        Ok(())
    }
}

#[async_trait]
impl Voter for Redis {
    async fn vote(&self, claim: &Claim, at_least: Option<Token>) -> Result<Attempt> {
        self.ask(claim, at_least).await
    }

    async fn break_above(&self, name: &Resource, at_least: Token) -> Result<Option<Broken>> {
        self.break_all(name, Some(at_least)).await
    }

    async fn identify(&self, longest: Duration) -> Result<Server> {
        self.who_answers(longest).await
    }

    fn connection(&self) -> u64 {
        self.router.session()
    }
}
