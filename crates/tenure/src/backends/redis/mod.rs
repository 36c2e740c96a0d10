//! Redis, wherever it runs: Redisson's lock layout, or the plain string lock.
//!
//! Each verb is one script, so taking a free lock is one round trip and giving it back another. Who is asked is a
//! [`route`]'s business.

mod calls;
mod channels;
mod cluster;
mod connection;
mod dial;
pub(crate) mod fault;
mod frames;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod identify;
mod inspect;
mod keys;
mod known;
mod link;
mod listing;
mod map;
mod open;
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
mod tls;
mod url;
mod verbs;
mod watched;
mod wire;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::cmd;
use tokio::task::JoinHandle;

use self::calls::Answer;
use self::fault::NAME;
use self::keys::Layout;
use self::known::KnownClients;
pub(crate) use self::open::SCHEMES;
use self::question::{Question, ScriptCall};
use self::replicas::Sync;
use self::route::Router;
use self::scripts::Scripts;
use self::shared::Wake;
use crate::backend::{Capabilities, Claim, Client, Leases, Modes, Pushes, Reach, Safety, Survival};
use crate::clock::{Clock, Instant};
use crate::error::Result;

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
    /// The client's id as text: each question says it.
    client_text: String,
    /// What all names begin with.
    prefix: String,
    clock: Clock,
    timeout: Duration,
    known_clients: KnownClients,
    record: Record,
}

/// The client's record at the server. Each acquisition looks at it, so nobody waits for another to do so.
#[derive(Debug, Default)]
struct Record {
    /// Until when it lives, in nanoseconds of the clock.
    until: AtomicU64,
    /// How many connections had been made when it was written.
    connections: AtomicU64,
}

impl Record {
    /// Until when it must be written to live, if it must be written. Of those who need the same at the same time, one is told so.
    fn to_be_written(&self, connections: u64, needed: Instant, life: Instant) -> Option<Instant> {
        let mut old = self.until.load(Ordering::Acquire);
        loop {
            if old >= needed.as_nanos() && self.connections.load(Ordering::Acquire) == connections {
                return None;
            }
            // Not sooner than before: others may count on it, whose holds are longer.
            let until = life.max(Instant::from_nanos(old));
            match self.until.compare_exchange(old, until.as_nanos(), Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    self.connections.store(connections, Ordering::Release);
                    return Some(until);
                }
                Err(present) => old = present,
            }
        }
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
}

/// Waits for the client's record, if that is soon.
async fn written(record: JoinHandle<()>) {
    drop(tokio::time::timeout(Duration::from_millis(50), record).await);
}
