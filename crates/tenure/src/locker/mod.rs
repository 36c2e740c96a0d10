//! [`Locker`]: one client of a store, and the factory of all primitives.

mod builder;

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;

pub use self::builder::Builder;
use crate::backend::{Capabilities, State};
use crate::engine::Engine;
use crate::error::Result;
use crate::mode::Mode;
use crate::name::{ClientId, Resource};
use crate::primitives::any::AnyLock;
use crate::primitives::election::Election;
use crate::primitives::latch::Latch;
use crate::primitives::multi::Multi;
use crate::primitives::mutex::Mutex;
use crate::primitives::partitions::Partitions;
use crate::primitives::rwlock::RwLock;
use crate::primitives::semaphore::Semaphore;
use crate::primitives::striped::Striped;
use crate::stats::Stats;

/// One client of a store. Cheap to clone; all clones share connection, keeper and counters.
///
/// ```
/// # async fn example() -> tenure::Result<()> {
/// let locker = tenure::Locker::connect("memory:").await?;
/// let guard = locker.mutex("stock:1001").lock().await?;
/// println!("token {}", guard.token());
/// guard.release().await?;
/// locker.close().await
/// # }
/// # fn main() -> tenure::Result<()> { tokio::runtime::Runtime::new().unwrap().block_on(example()) }
/// ```
#[derive(Clone)]
pub struct Locker {
    pub(crate) engine: Arc<Engine>,
}

impl Locker {
    /// Connects to the store that a URL names, with default options. See [`connect`](crate::connect) for the schemes.
    ///
    /// # Cancel safety
    /// Safe: nothing is locked yet.
    pub async fn connect(url: &str) -> Result<Self> {
        Self::builder().connect(url).await
    }

    /// Options for a new locker.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The re-entrant lock of a name. A bad name is reported by the first call that uses it.
    #[must_use = "a mutex does nothing until it is locked"]
    pub fn mutex(&self, name: impl AsRef<str>) -> Mutex {
        Mutex::new(Arc::clone(&self.engine), Resource::new(name))
    }

    /// The read/write lock of a name. A bad name is reported by the first call that uses it.
    #[must_use = "a lock does nothing until it is taken"]
    pub fn rwlock(&self, name: impl AsRef<str>) -> RwLock {
        RwLock::new(Arc::clone(&self.engine), Resource::new(name))
    }

    /// The semaphore of a name, with this many permits unless a number has been set for it; zero leaves that to others.
    #[must_use = "a semaphore does nothing until a permit is taken"]
    pub fn semaphore(&self, name: impl AsRef<str>, permits: u32) -> Semaphore {
        Semaphore::new(Arc::clone(&self.engine), Resource::new(name), permits)
    }

    /// The lock of a name in a mode that is known when the program runs. See [`AnyLock`].
    #[must_use = "a lock does nothing until it is acquired"]
    pub fn any_lock(&self, name: impl AsRef<str>, mode: Mode) -> AnyLock {
        AnyLock::new(Arc::clone(&self.engine), Resource::new(name), mode)
    }

    /// The latch of a name.
    #[must_use = "a latch does nothing by itself"]
    pub fn latch(&self, name: impl AsRef<str>) -> Latch {
        Latch::new(Arc::clone(&self.engine), Resource::new(name))
    }

    /// The locks of several names, all or none. See [`Multi`].
    #[must_use = "nothing is locked yet"]
    pub fn multi<N: AsRef<str>>(&self, names: impl IntoIterator<Item = N>) -> Multi {
        Multi::of(names.into_iter().map(|name| self.mutex(name)))
    }

    /// `count` locks `name#0`, `name#1`, … under one name. See [`Striped`].
    #[must_use = "nothing is locked yet"]
    pub fn striped(&self, name: impl AsRef<str>, count: u32) -> Striped {
        Striped::new(Arc::clone(&self.engine), name.as_ref(), count)
    }

    /// The election of a leader. See [`Election`].
    #[must_use = "it is not a candidate yet"]
    pub fn election(&self, name: impl AsRef<str>) -> Election {
        Election::new(Arc::clone(&self.engine), name.as_ref())
    }

    /// `count` partitions `name/0`, `name/1`, …, spread over the members. See [`Partitions`].
    #[must_use = "it has not joined yet"]
    pub fn partitions(&self, name: impl AsRef<str>, count: u32) -> Partitions {
        Partitions::new(Arc::clone(&self.engine), name.as_ref(), count)
    }

    /// What the store says of all held locks whose names start with `prefix`. May take long on a large store; where it would be
    /// very many names (on Redis more than 100 000), an error asks for a longer prefix.
    ///
    /// # Cancel safety
    /// Safe: it only reads.
    pub async fn list(&self, prefix: &str) -> Result<Vec<State>> {
        self.engine.list(prefix).await
    }

    /// What the store can promise.
    #[must_use]
    pub fn capabilities(&self) -> &Capabilities {
        &self.engine.capabilities
    }

    /// What this locker has done so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let nodes = self.engine.nodes.as_ref().map(|nodes| nodes.nodes()).unwrap_or_default();
        Stats { nodes, ..self.engine.settings.counters.read() }
    }

    /// What `inspect` and audit events show of this locker.
    #[must_use]
    pub fn about(&self) -> &str {
        &self.engine.about
    }

    /// The identity under which the store knows this locker.
    #[must_use]
    pub fn client_id(&self) -> ClientId {
        self.engine.owners.client()
    }

    /// A descriptor that keeps others from taking this client for dead, for as long as any process has it open. It is for a process that
    /// watches over the work of this one, and ends it if this one dies. `None` where a store notices deaths by the lease alone; with
    /// `sqlite:` a death is noticed at once.
    #[must_use]
    pub fn lifeline(&self) -> Option<OwnedFd> {
        self.engine.lifeline.another()
    }

    /// Gives back everything and ends the background work: waiting acquisitions end with [`Error::Closed`](crate::Error::Closed), guards that
    /// are still alive are told that they lost their lock, releases under way are waited for. Each of these steps is
    /// bounded by the call timeout. Closing twice is not an error: all callers are answered when it is done.
    ///
    /// # Cancel safety
    /// Closing goes on in the background if the future is dropped.
    pub async fn close(&self) -> Result<()> {
        self.engine.close().await
    }
}

impl fmt::Debug for Locker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locker")
            .field("backend", &self.engine.settings.backend)
            .field("client", &self.client_id())
            .finish_non_exhaustive()
    }
}
