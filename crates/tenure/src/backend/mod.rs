//! The contract between the engine and a store. Read this file first: it is all that a store has to answer.
//!
//! Everything is a **claim**: *this owner wants this resource in this mode for this lease*. A backend answers a few
//! verbs on claims and knows nothing of waiting, tasks, guards or retries:
//!
//! - **acquire is a poll, the owner is the ticket, release is the cancel.** Owner ids are unique per hold, so every
//!   verb is idempotent and a lost reply is answered by asking again: a holder that asks again is granted again, with
//!   the same token; releasing twice is not an error.
//! - A verb that returns `Err` has an **unknown** outcome. It is neither success nor failure; the engine asks again,
//!   or releases, under the same owner. A verb that panics has returned such an error.
//! - A backend never sleeps to wait for a lock, never retries by itself for longer than one reconnect, and spawns no task per lock. (A
//!   quorum gives back the votes that did not make a lock.)
//! - A call is polled by the caller's task, within the locker's runtime. That task may stop polling for any time without dropping the
//!   call. So a call keeps nothing across an await that another call needs, above all a renewal. What many calls share (a connection that is
//!   being made) belongs in a task of its own.
//! - Calls may be dropped at any await point and may overlap. The engine does not start a verb for an owner while an
//!   `acquire` of the same owner is under way, except renewals of a hold that is being changed ([`Mode::Downgrade`]): a renewal of the
//!   writer may arrive when it is already a reader. The reader's lease is never longer than the writer's.
//! - A mode that [`Capabilities::modes`] refuses, a block of tokens where there are none, a lease that [`Capabilities::leases`]
//!   does not fit and more claims than [`Capabilities::batch`] are not asked for: the engine checks before.
//!
//! Beside it: [`Capabilities`] (what a store promises), [`State`] (what it shows), [`Voter`] (what it answers as one of several),
//! [`Layer`] (a store made of another one) and [`Opened`] (what opening a store gives).

mod capabilities;
mod layer;
mod losses;
mod opened;
mod state;
mod voter;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

pub(crate) use self::capabilities::LOCAL;
pub use self::capabilities::{Capabilities, Leases, Pushes, Reach, Safety, Survival};
pub use self::layer::{Call, Layer, Layered, Reply};
pub use self::losses::Losses;
pub(crate) use self::losses::Suspect;
pub use self::opened::{Nodes, Opened};
pub use self::state::{Holder, NodeReport, NodeState, Permits, Standing, State};
pub use self::voter::{InUse, Server, Voter};
use crate::error::{Error, Fault, Result};
pub use crate::mode::{Mode, Modes, Support};
pub use crate::name::OwnerIds;
use crate::name::{ClientId, OwnerId, Resource, Token};
use crate::signal::Signal;

/// A store that can carry locks.
///
/// All methods are required: a default is convenient for the caller and a trap for the implementor.
#[async_trait]
pub trait Backend: fmt::Debug + Send + Sync + 'static {
    /// What this backend can promise. Known without I/O, and the same for as long as it is open.
    fn capabilities(&self) -> &Capabilities;

    /// The part of the store that keeps a name, where parts fail on their own. Holds of different parts are renewed apart, so that trouble
    /// in one costs no hold elsewhere. Known without I/O.
    fn partition(&self, resource: &Resource) -> u32;

    /// Asks once. Repeating the same claim is the same question: a holder is granted again with the same token and a new lease, a queued
    /// owner keeps its position.
    async fn acquire(&self, claim: &Claim) -> Result<Attempt>;

    /// Extends many holds in one round trip, in the order given. [`Renewal::Gone`] is definite: a lapsed hold is never made again. Each is
    /// answered for itself: an error says that nothing is known of any.
    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Renewal>>;

    /// Gives up the hold or the queue position, and wakes waiters.
    async fn release(&self, claim: &Claim) -> Result<Released>;

    /// Resolves once subscribed. The signal fires when asking again may help; it may fire needlessly.
    async fn watch(&self, claim: &Claim) -> Result<Signal>;

    /// Holders and waiters of one resource (one state, also when it is free) or of all held ones under a prefix. The
    /// latter may take many round trips: the engine bounds them generously as a whole, the backend each by itself.
    async fn inspect(&self, scope: Scope<'_>) -> Result<Vec<State>>;

    /// Ends every hold of a resource by force and raises the fence above their tokens in the same step. `None` if it was not held.
    async fn break_hold(&self, resource: &Resource) -> Result<Option<Broken>>;

    /// Gives back connections, files and the client's own record. Holds are not released.
    async fn close(&self) -> Result<()>;
}

/// What an owner wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// What is to be locked.
    pub resource: Resource,
    /// The owner; unique per hold.
    pub owner: OwnerId,
    /// How it is to be locked.
    pub mode: Mode,
    /// Whether a busy answer may leave a queue position behind.
    pub queue: Queue,
    /// For how long, unless renewed.
    pub lease: Duration,
    /// How many consecutive tokens the grant reserves, at least 1: the first is the grant's own, the others are for
    /// handing the hold over inside the process. Always 1 where [`Capabilities::token_blocks`] is false.
    pub tokens: u32,
    /// The caller's words for [`Backend::inspect`]; stored only when given.
    pub note: Option<Arc<str>>,
}

impl Claim {
    /// The longest note in bytes.
    pub const MAX_NOTE_BYTES: usize = 4096;

    /// A claim of one token, without a queue position and without a note.
    #[must_use]
    pub const fn new(resource: Resource, owner: OwnerId, mode: Mode, lease: Duration) -> Self {
        Self { resource, owner, mode, queue: Queue::Never, lease, tokens: 1, note: None }
    }

    /// Refuses a note of more than 4096 bytes.
    pub fn check_note(note: &str) -> Result<Arc<str>> {
        if note.len() <= Self::MAX_NOTE_BYTES {
            Ok(note.into())
        } else {
            Err(Error::config(format!("a note of {} bytes", note.len()), "is too long", "up to 4096 bytes"))
        }
    }

    /// How long a queue position outlives the last question of its owner: the lease, within 1 s and 30 s.
    #[must_use]
    pub fn position_lease(&self) -> Duration {
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
    /// A queue position, where the store keeps one.
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
    /// The owner does not hold it.
    Busy {
        /// When to ask again.
        retry: Retry,
        /// The present holder as the store writes it, where the answer tells.
        holder: Option<String>,
    },
}

impl Attempt {
    /// The usual busy answer: another owner holds it, and a signal will tell when that has changed.
    #[must_use]
    pub const fn busy(within: Duration, holder: Option<String>) -> Self {
        Self::Busy { retry: Retry::OnSignal { within }, holder }
    }
}

/// When to ask again after a busy answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// When the signal fires.
    OnSignal {
        /// After this long even if none does: what a lost notification costs at most, and what keeps a queue position.
        within: Duration,
    },
    /// After this long, and not sooner for a signal: several asked at the same moment and none has it. Giving their parts back would wake
    /// each other.
    After(Duration),
}

/// The answer to [`Backend::renew`], per claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewal {
    /// The hold goes on.
    Extended {
        /// Counted from before the request was sent.
        valid_for: Duration,
    },
    /// The hold is over: expired, broken, or lost by the store.
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

/// What [`Backend::break_hold`] ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    /// The holders until now.
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
