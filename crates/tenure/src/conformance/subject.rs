//! [`Subject`]: a store under test, and the clients that tests make of it.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::runtime::Handle;

use crate::backend::{Attempt, Backend, Claim, Client, Mode, Opened, Queue, Renewal, Retry, Scope, State, Voter};
use crate::backends::faulty::{Faulty, Plan};
use crate::backends::memory::Memory;
use crate::backends::quorum::{Quorum, Settings};
use crate::clock::{Clock, Drift};
use crate::connect;
use crate::error::{Error, Result};
use crate::locker::Locker;
use crate::name::{ClientId, OwnerIds, Resource, Token};
use crate::store::Context;

type Make = dyn Fn(Client) -> BoxFuture<'static, Result<Opened>> + Send + Sync;

/// A store under test.
#[derive(Clone)]
pub struct Subject {
    make: Arc<Make>,
    clock: Clock,
    /// Where lockers run; `None`: on the library's own thread.
    runtime: Option<Handle>,
    lease: Duration,
    pub(super) plan: Option<Plan>,
    /// What the names of a run begin with.
    prefix: String,
    /// How many bytes the store itself puts before each name.
    taken: usize,
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject").field("lease", &self.lease).field("plan", &self.plan).finish_non_exhaustive()
    }
}

/// One client of the store under test, below the engine.
pub(crate) struct Peer {
    pub(crate) backend: Arc<dyn Backend>,
    opened: Opened,
    pub(crate) owners: OwnerIds,
    lease: Duration,
}

impl Subject {
    /// A store of your own. `make` connects a new client to the same store each time: an `Arc<dyn Backend>`, or an [`Opened`] that says
    /// whether the store can be a node of a quorum. Then that is tested, too.
    pub fn new<F, Fut, O>(lease: Duration, make: F) -> Self
    where
        F: Fn(Client) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O>> + Send + 'static,
        O: Into<Opened>,
    {
        let make: Arc<Make> = Arc::new(move |client| {
            let opened = make(client);
            Box::pin(async move { Ok(opened.await?.into()) })
        });
        Self { make, clock: Clock::system(), runtime: None, lease, plan: None, prefix: String::new(), taken: 0 }
    }

    /// The store that a URL names, in real time.
    #[must_use]
    pub fn url(url: &str, lease: Duration) -> Self {
        let url = url.to_owned();
        let target = connect::parse(&url).ok();
        let taken = target.and_then(|target| Some(target.address.options.get("prefix")?.len())).unwrap_or(0);
        let subject = Self::new(lease, move |client| {
            let url = url.clone();
            let (timeout, drift) = (Duration::from_secs(10), Drift::DEFAULT);
            let (clock, registry) = (Clock::system(), connect::REGISTRY);
            async move {
                let mut target = connect::parse(&url)?;
                let prefix = target.address.options.take("prefix").unwrap_or_default();
                let context = Context { client, clock, timeout, lease, drift, prefix, registry };
                // Connections and pipes belong to the runtime that made them: the one that lockers use.
                let open = connect::prefixed(context, move |context| (registry.open)(target, context));
                crate::engine::background::handle()?.spawn(open).await.unwrap_or(Err(Error::Closed))
            }
        });
        Self { taken, ..subject }
    }

    /// The reference implementation, on tokio's clock.
    #[must_use]
    pub fn memory() -> Self {
        let clock = Clock::for_tests();
        let about = Client { id: ClientId::random().expect("random bits"), about: "conformance".into() };
        let store = Arc::new(Memory::new(about, clock.clone()));
        let make = move |client| {
            let store = Arc::clone(&store);
            async move { Ok(Arc::new(store.client(client))) }
        };
        Self { clock, runtime: Some(Handle::current()), ..Self::new(Duration::from_secs(30), make) }
    }

    /// A quorum of reference implementations, each behind faults of its own if there is a plan.
    #[must_use]
    pub fn quorum(nodes: usize, plan: Option<Plan>) -> Self {
        let clock = Clock::for_tests();
        let about = || Client { id: ClientId::random().expect("random bits"), about: "conformance".into() };
        let stores: Arc<[Memory]> = (0..nodes).map(|_| Memory::new(about(), clock.clone())).collect();
        let settings = Settings { clock: clock.clone(), ..Settings::default() };
        let make = move |client: Client| {
            let node = |(i, store): (usize, &Memory)| {
                let store: Arc<dyn Voter> = Arc::new(store.client(client.clone()));
                // Each at another rate: counted faults of several at the same rate could fall on the same question forever.
                let own = |plan: Plan| {
                    let slower = |every: u64| if every == 0 { 0 } else { every + i as u64 };
                    Plan { lose_reply: slower(plan.lose_reply), lose_request: slower(plan.lose_request), ..plan }
                };
                let store = plan.map_or(Arc::clone(&store), |plan| Arc::new(Faulty::over(store, own(plan))));
                (format!("memory {i}"), store)
            };
            let (nodes, settings) = (stores.iter().enumerate().map(node).collect(), settings.clone());
            async move { sure_or_refused(|| Quorum::new(Vec::clone(&nodes), settings.clone())).await.map(Arc::new) }
        };
        Self { clock, runtime: Some(Handle::current()), ..Self::new(Duration::from_secs(30), make) }
    }

    /// The same through [`Faulty`].
    #[must_use]
    pub fn faulty(mut self) -> Self {
        self.plan = Some(Plan::bad_day(self.lease / 100));
        self
    }

