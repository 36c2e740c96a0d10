//! Where Java and Rust meet: one server, or a cluster. Each is started once, with one Java, and shared by its tests.

use std::sync::LazyLock;

use redis::{Connection, cmd};

use tenure_testkit::cluster::Cluster;
use tenure_testkit::peer::{Language, Peer};
use tenure_testkit::{RedisServer, eventually};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Single,
    Cluster,
}

pub(crate) const PLACES: [(&str, Place); 2] = [("single", Place::Single), ("cluster", Place::Cluster)];

/// The servers of a place, and the Java that most tests use.
#[derive(Debug)]
pub(crate) struct Site {
    servers: Servers,
    pub(crate) java: Peer,
}

#[derive(Debug)]
enum Servers {
    One(RedisServer),
    Many(Cluster),
}

static SINGLE: LazyLock<Site> = LazyLock::new(|| Site::with(Servers::One(RedisServer::start())));
static CLUSTER: LazyLock<Site> = LazyLock::new(|| Site::with(Servers::Many(Cluster::start())));

impl Place {
    pub(crate) fn site(self) -> &'static Site {
        match self {
            Self::Single => &SINGLE,
            Self::Cluster => &CLUSTER,
        }
    }
}

impl Site {
    fn with(servers: Servers) -> Self {
        let java = start_java(&servers, &[]);
        Self { servers, java }
    }

    /// A Java of its own, for tests that kill it or set it up otherwise.
    pub(crate) fn another_java(&self, options: &[&str]) -> Peer {
        start_java(&self.servers, options)
    }

    /// Without options.
    pub(crate) fn url(&self) -> String {
        match &self.servers {
            Servers::One(server) => server.url(),
            Servers::Many(cluster) => cluster.url(),
        }
    }

    /// A connection to whoever has a key, behind everybody's back.
    pub(crate) fn raw(&self, key: &str) -> Connection {
        match &self.servers {
            Servers::One(server) => server.raw(),
            Servers::Many(cluster) => cluster.raw(cluster.owner(cluster.slot(key))),
        }
    }

    /// Waits until so many listen for news of a name: they have found it taken.
    #[track_caller]
    pub(crate) fn awaits(&self, name: &str, waiters: u64) {
        eventually(&format!("{waiters} wait for {name}"), || self.listeners(name) == waiters);
    }

    fn listeners(&self, name: &str) -> u64 {
        self.servers.all().iter().map(|server| listeners(server, name)).sum()
    }
}

impl Servers {
    fn all(&self) -> &[RedisServer] {
        match self {
            Self::One(server) => std::slice::from_ref(server),
            Self::Many(cluster) => &cluster.nodes,
        }
    }
}

fn start_java(servers: &Servers, options: &[&str]) -> Peer {
    let addresses: Vec<String> = servers.all().iter().map(|server| format!("127.0.0.1:{}", server.port)).collect();
    let how = if matches!(servers, Servers::One(_)) { "--single" } else { "--cluster" };
    Peer::start(Language::Java, &[&[how, &addresses.join(",")], options].concat())
}

/// How many listen at a server to any channel of a name, of whichever kind, but for those of a whole client: whoever stands in a line of
/// ours listens to a channel of its own too.
pub(crate) fn listeners(server: &RedisServer, name: &str) -> u64 {
    let mut raw = server.raw();
    let mut count = |channels: &str, numbers: &str| -> u64 {
        let pattern = if name.contains('{') { format!("*{name}*") } else { format!("*{{{name}}}*") };
        let mut channels: Vec<String> = cmd("PUBSUB").arg(channels).arg(pattern).query(&mut raw).expect("listed");
        channels.retain(|channel| channel.rsplit_once(':').is_none_or(|(_, end)| end.parse::<tenure::ClientId>().is_err()));
        let counts: Vec<(String, u64)> = cmd("PUBSUB").arg(numbers).arg(channels).query(&mut raw).expect("counted");
        counts.into_iter().map(|(_, n)| n).sum()
    };
    count("CHANNELS", "NUMSUB") + count("SHARDCHANNELS", "SHARDNUMSUB")
}
