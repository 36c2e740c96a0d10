//! From a URL to a deployment of Redis.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::cluster::Cluster;
use super::commands::Commands;
use super::dial::Dial;
use super::inspect::KnownClients;
use super::keys::Layout;
use super::link::{Endpoint, Link};
use super::login::Login;
use super::options::{RedisOptions, Topology};
use super::replicas::Sync;
use super::route::{Route, Router};
use super::scripts::Scripts;
use super::sentinel::Sentinels;
use super::shared::{Shared, Wake};
#[cfg(feature = "tls")]
use super::tls;
use super::tls::Trust;
use super::url::{Url, refuse};
use super::{Record, Redis};
use crate::backend::Opened;
use crate::duration;
use crate::error::{Error, Result};
use crate::secret;
use crate::store::{self, Context, Credentials, Opening, Options, Scheme, StoreOptions, decode, of_option};

pub(super) const PORT: u16 = 6379;
pub(super) const SENTINEL_PORT: u16 = 26379;

/// With the options of every scheme of Redis, and with them those of one scheme.
macro_rules! scheme {
    ($name:literal $($own:literal)*) => {
        Scheme::new($name, open).options(&["layout", "semaphore", "token_ttl", "wake", "sync", "sync_timeout", "pass_file", $($own),*])
    };
}

pub(crate) static SCHEMES: [Scheme; if cfg!(feature = "tls") { 7 } else { 4 }] = [
    scheme!("redis"),
    scheme!("redis+unix" "user").local().place(&["db"]).secrets(&["pass"]),
    scheme!("redis+sentinel" "sentinel_user" "sentinel_pass_file").secrets(&["sentinel_pass"]).fails_over(),
    scheme!("redis+cluster" "sharded").fails_over(),
    #[cfg(feature = "tls")]
    scheme!("rediss" "ca" "cert" "key"),
    #[cfg(feature = "tls")]
    scheme!("rediss+sentinel" "sentinel_user" "sentinel_pass_file" "ca" "cert" "key").secrets(&["sentinel_pass"]).fails_over(),
    #[cfg(feature = "tls")]
    scheme!("rediss+cluster" "sharded" "ca" "cert" "key").fails_over(),
];

/// Opens all schemes of Redis.
fn open(address: store::Address, context: Context) -> Opening {
    Box::pin(async move { read(address)?.open(context).await })
}

/// What a URL says.
pub(super) fn read(address: store::Address) -> Result<RedisOptions> {
    let store::Address { scheme, place, credentials, mut options } = address;
    let mut redis = if scheme == "redis+unix" {
        of_socket(scheme, &place, &mut options)?
    } else {
        of_servers(scheme, &place, credentials, &mut options)?
    };
    #[cfg(feature = "tls")]
    if scheme.starts_with("rediss") {
        redis.tls = Some(Trust::Own(tls::configure(&mut options)?));
    }
    let layout = options.one_of("layout", &[("redisson", Layout::Redisson), ("plain", Layout::Plain)])?;
    redis.layout = layout.unwrap_or(Layout::Redisson);
    let wakes = [("auto", None), ("tracking", Some(Wake::Tracking)), ("pubsub", Some(Wake::PubSub))];
    redis.wake = options.one_of("wake", &wakes)?.flatten();
    redis.counters = options.one_of("semaphore", &[("expiring", false), ("counter", true)])?.unwrap_or(false);
    match options.take("token_ttl").as_deref() {
        None => {}
        Some("never") => redis.token_ttl = None,
        Some(text) => {
            redis.token_ttl = Some(duration::parse(text).map_err(|e| of_option("token_ttl", e))?);
        }
    }
    redis.sync_timeout = options.duration("sync_timeout")?;
    let number = |text: String| {
        text.parse().map_err(|_| Error::config("the option \"sync\"", "is no number", "a number of replicas, 1 or more"))
    };
    redis.sync = options.take("sync").map(number).transpose()?;
    redis.check()?;
    Ok(redis)
}

