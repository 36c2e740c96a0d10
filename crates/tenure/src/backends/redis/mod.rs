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
mod handshake;
mod identify;
mod inspect;
mod keys;
mod known;
mod link;
mod listing;
mod login;
mod map;
mod moving;
mod open;
mod options;
mod question;
mod release;
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
#[cfg_attr(not(feature = "tls"), path = "no_tls.rs")]
mod tls;
mod url;
mod verbs;
mod watched;
mod wire;

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::{Cmd, RedisWrite as _, cmd};
use tokio::task::JoinHandle;

use self::fault::NAME;
pub use self::keys::Layout;
use self::known::KnownClients;
pub(crate) use self::open::SCHEMES;
pub use self::options::RedisOptions;
use self::question::{Answer, Question, by_hash};
use self::replicas::Sync;
use self::route::Router;
use self::scripts::{Scripts, Source};
pub use self::shared::Wake;
use self::wire::Call;
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

    /// Adds the owner of a claim.
    fn write_owner(&self, call: &mut Cmd, claim: &Claim) {
        let owner = claim.owner;
        if owner.client != self.client.id {
            return call.write_arg_fmt(owner);
        }
        let mut arg = call.writer_for_next_arg();
        // Memory refuses nothing.
        drop(arg.write_all(self.client_text.as_bytes()).and_then(|()| write!(arg, ":{}", owner.number)));
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
