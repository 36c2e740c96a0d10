//! [`RedisOptions`]: which Redis, and how it is used, set in code.

use std::error::Error as StdError;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::keys::Layout;
use super::login::Login;
use super::open::{PORT, SENTINEL_PORT};
use super::shared::Wake;
use super::slots::Address;
use super::tls::Trust;
use crate::backend::Leases;
use crate::error::{Error, Result};
use crate::store::{Context, Credentials, Opening, Sealed, StoreOptions};

/// How long a token outlives its last use: names that are locked once do not fill the server.
const TOKEN_TTL: Duration = Duration::from_secs(7 * 24 * 60 * 60);
const LONGEST_TTL: Duration = Duration::from_secs(36_500 * 24 * 60 * 60);

/// A Redis server or deployment. Every option of the URL is here, and what a URL cannot say: a TLS configuration of your own, and
/// credentials that change.
///
/// ```no_run
/// use tenure::Locker;
/// use tenure::options::{Credentials, RedisOptions};
///
/// # async fn token() -> std::io::Result<String> { Ok(String::new()) }
/// # async fn example() -> tenure::Result<()> {
/// let redis = RedisOptions::sentinel("main", [("10.0.0.1", 26379), ("10.0.0.2", 26379), ("10.0.0.3", 26379)])
///     // Called for every new connection.
///     .credentials_from(|| async { token().await.map(|token| Credentials::new(Some("orders"), token)) })
///     .tls()
///     .sync(1);
/// let locker = Locker::builder().prefix("orders:").connect_with(redis).await?;
/// # locker.close().await
/// # }
/// ```
#[derive(Clone)]
#[must_use = "options do nothing until a locker connects with them"]
pub struct RedisOptions {
    pub(super) topology: Topology,
    pub(super) login: Login,
    pub(super) sentinel_login: Login,
    pub(super) database: Option<u32>,
    pub(super) tls: Option<Trust>,
    pub(super) layout: Layout,
    pub(super) wake: Option<Wake>,
    pub(super) counters: bool,
    pub(super) token_ttl: Option<Duration>,
    pub(super) sync: Option<u32>,
    pub(super) sync_timeout: Option<Duration>,
    pub(super) sharded: Option<bool>,
}

/// Who is asked.
#[derive(Debug, Clone)]
pub(super) enum Topology {
    Server(Address),
    Socket(PathBuf),
    Sentinel { master: String, sentinels: Vec<Address> },
    Cluster(Vec<Address>),
}

fn addresses<H: Into<String>>(hosts: impl IntoIterator<Item = (H, u16)>) -> Vec<Address> {
    hosts.into_iter().map(|(host, port)| (host.into(), port)).collect()
}

impl RedisOptions {
    pub(super) fn new(topology: Topology) -> Self {
        Self {
            topology,
            login: Login::default(),
            sentinel_login: Login::default(),
            database: None,
            tls: None,
            layout: Layout::Redisson,
            wake: None,
            counters: false,
            token_ttl: Some(TOKEN_TTL),
            sync: None,
            sync_timeout: None,
            sharded: None,
        }
    }

    /// One server.
    pub fn server(host: impl Into<String>, port: u16) -> Self {
        Self::new(Topology::Server((host.into(), port)))
    }

    /// One server behind a unix socket.
    pub fn socket(path: impl Into<PathBuf>) -> Self {
        Self::new(Topology::Socket(path.into()))
    }

    /// The master of this name, which the sentinels know.
    pub fn sentinel<H: Into<String>>(master: impl Into<String>, sentinels: impl IntoIterator<Item = (H, u16)>) -> Self {
        Self::new(Topology::Sentinel { master: master.into(), sentinels: addresses(sentinels) })
    }

    /// A Redis Cluster, of which some servers are named.
    pub fn cluster<H: Into<String>>(nodes: impl IntoIterator<Item = (H, u16)>) -> Self {
        Self::new(Topology::Cluster(addresses(nodes)))
    }

