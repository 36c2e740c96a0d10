//! Redlock over any stores: a backend made of backends. The holder of a lock holds it at a majority of them.
//!
//! What is added to the algorithm: a token that stands on a majority before the lock is granted, a quarantine for nodes that
//! have restarted, and renewal. `docs/redlock.md` says what that survives.

mod ballot;
mod ballots;
mod connect;
mod detached;
mod messages;
#[cfg(test)]
mod model;
mod node;
mod open;
mod roster;
mod round;
pub(crate) mod rules;
mod upkeep;
mod view;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use tokio::time::Instant as Timeout;

use self::ballots::Ballots;
use self::detached::{DetachedCalls, Replies};
use self::node::{Common, Node};
pub use self::open::QuorumOptions;
pub(crate) use self::open::SCHEMES;
use self::rules::majority;
use crate::backend::{
    Attempt, Backend, Broken, Capabilities, Claim, NodeState, Nodes, Opened, Released, Renewal, Scope, State, Voter,
};
use crate::clock::{Clock, Drift};
use crate::error::{Error, Fault, Result, Source, TooFewNodes};
use crate::name::Resource;
use crate::signal::Signal;

const NAME: &str = "quorum";

/// Options of a [`Quorum`].
#[derive(Debug, Clone)]
pub struct Settings {
    /// The lease clock.
    pub clock: Clock,
    /// How much leases are shortened, because clocks run at different rates.
    pub drift: Drift,
    /// The longest that a call to one node may be under way, also after the caller has been answered.
    pub timeout: Duration,
    /// How long a node's vote is waited for (default 50 ms), or a tenth of the lease if that is less.
    pub node_timeout: Duration,
    /// The longest lease that is expected. A claim with a longer one costs a round trip more, once.
    pub lease: Duration,
    /// Whether a node that has restarted may have forgotten locks, so that its vote does not count until the longest lease
    /// in use has passed. Off only for nodes that forget nothing, or have nothing to forget.
    pub quarantine: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            clock: Clock::system(),
            drift: Drift::DEFAULT,
            timeout: Duration::from_secs(3),
            node_timeout: Duration::from_millis(50),
            lease: Duration::from_secs(30),
            quarantine: true,
        }
    }
}

/// Three, five or seven stores that make one lock.
#[derive(Debug)]
pub struct Quorum {
    inner: Arc<Inner>,
    capabilities: Capabilities,
}

#[derive(Debug)]
struct Inner {
    nodes: Vec<Arc<Node>>,
    common: Arc<Common>,
    ballots: Ballots,
    detached: DetachedCalls,
    drift: Drift,
    vote_within: Duration,
    /// When the nodes are to be identified again, in nanoseconds of the lease clock.
    refresh_at: AtomicU64,
    is_closed: AtomicBool,
}

impl Quorum {
    /// Makes one lock of several stores, each with a name for errors. Runs on the current runtime.
    pub async fn new(nodes: Vec<(String, Arc<dyn Voter>)>, settings: Settings) -> Result<Self> {
        let opener = |store: Arc<dyn Voter>| -> Box<node::Open> {
            Box::new(move || {
                let store = Arc::clone(&store);
                Box::pin(async move { Ok(store) })
            })
        };
        Self::connect(nodes.into_iter().map(|(name, store)| (name, opener(store))).collect(), settings).await
    }
}

/// A later time; a year from now if that overflows.
fn later(within: Duration) -> Timeout {
    let now = Timeout::now();
    now.checked_add(within).unwrap_or_else(|| now + Duration::from_secs(365 * 24 * 3600))
}

/// Says that a node has not answered in time.
fn silent(doing: &str, within: Duration) -> Error {
    Error::unavailable(NAME, doing, Fault::Timeout, format!("no answer within {within:?}"))
}

