//! Redlock over any stores: a backend made of backends. A lock is held by who holds it at a majority of them.
//!
//! What is added to the algorithm: a token that stands on a majority before the lock is granted, a quarantine for nodes that
//! have restarted, and renewal. `docs/redlock.md` says what that survives.

mod attempts;
mod errands;
#[cfg(test)]
mod model;
mod node;
mod open;
mod roster;
mod round;
pub(crate) mod rules;
mod upkeep;
mod view;
mod words;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant as Timeout;

use self::attempts::Attempts;
use self::errands::{Call, Errands};
use self::node::{Common, Node};
pub use self::open::QuorumOptions;
pub(crate) use self::open::SCHEMES;
use self::roster::Roster;
use self::rules::majority;
use self::words::modes;
use crate::backend::{
    Attempt, Backend, Broken, Capabilities, Claim, Leases, Mode, NodeState, Nodes, Opened, Pushes, Reach, Released, Renewal,
    Safety, Scope, Standing, State, Survival, Voter,
};
use crate::clock::{Clock, Drift};
use crate::error::TooFewNodes;
use crate::error::{Error, Fault, Result, Source};
use crate::name::Resource;
use crate::signal::Signal;
use async_trait::async_trait;

const NAME: &str = "quorum";
/// How many nodes make sense. More would only be slower.
const SIZES: [usize; 3] = [3, 5, 7];

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
    attempts: Attempts,
    errands: Errands,
    drift: Drift,
    vote_within: Duration,
    /// When the nodes are to be asked again who they are, in nanoseconds of the lease clock.
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

    async fn connect(nodes: Vec<(String, Box<node::Open>)>, settings: Settings) -> Result<Self> {
        let n = nodes.len();
        if !SIZES.contains(&n) {
            let problem = match n {
                0 | 1 => "is no quorum: that node alone decides, and its own URL says so",
                n if n % 2 == 0 => "survives no more failures than one node less, and can come to a draw",
                _ => "is more than is of use",
            };
            return Err(Error::config(format!("a quorum of {n}"), problem, "3, 5 or 7 nodes"));
        }
        let Settings { clock, drift, timeout, node_timeout, lease, quarantine } = settings;
        let common = Arc::new(Common { roster: Roster::new(n, clock.clone(), quarantine, lease, timeout), clock, timeout });
        let nodes = nodes.into_iter().enumerate().map(|(place, (name, open))| Node::new(name, place, open, &common)).collect();
        let (attempts, errands, refresh_at) = (Attempts::new(n), Errands::here(), AtomicU64::new(0));
        let inner = Arc::new(Inner {
            nodes,
            common,
            attempts,
            errands,
            drift,
            vote_within: node_timeout,
            refresh_at,
            is_closed: AtomicBool::new(false),
        });
        let errors = inner.identify_all(timeout).await;
        inner.check(&errors)?;
        let capabilities = inner.capabilities();
        Ok(Self { inner, capabilities })
    }
}

/// So much later; long after the end of everything if that cannot be said.
fn later(within: Duration) -> Timeout {
    let now = Timeout::now();
    now.checked_add(within).unwrap_or_else(|| now + Duration::from_secs(365 * 24 * 3600))
}

/// Says that a node has not answered in time.
fn silent(doing: &str, within: Duration) -> Error {
    Error::unavailable(NAME, doing, Fault::Timeout, format!("no answer within {within:?}"))
}

impl Inner {
    /// Refuses nodes that should not be in the list, and too few that answer.
    fn check(&self, errors: &[Option<Error>]) -> Result<()> {
        let fix = "independent servers, each once";
        for (node, error) in self.nodes.iter().zip(errors) {
            let asked = || format!("the node {}", node.name);
            if let Standing::Refused { why } = node.state().standing {
                return Err(Error::config(asked(), why.trim_start_matches("it "), fix));
            }
            match error {
                Some(e) if e.fault() == Some(Fault::ReadOnly) => return Err(Error::config(asked(), "is a replica", fix)),
                Some(e @ (Error::Config(_) | Error::Unsupported { .. })) => return Err(e.clone()),
                _ => {}
            }
            if node.opened().is_some_and(|store| store.capabilities().fails_over) {
                return Err(Error::config(asked(), "fails over to another server, which may not have its votes", fix));
            }
        }
        if errors.iter().filter(|error| error.is_none()).count() < majority(self.nodes.len()) {
            return Err(self.too_few("connecting", errors));
        }
        Ok(())
    }

    fn capabilities(&self) -> Capabilities {
        let nodes: Vec<&Capabilities> =
            self.nodes.iter().filter_map(|node| node.opened()).map(|node| node.capabilities()).collect();
        let all = |can: fn(&Capabilities) -> bool| nodes.iter().all(|node| can(node));
        let narrow = |reach: Reach| nodes.iter().any(|node| node.reach == reach);
        let reach = [Reach::Process, Reach::Machine].into_iter().find(|reach| narrow(*reach));
        let restarts = if self.common.roster.quarantine { Survival::Lock } else { Survival::FenceOnly };
        Capabilities {
            backend: NAME,
            reach: reach.unwrap_or(Reach::Network),
            nodes: u32::try_from(self.nodes.len()).unwrap_or(u32::MAX),
            modes: modes(all(|node| node.modes.carry(Mode::Read))),
            leases: nodes.iter().fold(Leases::ANY, |leases, node| leases.and(node.leases)),
            batch: nodes.iter().map(|node| node.batch).min().unwrap_or(1),
            token_blocks: all(|node| node.token_blocks),
            queues: nodes.iter().any(|node| node.queues),
            watch_first: all(|node| node.watch_first),
            // A majority may be found again when nodes come back, or come out of quarantine.
            fails_over: true,
            pushes_losses: Pushes::Never,
            safety: Safety {
                holder_pause: Survival::FenceOnly,
                store_restart: restarts,
                power_loss: restarts,
                failover: Survival::FenceOnly,
                clock_jump: Survival::FenceOnly,
            },
        }
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

    /// Listens at a majority at least: one of them will say when a holder's majority has changed.
    async fn watch(self: &Arc<Self>, claim: &Claim) -> Result<Signal> {
        let blocked_by = self.attempts.blocked_by(claim, self.common.clock.now());
        let subscribe = |(place, node): (usize, &Arc<Node>)| -> Call<Result<Signal>> {
            let (node, claim) = (Arc::clone(node), claim.clone());
            Box::pin(async move {
                let claim = &claim;
                (place, node.call("subscribing", |store| async move { store.watch(claim).await }).await)
            })
        };
        let mut calls = self.errands.ask(self.nodes.iter().enumerate().map(subscribe));
        let mut signals = Vec::new();
        let mut errors = vec![None; self.nodes.len()];
        while signals.len() < majority(self.nodes.len()) {
            match calls.recv().await {
                Some((place, Ok(signal))) => signals.push((place, signal)),
                Some((place, Err(e))) => errors[place] = Some(e),
                None => return Err(self.too_few("subscribing", &errors)),
            }
        }
        while let Ok((place, answer)) = calls.try_recv() {
            signals.extend(answer.ok().map(|signal| (place, signal)));
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
        drop(tokio::time::timeout(within, self.inner.errands.idle()).await);
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
