//! The contract between the engine and a store. Read this file first.
//!
//! Everything is a **claim**: *this owner wants this resource in this mode for this lease*. A backend answers a few
//! verbs on claims and knows nothing of waiting, tasks, guards or retries:
//!
//! - **acquire is a poll, the owner is the ticket, release is the cancel.** Owner ids are unique per hold, so every
//!   verb is idempotent and a lost reply is answered by asking again: a holder that asks again is granted again, with
//!   the same token; releasing twice is not an error.
//! - A verb that returns `Err` has an **unknown** outcome. It is neither success nor failure; the engine asks again,
//!   or releases, under the same owner. A verb that panics has returned such an error.
//! - A backend never sleeps to wait for a lock, never retries behind the engine's back for longer than one
//!   reconnect, and spawns no task per lock. (One that is made of several gives votes back that did not come to a lock.)
//! - Calls may be dropped at any await point and may overlap. The engine does not start a verb for an owner while an
//!   `acquire` of the same owner is under way, but for renewals of a hold that is being changed ([`Mode::Downgrade`]): one of the
//!   writer may arrive when it reads already. The reader's lease is never longer than the writer's.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;

use crate::error::{Error, Fault, Result};
pub use crate::mode::{Mode, Modes};
use crate::name::{ClientId, OwnerId, Resource, Token};
use crate::signal::Signal;

/// A store that can carry locks.
///
/// All methods are required: a default is convenient for the caller and a trap for the implementor.
#[async_trait]
pub trait Backend: fmt::Debug + Send + Sync + 'static {
    /// What this backend can promise. Known without I/O.
    fn capabilities(&self) -> Capabilities;

    /// The part of the store that keeps a name, where a store has parts that fail on their own: holds of one part are
    /// renewed apart from those of another, so that trouble in one costs no hold elsewhere. Known without I/O.
    fn partition(&self, resource: &Resource) -> u32;

    /// Asks once. Repeating the same claim is the same question: a holder is granted again with the same token
    /// and a new lease, a queued owner keeps its place.
    async fn acquire(&self, claim: &Claim) -> Result<Attempt>;

    /// Extends many holds in one round trip, in the order given. [`Renewal::Gone`] is definite.
    /// A hold that has lapsed is never made again. Each is answered for itself: an error says that nothing is known of any.
    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Renewal>>;

    /// Gives up the hold or the place in the queue, and wakes those who wait.
    async fn release(&self, claim: &Claim) -> Result<Released>;

    /// Resolves once subscribed. The signal fires when asking again may help; it may fire needlessly.
    async fn watch(&self, claim: &Claim) -> Result<Signal>;

    /// Holders and waiters of one resource (one state, also when it is free) or of all held ones under a prefix. The
    /// latter may take many round trips: the engine bounds them generously as a whole, the backend each by itself.
    async fn inspect(&self, scope: Scope<'_>) -> Result<Vec<State>>;

    /// Ends every hold of a resource by force and raises the fence above their tokens in the same step, and to `at_least`
    /// if that is given: then also where nobody holds it. `None` if nobody held it.
    async fn break_hold(&self, resource: &Resource, at_least: Option<Token>) -> Result<Option<Broken>>;

    /// Says up to which lease claims will come, and learns who answers. For those who make one lock of several stores.
    async fn introduce(&self, longest: Duration) -> Result<Server>;

    /// The connection that answers now: another number as soon as another server may have answered. Known without I/O.
    fn session(&self) -> u64;

    /// The stores that this one is made of, and how they are; empty for a store that is one. Known without I/O.
    fn members(&self) -> Vec<Member>;

    /// Says that it does not carry a mode, and why, if that is not plain. Known without I/O.
    fn refusal(&self, mode: Mode) -> Error;

    /// Gives back connections, files and the client's own record. Holds are not released.
    async fn close(&self) -> Result<()>;
}

/// What an owner wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// What is to be locked.
    pub resource: Resource,
    /// Who asks; unique per hold.
    pub owner: OwnerId,
    /// How it is to be locked.
    pub mode: Mode,
    /// Whether a busy answer may leave a place in line behind.
    pub queue: Queue,
    /// For how long, unless renewed.
    pub lease: Duration,
    /// How many consecutive tokens the grant reserves, at least 1: the first is the grant's own, the others are for
    /// handing the hold over inside the process. Always 1 where [`Capabilities::token_blocks`] is false.
    pub tokens: u32,
    /// What the first token shall be at least, instead of the store's clock. The token of a hold that goes on is raised to it.
    /// For those who make one lock of several stores, whose clocks differ.
    pub at_least: Option<Token>,
    /// The caller's words for [`Backend::inspect`]; stored only when given.
    pub note: Option<Arc<str>>,
}

