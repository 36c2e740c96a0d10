//! [`Builder`]: the options of a locker.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use super::Locker;
use crate::backend::{Claim, Client, Leases, Opened};
use crate::clock::{Clock, Drift};
use crate::connect;
use crate::engine::background;
use crate::engine::{Engine, Settings};
use crate::error::{Error, Result};
use crate::name::ClientId;
use crate::retry::RetryPolicy;
use crate::store::{self, Context, Label, Opening, StoreOptions};

/// Options of a [`Locker`]. The same options can be in the URL; the URL wins.
#[derive(Debug, Clone)]
#[must_use]
pub struct Builder {
    lease: Duration,
    timeout: Duration,
    retry: Option<RetryPolicy>,
    drift: Drift,
    about: Option<String>,
    clock: Clock,
    runtime: Option<Handle>,
    prefix: String,
    label: Option<Label>,
    linger: Duration,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(30),
            timeout: Duration::from_secs(3),
            retry: None,
            drift: Drift::DEFAULT,
            about: None,
            clock: Clock::system(),
            runtime: None,
            prefix: String::new(),
            label: None,
            linger: Duration::ZERO,
        }
    }
}

impl Builder {
    /// The lease of locks that are kept alive (default 30 s): how long a lock outlives a crashed holder. Renewed at a
    /// third of it. 10 ms to 24 h, or what the store takes of that ([`Capabilities::leases`](crate::backend::Capabilities::leases)).
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// The longest that one call to the store may take (default 3 s), reconnecting included.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How an unavailable store is asked again (default [`RetryPolicy::default`], or
    /// [`RetryPolicy::over_a_failover`] where the store [fails over](crate::backend::Capabilities::fails_over)).
    pub fn retry(mut self, retry: RetryPolicy) -> Self {
        self.retry = Some(retry);
        self
    }

    /// How much leases are shortened locally (default 1 % and 2 ms).
    pub fn drift(mut self, drift: Drift) -> Self {
        self.drift = drift;
        self
    }

    /// What `inspect` shows of this client when it holds a lock (default: host, process id, program).
    pub fn about(mut self, about: impl Into<String>) -> Self {
        self.about = Some(about.into());
        self
    }

    /// What every name begins with at the store (default nothing): several services share one store without sharing names.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// How long a [`Mutex`](crate::Mutex) that was released stays with this process (default zero: not at all). The next `lock()` of any
    /// of its tasks within that time asks nobody, and has the next token. Counted from the first release of a grant, so it is the most that
    /// clients elsewhere wait in addition; stores tell them apart that can, and then the lock is given back at once. `release()` is
    /// answered before the store knows of it: close the locker before the process ends. Fair and shared locks do not linger.
    pub fn linger(mut self, linger: Duration) -> Self {
        self.linger = linger;
        self
    }

