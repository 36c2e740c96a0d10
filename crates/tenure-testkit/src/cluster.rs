//! Three masters with a replica each, which share the slots.

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use redis::{Connection, cmd};

use crate::server::{Login, RedisServer, Setup, start, start_all};
use crate::{eventually, until, within};

const MASTERS: usize = 3;
const SLOTS: [(u16, u16); MASTERS] = [(0, 5460), (5461, 10922), (10923, 16383)];
const NODE_TIMEOUT: u32 = 1000;

#[derive(Debug)]
pub struct Cluster {
    pub nodes: Vec<RedisServer>,
    ids: Vec<String>,
    setup: Setup,
}

/// A node as another one sees it.
#[derive(Debug)]
struct Seen {
    id: String,
    flags: Vec<String>,
    slots: Vec<RangeInclusive<u16>>,
}

impl Seen {
    /// A line of `CLUSTER NODES`: id, address, flags, five more, slots.
    fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        let range = |word: &&str| {
            let (from, to) = word.split_once('-').unwrap_or((word, word));
            Some(from.parse().ok()?..=to.parse().ok()?)
        };
        Some(Self {
            id: (*words.first()?).to_owned(),
            flags: words.get(2)?.split(',').map(str::to_owned).collect(),
            // A slot that moves is in brackets, and no range.
            slots: words.get(8..)?.iter().filter_map(range).collect(),
        })
    }

    fn is(&self, flag: &str) -> bool {
        self.flags.iter().any(|f| f == flag)
    }

    fn owns(&self, slot: u16) -> bool {
        self.slots.iter().any(|range| range.contains(&slot))
    }
}

impl Cluster {
    pub fn start() -> Self {
        Self::with(&[])
    }

    pub fn with(args: &[&str]) -> Self {
        Self::of(Setup::default().args(args))
    }

    pub fn with_login(login: Login) -> Self {
        Self::of(Setup::default().login(login))
    }

    /// All speak only TLS, to each other too.
    pub fn with_tls(certificates: &Path) -> Self {
        Self::of(Setup::default().tls(certificates))
    }

    pub fn of(setup: Setup) -> Self {
        let timeout = format!("cluster-node-timeout {NODE_TIMEOUT}");
        // However long it was cut off, a replica may be promoted.
        let setup = setup.lines(&["cluster-enabled yes", &timeout, "cluster-replica-validity-factor 0"]);
        let nodes = start_all(&[&setup; 2 * MASTERS]);
        let id = |node: &RedisServer| cmd("CLUSTER").arg("MYID").query(&mut node.raw()).expect("has an id");
        let cluster = Self { ids: nodes.iter().map(id).collect(), nodes, setup };
        cluster.join();
        cluster
    }

    fn join(&self) {
        // It also limits handshakes, and a busy machine may need longer.
        self.set_timeout(15_000);
        for (i, (from, to)) in SLOTS.into_iter().enumerate() {
            let mut raw = self.raw(i);
            cmd("CLUSTER").arg("ADDSLOTSRANGE").arg(from).arg(to).query::<()>(&mut raw).expect("slots");
            // Equal epochs would have to be sorted out first.
            cmd("CLUSTER").arg("SET-CONFIG-EPOCH").arg(i + 1).query::<()>(&mut raw).expect("an epoch");
        }
        // Each meets each: gossip would take longer.
        for i in 0..self.nodes.len() {
            for node in &self.nodes[i + 1..] {
                cmd("CLUSTER").arg("MEET").arg("127.0.0.1").arg(node.port).query::<()>(&mut self.raw(i)).expect("met");
            }
        }
        let knows = |i| self.seen_by(i).unwrap_or_default().into_iter().map(|n| n.id).collect::<HashSet<_>>();
        eventually("all have met", || (0..self.nodes.len()).map(knows).all(|known| self.ids.iter().all(|id| known.contains(id))));
        self.set_timeout(NODE_TIMEOUT);
        for i in MASTERS..self.nodes.len() {
            let master = &self.ids[i - MASTERS];
            cmd("CLUSTER").arg("REPLICATE").arg(master).query::<()>(&mut self.raw(i)).expect("a replica");
        }
        eventually("the cluster is complete", || (0..self.nodes.len()).all(|i| self.is_complete(i)));
    }