/// A unix socket has no place in its URL for a login or a database: they are options.
fn of_socket(scheme: &'static str, place: &str, options: &mut Options) -> Result<RedisOptions> {
    let path = place.strip_prefix("//").unwrap_or(place);
    let path = decode(path).filter(|path| path.starts_with('/')).ok_or_else(|| refuse(scheme, "names no socket"))?;
    let pass = password(options.take("pass"), "pass_file", options)?;
    let login = Login::from(Credentials::given(options.take("user"), pass));
    let database = database(scheme, options.take("db").as_deref())?;
    Ok(RedisOptions { login, database, ..RedisOptions::new(Topology::Socket(path.into())) })
}

fn of_servers(
    scheme: &'static str,
    place: &str,
    credentials: Option<Credentials>,
    options: &mut Options,
) -> Result<RedisOptions> {
    let sentinel = scheme.ends_with("+sentinel");
    let url = Url::parse(scheme, place, if sentinel { SENTINEL_PORT } else { PORT })?;
    let (user, pass) = credentials.map_or((None, None), Credentials::into_parts);
    let pass = password(pass, "pass_file", options)?;
    let login = Login::from(Credentials::given(user, pass));
    let db = |db: Option<&String>| database(scheme, db.map(String::as_str));
    if sentinel {
        let [master, path @ ..] = &*url.path else { return Err(refuse(scheme, "does not name the master")) };
        if path.len() > 1 {
            return Err(refuse(scheme, "has a longer path"));
        }
        let (user, pass) = (options.take("sentinel_user"), options.take("sentinel_pass"));
        let pass = password(pass, "sentinel_pass_file", options)?;
        if user.is_some() && pass.is_none() {
            let allowed = "sentinel_user with sentinel_pass or sentinel_pass_file";
            return Err(Error::config("the option \"sentinel_user\"", "is of no use alone", allowed));
        }
        let sentinel_login = Login::from(Credentials::given(user, pass));
        let topology = Topology::Sentinel { master: master.clone(), sentinels: url.hosts };
        return Ok(RedisOptions { login, sentinel_login, database: db(path.first())?, ..RedisOptions::new(topology) });
    }
    if scheme.ends_with("+cluster") {
        if !url.path.is_empty() {
            return Err(refuse(scheme, "has a path: a cluster has only one database"));
        }
        let modes = [("auto", None), ("on", Some(true)), ("off", Some(false))];
        let sharded = options.one_of("sharded", &modes)?.flatten();
        return Ok(RedisOptions { login, sharded, ..RedisOptions::new(Topology::Cluster(url.hosts)) });
    }
    let ([host], [] | [_]) = (&*url.hosts, &*url.path) else {
        return Err(refuse(scheme, "has several hosts or a longer path (redis+sentinel: and redis+cluster: take several hosts)"));
    };
    let topology = Topology::Server(host.clone());
    Ok(RedisOptions { login, database: db(url.path.first())?, ..RedisOptions::new(topology) })
}

fn database(scheme: &str, db: Option<&str>) -> Result<Option<u32>> {
    // Not shown: with a slash in a password, the path is a part of that.
    db.map(|db| db.parse().map_err(|_| refuse(scheme, "has a database that is no number"))).transpose()
}

impl RedisOptions {
    /// Connects.
    pub(super) async fn start(self, context: Context) -> Result<Opened> {
        self.check()?;
        let sync = self.confirmed(context.timeout)?;
        let shared = Shared::new(context.timeout, self.layout, self.wake);
        let fails_over = matches!(self.topology, Topology::Sentinel { .. } | Topology::Cluster(_));
        let router = Router::new(self.route(&shared).await?, shared);
        let wake = router.wake().await?;
        let Context { client, clock, timeout, prefix, .. } = context;
        let redis = Redis {
            router,
            layout: self.layout,
            scripts: Scripts::of(self.layout),
            commands: Commands::default(),
            token_idle: self.token_ttl.map_or(0, |ttl| ttl.as_millis()).to_string(),
            counters: self.counters,
            sync,
            is_voter: AtomicBool::new(false),
            capabilities: super::capabilities(self.layout, wake, fails_over),
            client_text: client.id.to_string(),
            client,
            prefix,
            clock,
            timeout,
            known_clients: KnownClients::default(),
            record: Record::default(),
        };
        let losses = redis.router.shared.watched.losses.clone();
        Ok(Opened::of_voter(Arc::new(redis)).with_losses(losses))
    }

