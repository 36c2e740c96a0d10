//! [`Locker`]: one client of a store, and the factory of all primitives.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::backend::{Backend, Broken, Capabilities, Claim, Client, Scope, State};
use crate::clock::{Clock, Drift};
use crate::connect;
use crate::error::{Error, Result};
use crate::keeper::{Keeper, Settings, bounded};
use crate::name::{ClientId, OwnerIds, Resource};
use crate::primitives::mutex::Mutex;
use crate::retry::RetryPolicy;
use crate::runtime;
use crate::stats::{Counters, Stats};
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
    acquiring: watch::Sender<usize>,
}

/// Counts an acquisition under way, so that closing can wait for it.
pub(crate) struct Acquiring(Arc<Core>);

impl Drop for Acquiring {
    fn drop(&mut self) {
        self.0.acquiring.send_modify(|n| *n -= 1);
    }
}

impl Core {
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

    /// What the store says of all held locks whose names start with `prefix`. May take long on a large store.
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
        let free = State { resource: resource.clone(), holders: Vec::new(), waiting: None, fence: None };
        let states = self
            .core
            .call("inspecting", self.core.settings.timeout, |b| async move { b.inspect(Scope::One(&resource)).await })
            .await?;
        Ok(states.into_iter().next().unwrap_or(free))
    }

    pub(crate) async fn break_hold(&self, resource: Resource) -> Result<Option<Broken>> {
        self.core.call("breaking", self.core.settings.timeout, |b| async move { b.break_hold(&resource).await }).await
    }

    /// What the store can promise.
    #[must_use]
    pub fn capabilities(&self) -> &Capabilities {
        &self.core.capabilities
    }

    /// What this locker has done so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.core.settings.counters.read()
    }

    /// The identity under which the store knows this locker.
    #[must_use]
    pub fn client_id(&self) -> ClientId {
        self.core.owners.client()
    }

    /// Gives back everything and ends the background work: waiting acquisitions end with [`Error::Closed`], guards that
    /// are still alive are told that they lost their lock, releases under way are waited for. Each of these steps is
    /// bounded by the call timeout. Closing twice is not an error.
    ///
    /// # Cancel safety
    /// Closing goes on in the background if the future is dropped.
    pub async fn close(&self) -> Result<()> {
        if self.core.closed.send_replace(true) {
            return Ok(());
        }
        let core = Arc::clone(&self.core);
        let task = self.core.runtime.spawn(async move {
            let mut acquiring = core.acquiring.subscribe();
            drop(tokio::time::timeout(core.settings.timeout, acquiring.wait_for(|n| *n == 0)).await);
            core.keeper.close().await;
            let backend = &core.settings.backend;
            bounded(core.settings.timeout, &**backend, "closing", backend.close()).await
        });
        task.await.unwrap_or(Err(Error::Closed))
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

/// Options of a [`Locker`]. The same options can stand in the URL; the URL wins.
#[derive(Debug, Clone)]
#[must_use]
pub struct Builder {
    lease: Duration,
    timeout: Duration,
    retry: RetryPolicy,
    drift: Drift,
    about: Option<String>,
    clock: Clock,
    runtime: Option<Handle>,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(30),
            timeout: Duration::from_secs(3),
            retry: RetryPolicy::default(),
            drift: Drift::DEFAULT,
            about: None,
            clock: Clock::system(),
            runtime: None,
        }
    }
}

impl Builder {
    /// The lease of locks that are kept alive (default 30 s): how long a lock outlives a crashed holder. Renewed at a
    /// third of it. 10 ms to 24 h.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// The longest that one call to the store may take (default 3 s), reconnecting included.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How an unavailable store is asked again.
    pub fn retry(mut self, retry: RetryPolicy) -> Self {
        self.retry = retry;
        self
    }

    /// How much leases are shortened locally (default 1 % and 2 ms).
    pub fn drift(mut self, drift: Drift) -> Self {
        self.drift = drift;
        self
    }

    /// What this client says of itself to those who ask who holds a lock (default: host, process id, program).
    pub fn about(mut self, about: impl Into<String>) -> Self {
        self.about = Some(about.into());
        self
    }

    /// The lease clock, for tests.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Runs the background work on this runtime instead of on the library's own thread. Renewals then suffer when that
    /// runtime is blocked, and end with it.
    pub fn runtime(mut self, runtime: Handle) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// Connects to the store that a URL names.
    ///
    /// # Cancel safety
    /// Safe: nothing is locked yet.
    pub async fn connect(mut self, url: &str) -> Result<Locker> {
        let mut target = connect::parse(url)?;
        if let Some(lease) = target.options.duration("lease")? {
            self.lease = lease;
        }
        if let Some(timeout) = target.options.duration("timeout")? {
            self.timeout = timeout;
        }
        self.check()?;
        let client = self.client()?;
        let runtime = self.runtime.clone().map_or_else(runtime::background, Ok)?;
        let context = connect::Context { client: client.clone(), clock: self.clock.clone(), timeout: self.timeout };
        let backend = runtime.spawn(async move { connect::open(target, context).await }).await.unwrap_or(Err(Error::Closed))?;
        self.build(backend, client.id, runtime)
    }

    /// Uses a backend of your own.
    pub fn over(self, backend: Arc<dyn Backend>) -> Result<Locker> {
        self.check()?;
        let client = ClientId::random()?;
        let runtime = self.runtime.clone().map_or_else(runtime::background, Ok)?;
        self.build(backend, client, runtime)
    }

    /// As [`over`](Self::over), for a backend that knows its client.
    #[cfg(feature = "conformance")]
    pub(crate) fn over_as(self, backend: Arc<dyn Backend>, client: ClientId) -> Result<Locker> {
        let runtime = self.runtime.clone().map_or_else(runtime::background, Ok)?;
        self.build(backend, client, runtime)
    }

    fn check(&self) -> Result<()> {
        Claim::check_lease(self.lease)?;
        if self.timeout.is_zero() {
            return Err(Error::config("a timeout of 0", "leaves no time for any call", "more than zero"));
        }
        if self.retry.attempts == 0 {
            return Err(Error::config("0 attempts", "would never ask the store", "1 or more"));
        }
        Ok(())
    }

    fn client(&self) -> Result<Client> {
        let about = self.about.clone().unwrap_or_else(about_this_process);
        Ok(Client { id: ClientId::random()?, about: Claim::check_note(&about)? })
    }

    fn build(self, backend: Arc<dyn Backend>, client: ClientId, runtime: Handle) -> Result<Locker> {
        let capabilities = backend.capabilities();
        let Self { lease, timeout, retry, drift, clock, .. } = self;
        let settings = Settings { backend, clock, drift, timeout, retry, counters: Arc::new(Counters::default()) };
        let keeper = {
            let _entered = runtime.enter();
            Keeper::start(settings.clone())
        };
        let core = Core {
            settings,
            capabilities,
            lease,
            owners: OwnerIds::new(client),
            turnstile: Turnstile::default(),
            keeper,
            runtime,
            closed: watch::Sender::new(false),
            acquiring: watch::Sender::new(0),
        };
        Ok(Locker { core: Arc::new(core) })
    }
}

/// Host, process id and program, for those who ask who holds a lock.
fn about_this_process() -> String {
    let uname = rustix::system::uname();
    let host = uname.nodename().to_string_lossy();
    let program = std::env::current_exe().ok().and_then(|p| p.file_name().map(|n| n.to_string_lossy().into_owned()));
    format!("{host} {} {}", std::process::id(), program.as_deref().unwrap_or("?"))
}