    /// The same with names that no other run uses.
    pub(super) fn fresh(&self) -> Self {
        static RUNS: AtomicU64 = AtomicU64::new(0);
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        Self { prefix: format!("{}t{}-{run}:", self.prefix, std::process::id()), ..self.clone() }
    }

    /// Whether its answers are lost and late.
    pub(super) fn is_faulty(&self) -> bool {
        self.plan.is_some()
    }

    pub(crate) fn lease(&self) -> Duration {
        self.lease
    }

    /// The longest name of this run.
    pub(crate) fn longest_name(&self) -> String {
        "x".repeat(Resource::MAX_BYTES - self.prefix.len() - self.taken)
    }

    /// A name of this run.
    pub(crate) fn name(&self, name: &str) -> Resource {
        Resource::new(format!("{}{name}", self.prefix)).expect("a good name")
    }

    pub(crate) async fn peer(&self) -> Peer {
        self.peer_with(self.plan).await
    }

    pub(crate) async fn peer_with(&self, plan: Option<Plan>) -> Peer {
        let id = ClientId::random().expect("random bits");
        let client = Client { id, about: format!("about {id}").into() };
        let opened = (self.make)(client).await.expect("connected");
        let opened = match plan {
            Some(plan) => opened.layered(Faulty::new(plan)),
            None => opened,
        };
        Peer { backend: Arc::clone(opened.backend()), opened, owners: OwnerIds::new(id), lease: self.lease }
    }

    pub(crate) async fn locker(&self) -> Locker {
        self.locker_over(self.peer().await)
    }

    pub(crate) fn locker_over(&self, peer: Peer) -> Locker {
        // Longer than a lease: an answer that comes too late is to be seen, not cut off.
        let timeout = (self.lease * 2).max(Duration::from_secs(10));
        let mut builder = Locker::builder().lease(self.lease).clock(self.clock.clone()).timeout(timeout);
        if let Some(runtime) = &self.runtime {
            builder = builder.runtime(runtime.clone());
        }
        builder.backend_of(peer.opened, peer.owners.client()).expect("a locker")
    }

    /// Waits until something is true. Panics after a long time.
    pub(crate) async fn eventually<Fut: Future<Output = bool>>(&self, what: &str, mut check: impl FnMut() -> Fut) {
        let give_up = tokio::time::Instant::now() + self.lease * 20 + Duration::from_secs(20);
        while !check().await {
            assert!(tokio::time::Instant::now() < give_up, "never came true: {what}");
            tokio::time::sleep(self.lease / 50).await;
        }
    }
}

impl Peer {
    pub(crate) fn claim(&self, resource: &Resource) -> Claim {
        let claim = Claim::new(resource.clone(), self.owners.next(), Mode::Exclusive, self.lease);
        Claim { queue: Queue::Allowed, ..claim }
    }

    /// The store as a quorum asks it, if it can be a node of one.
    pub(crate) fn voter(&self) -> Option<&dyn Voter> {
        self.opened.voter().map(|voter| &**voter)
    }

    pub(crate) fn wants(&self, resource: &Resource, mode: Mode) -> Claim {
        Claim { mode, ..self.claim(resource) }
    }

    /// Asks until there is an answer.
    pub(crate) async fn ask(&self, claim: &Claim) -> Attempt {
        sure(|| self.backend.acquire(claim)).await
    }

    pub(crate) async fn granted(&self, claim: &Claim) -> Token {
        match self.ask(claim).await {
            Attempt::Granted { token, .. } => token,
            other => panic!("{claim:?} was answered {other:?}"),
        }
    }

    /// A claim that is granted.
    pub(crate) async fn hold(&self, claim: Claim) -> Claim {
        self.granted(&claim).await;
        claim
    }

    /// Which of the holds go on.
    pub(crate) async fn renew(&self, claims: &[Claim]) -> Vec<bool> {
        let answers = sure(|| self.backend.renew(claims)).await;
        answers.into_iter().map(|answer| matches!(answer, Renewal::Extended { .. })).collect()
    }

    /// Whether a hold goes on.
    pub(crate) async fn renews(&self, claim: &Claim) -> bool {
        let answers = self.renew(std::slice::from_ref(claim)).await;
        assert_eq!(answers.len(), 1, "one answer per claim");
        answers[0]
    }

    pub(crate) async fn busy(&self, claim: &Claim) {
        let answer = self.ask(claim).await;
        let is_busy = matches!(answer, Attempt::Busy { retry: Retry::OnSignal { .. }, .. });
        assert!(is_busy, "{claim:?} was answered {answer:?}");
    }

    pub(crate) async fn release(&self, claim: &Claim) {
        sure(|| self.backend.release(claim)).await;
    }

    pub(crate) async fn state(&self, resource: &Resource) -> State {
        sure(|| self.backend.inspect(Scope::One(resource))).await.remove(0)
    }
}

/// Repeats a verb while its outcome is unknown.
pub(crate) async fn sure<T, Fut: Future<Output = Result<T>>>(verb: impl FnMut() -> Fut) -> T {
    sure_or_refused(verb).await.expect("an answer")
}

/// The same for a verb that may be refused.
pub(crate) async fn sure_or_refused<T, Fut: Future<Output = Result<T>>>(mut verb: impl FnMut() -> Fut) -> Result<T> {
    for _ in 0..20 {
        match verb().await {
            Err(e) if e.is_transient() => tokio::time::sleep(Duration::from_millis(1)).await,
            answer => return answer,
        }
    }
    panic!("no answer in twenty attempts")
}
