//! Independent servers that are the nodes of a quorum. Each can be stopped, killed, emptied or given a wrong clock.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use crate::cable::Cable;
use crate::clock::Skew;
use crate::server::{Setup, start_all};
use crate::{RedisServer, Signal, eventually, signal, stop};

#[derive(Debug)]
pub struct QuorumSet {
    pub nodes: Vec<Node>,
}

#[derive(Debug)]
pub struct Node {
    server: RedisServer,
    clock: Option<Skew>,
}

impl QuorumSet {
    pub fn start(n: usize) -> Self {
        Self::of(n, || None)
    }

    /// Servers with clocks that can be moved. They take themselves for a day old, so that their votes count at once.
    pub fn old(n: usize) -> Self {
        let yesterday = || {
            let clock = Skew::none();
            clock.behind(Duration::from_secs(24 * 60 * 60));
            Some(clock)
        };
        let set = Self::of(n, yesterday);
        set.nodes.iter().for_each(|node| node.clock().ahead(Duration::ZERO));
        set
    }

    fn of(n: usize, clock: impl Fn() -> Option<Skew>) -> Self {
        let clocks: Vec<Option<Skew>> = (0..n).map(|_| clock()).collect();
        let with =
            |clock: &Option<Skew>| clock.as_ref().map_or_else(Setup::default, |clock| Setup::default().clock(clock.clock()));
        let setups: Vec<Setup> = clocks.iter().map(with).collect();
        let servers = start_all(&setups.iter().collect::<Vec<_>>());
        let nodes = servers.into_iter().zip(clocks).map(|(server, clock)| Node { server, clock });
        Self { nodes: nodes.collect() }
    }

    pub fn url(&self, options: &str) -> String {
        url(self.nodes.iter().map(|node| node.port), options)
    }

    /// A way of its own to each node, for one client.
    pub fn ways(&self) -> Ways {
        Ways { cables: self.nodes.iter().map(|node| Cable::to(node.port)).collect() }
    }

    /// Waits until all have run for so long, so that their votes count.
    pub fn aged(&self, age: Duration) {
        eventually("all servers have run for long enough", || {
            self.nodes.iter().all(|node| node.uptime().is_some_and(|up| up >= age))
        });
    }

    /// The nodes that have such a key.
    pub fn with_key(&self, key: &str) -> Vec<usize> {
        (0..self.nodes.len()).filter(|at| self.nodes[*at].has(key)).collect()
    }
}

impl Node {
    pub fn clock(&self) -> &Skew {
        self.clock.as_ref().expect("a server whose clock can be moved")
    }

    pub fn pause(&self) {
        stop(self.pid());
    }

    pub fn resume(&self) {
        signal(self.pid(), Signal::CONT);
    }

    /// Kills it and starts it again on the same port with nothing that it knew.
    pub fn lose_all(&mut self) {
        self.server.kill();
        self.restart_empty();
    }

    /// Starts it again after it was killed, with nothing that it knew.
    pub fn restart_empty(&mut self) {
        match std::fs::remove_file(self.server.path("dump.rdb")) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => panic!("{error}"),
            _ => self.server.restart(),
        }
    }

    /// Kills it and starts it again on the same port with all that it knew.
    pub fn lose_nothing(&mut self) {
        redis::cmd("SAVE").query::<()>(&mut self.server.raw()).expect("saved");
        self.server.kill();
        self.server.restart();
    }

    /// By its own clock, in whole seconds and never more than it is.
    pub fn uptime(&self) -> Option<Duration> {
        let info: String = redis::cmd("INFO").arg("server").query(&mut self.if_alive()?).ok()?;
        let seconds: u64 = info.lines().find_map(|line| line.strip_prefix("uptime_in_seconds:"))?.parse().ok()?;
        // The server subtracts two seconds of its clock, each cut off.
        Some(Duration::from_secs(seconds.saturating_sub(1)))
    }

    /// The fields of a hash, none if it does not answer.
    pub fn hash(&self, key: &str) -> BTreeMap<String, String> {
        let ask = |mut raw| redis::cmd("HGETALL").arg(key).query(&mut raw).ok();
        self.if_alive().and_then(ask).unwrap_or_default()
    }

    /// False also if it does not answer.
    pub fn has(&self, key: &str) -> bool {
        let ask = |mut raw| redis::cmd("EXISTS").arg(key).query(&mut raw).ok();
        self.if_alive().and_then(ask).unwrap_or(false)
    }
}

impl Deref for Node {
    type Target = RedisServer;

    fn deref(&self) -> &RedisServer {
        &self.server
    }
}

impl DerefMut for Node {
    fn deref_mut(&mut self) -> &mut RedisServer {
        &mut self.server
    }
}

/// How one client gets to the nodes.
#[derive(Debug)]
pub struct Ways {
    pub cables: Vec<Cable>,
}

impl Ways {
    pub fn url(&self, options: &str) -> String {
        url(self.cables.iter().map(|cable| cable.port), options)
    }

    /// Only these can be reached from now on.
    pub fn reach_only(&self, nodes: &[usize]) {
        for (at, cable) in self.cables.iter().enumerate() {
            if nodes.contains(&at) { cable.heal() } else { cable.cut() }
        }
    }
}

fn url(ports: impl Iterator<Item = u16>, options: &str) -> String {
    let mut url = "quorum:".to_owned();
    for (at, port) in ports.enumerate() {
        let separator = if at > 0 { "|" } else { "" };
        write!(url, "{separator}redis://127.0.0.1:{port}").expect("written");
    }
    if options.is_empty() { url } else { format!("{url}?{options}") }
}