impl Claim {
    /// The shortest lease.
    pub const MIN_LEASE: Duration = Duration::from_millis(10);
    /// The longest lease.
    pub const MAX_LEASE: Duration = Duration::from_secs(24 * 60 * 60);
    /// The longest note in bytes.
    pub const MAX_NOTE_BYTES: usize = 4096;

    /// Refuses a lease outside of 10 ms to 24 h.
    pub fn check_lease(lease: Duration) -> Result<Duration> {
        if (Self::MIN_LEASE..=Self::MAX_LEASE).contains(&lease) {
            Ok(lease)
        } else {
            Err(Error::config(format!("a lease of {lease:?}"), "is out of range", "10ms to 24h"))
        }
    }

    /// Refuses a note of more than 4096 bytes.
    pub fn check_note(note: &str) -> Result<Arc<str>> {
        if note.len() <= Self::MAX_NOTE_BYTES {
            Ok(note.into())
        } else {
            Err(Error::config(format!("a note of {} bytes", note.len()), "is too long", "up to 4096 bytes"))
        }
    }

    /// How long a place in line outlives the last question of its owner: the lease, within 1 s and 30 s.
    #[must_use]
    pub fn place_lease(&self) -> Duration {
        self.lease.clamp(Duration::from_secs(1), Duration::from_secs(30))
    }

    /// The lease in whole milliseconds.
    #[must_use]
    pub fn lease_millis(&self) -> u64 {
        u64::try_from(self.lease.as_millis()).unwrap_or(u64::MAX)
    }
}

/// What a busy answer leaves behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Queue {
    /// Nothing: the caller will not wait.
    Never,
    /// A place in line, where the store keeps one.
    Allowed,
}

/// The answer to [`Backend::acquire`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attempt {
    /// The owner holds the resource.
    Granted {
        /// The (first) fencing token of this grant.
        token: Token,
        /// Counted from before the request was sent.
        valid_for: Duration,
    },
    /// It is done, and nothing is held: the answer to a mode that does not [hold](Mode::holds).
    Done {
        /// What is left: the latch's count, or the permits that are free.
        left: u64,
    },
    /// Somebody else does.
    Busy {
        /// Ask again after this long even if no signal fires: what a lost notification costs at most, and what keeps a
        /// place in line.
        poll_within: Duration,
        /// The present holder as the store writes it, where the answer tells.
        holder: Option<String>,
    },
    /// Several asked at the same moment, and so none of them has it. Only from a store that is made of several.
    Collided {
        /// Ask again after this long, each after another time.
        pause: Duration,
    },
}

/// The answer to [`Backend::renew`], per claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewal {
    /// The hold goes on.
    Extended {
        /// Counted from before the request was sent.
        valid_for: Duration,
    },
    /// The hold is no more: expired, broken, or lost by the store.
    Gone,
    /// Neither is known of this hold, unlike of others in the same call, and why.
    Unknown(Fault),
}

/// The answer to [`Backend::release`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    /// The hold was given up now.
    Yes {
        /// Whether other clients are known to wait for it: then a process that has had its share lets them go first.
        others_wait: bool,
    },
    /// There was no such hold (any more).
    NotHeld,
}

/// What [`Backend::inspect`] looks at.
#[derive(Debug, Clone, Copy)]
pub enum Scope<'a> {
    /// One resource.
    One(&'a Resource),
    /// All held resources whose names start so.
    Prefix(&'a str),
}

/// What a store knows of one resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// The resource.
    pub resource: Resource,
    /// Who holds it; empty if it is free.
    pub holders: Vec<Holder>,
    /// How many wait, as far as the store can see: owners or client processes. `None` if it cannot.
    pub waiting: Option<u32>,
    /// Those in the line of a fair lock as the store writes them, the next one first.
    pub line: Vec<String>,
    /// The permits, if there is a number of them.
    pub permits: Option<Permits>,
    /// The count of a latch, if there is one.
    pub count: Option<u64>,
    /// At least the last token of the name, also of earlier holders: the next one will be larger.
    pub fence: Option<Token>,
    /// What each of the stores says that this one is made of.
    pub verdicts: Vec<Verdict>,
}

impl State {
    /// A resource of which nothing is known.
    #[must_use]
    pub fn free(resource: Resource) -> Self {
        Self {
            resource,
            holders: Vec::new(),
            waiting: None,
            line: Vec::new(),
            permits: None,
            count: None,
            fence: None,
            verdicts: Vec::new(),
        }
    }
}