    /// The server, the login and the database of a client of the crate `redis`. The connections are our own: they speak RESP3, and
    /// need every push of the server. A client that does not verify TLS is refused. The client's certificates cannot be read
    /// from it: set them with `tls_config`.
    pub fn from_client(client: &redis::Client) -> Result<Self> {
        let (info, login) = (client.get_connection_info().addr(), client.get_connection_info().redis_settings());
        let mut options = match info {
            redis::ConnectionAddr::Tcp(host, port) => Self::server(host.clone(), *port),
            redis::ConnectionAddr::Unix(path) => Self::socket(path.clone()),
            #[cfg(feature = "tls")]
            redis::ConnectionAddr::TcpTls { host, port, insecure: false, .. } => Self::server(host.clone(), *port).tls(),
            _ => {
                let allowed = "TCP, a unix socket, or TLS with a verified name (feature \"tls\")";
                return Err(Error::config("the redis::Client", "has a connection that cannot be made here", allowed));
            }
        };
        if let Some(password) = login.password() {
            options = options.credentials(Credentials::new(login.username(), password));
        }
        let wrong = |_| Error::config("the redis::Client", "has a database that is none", "0 and more");
        options.database = Some(u32::try_from(login.db()).map_err(wrong)?);
        Ok(options)
    }

    /// The login.
    pub fn credentials(mut self, credentials: Credentials) -> Self {
        self.login = Login::As(credentials);
        self
    }

    /// Who logs in, asked for each new connection: passwords that rotate, tokens that expire. An error, or a refusal of what it gave, counts as a
    /// server that cannot be asked now ([`Fault::Auth`](crate::Fault::Auth), transient), and so does a call that takes longer than the timeout.
    ///
    /// It runs on the thread that renews locks: it must not block (`tokio::task::spawn_blocking` may). The text of its error becomes a part of
    /// ours, and is logged.
    pub fn credentials_from<F, C, E>(mut self, ask: F) -> Self
    where
        F: Fn() -> C + Send + Sync + 'static,
        C: Future<Output = std::result::Result<Credentials, E>> + Send + 'static,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        self.login = Login::asked(ask);
        self
    }

    /// The login at the sentinels. Without it, none is sent.
    pub fn sentinel_credentials(mut self, credentials: Credentials) -> Self {
        self.sentinel_login = Login::As(credentials);
        self
    }

    /// The database, by default 0. A cluster has only that.
    pub fn database(mut self, database: u32) -> Self {
        self.database = Some(database);
        self
    }

    /// Over TLS. The system's authorities are trusted.
    #[cfg(feature = "tls")]
    pub fn tls(mut self) -> Self {
        self.tls = Some(Trust::System);
        self
    }

    /// Over TLS, with a configuration of your own: authorities, client certificates, a provider of cryptography. It alone decides which servers to trust.
    #[cfg(feature = "tls")]
    pub fn tls_config(mut self, config: std::sync::Arc<rustls::ClientConfig>) -> Self {
        self.tls = Some(Trust::Own(config));
        self
    }

    /// How locks are written, by default as Redisson does.
    pub fn layout(mut self, layout: Layout) -> Self {
        self.layout = layout;
        self
    }

    /// How waiters are woken, by default by tracking where the server allows it.
    pub fn wake(mut self, wake: Wake) -> Self {
        self.wake = Some(wake);
        self
    }

    /// Permits as in Redisson's RSemaphore, which has a counter and no leases: a permit of a dead Java holder is gone.
    pub fn counter_semaphores(mut self) -> Self {
        self.counters = true;
        self
    }

    /// How long a token outlives its last use, by default 7 days; at least 24 hours. `None`: forever.
    pub fn token_ttl(mut self, ttl: impl Into<Option<Duration>>) -> Self {
        self.token_ttl = ttl.into();
        self
    }

    /// A grant counts once so many replicas have it.
    pub fn sync(mut self, replicas: u32) -> Self {
        self.sync = Some(replicas);
        self
    }

    /// How long the replicas may take, up to a third of the timeout; by default half a second.
    pub fn sync_timeout(mut self, within: Duration) -> Self {
        self.sync_timeout = Some(within);
        self
    }

    /// Whether a cluster has channels per shard, by default as the servers say.
    pub fn sharded_channels(mut self, sharded: bool) -> Self {
        self.sharded = Some(sharded);
        self
    }

    /// Refuses what does not go together.
    pub(super) fn check(&self) -> Result<()> {
        let refuse = |asked: &str, problem: &str, allowed: &str| Err(Error::config(asked, problem, allowed));
        let hosts = match &self.topology {
            Topology::Server(address) => std::slice::from_ref(address),
            Topology::Sentinel { sentinels: hosts, .. } | Topology::Cluster(hosts) => hosts,
            Topology::Socket(path) if path.is_absolute() => &[],
            Topology::Socket(_) => return refuse("the socket of Redis", "has no absolute path", "/path/to/socket"),
        };
        let is_socket = matches!(self.topology, Topology::Socket(_));
        if !is_socket
            && (hosts.is_empty()
                || hosts.iter().any(|(host, port)| host.is_empty() || host.contains(['/', ' ', '@']) || *port == 0))
        {
            return refuse(
                "the servers of Redis",
                "have a name that is none, no port, or are none",
                "names or addresses, with ports",
            );
        }
        let is_cluster = matches!(self.topology, Topology::Cluster(_));
        if is_cluster && self.database.is_some_and(|db| db != 0) {
            return refuse("a database of a cluster", "is not the only one it has", "0");
        }
        if !is_cluster && self.sharded.is_some() {
            return refuse("channels per shard", "are a cluster's", "options of a cluster");
        }
        if is_socket && self.tls.is_some() {
            return refuse("TLS over a unix socket", "is not spoken by Redis", "one of the two");
        }
        if self.token_ttl.is_some_and(|ttl| ttl < Leases::ANY.longest) {
            return refuse("the option \"token_ttl\"", "could let a token go back under a hold", "24h or more, or never");
        }
        if self.token_ttl.is_some_and(|ttl| ttl > LONGEST_TTL) {
            return refuse("the option \"token_ttl\"", "is more than a server counts", "up to 36500d, or never");
        }
        if !matches!((&self.topology, &self.sentinel_login), (Topology::Sentinel { .. }, _) | (_, Login::Nobody)) {
            return refuse("a login for sentinels", "is of no use here", "options of sentinels");
        }
        Ok(())
    }

    /// The scheme of the URL that would say the same.
    pub(super) fn scheme_name(&self) -> &'static str {
        match (&self.topology, self.tls.is_some()) {
            (Topology::Server(_), false) => "redis",
            (Topology::Server(_), true) => "rediss",
            (Topology::Socket(_), _) => "redis+unix",
            (Topology::Sentinel { .. }, false) => "redis+sentinel",
            (Topology::Sentinel { .. }, true) => "rediss+sentinel",
            (Topology::Cluster(_), false) => "redis+cluster",
            (Topology::Cluster(_), true) => "rediss+cluster",
        }
    }
}

