//! Nodes that a test can silence, slow down and make forget, and what is made of them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::backend::{Backend, Call, Capabilities, Client, Holder, InUse, Layer, Layered, Scope, Server, Voter};
use tenure::backends::memory::Memory;
use tenure::backends::quorum::{Quorum, Settings};
use tenure::clock::Clock;
use tenure::{ClientId, Error, Fault, Locker, Resource, Result};
use tokio::runtime::Handle;
use tokio::time::Instant;

pub(crate) const LEASE: Duration = Duration::from_secs(30);

/// A node: a memory store that may be away, slow, or restarted without its data.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) memory: Arc<Memory>,
    away: AtomicBool,
    /// How long its answers take.
    slow: Mutex<Duration>,
    asked: AtomicUsize,
    fails_over: bool,
    life: Mutex<Life>,
}

/// What a restart ends.
#[derive(Debug)]
struct Life {
    /// How often it was started before. Its names begin with that, so that those of an earlier life are not found again.
    number: u64,
    began: Instant,
    /// The leases that were named in it, since when.
    leases: BTreeMap<Duration, Instant>,
}

impl Node {
    pub(crate) fn restart(&self) {
        let mut life = self.life.lock().expect("not poisoned");
        *life = Life { number: life.number + 1, began: Instant::now(), leases: BTreeMap::new() };
    }

    pub(crate) fn answers_take(&self, time: Duration) {
        *self.slow.lock().expect("not poisoned") = time;
    }

    /// How often it was asked.
    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// A name as the store below has it.
    pub(crate) fn named(&self, name: &str) -> Resource {
        Resource::new(self.rename_prefix(name)).expect("a name")
    }

    async fn holders(&self, name: &str) -> Vec<Holder> {
        self.memory.inspect(Scope::One(&self.named(name))).await.expect("inspected").remove(0).holders
    }
}

impl Layer for Node {
    fn capabilities(&self, inner: &Capabilities) -> Capabilities {
        let mut own = inner.clone();
        own.fails_over = self.fails_over;
        own
    }

    fn rename(&self, name: &Resource) -> Result<Option<Resource>> {
        Ok(Some(self.named(name.as_str())))
    }

    fn rename_prefix(&self, prefix: &str) -> String {
        format!("{}:{prefix}", self.life.lock().expect("not poisoned").number)
    }

    fn unname(&self, name: Resource) -> Result<Option<Resource>> {
        let bare = name.as_str().split_once(':').expect("as it was named").1;
        Ok(Some(Resource::new(bare)?))
    }

    async fn around<T: Send>(&self, call: Call<'_>, inner: impl Future<Output = Result<T>> + Send) -> Result<T> {
        if matches!(call, Call::Close) {
            return inner.await;
        }
        self.asked.fetch_add(1, Ordering::SeqCst);
        if self.away.load(Ordering::SeqCst) {
            return Err(Error::unavailable("node", "asking", Fault::Connection, "away"));
        }
        let slow = *self.slow.lock().expect("not poisoned");
        let answer = inner.await;
        tokio::time::sleep(slow).await;
        answer
    }

    async fn identify(&self, longest: Duration, inner: impl Future<Output = Result<Server>> + Send) -> Result<Server> {
        let of_this_life = async {
            let server = inner.await?;
            let mut life = self.life.lock().expect("not poisoned");
            life.leases.entry(longest).or_insert_with(Instant::now);
            // The first start was long ago.
            let up = if life.number == 0 { Duration::from_secs(3600) } else { life.began.elapsed() };
            let leases = life.leases.iter().map(|(lease, since)| InUse { lease: *lease, for_long: since.elapsed() }).collect();
            let id = format!("{} {}", server.id, life.number);
            Ok(Server { id, up: Some(up), leases, connection: life.number, ..server })
        };
        self.around(Call::Identify, of_this_life).await
    }

    fn connection(&self, _: u64) -> u64 {
        self.life.lock().expect("not poisoned").number
    }
}

pub(crate) fn node(clock: &Clock, fails_over: bool) -> Arc<Layered<Node, Memory>> {
    let client = Client { id: ClientId::random().expect("random bits"), about: "a test".into() };
    let memory = Arc::new(Memory::new(client, clock.clone()));
    let node = Node {
        memory: Arc::clone(&memory),
        away: AtomicBool::new(false),
        slow: Mutex::default(),
        asked: AtomicUsize::new(0),
        fails_over,
        life: Mutex::new(Life { number: 0, began: Instant::now(), leases: BTreeMap::new() }),
    };
    Arc::new(Layered::new(node, memory))
}

pub(crate) struct Set {
    pub(crate) stores: Vec<Arc<Layered<Node, Memory>>>,
    pub(crate) clock: Clock,
}

impl Set {
    pub(crate) fn of(n: usize) -> Self {
        let clock = Clock::for_tests();
        Self { stores: (0..n).map(|_| node(&clock, false)).collect(), clock }
    }

    pub(crate) fn node(&self, place: usize) -> &Node {
        self.stores[place].layer()
    }

    pub(crate) async fn quorum(&self, settings: Settings) -> Result<Quorum> {
        let nodes = self.stores.iter().enumerate();
        let nodes = nodes.map(|(i, node)| (format!("node {i}"), Arc::clone(node) as Arc<dyn Voter>)).collect();
        Quorum::new(nodes, Settings { clock: self.clock.clone(), ..settings }).await
    }

    pub(crate) async fn locker(&self) -> Locker {
        self.locker_with(Settings::default()).await
    }

    pub(crate) async fn locker_with(&self, settings: Settings) -> Locker {
        let quorum = Arc::new(self.quorum(settings).await.expect("connected"));
        let builder = Locker::builder().lease(LEASE).clock(self.clock.clone()).runtime(Handle::current());
        builder.backend(quorum).expect("a locker")
    }

    /// The nodes at which somebody holds a name.
    pub(crate) async fn with(&self, name: &str) -> Vec<usize> {
        let mut found = Vec::new();
        for (i, node) in self.stores.iter().enumerate() {
            if !node.layer().holders(name).await.is_empty() {
                found.push(i);
            }
        }
        found
    }

    pub(crate) async fn eventually(&self, name: &str, at: &[usize]) {
        let deadline = Instant::now() + Duration::from_secs(120);
        while self.with(name).await != at {
            assert!(Instant::now() < deadline, "held at {:?}, not at {at:?}", self.with(name).await);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(crate) fn away(&self, nodes: &[usize], away: bool) {
        nodes.iter().for_each(|node| self.node(*node).away.store(away, Ordering::SeqCst));
    }
}
