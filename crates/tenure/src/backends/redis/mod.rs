//! Redis, wherever it runs: Redisson's lock layout, or the plain string lock.
//!
//! Each verb is one script: one round trip takes a free lock, another gives it back. From the verb to the socket: [`verbs`] (with
//! [`release`] and [`renew`]) write a script call in [`wire`], [`route`] picks the server, [`calls`] sends it over that server's
//! [`link`].

mod calls;
mod channels;
mod claims;
mod cluster;
mod commands;
mod connection;
mod dial;
mod driver;
pub(crate) mod fault;
mod frames;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod identify;
mod inspect;
mod keys;
mod link;
mod listing;
mod login;
mod map;
mod near;
mod open;
mod options;
mod places;
mod question;
mod release;
mod renew;
mod replicas;
mod reply;
mod reserved;
mod route;
pub(crate) mod scripts;
mod sentinel;
mod shared;
mod single_flight;
pub(crate) mod slots;
#[cfg_attr(not(feature = "tls"), path = "no_tls.rs")]
mod tls;
mod url;
mod verbs;
mod watched;
mod wire;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use redis::cmd;
use tokio::task::JoinHandle;

use self::calls::Answer;
use self::commands::Commands;
use self::fault::NAME;
use self::inspect::KnownClients;
pub use self::keys::Layout;
pub(crate) use self::open::SCHEMES;
pub use self::options::RedisOptions;
use self::question::{Question, ScriptCall};
use self::replicas::Sync;
use self::route::Router;
use self::scripts::Scripts;
pub use self::shared::Wake;
use crate::backend::{Capabilities, Claim, Client, Leases, Modes, Pushes, Reach, Safety, Survival};
use crate::clock::{Clock, Instant};
use crate::error::Result;

/// How long the client's own record lives at least. It is written again before it can end under a hold.
const RECORD_LIFE: Duration = Duration::from_secs(600);

#[derive(Debug)]
struct Redis {
    router: Arc<Router>,
    layout: Layout,
    scripts: &'static Scripts,
    commands: Commands,
    /// In milliseconds; zero: forever.
    token_idle: String,
    /// Whether semaphores are Redisson's plain counters.
    counters: bool,
    /// Who else must have a grant before it counts.
    sync: Option<Sync>,
    /// Whether it is a node of a quorum.
    is_voter: AtomicBool,
    capabilities: Capabilities,
    client: Client,
    /// The client's id as text: each question says it.
    client_text: String,
    /// What all names begin with.
    prefix: String,
    clock: Clock,
    timeout: Duration,
    known_clients: KnownClients,
    record: Record,
}

/// The client's record at the server. Each acquisition looks at it, so it has no lock.
#[derive(Debug, Default)]
struct Record {
    /// Until when it lives, in nanoseconds of the clock.
    until: AtomicU64,
    /// How many connections had been made when it was written.
    connections: AtomicU64,
}

impl Record {
    /// Until when it must be written to live, if it must be written. Of several callers at the same time, one is told so.
    fn to_be_written(&self, connections: u64, needed: Instant, life: Instant) -> Option<Instant> {
        let (needed, life) = (needed.as_nanos(), life.as_nanos());
        let lives = |old: u64| old >= needed && self.connections.load(Ordering::Acquire) == connections;
        // Not sooner than before: longer holds may count on it.
        let later = |old: u64| (!lives(old)).then(|| life.max(old));
        let old = self.until.fetch_update(Ordering::AcqRel, Ordering::Acquire, later).ok()?;
        self.connections.store(connections, Ordering::Release);
        Some(Instant::from_nanos(life.max(old)))
    }
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
        // Without tracking a change is not pushed.
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
    /// Writes who we are, if the record would end before a hold of this lease, or if the server may have lost it. It serves `inspect`
    /// alone: no lock fails or waits for it.
    fn keep_record(&self, lease: Duration) -> Option<JoinHandle<()>> {
        let now = self.clock.now();
        let life = RECORD_LIFE.max(lease * 2);
        let connections = self.router.shared.connections.load(Ordering::Relaxed);
        let life = self.record.to_be_written(connections, now.after(lease), now.after(life))?.since(now);
        let (router, key) = (Arc::clone(&self.router), keys::client(&self.prefix, self.client.id));
        let mut set = cmd("SET");
        set.arg(&key).arg(&*self.client.about).arg("PX").arg(life.as_millis().to_string());
        Some(self.router.shared.runtime.spawn(async move {
            let ask = router.ask(router.slot_of_key(&key), Question::command("writing the client's record", &set));
            drop(tokio::time::timeout(router.shared.timeout, ask).await);
        }))
    }

    /// Asks by a script.
    async fn eval(&self, doing: &str, slot: u16, call: &ScriptCall) -> Result<Answer> {
        self.router.ask(slot, Question::script(doing, call)).await
    }

    /// The command that wakes listeners.
    fn publish(&self) -> &'static str {
        if self.router.shared.sharded.load(Ordering::Relaxed) { "SPUBLISH" } else { "PUBLISH" }
    }

    /// Wakes the waiters of this process: the server may push late, or never.
    fn wake(&self, claim: &Claim) {
        let hub = &self.router.shared.hub;
        if !hub.is_idle() {
            hub.fire(&self.layout.channel_of(claim));
        }
    }
}

/// Waits for the client's record, if that is soon.
async fn written(record: JoinHandle<()>) {
    drop(tokio::time::timeout(Duration::from_millis(50), record).await);
}