    fn set_timeout(&self, milliseconds: u32) {
        for node in &self.nodes {
            cmd("CONFIG").arg("SET").arg("cluster-node-timeout").arg(milliseconds).query::<()>(&mut node.raw()).expect("set");
        }
    }

    /// Whether a new node sees all others in their roles and serves.
    fn is_complete(&self, i: usize) -> bool {
        let seen = self.seen_by(i).unwrap_or_default();
        let sound = |n: &Seen| n.flags.iter().all(|f| ["myself", "master", "slave"].contains(&f.as_str()));
        let in_role = |(n, id): (usize, &String)| {
            let slots = SLOTS.get(n).map(|(from, to)| *from..=*to);
            seen.iter().any(|s| s.id == *id && s.is("master") == slots.is_some() && s.slots == Vec::from_iter(slots.clone()))
        };
        let roles = seen.len() == self.nodes.len() && seen.iter().all(sound) && self.ids.iter().enumerate().all(in_role);
        roles && self.is_ok(i) && (i < MASTERS || self.nodes[i].follows(&self.nodes[i - MASTERS]))
    }

    /// Without a login and without options.
    pub fn url(&self) -> String {
        let hosts: Vec<String> = self.nodes.iter().map(|n| format!("127.0.0.1:{}", n.port)).collect();
        format!("{}+cluster://{}", if self.setup.tls { "rediss" } else { "redis" }, hosts.join(","))
    }

    pub fn raw(&self, i: usize) -> Connection {
        self.nodes[i].raw()
    }

    pub fn slot(&self, key: &str) -> u16 {
        let mut raw = self.nodes.iter().find_map(RedisServer::if_alive).expect("a living node");
        cmd("CLUSTER").arg("KEYSLOT").arg(key).query(&mut raw).expect("a slot")
    }

    /// The node that owns a slot, once all living masters say the same.
    pub fn owner(&self, slot: u16) -> usize {
        until("the masters agree on the slot's owner", || self.agreed(slot))
    }

    /// A master to which a slot can be moved.
    pub fn other_master(&self, slot: u16) -> usize {
        let owner = self.owner(slot);
        self.masters().into_iter().map(|(i, _)| i).find(|i| *i != owner).expect("more masters than one")
    }

    fn agreed(&self, slot: u16) -> Option<usize> {
        let owners = self.masters().into_iter().map(|(i, seen)| (i, seen.into_iter().find(|n| n.owns(slot)).map(|n| n.id)));
        let owners: Vec<(usize, Option<String>)> = owners.collect();
        let owner = owners.iter().find_map(|(i, id)| (id.as_ref() == Some(&self.ids[*i])).then_some(*i))?;
        owners.iter().all(|(_, id)| id.as_ref() == Some(&self.ids[owner])).then_some(owner)
    }

    /// The living masters, each with what it sees.
    fn masters(&self) -> Vec<(usize, Vec<Seen>)> {
        let views = (0..self.nodes.len()).filter_map(|i| Some((i, self.seen_by(i)?)));
        views.filter(|(_, seen)| seen.iter().any(|n| n.is("myself") && n.is("master"))).collect()
    }

    /// What a node sees, unless it is dead or stopped.
    fn seen_by(&self, i: usize) -> Option<Vec<Seen>> {
        let text: String = cmd("CLUSTER").arg("NODES").query(&mut self.nodes[i].if_alive()?).ok()?;
        text.lines().map(Seen::parse).collect()
    }

    fn is_ok(&self, i: usize) -> bool {
        let Some(mut raw) = self.nodes[i].if_alive() else { return false };
        cmd("CLUSTER").arg("INFO").query::<String>(&mut raw).is_ok_and(|info| info.contains("cluster_state:ok"))
    }

    /// A living replica of a master that has its data.
    pub fn replica_of(&self, master: usize) -> usize {
        let follows = |i: &usize| self.nodes[*i].follows(&self.nodes[master]);
        until("the master has a replica", || (0..self.nodes.len()).find(follows))
    }

    pub fn kill(&mut self, i: usize) {
        self.nodes[i].kill();
    }

    /// Waits until another node is the master of a slot and serves it.
    pub fn promoted(&self, slot: u16, old: usize) -> usize {
        until("another node owns the slot", || self.successor(slot, old))
    }

