//! [`Locker`]: one client of a store, and the factory of all primitives.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::audit;
use crate::backend::{Backend, Broken, Capabilities, Client, Scope, State};
use crate::backend::{Claim, Mode, Queue};
use crate::builder::Builder;
use crate::connect::Label;
use crate::error::{Error, Result};
use crate::keeper::{Keeper, Settings, bounded};
use crate::lifeline::Lifeline;
use crate::name::{ClientId, OwnerIds, Resource};
use crate::primitives::election::Election;
use crate::primitives::latch::Latch;
use crate::primitives::multi::Multi;
use crate::primitives::mutex::Mutex;
use crate::primitives::partitions::Partitions;
use crate::primitives::rwlock::RwLock;
use crate::primitives::semaphore::Semaphore;
use crate::primitives::striped::Striped;
use crate::signal::Signal;
use crate::stats::Stats;
use crate::turnstile::Turnstile;
use crate::wait::{Patience, sleep_long};

/// How many times the call timeout a listing may take.
const LIST_CALLS: u32 = 100;

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
    pub(crate) core: Arc<Core>,
}

pub(crate) struct Core {
    pub(crate) settings: Settings,
    pub(crate) capabilities: Capabilities,
    pub(crate) lease: Duration,
    pub(crate) owners: OwnerIds,
    pub(crate) turnstile: Turnstile,
    pub(crate) keeper: Keeper,
    pub(crate) runtime: Handle,
    pub(crate) closed: watch::Sender<bool>,
    /// How closing ended, once it has: everybody who closes waits for it.
    ended: watch::Sender<Option<Result<()>>>,
    acquiring: watch::Sender<usize>,
    /// Which store this is, where a URL has said so.
    pub(crate) label: Option<Label>,
    /// What this client says of itself.
    pub(crate) about: Arc<str>,
    pub(crate) lifeline: Lifeline,
}

/// Counts an acquisition under way, so that closing can wait for it.
pub(crate) struct Acquiring(Arc<Core>);

impl Drop for Acquiring {
    fn drop(&mut self) {
        self.0.acquiring.send_modify(|n| *n -= 1);
    }
}

/// Closes a locker, and says so to those who wait also if the runtime ends under it.
struct Closing(Arc<Core>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.ended.send_if_modified(|ended| {
            let cut_off = ended.is_none();
            ended.get_or_insert(Err(Error::Closed));
            cut_off
        });
    }
}

impl Core {
    /// Starts the keeper on the given runtime.
    pub(crate) fn new(
        settings: Settings,
        capabilities: Capabilities,
        lease: Duration,
        client: ClientId,
        runtime: Handle,
    ) -> Self {
        let keeper = {
            let _entered = runtime.enter();
            Keeper::start(settings.clone())
        };
        Self {
            settings,
            capabilities,
            lease,
            owners: OwnerIds::new(client),
            turnstile: Turnstile::default(),
            keeper,
            runtime,
            closed: watch::Sender::new(false),
            ended: watch::Sender::new(None),
            acquiring: watch::Sender::new(0),
            label: None,
            about: Arc::from(""),
            lifeline: Lifeline::default(),
        }
    }

    pub(crate) fn begin(self: &Arc<Self>) -> Acquiring {
        self.acquiring.send_modify(|n| *n += 1);
        Acquiring(Arc::clone(self))
    }

    pub(crate) fn is_closed(&self) -> bool {
        *self.closed.borrow()
    }

    /// Runs a call of the backend on the locker's runtime.
    async fn call<T, F, Fut>(&self, doing: &'static str, limit: Duration, call: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(Arc<dyn Backend>) -> Fut,
        Fut: Future<Output = Result<T>> + Send + 'static,
    {
        if self.is_closed() {
            return Err(Error::Closed);
        }
        let backend = Arc::clone(&self.settings.backend);
        let call = call(Arc::clone(&backend));
        let task = self.runtime.spawn(async move { bounded(limit, &*backend, doing, call).await });
        task.await.unwrap_or(Err(Error::Closed))
    }

    /// Sleeps, on whatever executor.
    pub(crate) async fn pause(&self, pause: Duration) {
        let until = self.settings.clock.now().after(pause);
        self.within(Patience::Until(until), std::future::pending::<()>()).await;
    }

    /// Bounds a wait of the caller's own future, which may run on an executor without timers.
    pub(crate) async fn within<T>(&self, patience: Patience, wait: impl Future<Output = T>) -> Option<T> {
        let left = patience.bound().since(self.settings.clock.now());
        let mut timer = JoinSet::new();
        timer.spawn_on(sleep_long(left), &self.runtime);
        tokio::select! {
            biased;
            done = wait => Some(done),
            _ = timer.join_next() => None,
        }
    }
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
        Mutex::new(self.clone(), Resource::new(name))
    }

    /// The read/write lock of a name. A bad name is reported by the first call that uses it.
    #[must_use = "a lock does nothing until it is taken"]
    pub fn rwlock(&self, name: impl AsRef<str>) -> RwLock {
        RwLock::new(self.clone(), Resource::new(name))
    }

    /// The semaphore of a name, with this many permits unless a number has been set for it; zero leaves that to others.
    #[must_use = "a semaphore does nothing until a permit is taken"]
    pub fn semaphore(&self, name: impl AsRef<str>, permits: u32) -> Semaphore {
        Semaphore::new(self.clone(), Resource::new(name), permits)
    }

    /// The latch of a name.
    #[must_use = "a latch does nothing by itself"]
    pub fn latch(&self, name: impl AsRef<str>) -> Latch {
        Latch::new(self.clone(), Resource::new(name))
    }

