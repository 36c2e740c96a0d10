//! From a URL to a deployment of Redis.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::cluster::Cluster;
use super::dial::{Dial, Server};
use super::inspect::KnownClients;
use super::keys::Layout;
use super::link::{Link, Place};
use super::replicas::Sync;
use super::route::{Route, Router};
use super::scripts::Scripts;
use super::sentinel::Sentinels;
use super::shared::{Shared, Wake};
use super::slots::Address;
use super::url::{Url, refuse};
use super::{Record, Redis};
use crate::backend::{Leases, Opened};
use crate::duration;
use crate::error::{Error, Result};
use crate::secret;
use crate::store::{self, Context, Credentials, Opening, Options, Scheme, decode, of_option};

/// How long a token outlives its last use: names that are locked once do not fill the server.
const TOKEN_IDLE: Duration = Duration::from_secs(7 * 24 * 60 * 60);

pub(super) const PORT: u16 = 6379;
pub(super) const SENTINEL_PORT: u16 = 26379;

/// With the options of every scheme of Redis, and with them those of one scheme.
macro_rules! scheme {
    ($name:literal $($own:literal)*) => {
        Scheme::new($name, open).options(&["layout", "semaphore", "token_ttl", "wake", "sync", "sync_timeout", "pass_file", $($own),*])
    };
}

pub(crate) static SCHEMES: [Scheme; 7] = [
    scheme!("redis"),
    scheme!("redis+unix" "user").local().place(&["db"]).secrets(&["pass"]),
    scheme!("redis+sentinel" "sentinel_user" "sentinel_pass_file").secrets(&["sentinel_pass"]).fails_over(),
    scheme!("redis+cluster" "sharded").fails_over(),
    scheme!("rediss" "ca" "cert" "key"),
    scheme!("rediss+sentinel" "sentinel_user" "sentinel_pass_file" "ca" "cert" "key").secrets(&["sentinel_pass"]).fails_over(),
    scheme!("rediss+cluster" "sharded" "ca" "cert" "key").fails_over(),
];

/// Opens all schemes of Redis.
pub(super) fn open(address: store::Address, context: Context) -> Opening {
    Box::pin(async move {
        let store::Address { scheme, place, credentials, mut options } = address;
        let layout = options.one_of("layout", &[("redisson", Layout::Redisson), ("plain", Layout::Plain)])?;
        let layout = layout.unwrap_or(Layout::Redisson);
        let token_idle = token_idle(&mut options)?.as_millis().to_string();
        let wakes = [("auto", None), ("tracking", Some(Wake::Tracking)), ("pubsub", Some(Wake::PubSub))];
        let wanted = options.one_of("wake", &wakes)?.flatten();
        let counters = options.one_of("semaphore", &[("expiring", false), ("counter", true)])?.unwrap_or(false);
        let sync = sync(&mut options, context.timeout)?;
        let shared = Shared::new(context.timeout, layout, wanted);
        let fails_over = scheme.contains("sentinel") || scheme.contains("cluster");
        let route = route(scheme, &place, credentials.as_ref(), &mut options, &shared).await?;
        let router = Router::new(route, shared);
        let wake = router.wake().await?;
        let scripts = Scripts::of(layout);
        let Context { client, clock, timeout, prefix, .. } = context;
        let known_clients = KnownClients::default();
        let redis = Redis {
            router,
            layout,
            scripts,
            token_idle,
            counters,
            sync,
            capabilities: super::capabilities(layout, wake, fails_over),
            client_text: client.id.to_string(),
            client,
            prefix,
            clock,
            timeout,
            known_clients,
            record: Record::default(),
        };
        let losses = redis.router.shared.watched.losses.clone();
        Ok(Opened::of_voter(Arc::new(redis)).with_losses(losses))
    })
}