/// What one of several stores says of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The store.
    pub member: Member,
    /// Who holds it there, or why that is not known.
    pub holders: Result<Vec<Holder>, String>,
}

/// One of the stores that make one lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its address, without credentials.
    pub name: String,
    /// Whether its vote counts.
    pub standing: Standing,
    /// How far its clock is ahead of the others' in milliseconds, or behind them if negative; `None` while unknown.
    pub clock_ahead_ms: Option<i64>,
}

/// Whether the vote of a store counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It does.
    Counts,
    /// Not yet: it has restarted, and a lock that it may have forgotten may still be held.
    Quarantined {
        /// For how long.
        left: Duration,
    },
    /// Not now.
    Away {
        /// What was wrong when it was last asked.
        why: String,
    },
    /// It should not be in the list.
    Refused {
        /// Why.
        why: String,
    },
}

/// Who answers, as a store tells when somebody [introduces](Backend::introduce) itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// The process or the file that keeps the locks: another one after a restart, which may have lost them.
    pub id: String,
    /// For how long it has kept all that it was told. `None` if it forgets nothing while its users live.
    pub up: Option<Duration>,
    /// Whether it only copies another one.
    pub replica: bool,
    /// Its wall clock in microseconds since 1970.
    pub clock_micros: u64,
    /// The leases that clients have introduced themselves with of late.
    pub leases: Vec<InUse>,
    /// The [session](Backend::session) in which it said so.
    pub session: u64,
}

/// A lease that clients use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InUse {
    /// The lease.
    pub lease: Duration,
    /// For how long some client or other has used it.
    pub for_long: Duration,
}

/// How many permits a name has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permits {
    /// In all.
    pub of: i64,
    /// Those that are free; negative when the number was lowered under the holders.
    pub free: i64,
}

/// One holder of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The owner as the store writes it; other libraries on the same store have forms of their own.
    pub owner: String,
    /// How it holds.
    pub mode: Mode,
    /// The token; the largest one reserved, if several were. `None` for holders that have none.
    pub token: Option<Token>,
    /// Since when.
    pub since: Option<SystemTime>,
    /// How long it will hold if it is not renewed.
    pub expires_in: Option<Duration>,
    /// The holder's note, or else what its client said of itself.
    pub note: Option<String>,
}

/// What [`Backend::break_hold`] ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    /// Those who held.
    pub holders: Vec<Holder>,
    /// The fence now: larger than the tokens of all of them, smaller than the next grant's.
    pub fence: Token,
}

/// A client as others see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    /// Its identity.
    pub id: ClientId,
    /// What it says of itself, by default `host pid program`.
    pub about: Arc<str>,
}

/// What a backend can promise, with the options it was made with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities {
    /// The store's name in errors and labels.
    pub backend: &'static str,
    /// Who can share its locks.
    pub reach: Reach,
    /// What it carries besides exclusive locks. The engine asks for nothing else.
    pub modes: Modes,
    /// Whether a grant can reserve more than one token.
    pub token_blocks: bool,
    /// Whether a busy answer to [`Queue::Allowed`] leaves a place in line, which a release must give up.
    pub queues: bool,
    /// Whether [`Backend::watch`] costs no round trip: then the engine watches before it asks, and saves the second
    /// question that closes the gap between a busy answer and the subscription.
    pub watch_first: bool,
    /// Whether another server takes over when one fails: then `lock` asks for a minute before it reports an error,
    /// because that is what a failover may take.
    pub fails_over: bool,
    /// What a lock survives.
    pub safety: Safety,
}

/// Who can share a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// The tasks and threads of one process.
    Process,
    /// The processes of one machine.
    Machine,
    /// Whoever reaches the server.
    Network,
}

/// What a lock on this store survives, and what only the fence survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Safety {
    /// A holder that is paused past its lease and goes on.
    pub holder_pause: Survival,
    /// The store's process is killed and comes back.
    pub store_restart: Survival,
    /// The store's machine loses power.
    pub power_loss: Survival,
    /// A replica takes the place of the server that granted the lock.
    pub failover: Survival,
    /// The store's wall clock is set.
    pub clock_jump: Survival,
}

/// How much is left after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Survival {
    /// Holds go on: nobody else gets in.
    Lock,
    /// Two may believe that they hold it; the tokens still tell them apart.
    FenceOnly,
    /// Holders and store go down together.
    Together,
    /// Nothing is promised.
    Nothing,
}