impl Inner {
    /// Asks all nodes at once.
    fn ask_all<T, F>(&self, call: impl Fn(Arc<Node>) -> F) -> Replies<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        self.detached.ask(self.nodes.iter().enumerate().map(|(index, node)| (index, call(Arc::clone(node)))))
    }

    fn queues(&self) -> bool {
        self.nodes.iter().filter_map(|node| node.opened()).any(|node| node.capabilities().queues)
    }

    /// How long a vote is waited for.
    fn node_timeout(&self, lease: Duration) -> Duration {
        self.vote_within.min(lease / 10)
    }

    /// Says what each node said.
    fn too_few(&self, doing: &str, errors: &[Option<Error>]) -> Error {
        let enough = majority(self.nodes.len());
        let refusals: Vec<&Error> = errors.iter().flatten().filter(|e| !e.is_transient()).collect();
        let lasting = refusals.len() >= enough;
        let fault = match (refusals.first(), refusals.iter().find_map(|e| e.fault())) {
            (_, Some(fault)) if lasting => fault,
            (Some(e), None) if lasting => return (*e).clone(),
            _ => errors.iter().flatten().find_map(Error::fault).unwrap_or(Fault::Quarantine),
        };
        let source = errors.iter().flatten().find(|e| e.fault() == Some(fault));
        Error::TooFewNodes(Box::new(TooFewNodes {
            backend: NAME,
            doing: doing.to_owned(),
            needed: enough,
            of: self.nodes.len(),
            fault,
            lasting,
            nodes: self.nodes.iter().zip(errors).map(|(node, error)| node.said(error.as_ref())).collect(),
            source: source.map(|e| -> Source { Arc::new(e.clone()) }),
        }))
    }

    /// Listens at a majority at least: one of them will tell when the holder's majority has changed.
    async fn watch(self: &Arc<Self>, claim: &Claim) -> Result<Signal> {
        let blocked_by = self.ballots.blocked_by(claim, self.common.clock.now());
        let mut replies = self.ask_all(|node| {
            let claim = claim.clone();
            async move { node.call("subscribing", |store| async move { store.watch(&claim).await }).await }
        });
        let mut signals = Vec::new();
        let mut errors = vec![None; self.nodes.len()];
        while signals.len() < majority(self.nodes.len()) {
            match replies.recv().await {
                Some((node, Ok(signal))) => signals.push((node, signal)),
                Some((node, Err(e))) => errors[node] = Some(e),
                None => return Err(self.too_few("subscribing", &errors)),
            }
        }
        while let Ok((node, answer)) = replies.try_recv() {
            signals.extend(answer.ok().map(|signal| (node, signal)));
        }
        Signal::any_of(signals, blocked_by).ok_or_else(|| self.too_few("subscribing", &errors))
    }
}

#[async_trait]
impl Backend for Quorum {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn partition(&self, _: &Resource) -> u32 {
        0
    }

    async fn acquire(&self, claim: &Claim) -> Result<Attempt> {
        self.inner.acquire(claim).await
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Renewal>> {
        self.inner.renew(claims).await
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        self.inner.release(claim).await
    }

    async fn watch(&self, claim: &Claim) -> Result<Signal> {
        self.inner.watch(claim).await
    }

    async fn inspect(&self, scope: Scope<'_>) -> Result<Vec<State>> {
        self.inner.inspect(scope).await
    }

    async fn break_hold(&self, resource: &Resource) -> Result<Option<Broken>> {
        self.inner.break_hold(resource).await
    }

    async fn close(&self) -> Result<()> {
        // Votes that are being given back get a chance; leases end what is left.
        let within = (self.inner.vote_within * 4).min(self.inner.common.timeout / 4);
        drop(tokio::time::timeout(within, self.inner.detached.idle()).await);
        self.inner.is_closed.store(true, Ordering::Relaxed);
        let nodes = self.inner.nodes.iter().filter_map(|node| node.opened());
        join_all(nodes.map(|node| tokio::time::timeout(self.inner.common.timeout / 2, node.close()))).await;
        Ok(())
    }
}

impl Nodes for Quorum {
    fn nodes(&self) -> Vec<NodeState> {
        self.inner.nodes.iter().map(|node| node.state()).collect()
    }
}

impl From<Arc<Quorum>> for Opened {
    fn from(quorum: Arc<Quorum>) -> Self {
        Self::new(Arc::<Quorum>::clone(&quorum)).with_nodes(quorum)
    }
}
