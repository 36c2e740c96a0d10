//! What the tests of quorums share.

use std::time::{Duration, Instant};

use tenure::{Guard, Locker};

use tenure_testkit::eventually;
use tenure_testkit::fenced::Fenced;
use tenure_testkit::locker::{connect, must};
use tenure_testkit::quorum::{QuorumSet, Ways};

/// Long enough for a busy machine to renew in time, short enough to be waited for several times.
pub(crate) const LEASE: Duration = Duration::from_secs(3);
pub(crate) const OPTIONS: &str = "lease=3s&node_timeout=300ms";
/// Nothing ends of itself during a test: what is gone was given back.
pub(crate) const LONG: &str = "lease=10m&node_timeout=300ms";

/// A client with ways of its own to the nodes.
pub(crate) struct Client {
    pub(crate) ways: Ways,
    pub(crate) locker: Locker,
}

impl Client {
    pub(crate) async fn of(set: &QuorumSet, options: &str) -> Self {
        let all: Vec<usize> = (0..set.nodes.len()).collect();
        Self::reaching(set, &all, options).await
    }

    /// One that never reaches more than these.
    pub(crate) async fn reaching(set: &QuorumSet, nodes: &[usize], options: &str) -> Self {
        let ways = set.ways();
        ways.reach_only(nodes);
        Self { locker: connect(&ways.url(options)).await, ways }
    }

    /// One whose questions all nodes know: a script that is new to them is asked for in two steps.
    pub(crate) async fn warm(set: &QuorumSet, options: &str) -> Self {
        let client = Self::of(set, options).await;
        let guard = must("locked", client.locker.mutex("warm").lock()).await.expect("locked");
        eventually("all nodes know how to lock", || set.with_key("warm").len() == set.nodes.len());
        guard.release().await.expect("given back");
        eventually("all nodes know how to give back", || set.with_key("warm").is_empty());
        client
    }
}

/// How a node is away for all clients.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Away {
    Stopped,
    Cut,
    Swallowed,
}

pub(crate) const AWAY: [Away; 3] = [Away::Stopped, Away::Cut, Away::Swallowed];

impl Away {
    pub(crate) fn take(self, set: &QuorumSet, clients: &[&Ways], nodes: &[usize]) {
        for node in nodes {
            match self {
                Self::Stopped => set.nodes[*node].pause(),
                Self::Cut => clients.iter().for_each(|client| client.cables[*node].cut()),
                Self::Swallowed => clients.iter().for_each(|client| client.cables[*node].blackhole()),
            }
        }
    }

    pub(crate) fn bring_back(self, set: &QuorumSet, clients: &[&Ways], nodes: &[usize]) {
        for node in nodes {
            match self {
                Self::Stopped => set.nodes[*node].resume(),
                Self::Cut | Self::Swallowed => clients.iter().for_each(|client| client.cables[*node].heal()),
            }
        }
    }
}

/// Writes under a lock's token.
#[track_caller]
pub(crate) fn write(store: &Fenced, guard: &Guard, who: &str) {
    store.write("L", guard.token(), who).expect("the holder's write is not stale");
}

/// Holds for so long: at no time is the guard anything but valid.
pub(crate) async fn holds_for(guard: &Guard, time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        assert!(guard.is_valid(), "lost after {:?}: {:?}", start.elapsed(), guard.check());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) fn nothing_is_left(set: &QuorumSet) {
    eventually("no node has the lock any more", || set.with_key("L").is_empty());
}