async fn route(
    scheme: &'static str,
    place: &str,
    credentials: Option<&Credentials>,
    options: &mut Options,
    shared: &Arc<Shared>,
) -> Result<Route> {
    let one = |place| Route::One(Link::new(place, shared));
    if scheme == "redis+unix" {
        return Ok(one(Place::Fixed(unix(scheme, place, options)?)));
    }
    let sentinel = scheme.ends_with("+sentinel");
    let mut url = Url::parse(scheme, place, credentials, if sentinel { SENTINEL_PORT } else { PORT })?;
    url.pass = password(url.pass, "pass_file", options)?;
    let dial = Dial::new(scheme, &url, options)?;
    if sentinel {
        let [master, db @ ..] = &*url.path else { return Err(refuse(scheme, "does not name the master")) };
        if db.len() > 1 {
            return Err(refuse(scheme, "has a longer path"));
        }
        let (user, pass) = (options.take("sentinel_user"), options.take("sentinel_pass"));
        let pass = password(pass, "sentinel_pass_file", options)?;
        if user.is_some() && pass.is_none() {
            let allowed = "sentinel_user with sentinel_pass or sentinel_pass_file";
            return Err(Error::config("the option \"sentinel_user\"", "is of no use alone", allowed));
        }
        let login = dial.login(user.as_deref(), pass.as_deref());
        let dial = dial.db(scheme, db.first().map(String::as_str))?;
        let sentinels = Sentinels::new(master.clone(), &url.hosts, &login, dial, shared.timeout);
        let link = Link::new(Place::Master(Arc::clone(&sentinels)), shared);
        link.connect().await?;
        sentinels.watch(&link);
        return Ok(Route::One(link));
    }
    if scheme.ends_with("+cluster") {
        if !url.path.is_empty() {
            return Err(refuse(scheme, "has a path: a cluster has only one database"));
        }
        let modes = [("auto", None), ("on", Some(true)), ("off", Some(false))];
        let sharded = options.one_of("sharded", &modes)?.flatten();
        let cluster = Cluster::open(scheme, &url.hosts, dial, shared).await?;
        let sharded = match sharded {
            Some(sharded) => sharded,
            None => cluster.has_shard_channels().await?,
        };
        shared.sharded.store(sharded, Ordering::Relaxed);
        return Ok(Route::Cluster(cluster));
    }
    let ([host], [] | [_]) = (&*url.hosts, &*url.path) else {
        return Err(refuse(scheme, "has several hosts or a longer path (redis+sentinel: and redis+cluster: take several hosts)"));
    };
    let dial = dial.db(scheme, url.path.first().map(String::as_str))?;
    Ok(one(Place::Fixed(dial.server(host))))
}

/// A unix socket has no place in its URL for a login or a database: they are options.
pub(super) fn unix(scheme: &'static str, place: &str, options: &mut Options) -> Result<Server> {
    let path = place.strip_prefix("//").unwrap_or(place);
    let path = decode(path).filter(|path| path.starts_with('/')).ok_or_else(|| refuse(scheme, "names no socket"))?;
    let nowhere: Address = (String::new(), 0);
    let pass = password(options.take("pass"), "pass_file", options)?;
    let url = Url { user: options.take("user"), pass, hosts: vec![nowhere], path: Vec::new() };
    let dial = Dial::new(scheme, &url, options)?.db(scheme, options.take("db").as_deref())?;
    Ok(dial.socket(path.into()))
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

pub(super) fn token_idle(options: &mut Options) -> Result<Duration> {
    match options.take("token_ttl").as_deref() {
        None => Ok(TOKEN_IDLE),
        Some("never") => Ok(Duration::ZERO),
        Some(text) => match duration::parse(text).map_err(|e| of_option("token_ttl", e))? {
            d if d < Leases::ANY.longest => {
                let problem = "could let a token go back under a hold";
                Err(Error::config("the option \"token_ttl\"", problem, "24h or more, or never"))
            }
            d => Ok(d),
        },
    }
}

pub(super) fn sync(options: &mut Options, timeout: Duration) -> Result<Option<Sync>> {
    let within = options.duration("sync_timeout")?;
    let Some(text) = options.take("sync") else {
        return match within {
            Some(_) => Err(Error::config("the option \"sync_timeout\"", "is of no use alone", "sync=1&sync_timeout=500ms")),
            None => Ok(None),
        };
    };
    let wrong = |problem: &str| Error::config("the option \"sync\"", problem, "a number of replicas, 1 or more");
    let replicas = text.parse().map_err(|_| wrong("is no number"))?;
    if replicas == 0 {
        return Err(wrong("would wait for nobody; without the option nothing waits"));
    }
    let longest = timeout / 3;
    let within = within.unwrap_or(Sync::WITHIN.min(longest));
    // WAIT takes zero for ever.
    if within < Duration::from_millis(1) || within > longest {
        let allowed = format!("1ms to {longest:?}, a third of the timeout");
        return Err(Error::config("the option \"sync_timeout\"", "is out of range", allowed));
    }
    Ok(Some(Sync { replicas, within }))
}
