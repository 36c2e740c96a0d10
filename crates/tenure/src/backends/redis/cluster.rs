//! A cluster: sixteen thousand slots, each with a server, which may change at any time.
//!
//! One link per server, so that every connection tracks, subscribes and waits for replicas like the one to a single
//! server. Redirections are followed here; the cluster client of redis-rs repeats calls that timed out, so it is not used.

use std::sync::{Arc, Mutex, Weak};

use redis::cmd;
use tokio::sync::{mpsc, oneshot};
use tracing::debug;

use super::dial::Dial;
use super::fault::{Cause, Failure, NAME};
use super::link::{Endpoint, Link};
use super::map::{Map, Node};
use super::question::Question;
use super::reply::{text, unexpected};
use super::route::Hop;
use super::shared::{Shared, lock};
use super::single_flight::SingleFlight;
use super::slots::{Address, Range, ranges, redirected};
use super::url::refuse;
use crate::error::{Error, Fault, Result};

/// How many servers are asked for the slots at once: one of them may hang.
const ASKED_AT_ONCE: usize = 3;

#[derive(Debug)]
pub(super) struct Cluster {
    me: Weak<Self>,
    scheme: &'static str,
    dial: Dial,
    /// The servers of the URL, in case all that are known by then are gone.
    seeds: Vec<Node>,
    shared: Arc<Shared>,
    map: Mutex<Map>,
    refreshes: SingleFlight<()>,
}

