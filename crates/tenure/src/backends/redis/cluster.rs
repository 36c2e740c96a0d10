//! A cluster: sixteen thousand slots, each with a server, which changes while we look.
//!
//! One link per server, so that every connection tracks, subscribes and waits for replicas as that of a single server
//! does. Redirections are followed here; redis-rs's own cluster client, which repeats what timed out, is not used.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use redis::cmd;
use tokio::sync::mpsc;
use tracing::debug;

use super::dial::Dial;
use super::fault::{Cause, Failure, NAME};
use super::link::{Link, Place};
use super::question::Question;
use super::reply::{text, unexpected};
use super::rounds::Rounds;
use super::route::{Hop, Route};
use super::shared::{Shared, lock};
use super::slots::{Address, Range, SLOTS, ranges, redirected, slot_of, slot_of_name};
use super::url::refuse;
use crate::error::{Error, Fault, Result};
use crate::name::Resource;

/// How many servers are asked at once who has which slot: one of them may hang.
const ASKED_AT_ONCE: usize = 3;

/// How long a server may take to say how the cluster is.
const GLANCE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Cluster {
    me: Weak<Self>,
    scheme: &'static str,
    dial: Dial,
    /// The servers of the URL, in case all that are known by then are gone.
    seeds: Vec<Node>,
    shared: Arc<Shared>,
    map: Mutex<Map>,
    refreshes: Rounds<()>,
}

/// What is known of the cluster.
#[derive(Debug, Default)]
struct Map {
    nodes: Vec<Node>,
    /// Per slot, the number of its master in `nodes`.
    owners: Vec<Option<u16>>,
    /// Servers that a call has found gone or out of service.
    suspects: HashSet<Address>,
}

#[derive(Debug, Clone)]
struct Node {
    address: Address,
    link: Arc<Link>,
}

impl Map {
    fn owner(&self, slot: u16) -> Option<&Node> {
        let number = (*self.owners.get(usize::from(slot))?)?;
        self.nodes.get(usize::from(number))
    }

    fn owners(&self) -> impl Iterator<Item = &Node> {
        let numbers: HashSet<u16> = self.owners.iter().flatten().copied().collect();
        self.nodes
            .iter()
            .enumerate()
            .filter(move |(i, _)| u16::try_from(*i).is_ok_and(|i| numbers.contains(&i)))
            .map(|(_, node)| node)
    }

    fn address_of(&self, link: &Arc<Link>) -> Option<Address> {
        self.nodes.iter().find(|node| Arc::ptr_eq(&node.link, link)).map(|node| node.address.clone())
    }
}