    fn successor(&self, slot: u16, old: usize) -> Option<usize> {
        let serves = |i: &usize| {
            let seen = self.seen_by(*i).unwrap_or_default();
            let owns = seen.iter().any(|n| n.is("myself") && n.owns(slot));
            owns && self.nodes[*i].is_master() && self.is_ok(*i)
        };
        (0..self.nodes.len()).filter(|i| *i != old).find(serves)
    }

    /// Has the replica of a slot's master take over by agreement, and waits for it.
    pub fn failover(&self, slot: u16) -> usize {
        let old = self.owner(slot);
        let replica = self.replica_of(old);
        until("the replica takes over", || {
            // The replica gives up without a word after five seconds.
            cmd("CLUSTER").arg("FAILOVER").query::<()>(&mut self.raw(replica)).ok();
            within(Duration::from_secs(6), || self.successor(slot, old))
        })
    }

    /// Declares a slot to be on its way: from here on its owner answers ASK to a request for a key that it lacks.
    pub fn begin_migration(&self, slot: u16, to: usize) {
        let from = self.owner(slot);
        self.set_slot(to, slot, "IMPORTING", from);
        self.set_slot(from, slot, "MIGRATING", to);
    }

    /// Moves all keys of a slot that is on its way.
    pub fn migrate_keys(&self, slot: u16, from: usize, to: usize) {
        while self.migrate_some(slot, from, to, |_| true) > 0 {}
    }

    /// Moves some of the first hundred keys of a slot that is on its way; says how many.
    pub fn migrate_some(&self, slot: u16, from: usize, to: usize, which: impl Fn(&str) -> bool) -> usize {
        let mut raw = self.raw(from);
        let mut keys: Vec<Vec<u8>> = cmd("CLUSTER").arg("GETKEYSINSLOT").arg(slot).arg(100).query(&mut raw).expect("listed");
        keys.retain(|key| which(&String::from_utf8_lossy(key)));
        if !keys.is_empty() {
            let mut migrate = cmd("MIGRATE");
            migrate.arg("127.0.0.1").arg(self.nodes[to].port).arg("").arg(0).arg(5000);
            if let Some(Login { user, pass }) = self.setup.login {
                migrate.arg("AUTH2").arg(user).arg(pass);
            }
            migrate.arg("KEYS").arg(&keys).query::<()>(&mut raw).expect("moved");
        }
        keys.len()
    }

    /// Makes a slot that was on its way the target's own, and waits until all masters know.
    pub fn end_migration(&self, slot: u16, to: usize) {
        let from = self.owner(slot);
        let others = self.masters().into_iter().map(|(i, _)| i).filter(|i| ![to, from].contains(i));
        // The target first: if the source forgot the slot before, no node would own it for a while.
        for node in [to, from].into_iter().chain(others) {
            self.set_slot(node, slot, "NODE", to);
        }
        eventually("all masters know the slot's new owner", || self.agreed(slot) == Some(to));
    }

    /// Moves a slot with its keys to another master.
    pub fn migrate(&self, slot: u16, to: usize) {
        let from = self.owner(slot);
        self.begin_migration(slot, to);
        self.migrate_keys(slot, from, to);
        self.end_migration(slot, to);
    }

    fn set_slot(&self, on: usize, slot: u16, state: &str, node: usize) {
        let mut set = cmd("CLUSTER");
        set.arg("SETSLOT").arg(slot).arg(state).arg(&self.ids[node]).query::<()>(&mut self.raw(on)).expect("set");
    }
}

/// A cluster of one server with all slots, which names another port as its own: that of a cable.
pub fn lone(announced: u16) -> RedisServer {
    let announce = format!("cluster-announce-port {announced}");
    let server = start(&Setup::default().lines(&["cluster-enabled yes", &announce]));
    let mut raw = server.raw();
    cmd("CLUSTER").arg("ADDSLOTSRANGE").arg(0).arg(16383).query::<()>(&mut raw).expect("slots");
    eventually("it serves", || {
        cmd("CLUSTER").arg("INFO").query::<String>(&mut raw).is_ok_and(|info| info.contains("cluster_state:ok"))
    });
    server
}
