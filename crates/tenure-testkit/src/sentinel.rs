//! A master, two replicas and the three sentinels that watch them.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use redis::{Connection, cmd};

use crate::server::{Login, RedisServer, Setup, start, start_all};
use crate::{eventually, until, within};

/// The name under which the sentinels know the master.
const NAME: &str = "mymaster";

/// Sentinel's own pace is for networks: it tells the news every two seconds, reconnects (promotions cut connections) later
/// than a server counts as down here, and rests for thirty seconds after a stall of the machine.
const PACE: &str = "publish-period 200 ask-period 200 ping-period 500 info-period 500 tilt-period 500";

#[derive(Debug)]
pub struct SentinelSet {
    pub servers: Vec<RedisServer>,
    pub sentinels: Vec<Sentinel>,
    tls: bool,
}

impl SentinelSet {
    pub fn start() -> Self {
        Self::with(&[])
    }

    pub fn with(server_args: &[&str]) -> Self {
        Self::of(Setup::default().args(server_args), Setup::default())
    }

    /// The servers let one user in, the sentinels another.
    pub fn with_logins(servers: Login, sentinels: Login) -> Self {
        Self::of(Setup::default().login(servers), Setup::default().login(sentinels))
    }

    /// All speak only TLS.
    pub fn with_tls(certificates: &Path) -> Self {
        Self::of(Setup::default().tls(certificates), Setup::default().tls(certificates))
    }

    pub fn of(servers: Setup, sentinels: Setup) -> Self {
        let tls = sentinels.tls;
        let mut all = vec![start(&servers)];
        let port = all[0].port;
        let replica = servers.clone().lines(&[&format!("replicaof 127.0.0.1 {port}")]);
        all.extend(start_all(&[&replica, &replica]));
        // A sentinel that meets a master without replicas would not look again for a while.
        for replica in &all[1..] {
            eventually("the replica is online", || replica.follows(&all[0]));
        }
        let sentinel = watching(sentinels, port, servers.login);
        let sentinels = start_all(&[&sentinel; 3]).into_iter().map(Sentinel::new).collect();
        let set = Self { servers: all, sentinels, tls };
        for sentinel in &set.sentinels {
            eventually("the sentinel knows the other sentinels", || sentinel.has_quorum_of_three());
        }
        set.settled();
        set
    }

    /// Without a login and without options.
    pub fn url(&self) -> String {
        let hosts: Vec<String> = self.sentinels.iter().map(|s| format!("127.0.0.1:{}", s.port)).collect();
        format!("{}+sentinel://{}/{NAME}", if self.tls { "rediss" } else { "redis" }, hosts.join(","))
    }

    /// Which server the sentinels name now, by the majority of those that live.
    pub fn master(&self) -> usize {
        until("the sentinels agree on a master", || self.agreed())
    }

    fn agreed(&self) -> Option<usize> {
        let named = self.named();
        let votes = |server: usize| named.iter().filter(|n| **n == Some(server)).count();
        (0..self.servers.len()).find(|server| votes(*server) * 2 > named.len())
    }

    /// What each living sentinel says.
    fn named(&self) -> Vec<Option<usize>> {
        let says = |mut raw: Connection| {
            let (_, port) = sentinel_cmd("GET-MASTER-ADDR-BY-NAME").query::<(String, u16)>(&mut raw).ok()?;
            self.servers.iter().position(|s| s.port == port)
        };
        self.sentinels.iter().filter_map(|s| s.server.if_alive()).map(says).collect()
    }

    /// Waits until all other living servers follow the master and the sentinels know; says which it is.
    pub fn settled(&self) -> usize {
        until("the servers follow one master", || {
            let master = self.agreed()?;
            let living: Vec<&RedisServer> = self.servers.iter().filter(|s| s.if_alive().is_some()).collect();
            let followers = living.iter().filter(|s| s.follows(&self.servers[master])).count();
            let seen = self.sentinels.iter().filter_map(Sentinel::replicas).all(|n| n == followers);
            (followers + 1 == living.len() && seen).then_some(master)
        })
    }