impl Cluster {
    /// Connects to a cluster by any of its servers.
    pub(super) async fn open(scheme: &'static str, seeds: &[Address], dial: Dial, shared: &Arc<Shared>) -> Result<Arc<Self>> {
        let seeds = seeds.iter().map(|address| node(&dial, address, shared)).collect::<Result<_>>()?;
        let cluster = Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            scheme,
            dial,
            seeds,
            shared: Arc::clone(shared),
            map: Mutex::default(),
            refreshes: Rounds::default(),
        });
        cluster.refresh().await?;
        Ok(cluster)
    }

    /// Whether the servers have channels per shard, asked as Redisson asks.
    pub(super) async fn has_shard_channels(&self) -> Result<bool> {
        let mut ask = cmd("PUBSUB");
        ask.arg("SHARDNUMSUB").arg("0");
        let Some(link) = self.masters().await?.into_iter().next() else { return Ok(false) };
        match link.ask("looking for sharded channels", Question::Command(&ask), false).await {
            Ok(_) => Ok(true),
            Err(failure) if failure.error.is_transient() => Err(failure.error),
            Err(_) => Ok(false),
        }
    }

    /// The number of a server, known or not.
    fn number(&self, map: &mut Map, address: &Address) -> Result<u16> {
        let known = map.nodes.iter().position(|node| node.address == *address);
        let number = match known {
            Some(number) => number,
            None => {
                map.nodes.push(node(&self.dial, address, &self.shared)?);
                map.nodes.len() - 1
            }
        };
        u16::try_from(number).map_err(|_| unexpected("reading the cluster's slots"))
    }

    /// Learns from any of the servers who has which slot.
    async fn refresh(&self) -> Result<()> {
        let refreshed = self.refreshes.share(async {
            let mut trouble = None;
            for candidates in self.candidates().chunks(ASKED_AT_ONCE) {
                match self.first_view(candidates).await {
                    Ok(view) => return self.adopt(&view),
                    Err(e) => trouble = trouble.or(Some(e)),
                }
            }
            let none = || Error::unavailable(NAME, "asking for the cluster's slots", Fault::Connection, "no server is known");
            Err(trouble.unwrap_or_else(none))
        });
        refreshed.await
    }

    /// Who can be asked, the most promising first; at random among equals, so that nobody is everybody's first.
    fn candidates(&self) -> Vec<Node> {
        let map = lock(&self.map);
        let unknown = self.seeds.iter().filter(|seed| !map.nodes.iter().any(|node| node.address == seed.address));
        let mut nodes: Vec<Node> = map.nodes.iter().chain(unknown).cloned().collect();
        let rank = |node: &Node| (map.suspects.contains(&node.address), !node.link.is_live());
        nodes.sort_by_cached_key(|node| (rank(node), getrandom::u32().unwrap_or_default()));
        nodes
    }

    /// The first answer of several servers. The others are let finish: a call that is cut off would cost a connection.
    async fn first_view(&self, nodes: &[Node]) -> Result<Vec<Range>> {
        let (answer, mut answers) = mpsc::unbounded_channel();
        for node in nodes {
            let (answer, node, limit) = (answer.clone(), node.clone(), self.shared.timeout);
            self.shared.runtime.spawn(async move {
                let mut slots = cmd("CLUSTER");
                slots.arg("SLOTS");
                let doing = format!("asking {}:{} for the cluster's slots", node.address.0, node.address.1);
                let asked = tokio::time::timeout(limit, node.link.ask(&doing, Question::Command(&slots), false)).await;
                let view = match asked {
                    Ok(Ok(answered)) => ranges(&answered.value, &node.address).ok_or_else(|| unexpected(&doing)),
                    Ok(Err(failure)) => Err(failure.error),
                    Err(_) => Err(Error::unavailable(NAME, doing, Fault::Timeout, format!("no answer within {limit:?}"))),
                };
                drop(answer.send(view));
            });
        }
        drop(answer);
        let mut trouble = unexpected("asking for the cluster's slots");
        while let Some(view) = answers.recv().await {
            match view {
                Ok(view) => return Ok(view),
                Err(e) if e.to_string().contains("cluster support disabled") => {
                    return Err(refuse(self.scheme, "names a server that is not one of a cluster (redis:// reaches it)"));
                }
                Err(e) => trouble = e,
            }
        }
        Err(trouble)
    }

    /// Takes over what a server said. Those who wait ask again if a slot has another server now.
    fn adopt(&self, view: &[Range]) -> Result<()> {
        let mut map = lock(&self.map);
        let mut new = Map::default();
        for node in view.iter().flat_map(|range| &range.nodes) {
            if !new.nodes.iter().any(|known| known.address == *node)
                && let Some(known) = map.nodes.iter().chain(&self.seeds).find(|known| known.address == *node)
            {
                new.nodes.push(known.clone());
            }
            self.number(&mut new, node)?;
        }
        new.owners = vec![None; usize::from(SLOTS)];
        for range in view {
            let Some(master) = range.nodes.first() else { continue };
            let number = self.number(&mut new, master)?;
            new.owners[usize::from(range.first)..=usize::from(range.last)].fill(Some(number));
        }
        let keeps = |slot: u16| match (map.owner(slot), new.owner(slot)) {
            (Some(old), Some(new)) => Arc::ptr_eq(&old.link, &new.link),
            (None, None) => true,
            _ => false,
        };
        let changed = (0..SLOTS).filter(|slot| !keeps(*slot)).count();
        new.suspects =
            new.owners().filter(|node| map.suspects.contains(&node.address)).map(|node| node.address.clone()).collect();
        let out_of_office: Vec<_> =
            map.owners().filter(|old| !new.owners().any(|node| Arc::ptr_eq(&node.link, &old.link))).cloned().collect();
        *map = new;
        drop(map);
        // What is under way to a server that hangs is asked of its successor.
        out_of_office.iter().for_each(|node| node.link.give_up());
        if changed > 0 {
            debug!(changed, "slots have other servers now");
            self.shared.hub.fire_all();
        }
        Ok(())
    }

    fn owner(&self, slot: u16) -> Option<Arc<Link>> {
        lock(&self.map).owner(slot).map(|node| Arc::clone(&node.link))
    }

    /// The link to the server that another one has named.
    fn named(&self, named: &str, by: &Arc<Link>, owns: Option<u16>) -> Option<Arc<Link>> {
        let mut map = lock(&self.map);
        let by = map.address_of(by).or_else(|| self.seeds.first().map(|seed| seed.address.clone()))?;
        let number = self.number(&mut map, &redirected(named, &by)?).ok()?;
        if let Some(owner) = owns.and_then(|slot| map.owners.get_mut(usize::from(slot))) {
            *owner = Some(number);
        }
        Some(Arc::clone(&map.nodes[usize::from(number)].link))
    }
}

