//! From a URL to a client of a server.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use redis::{IntoConnectionInfo, ProtocolVersion, TlsCertificates};

use super::Redis;
use super::keys::Layout;
use super::link::{Link, Wake};
use super::scripts::Scripts;
use crate::backend::{Backend, Claim};
use crate::clock::Instant;
use crate::connect::{Address, Context};
use crate::duration;
use crate::error::{Error, Result};

/// How long a token outlives its last use: names that are locked once do not fill the server.
const TOKEN_IDLE: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Opens `redis:`, `rediss:` and `redis+unix:`.
pub(crate) fn open(address: Address, context: Context) -> BoxFuture<'static, Result<Arc<dyn Backend>>> {
    Box::pin(async move {
        let Address { scheme, rest, mut options } = address;
        let layout = match options.take("layout").as_deref() {
            None | Some("redisson") => Layout::Redisson,
            Some("plain") => Layout::Plain,
            Some(other) => return Err(Error::config(format!("the layout {other:?}"), "is unknown", "redisson, plain")),
        };
        let token_idle = match options.take("token_ttl").as_deref() {
            None => TOKEN_IDLE,
            Some("never") => Duration::ZERO,
            Some(text) => match duration::parse(text)? {
                d if d < Claim::MAX_LEASE => {
                    let asked = format!("a token_ttl of {text}");
                    return Err(Error::config(asked, "could let a token go back under a hold", "24h or more, or never"));
                }
                d => d,
            },
        };
        let wanted = match options.take("wake").as_deref() {
            None | Some("auto") => None,
            Some("tracking") => Some(Wake::Tracking),
            Some("pubsub") => Some(Wake::PubSub),
            Some(other) => return Err(Error::config(format!("the wake {other:?}"), "is unknown", "auto, tracking, pubsub")),
        };
        let ca = options.take("ca");
        let login = [options.take("db"), options.take("user"), options.take("pass")];
        let client = client(scheme, &rest, ca, login)?;
        let link = Link::new(client, context.timeout, layout, wanted);
        let wake = link.connect().await?;
        let scripts = Scripts::of(layout);
        let token_idle = token_idle.as_millis().to_string();
        let record = Mutex::new((Instant::from_nanos(1), 0));
        let Context { client, clock, timeout } = context;
        let redis = Redis { link, layout, scripts, token_idle, client, clock, timeout, record, wake };
        Ok(Arc::new(redis) as Arc<dyn Backend>)
    })
}

/// Errors here never show the URL: it may hold a password.
fn client(scheme: &str, rest: &str, ca: Option<String>, [db, user, pass]: [Option<String>; 3]) -> Result<redis::Client> {
    let refuse = |problem: String| {
        let allowed = "redis://[user:password@]host[:port][/db], rediss://…, redis+unix:///path";
        Error::config(format!("the {scheme}: URL"), problem, allowed)
    };
    if rest.contains('#') {
        return Err(refuse("has a fragment (TLS is always verified)".to_owned()));
    }
    let info = format!("{scheme}:{rest}").into_connection_info().map_err(|e| refuse(format!("cannot be read: {e}")))?;
    let mut settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    settings = settings.set_lib_name("tenure", env!("CARGO_PKG_VERSION"));
    if let Some(db) = db {
        settings = settings.set_db(db.parse().map_err(|_| refuse(format!("has the database {db:?}, which is no number")))?);
    }
    if let Some(user) = user {
        settings = settings.set_username(user);
    }
    if let Some(pass) = pass {
        settings = settings.set_password(pass);
    }
    let info = info.set_redis_settings(settings);
    if scheme != "rediss" {
        return redis::Client::open(info).map_err(|e| refuse(e.to_string()));
    }
    // Another provider may have been chosen by the program; any of them verifies.
    drop(rustls::crypto::ring::default_provider().install_default());
    let Some(ca) = ca else { return redis::Client::open(info).map_err(|e| refuse(e.to_string())) };
    let pem =
        std::fs::read(&ca).map_err(|e| Error::config(format!("the certificate file {ca:?}"), e.to_string(), "a PEM file"))?;
    let certificates = TlsCertificates { client_tls: None, root_cert: Some(pem) };
    redis::Client::build_with_tls(info, certificates).map_err(|e| refuse(e.to_string()))
}