    /// The locks of several names, all or none. See [`Multi`].
    #[must_use = "nothing is locked yet"]
    pub fn multi<N: AsRef<str>>(&self, names: impl IntoIterator<Item = N>) -> Multi {
        Multi::of(names.into_iter().map(|name| self.mutex(name)))
    }

    /// `count` locks `name#0`, `name#1`, … under one name. See [`Striped`].
    #[must_use = "nothing is locked yet"]
    pub fn striped(&self, name: impl AsRef<str>, count: u32) -> Striped {
        Striped::new(self.clone(), name.as_ref(), count)
    }

    /// The election of a leader. See [`Election`].
    #[must_use = "nobody is a candidate yet"]
    pub fn election(&self, name: impl AsRef<str>) -> Election {
        Election::new(self.clone(), name.as_ref())
    }

    /// `count` partitions `name/0`, `name/1`, …, spread over those who take part. See [`Partitions`].
    #[must_use = "nobody takes part yet"]
    pub fn partitions(&self, name: impl AsRef<str>, count: u32) -> Partitions {
        Partitions::new(self.clone(), name.as_ref(), count)
    }

    /// What the store says of all held locks whose names start with `prefix`. May take long on a large store; where it would be
    /// very many names (on Redis more than 100 000), an error asks for a longer prefix.
    ///
    /// # Cancel safety
    /// Safe: it only reads.
    pub async fn list(&self, prefix: &str) -> Result<Vec<State>> {
        let prefix = prefix.to_owned();
        // A store may have to look through all it has, in many round trips; it bounds each of them by itself.
        let limit = self.core.settings.timeout.saturating_mul(LIST_CALLS);
        self.core.call("listing", limit, |b| async move { b.inspect(Scope::Prefix(&prefix)).await }).await
    }

    pub(crate) async fn inspect(&self, resource: Resource) -> Result<State> {
        let free = State::free(resource.clone());
        let states = self
            .core
            .call("inspecting", self.core.settings.timeout, |b| async move { b.inspect(Scope::One(&resource)).await })
            .await?;
        Ok(states.into_iter().next().unwrap_or(free))
    }

    /// Fires when a look at this name may show something new.
    pub(crate) async fn watch(&self, resource: Resource, mode: Mode) -> Result<Signal> {
        let Core { settings, owners, lease, .. } = &*self.core;
        let owner = owners.next();
        let (queue, lease) = (Queue::Never, *lease);
        let claim = Claim { resource, owner, mode, queue, lease, tokens: 1, at_least: None, note: None };
        self.core.call("subscribing", settings.timeout, |b| async move { b.watch(&claim).await }).await
    }

    pub(crate) async fn break_hold(&self, resource: Resource) -> Result<Option<Broken>> {
        let core = Arc::clone(&self.core);
        if core.is_closed() {
            return Err(Error::Closed);
        }
        // A task of its own: who asks may go, but what was done is told.
        let task = self.core.runtime.spawn(async move {
            let Settings { backend, timeout, .. } = &core.settings;
            let broken = bounded(*timeout, &**backend, "breaking", backend.break_hold(&resource, None)).await;
            let by = Client { id: core.owners.client(), about: Arc::clone(&core.about) };
            audit::break_hold(&by, &resource, &broken);
            broken
        });
        task.await.unwrap_or(Err(Error::Closed))
    }

    /// What the store can promise.
    #[must_use]
    pub fn capabilities(&self) -> &Capabilities {
        &self.core.capabilities
    }

    /// What this locker has done so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats { members: self.core.settings.backend.members(), ..self.core.settings.counters.read() }
    }

    /// What this locker says of itself to those who ask who holds a lock, or who broke one.
    #[must_use]
    pub fn about(&self) -> &str {
        &self.core.about
    }

    /// The identity under which the store knows this locker.
    #[must_use]
    pub fn client_id(&self) -> ClientId {
        self.core.owners.client()
    }

    /// A descriptor that keeps others from taking this client for dead, for as long as any process has it open: for one that
    /// watches over the work of this one, and ends it if this one dies. `None` where a store notices deaths by the lease alone; with
    /// `sqlite:` a death is noticed at once.
    #[must_use]
    pub fn lifeline(&self) -> Option<OwnedFd> {
        self.core.lifeline.another()
    }

    /// Gives back everything and ends the background work: waiting acquisitions end with [`Error::Closed`], guards that
    /// are still alive are told that they lost their lock, releases under way are waited for. Each of these steps is
    /// bounded by the call timeout. Closing twice is not an error: all who close are answered when it is done.
    ///
    /// # Cancel safety
    /// Closing goes on in the background if the future is dropped.
    pub async fn close(&self) -> Result<()> {
        let mut ended = self.core.ended.subscribe();
        if !self.core.closed.send_replace(true) {
            let closing = Closing(Arc::clone(&self.core));
            self.core.runtime.spawn(async move {
                let core = &closing.0;
                let mut acquiring = core.acquiring.subscribe();
                drop(tokio::time::timeout(core.settings.timeout, acquiring.wait_for(|n| *n == 0)).await);
                core.keeper.close().await;
                let backend = &core.settings.backend;
                let closed = bounded(core.settings.timeout, &**backend, "closing", backend.close()).await;
                core.ended.send_replace(Some(closed));
            });
        }
        let ended = ended.wait_for(Option::is_some).await.map(|ended| ended.clone());
        ended.ok().flatten().unwrap_or(Err(Error::Closed))
    }
}

impl fmt::Debug for Locker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locker")
            .field("backend", &self.core.settings.backend)
            .field("client", &self.client_id())
            .finish_non_exhaustive()
    }
}