fn node(dial: &Dial, address: &Address, shared: &Arc<Shared>) -> Result<Node> {
    Ok(Node { address: address.clone(), link: Link::new(Place::Fixed(Box::new(dial.client(address)?)), shared) })
}

#[async_trait]
impl Route for Cluster {
    fn slot(&self, name: &Resource) -> Result<u16> {
        slot_of_name(name)
    }

    fn slot_of_key(&self, key: &str) -> u16 {
        slot_of(key)
    }

    async fn link(&self, slot: u16) -> Result<Arc<Link>> {
        if let Some(link) = self.owner(slot) {
            return Ok(link);
        }
        self.refresh().await?;
        let detail = format!("no server of the cluster has slot {slot}");
        self.owner(slot).ok_or_else(|| Error::unavailable(NAME, "looking for a server", Fault::Connection, detail))
    }

    async fn instead(&self, slot: u16, failed: &Arc<Link>, failure: &Failure) -> Option<Hop> {
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
                self.suspect(failed);
                // What has become of the question is unknown, and only the engine knows what another answer would mean; but
                // when it asks again, it should be at the right place.
                drop(self.refresh().await);
                None
            }
            Cause::Other => None,
        }
    }

    async fn masters(&self) -> Result<Vec<Arc<Link>>> {
        let masters = || lock(&self.map).owners().map(|node| Arc::clone(&node.link)).collect::<Vec<_>>();
        let known = masters();
        if !known.is_empty() {
            return Ok(known);
        }
        self.refresh().await?;
        Ok(masters())
    }

    fn suspect(&self, link: &Arc<Link>) {
        let mut map = lock(&self.map);
        if let Some(address) = map.address_of(link)
            && map.suspects.insert(address.clone())
        {
            debug!(host = address.0, port = address.1, "a server of the cluster does not serve, or is slow");
        }
    }

    async fn mend(&self) -> bool {
        if self.refresh().await.is_err() {
            return false;
        }
        let suspects: Vec<Node> = {
            let map = lock(&self.map);
            map.nodes.iter().filter(|node| map.suspects.contains(&node.address)).cloned().collect()
        };
        let mut info = cmd("CLUSTER");
        info.arg("INFO");
        let serves = join_all(suspects.iter().map(|node| async {
            let look = node.link.ask("asking how the cluster is", Question::Command(&info), false);
            let answer = tokio::time::timeout(GLANCE, look).await.ok()?.ok()?;
            text(&answer.value).filter(|state| state.contains("cluster_state:ok")).map(|_| &node.address)
        }));
        let serves = serves.await;
        let mut map = lock(&self.map);
        for address in serves.iter().flatten() {
            map.suspects.remove(address);
        }
        let whole = map.suspects.is_empty() && map.owners.iter().all(Option::is_some);
        drop(map);
        if serves.iter().any(Option::is_some) {
            self.shared.hub.fire_all();
        }
        whole
    }

    fn close(&self) {
        let map = std::mem::take(&mut *lock(&self.map));
        map.nodes.iter().for_each(|node| node.link.give_up());
    }
}