    /// The lease clock, for tests.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Runs the background work on this runtime instead of on the library's own thread. Renewals then stop when that
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
        self.check()?;
        let options = &mut target.address.options;
        if let Some(lease) = options.duration("lease")? {
            self.lease = lease;
            self.check().map_err(|e| store::of_option("lease", e))?;
        }
        if let Some(timeout) = options.duration("timeout")? {
            self.timeout = timeout;
            self.check().map_err(|e| store::of_option("timeout", e))?;
        }
        if let Some(linger) = options.duration("linger")? {
            self.linger = linger;
        }
        if let Some(prefix) = options.take("prefix") {
            self.prefix = prefix;
        }
        let label = target.label.take().map(|label| Label { prefix: self.prefix.clone(), ..label });
        let scheme = target.scheme.name;
        self.open(label, scheme, move |context| (connect::REGISTRY.open)(target, context)).await
    }

    /// Connects to a store whose options are set in code. See [`options`](crate::options).
    ///
    /// ```
    /// use tenure::options::MemoryOptions;
    ///
    /// # async fn example() -> tenure::Result<()> {
    /// let locker = tenure::Locker::builder().connect_with(MemoryOptions::named("jobs")).await?;
    /// # locker.close().await
    /// # }
    /// # fn main() -> tenure::Result<()> { tokio::runtime::Runtime::new().unwrap().block_on(example()) }
    /// ```
    ///
    /// # Cancel safety
    /// Safe: nothing is locked yet.
    pub async fn connect_with(self, options: impl StoreOptions) -> Result<Locker> {
        self.check()?;
        let label = Label::of(&options, &self.prefix);
        self.open(label, options.scheme(), move |context| options.open(context)).await
    }

    async fn open(
        mut self,
        label: Option<Label>,
        scheme: &'static str,
        open: impl FnOnce(Context) -> Opening + Send + 'static,
    ) -> Result<Locker> {
        let client = self.client()?;
        // A store of its own, unlike every other.
        let own = || Label { address: format!("{scheme}:{}", client.id), prefix: String::new() };
        self.label = Some(label.unwrap_or_else(own));
        let runtime = self.runtime.clone().map_or_else(background::handle, Ok)?;
        let Self { timeout, lease, drift, .. } = self;
        let (clock, prefix, registry) = (self.clock.clone(), self.prefix.clone(), connect::REGISTRY);
        let context = Context { client: client.clone(), clock, timeout, lease, drift, prefix, registry };
        let opening = async move { connect::prefixed(context, open).await };
        let opened = runtime.spawn(opening).await.unwrap_or(Err(Error::Closed))?;
        let backend = Arc::clone(opened.backend());
        let built = self.build(opened, client.id, runtime.clone());
        if built.is_err() {
            // Nobody else knows of it.
            runtime.spawn(async move { backend.close().await });
        }
        built
    }

    /// Uses a store of your own: an [`Opened`], or what becomes one, such as an `Arc<dyn Backend>`.
    pub fn backend(self, store: impl Into<Opened>) -> Result<Locker> {
        self.check()?;
        let client = ClientId::random()?;
        let runtime = self.runtime.clone().map_or_else(background::handle, Ok)?;
        let store = connect::under(&self.prefix, store.into())?;
        self.build(store, client, runtime)
    }

    /// As [`backend`](Self::backend), for one that knows its client.
    #[cfg(any(feature = "conformance", feature = "testing"))]
    pub(crate) fn backend_of(self, store: Opened, client: ClientId) -> Result<Locker> {
        let runtime = self.runtime.clone().map_or_else(background::handle, Ok)?;
        self.build(store, client, runtime)
    }

    /// What can be said before the store is known.
    fn check(&self) -> Result<()> {
        Leases::ANY.fit(self.lease)?;
        if self.timeout.is_zero() {
            return Err(Error::config("a timeout of 0", "leaves no time for any call", "more than zero"));
        }
        if self.retry.is_some_and(|retry| retry.attempts == 0) {
            return Err(Error::config("0 attempts", "would never ask the store", "1 or more"));
        }
        Ok(())
    }

    fn client(&self) -> Result<Client> {
        let about = self.about.clone().unwrap_or_else(about_this_process);
        Ok(Client { id: ClientId::random()?, about: Claim::check_note(&about)? })
    }

    fn build(self, store: Opened, client: ClientId, runtime: Handle) -> Result<Locker> {
        let backend = Arc::clone(store.backend());
        let capabilities = backend.capabilities().clone();
        let Self { timeout, retry, drift, about, clock, label, .. } = self;
        let lease = capabilities.leases.fit(self.lease)?;
        if !self.linger.is_zero() && !capabilities.token_blocks {
            let problem = format!("needs tokens in reserve, which {} does not give", capabilities.backend);
            return Err(Error::config(format!("to linger for {:?}", self.linger), problem, "no linger time"));
        }
        let usual = if capabilities.fails_over { RetryPolicy::over_a_failover() } else { RetryPolicy::default() };
        let retry = retry.unwrap_or(usual);
        let settings = Settings { backend, clock, drift, timeout, retry, counters: Arc::default() };
        let mut engine = Engine::new(settings, capabilities, lease, client, runtime);
        engine.label = label;
        engine.linger = self.linger;
        engine.about = about.unwrap_or_else(about_this_process).into();
        store.losses().into_iter().for_each(|losses| engine.keeper.hear(losses));
        engine.nodes = store.nodes().cloned();
        engine.lifeline = store.lifeline;
        Ok(Locker { engine: Arc::new(engine) })
    }
}

/// Host, process id and program, which `inspect` shows of a holder.
fn about_this_process() -> String {
    let uname = rustix::system::uname();
    let host = uname.nodename().to_string_lossy();
    let program = std::env::current_exe().ok().and_then(|p| p.file_name().map(|n| n.to_string_lossy().into_owned()));
    format!("{host} {} {}", std::process::id(), program.as_deref().unwrap_or("?"))
}