impl Sealed for RedisOptions {}

impl StoreOptions for RedisOptions {
    fn scheme(&self) -> &'static str {
        self.scheme_name()
    }

    fn place(&self) -> Option<String> {
        // As most people write a URL: without what goes without saying.
        let usual = if matches!(self.topology, Topology::Sentinel { .. }) { SENTINEL_PORT } else { PORT };
        let hosts = |hosts: &[Address]| {
            let shown = |(host, port): &Address| {
                let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
                if *port == usual { host } else { format!("{host}:{port}") }
            };
            let mut all: Vec<String> = hosts.iter().map(shown).collect();
            all.sort_unstable();
            all.join(",")
        };
        let database = self.database.filter(|db| *db != 0);
        let db = database.map(|db| db.to_string()).unwrap_or_default();
        Some(match &self.topology {
            Topology::Server(address) => format!("//{}/{db}", hosts(std::slice::from_ref(address))),
            Topology::Socket(path) => {
                format!("//{}{}", path.display(), database.map(|db| format!("?db={db}")).unwrap_or_default())
            }
            Topology::Sentinel { master, sentinels } if db.is_empty() => format!("//{}/{master}", hosts(sentinels)),
            Topology::Sentinel { master, sentinels } => format!("//{}/{master}/{db}", hosts(sentinels)),
            Topology::Cluster(nodes) => format!("//{}/", hosts(nodes)),
        })
    }

    fn open(&self, context: Context) -> Opening {
        let options = self.clone();
        Box::pin(async move { options.start(context).await })
    }
}

impl fmt::Debug for RedisOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisOptions").field("topology", &self.topology).field("tls", &self.tls.is_some()).finish_non_exhaustive()
    }
}