    /// How its servers are dialled.
    pub(super) fn dial(&self) -> Result<Dial> {
        let tls = self.tls.as_ref().map(Trust::config).transpose()?;
        Ok(Dial { login: self.login.clone(), database: self.database.unwrap_or(0), tls })
    }

    async fn route(&self, shared: &Arc<Shared>) -> Result<Route> {
        let dial = self.dial()?;
        let one = |endpoint| Route::One(Link::new(endpoint, shared));
        match &self.topology {
            Topology::Server(address) => Ok(one(Endpoint::Fixed(dial.server(address)))),
            Topology::Socket(path) => Ok(one(Endpoint::Fixed(dial.socket(path.clone())))),
            Topology::Sentinel { master, sentinels } => {
                let login = Dial { login: self.sentinel_login.clone(), database: 0, tls: dial.tls.clone() };
                let sentinels = Sentinels::new(master.clone(), sentinels, &login, dial, shared.timeout);
                let link = Link::new(Endpoint::Master(Arc::clone(&sentinels)), shared);
                link.connect().await?;
                sentinels.watch(&link);
                Ok(Route::One(link))
            }
            Topology::Cluster(nodes) => {
                let cluster = Cluster::open(self.scheme_name(), nodes, dial, shared).await?;
                let sharded = match self.sharded {
                    Some(sharded) => sharded,
                    None => cluster.has_shard_channels().await?,
                };
                shared.sharded.store(sharded, Ordering::Relaxed);
                Ok(Route::Cluster(cluster))
            }
        }
    }

    /// How many replicas must have a grant, and how long they may take of a call's time.
    pub(super) fn confirmed(&self, timeout: Duration) -> Result<Option<Sync>> {
        let Some(replicas) = self.sync else {
            return match self.sync_timeout {
                Some(_) => Err(Error::config("the option \"sync_timeout\"", "is of no use alone", "sync=1&sync_timeout=500ms")),
                None => Ok(None),
            };
        };
        if replicas == 0 {
            let problem = "would wait for no replica; without the option nothing waits";
            return Err(Error::config("the option \"sync\"", problem, "a number of replicas, 1 or more"));
        }
        let longest = timeout / 3;
        let within = self.sync_timeout.unwrap_or(Sync::WITHIN.min(longest));
        // WAIT takes zero forever.
        if within < Duration::from_millis(1) || within > longest {
            let allowed = format!("1ms to {longest:?}, a third of the timeout");
            return Err(Error::config("the option \"sync_timeout\"", "is out of range", allowed));
        }
        Ok(Some(Sync { replicas, within }))
    }
}

/// The password, which stands in the URL or in a file that the URL names.
fn password(given: Option<String>, option: &str, options: &mut Options) -> Result<Option<String>> {
    let Some(file) = options.take(option) else { return Ok(given) };
    if given.is_some() {
        return Err(Error::config(format!("the option {option:?}"), "is given beside a password", "one of the two"));
    }
    let file = std::path::PathBuf::from(file);
    // Opening a pipe would wait for its writer, on the thread that renews.
    if std::fs::metadata(&file).is_ok_and(|meta| !meta.is_file()) {
        return Err(Error::config(format!("the option {option:?}"), "names something that is no file", "a file"));
    }
    let secret = secret::read(&file).map_err(|e| of_option(option, e))?;
    if secret.is_exposed() {
        tracing::warn!(option, "every user may read the file of a password");
    }
    Ok(Some(secret.into_text()))
}