impl Cluster {
    /// Connects to a cluster by any of its servers.
    pub(super) async fn open(scheme: &'static str, seeds: &[Address], dial: Dial, shared: &Arc<Shared>) -> Result<Arc<Self>> {
        let seeds = seeds.iter().map(|address| node(&dial, address, shared)).collect();
        let cluster = Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            scheme,
            dial,
            seeds,
            shared: Arc::clone(shared),
            map: Mutex::default(),
            refreshes: SingleFlight::default(),
        });
        cluster.refresh().await?;
        Ok(cluster)
    }

    /// Whether the servers have channels per shard, asked as Redisson asks.
    pub(super) async fn has_shard_channels(&self) -> Result<bool> {
        let doing = "looking for sharded channels";
        let mut ask = cmd("PUBSUB");
        ask.arg("SHARDNUMSUB").arg("0");
        let mut trouble = unexpected(doing);
        for link in self.servers() {
            match tokio::time::timeout(self.shared.timeout, link.ask(Question::command(doing, &ask), false)).await {
                Ok(Ok(_)) => return Ok(true),
                Ok(Err(failure)) if failure.error.is_transient() => trouble = failure.error,
                Ok(Err(_)) => return Ok(false),
                Err(_) => trouble = Error::unavailable(NAME, doing, Fault::Timeout, "no answer"),
            }
        }
        Err(trouble)
    }

    /// Learns the owners of the slots from any server. Spawned: others share the run, and must not wait for a caller that stands still.
    async fn refresh(&self) -> Result<()> {
        let Some(me) = self.me.upgrade() else { return Err(Error::Closed) };
        let (answer, refreshed) = oneshot::channel();
        self.shared.runtime.spawn(async move { me.refreshes.share(answer, me.refresh_here()).await });
        refreshed.await.unwrap_or(Err(Error::Closed))
    }

    async fn refresh_here(&self) -> Result<()> {
        let mut trouble = None;
        for candidates in self.candidates().chunks(ASKED_AT_ONCE) {
            match self.first_view(candidates).await {
                Ok(view) => return self.adopt(&view),
                Err(e) => trouble = trouble.or(Some(e)),
            }
        }
        let none = || Error::unavailable(NAME, "asking for the cluster's slots", Fault::Connection, "no server is known");
        Err(trouble.unwrap_or_else(none))
    }

    /// The servers that can be asked, the most promising first; at random among equals, which spreads the load.
    fn candidates(&self) -> Vec<Node> {
        let map = lock(&self.map);
        let rank = |node: &Node| (map.suspects.contains_key(&node.address), !node.link.is_live());
        let mut nodes = map.nodes.clone();
        nodes.sort_by_cached_key(|node| (rank(node), getrandom::u32().unwrap_or_default()));
        // Those of the URL last: the map is newer. But if no known server works, one of them comes first: all may have moved, and their
        // old addresses may hang.
        let mut seeds: Vec<_> =
            self.seeds.iter().filter(|seed| !map.nodes.iter().any(|node| node.address == seed.address)).cloned().collect();
        let is_heard_of = nodes.iter().any(|node| rank(node) == (false, false));
        if !is_heard_of && !seeds.is_empty() {
            let one = getrandom::u32().unwrap_or_default() as usize % seeds.len();
            nodes.insert(0, seeds.swap_remove(one));
        }
        nodes.extend(seeds);
        nodes
    }

    /// The first answer of several servers. The other calls go on: one that is cut off would cost a connection.
    async fn first_view(&self, nodes: &[Node]) -> Result<Vec<Range>> {
        let (answer, mut answers) = mpsc::unbounded_channel();
        for node in nodes {
            let (answer, node, limit) = (answer.clone(), node.clone(), self.shared.timeout);
            self.shared.runtime.spawn(async move {
                let doing = format!("asking {}:{} for the cluster's slots", node.address.0, node.address.1);
                let asked = tokio::time::timeout(limit, view_of(&node, &doing)).await;
                let late = || Error::unavailable(NAME, &*doing, Fault::Timeout, format!("no answer within {limit:?}"));
                drop(answer.send(asked.unwrap_or_else(|_| Err(Failure::other(late())))));
            });
        }
        drop(answer);
        let mut trouble = Failure::other(unexpected("asking for the cluster's slots"));
        while let Some(view) = answers.recv().await {
            match view {
                Ok(view) => return Ok(view),
                Err(e) => trouble = e,
            }
        }
        Err(match trouble.cause {
            Cause::Alone => refuse(self.scheme, "names a server that is not one of a cluster (redis:// reaches it)"),
            _ => trouble.error,
        })
    }

    /// Takes over what a server said. Waiters ask again if a slot has another owner now.
    fn adopt(&self, view: &[Range]) -> Result<()> {
        let mut map = lock(&self.map);
        let known: Vec<&Node> = map.nodes.iter().chain(&self.seeds).collect();
        let mut new = Map::new(view, &known, |address| node(&self.dial, address, &self.shared))?;
        let changed = new.differs(&map);
        let replaced = new.inherit_suspects(&map);
        *map = new;
        drop(map);
        // Calls to a server that hangs are asked of its successor; a server that answers redirects them itself.
        replaced.iter().for_each(|link| link.abort_all());
        if changed > 0 {
            debug!(changed, "slots have other servers now");
            self.shared.hub.fire_all();
        }
        Ok(())
    }

    /// Marks a server as slow, or as lost.
    pub(super) fn suspect(&self, link: &Arc<Link>, lost: bool) {
        let mut map = lock(&self.map);
        let Some(address) = map.nodes.iter().find(|node| Arc::ptr_eq(&node.link, link)).map(|node| node.address.clone()) else {
            return;
        };
        debug!(host = address.0, port = address.1, lost, "a server of the cluster does not serve, or is slow");
        map.suspects.entry(address).or_default().lost |= lost;
    }

    /// Asks a suspect how it is.
    async fn look_at(&self, node: &Node) {
        let mut info = cmd("CLUSTER");
        info.arg("INFO");
        let look = node.link.ask(Question::command("asking how the cluster is", &info), false);
        let answer = tokio::time::timeout(self.shared.timeout, look).await;
        let serves = matches!(&answer, Ok(Ok(answer)) if text(&answer.value).is_some_and(|s| s.contains("cluster_state:ok")));
        // The answer may be from a connection that was given up meanwhile: without another one, waiters would hear nothing.
        let serves = serves && matches!(tokio::time::timeout(self.shared.timeout, node.link.connect()).await, Ok(Ok(_)));
        let mut map = lock(&self.map);
        if !serves {
            if let Some(suspect) = map.suspects.get_mut(&node.address) {
                suspect.asked = false;
            }
            return;
        }
        let was = map.suspects.remove(&node.address);
        drop(map);
        if was.is_some_and(|suspect| suspect.lost) {
            self.shared.hub.fire_all();
        }
    }

    /// The link to the server that another one has named.
    fn named(&self, named: &str, by: &Arc<Link>, owns: Option<u16>) -> Option<Arc<Link>> {
        let mut map = lock(&self.map);
        // A server that has just left the cluster still redirects.
        let by = map.nodes.iter().chain(&self.seeds).find(|node| Arc::ptr_eq(&node.link, by)).map(|node| node.address.clone());
        let address = redirected(named, &by.unwrap_or_default()).filter(|(host, _)| !host.is_empty())?;
        Some(map.learn(&address, owns, |address| node(&self.dial, address, &self.shared)).ok()?.link)
    }

    /// The owner of a slot, by what is known.
    pub(super) fn owner(&self, slot: u16) -> Option<Arc<Link>> {
        lock(&self.map).owner(slot).map(|node| Arc::clone(&node.link))
    }

    /// The owner of a slot, asked for if need be.
    pub(super) async fn find_owner(&self, slot: u16) -> Result<Arc<Link>> {
        if let Some(owner) = self.owner(slot) {
            return Ok(owner);
        }
        self.refresh().await?;
        let detail = format!("no server of the cluster has slot {slot}");
        self.owner(slot).ok_or_else(|| Error::unavailable(NAME, "looking for a server", Fault::Connection, detail))
    }

    /// Whether a server still is the owner of a slot, as far as known.
    pub(super) fn is_current(&self, slot: u16, link: &Arc<Link>) -> bool {
        self.owner(slot).is_none_or(|owner| Arc::ptr_eq(&owner, link))
    }

    /// Where to ask instead, if the question was put to the wrong server and so not heard.
    pub(super) async fn instead(&self, slot: u16, failed: &Arc<Link>, failure: &Failure) -> Option<Hop> {
        match &failure.cause {
            Cause::Moved(to) => {
                let link = self.named(to, failed, Some(slot))?;
                if let Some(me) = self.me.upgrade() {
                    // One slot seldom moves alone; but this call need not wait for the others.
                    self.shared.runtime.spawn(async move { drop(me.refresh().await) });
                }
                Some(Hop { link, asking: false })
            }
            Cause::Ask(to) => Some(Hop { link: self.named(to, failed, None)?, asking: true }),
            Cause::Lost => {
                self.suspect(failed, true);
                // The outcome is unknown, so only the engine may ask again; it should then find the right server.
                drop(self.refresh().await);
                None
            }
            Cause::Alone | Cause::Other => None,
        }
    }

    /// The links to all known servers, the most promising first.
    pub(super) fn servers(&self) -> Vec<Arc<Link>> {
        self.candidates().into_iter().map(|node| node.link).collect()
    }

    /// The links to all servers that have slots.
    pub(super) async fn masters(&self) -> Result<Vec<Arc<Link>>> {
        let masters = || lock(&self.map).owners().map(|node| Arc::clone(&node.link)).collect::<Vec<_>>();
        let known = masters();
        if !known.is_empty() {
            return Ok(known);
        }
        self.refresh().await?;
        Ok(masters())
    }

    /// Learns the map and probes all suspects. Whether nothing is broken.
    pub(super) async fn mend(&self) -> bool {
        if self.refresh().await.is_err() {
            return false;
        }
        let mut map = lock(&self.map);
        let Map { nodes, suspects, .. } = &mut *map;
        for node in nodes.iter() {
            if let (Some(suspect), Some(me)) = (suspects.get_mut(&node.address), self.me.upgrade())
                && !std::mem::replace(&mut suspect.asked, true)
            {
                let node = node.clone();
                // Spawned, with all the time that a call has: the server may be far away.
                self.shared.runtime.spawn(async move { me.look_at(&node).await });
            }
        }
        map.is_whole()
    }

    pub(super) fn close(&self) {
        let map = std::mem::take(&mut *lock(&self.map));
        map.nodes.iter().chain(&self.seeds).for_each(|node| node.link.close());
    }
}

fn node(dial: &Dial, address: &Address, shared: &Arc<Shared>) -> Node {
    Node { address: address.clone(), link: Link::new(Endpoint::Fixed(dial.server(address)), shared) }
}

/// The owners of the slots, as one server sees them.
async fn view_of(node: &Node, doing: &str) -> Result<Vec<Range>, Failure> {
    let mut slots = cmd("CLUSTER");
    slots.arg("SLOTS");
    let answer = node.link.ask(Question::command(doing, &slots), false).await?;
    match ranges(&answer.value, &node.address) {
        Some(view) if view.is_empty() => {
            let detail = "it knows of no slots: it has not joined the cluster, or has left it";
            Err(Failure::other(Error::unavailable(NAME, doing, Fault::Connection, detail)))
        }
        view => view.ok_or_else(|| Failure::other(unexpected(doing))),
    }
}