    /// Kills the master once all follow it, and says which it was.
    pub fn kill_master(&mut self) -> usize {
        let master = self.settled();
        self.servers[master].kill();
        master
    }

    /// Waits until another server is the master, and two sentinels say so.
    pub fn promoted(&self, old: usize) -> usize {
        until("another server is promoted", || self.successor(old))
    }

    fn successor(&self, old: usize) -> Option<usize> {
        let named = self.named();
        let is_new = |server: &usize| *server != old && named.iter().filter(|n| **n == Some(*server)).count() >= 2;
        (0..self.servers.len()).find(is_new).filter(|new| self.servers[*new].is_master())
    }

    /// Has a sentinel promote another server, and waits for it. The old master takes a while to learn of it.
    pub fn failover(&self) -> usize {
        until("a sentinel promotes another server", || {
            let old = self.settled();
            let mut raw = self.sentinels.iter().find_map(|s| s.server.if_alive())?;
            // Refused while an earlier one is not quite over, and given up after two seconds if another sentinel objects.
            sentinel_cmd("FAILOVER").query::<()>(&mut raw).ok()?;
            within(Duration::from_secs(4), || self.successor(old))
        })
    }
}

/// A command of Sentinel about our master.
fn sentinel_cmd(verb: &str) -> redis::Cmd {
    let mut command = cmd("SENTINEL");
    command.arg(verb).arg(NAME);
    command
}

fn watching(setup: Setup, port: u16, master_login: Option<Login>) -> Setup {
    let mut lines = vec![
        format!("sentinel monitor {NAME} 127.0.0.1 {port} 2"),
        // A busy machine lets a process wait for more than a second now and then.
        format!("sentinel down-after-milliseconds {NAME} 2000"),
        format!("sentinel failover-timeout {NAME} 2000"),
        format!("sentinel parallel-syncs {NAME} 2"),
    ];
    if let Some(Login { user, pass }) = master_login {
        lines.extend([format!("sentinel auth-user {NAME} {user}"), format!("sentinel auth-pass {NAME} {pass}")]);
    }
    if let Some(Login { user, pass }) = setup.login {
        lines.extend([format!("sentinel sentinel-user {user}"), format!("sentinel sentinel-pass {pass}")]);
    }
    setup.lines(&lines.iter().map(String::as_str).collect::<Vec<_>>()).args(&["--sentinel"])
}

#[derive(Debug)]
pub struct Sentinel {
    server: RedisServer,
    pub port: u16,
}

impl Sentinel {
    fn new(server: RedisServer) -> Self {
        let sentinel = Self { port: server.port, server };
        sentinel.set_pace();
        sentinel
    }

    fn set_pace(&self) {
        cmd("SENTINEL").arg("DEBUG").arg(PACE.split(' ').collect::<Vec<_>>()).query::<()>(&mut self.raw()).expect("set");
    }

    pub fn pid(&self) -> u32 {
        self.server.pid()
    }

    pub fn raw(&self) -> Connection {
        self.server.raw()
    }

    pub fn kill(&mut self) {
        self.server.kill();
    }

    /// Starts it again after [`kill`](Self::kill), with what it wrote down.
    pub fn restart(&mut self) {
        self.server.restart();
        self.set_pace();
    }

    fn has_quorum_of_three(&self) -> bool {
        sentinel_cmd("CKQUORUM").query::<String>(&mut self.raw()).is_ok_and(|said| said.starts_with("OK 3 usable"))
    }

    /// How many sound replicas it knows, unless it is dead or stopped.
    fn replicas(&self) -> Option<usize> {
        let rows: Vec<HashMap<String, String>> = sentinel_cmd("REPLICAS").query(&mut self.server.if_alive()?).ok()?;
        let sound = [("flags", "slave"), ("role-reported", "slave"), ("master-link-status", "ok")];
        let is_sound =
            |row: &&HashMap<String, String>| sound.iter().all(|(key, value)| row.get(*key).is_some_and(|v| v == value));
        Some(rows.iter().filter(is_sound).count())
    }
}
