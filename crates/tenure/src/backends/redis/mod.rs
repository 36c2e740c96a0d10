//! Redis on its own: Redisson's lock layout, or the plain string lock, over one connection.
//!
//! Each verb is one script, so taking a free lock is one round trip and giving it back another.

mod fault;
mod keys;
mod link;
mod scripts;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use futures_util::future::{BoxFuture, join_all};
use redis::{IntoConnectionInfo, ProtocolVersion, TlsCertificates, Value, cmd};
use tracing::warn;

use self::fault::NAME;
use self::keys::Layout;
use self::link::{Link, Wake, text};
use self::scripts::Scripts;
use crate::backend::{
    Attempt, Backend, Broken, Capabilities, Claim, Client, Holder, Queue, Reach, Released, Renewal, Safety, Scope, State,
    Survival,
};
use crate::clock::{Clock, Instant};
use crate::connect::{Address, Context};
use crate::duration;
use crate::error::{Error, Fault, Result};
use crate::name::{OwnerId, Resource, Token};
use crate::signal::Signal;

/// How long a token outlives its last use: names that are locked once do not fill the server.
const TOKEN_IDLE: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// How long the client's own record lives at least. It is written anew before it can end under a hold.
const RECORD_LIFE: Duration = Duration::from_secs(600);

#[derive(Debug)]
struct Redis {
    link: Arc<Link>,
    layout: Layout,
    scripts: &'static Scripts,
    /// In milliseconds; zero: for ever.
    token_idle: String,
    client: Client,
    clock: Clock,
    timeout: Duration,
    record_until: Mutex<Instant>,
    wake: Wake,
}

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
        let record_until = Mutex::new(Instant::from_nanos(1));
        let Context { client, clock, timeout } = context;
        let redis = Redis { link, layout, scripts, token_idle, client, clock, timeout, record_until, wake };
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

impl Redis {
    /// Writes who we are, if the record would end before a hold of this lease does. Nobody waits for it alone.
    async fn keep_record(&self, lease: Duration) {
        let now = self.clock.now();
        let life = RECORD_LIFE.max(lease * 2);
        {
            let mut until = self.record_until.lock().unwrap_or_else(PoisonError::into_inner);
            if *until >= now.after(lease) {
                return;
            }
            *until = now.after(life);
        }
        let mut set = cmd("SET");
        set.arg(keys::client(self.client.id)).arg(&*self.client.about).arg("PX").arg(life.as_millis().to_string());
        // Only for those who ask who holds a lock: a lock does not fail for want of it.
        drop(self.link.command("writing the client's record", &set).await);
    }

    async fn state(&self, name: &Resource) -> Result<State> {
        let keys = [name.as_str(), &self.layout.token(name), &keys::note(name)];
        let mut subscribers = cmd("PUBSUB");
        subscribers.arg("NUMSUB").arg(self.layout.channel(name));
        let (answer, waiting) = tokio::join!(
            self.link.eval("inspecting", &self.scripts.inspect, &keys, &[]),
            self.link.command("counting subscribers", &subscribers)
        );
        let answer = array(answer?, "inspecting")?;
        let [left, token, note, holders @ ..] = &*answer else { return Err(unexpected("inspecting")) };
        let fence = token_of(token);
        let holders = self.holders(left, fence, note, holders).await;
        // Only subscribed processes are seen, and a server may not tell.
        let waiting = waiting.ok().and_then(|v| match v {
            Value::Array(pair) => pair.get(1).and_then(int).and_then(|n| u32::try_from(n).ok()),
            Value::Map(pairs) => pairs.first().and_then(|(_, n)| int(n)).and_then(|n| u32::try_from(n).ok()),
            _ => None,
        });
        Ok(State { resource: name.clone(), holders, waiting, fence })
    }

    async fn holders(&self, left: &Value, token: Option<Token>, note: &Value, holders: &[Value]) -> Vec<Holder> {
        let expires_in = int(left).and_then(|ms| u64::try_from(ms).ok()).map(Duration::from_millis);
        let note = text(note).and_then(|n| n.split_once(' '));
        join_all(holders.iter().filter_map(text).map(|owner| async move {
            let about = self.about(owner).await;
            // Whoever has no record here (Java, for one) has not taken its lock under the token that stands there.
            let token = about.as_ref().and(token);
            let since = token.and_then(|t| UNIX_EPOCH.checked_add(Duration::from_micros(t.get())));
            let own_note = note.filter(|(whose, _)| *whose == owner).map(|(_, note)| note.to_owned());
            Holder {
                owner: owner.to_owned(),
                token,
                since: since.filter(|s| *s <= SystemTime::now() + Duration::from_secs(3600)),
                expires_in,
                note: own_note.or(about),
            }
        }))
        .await
    }

    /// What the client of an owner said of itself.
    async fn about(&self, owner: &str) -> Option<String> {
        let owner: OwnerId = owner.parse().ok()?;
        let mut get = cmd("GET");
        get.arg(keys::client(owner.client));
        let answer = self.link.command("reading a client's record", &get).await.ok()?;
        text(&answer).map(str::to_owned)
    }

    /// The names of held locks under a prefix: those that look like one. There is no index; this reads all key names.
    async fn names(&self, prefix: &str) -> Result<Vec<Resource>> {
        let (pattern, kind) = match self.layout {
            Layout::Redisson => (keys::glob(prefix), "hash"),
            // Any string could be a plain lock: only those with a token of ours are listed.
            Layout::Plain => (keys::glob(&format!("{}:", self.layout.token_prefix())), "string"),
        };
        let mut names = Vec::new();
        let mut cursor = "0".to_owned();
        loop {
            let mut scan = cmd("SCAN");
            scan.arg(&cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(1000).arg("TYPE").arg(kind);
            let answer = array(self.bounded("listing", self.link.command("listing", &scan)).await?, "listing")?;
            let [next, Value::Array(found)] = &*answer else { return Err(unexpected("listing")) };
            for key in found.iter().filter_map(text) {
                let name = match self.layout {
                    Layout::Redisson => Some(key),
                    Layout::Plain => keys::unprefixed(self.layout.token_prefix(), key).filter(|n| n.starts_with(prefix)),
                };
                names.extend(name.and_then(|n| Resource::new(n).ok()));
            }
            match text(next) {
                Some("0") => break,
                Some(next) => next.clone_into(&mut cursor),
                None => return Err(unexpected("listing")),
            }
        }
        names.sort();
        // SCAN may tell a key twice.
        names.dedup();
        Ok(names)
    }

    /// Bounds one of many round trips.
    async fn bounded<T>(&self, doing: &str, call: impl Future<Output = Result<T>>) -> Result<T> {
        let late = || Error::unavailable(NAME, doing, Fault::Timeout, format!("no answer within {:?}", self.timeout));
        tokio::time::timeout(self.timeout, call).await.unwrap_or_else(|_| Err(late()))
    }

    fn is_lock(&self, state: &State) -> bool {
        !state.holders.is_empty()
            && state.holders.iter().all(|h| h.expires_in.is_some())
            && (self.layout == Layout::Plain || state.holders.iter().all(|h| h.owner.parse::<OwnerId>().is_ok()))
    }
}

#[async_trait]
impl Backend for Redis {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            backend: NAME,
            reach: Reach::Network,
            token_blocks: true,
            queues: false,
            watch_first: self.wake == Wake::Tracking,
            // A lock is as durable as the server's memory; tokens follow the clock and so outlive it.
            safety: Safety {
                holder_pause: Survival::FenceOnly,
                store_restart: Survival::FenceOnly,
                power_loss: Survival::FenceOnly,
                clock_jump: Survival::FenceOnly,
            },
        }
    }

    async fn acquire(&self, claim: &Claim) -> Result<Attempt> {
        let name = &claim.resource;
        let (token, note) = (self.layout.token(name), keys::note(name));
        let (owner, lease, tokens) = (claim.owner.to_string(), claim.lease_millis().to_string(), claim.tokens.to_string());
        let keys = [name.as_str(), &token, &note];
        let args = [&*owner, &*lease, &*tokens, &*self.token_idle, claim.note.as_deref().unwrap_or_default()];
        let without_note = usize::from(claim.note.is_none());
        let (keys, args) = (&keys[..3 - without_note], &args[..5 - without_note]);
        let ask = self.link.eval("acquiring", &self.scripts.acquire, keys, args);
        let (answer, ()) = tokio::join!(ask, self.keep_record(claim.lease));
        let answer = array(answer?, "acquiring")?;
        match &*answer {
            [Value::Int(1), top] => {
                let top = token_of(top).ok_or_else(|| unexpected("acquiring"))?;
                let first = top.get().checked_sub(u64::from(claim.tokens) - 1).ok_or_else(|| unexpected("acquiring"))?;
                Ok(Attempt::Granted { token: Token::new(first), valid_for: claim.lease })
            }
            [Value::Int(0), Value::Int(left), holder] => {
                let holder = text(holder).map(str::to_owned);
                let foreign = |what: &str| Error::backend(NAME, format!("acquiring {name:?}"), Fault::ForeignFormat, what);
                let Ok(left) = u64::try_from(*left) else { return Err(foreign("the key has no expiry and is not a lock")) };
                if self.layout == Layout::Redisson && !holder.as_deref().is_some_and(is_redisson_field) {
                    return Err(foreign("the key is a hash, but its fields are not owners of a lock"));
                }
                let mut poll_within = Duration::from_millis(left + 1);
                if claim.queue == Queue::Allowed {
                    poll_within = poll_within.min(self.link.waits(name, claim.owner));
                    if self.wake == Wake::PubSub && self.layout == Layout::Plain {
                        // Other libraries of this layout publish nothing.
                        poll_within = poll_within.min(Duration::from_millis(200));
                    }
                }
                Ok(Attempt::Busy { poll_within, holder })
            }
            _ => Err(unexpected("acquiring")),
        }
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Renewal>> {
        let notes: Vec<String> = claims.iter().map(|c| keys::note(&c.resource)).collect();
        let owners: Vec<[String; 2]> = claims.iter().map(|c| [c.owner.to_string(), c.lease_millis().to_string()]).collect();
        let mut keys = Vec::with_capacity(claims.len());
        let mut args = Vec::with_capacity(3 * claims.len());
        for ((claim, note), [owner, lease]) in claims.iter().zip(&notes).zip(&owners) {
            keys.push(claim.resource.as_str());
            args.extend([&**owner, &**lease, if claim.note.is_some() { "1" } else { "0" }]);
            if claim.note.is_some() {
                keys.push(note);
            }
        }
        let longest = claims.iter().map(|c| c.lease).max().unwrap_or_default();
        let ask = self.link.eval("renewing", &self.scripts.renew, &keys, &args);
        let (answer, ()) = tokio::join!(ask, self.keep_record(longest));
        let answers = array(answer?, "renewing")?;
        let renewal = |(answer, claim): (&Value, &Claim)| match answer {
            Value::Int(1) => Renewal::Extended { valid_for: claim.lease },
            _ => Renewal::Gone,
        };
        Ok(answers.iter().zip(claims).map(renewal).collect())
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        let name = &claim.resource;
        let note = keys::note(name);
        let keys = [name.as_str(), &note];
        let keys = &keys[..2 - usize::from(claim.note.is_none())];
        let (owner, channel) = (claim.owner.to_string(), self.layout.channel(name));
        match self.link.eval("releasing", &self.scripts.release, keys, &[&owner, &channel]).await? {
            Value::Int(0) => Ok(Released::NotHeld),
            Value::Int(told) => {
                if told == 2 {
                    warn!(?name, channel, "released, but this user may not publish: clients that listen are not woken");
                }
                self.link.wake(name);
                Ok(Released::Yes)
            }
            _ => Err(unexpected("releasing")),
        }
    }

    async fn watch(&self, claim: &Claim) -> Result<Signal> {
        self.link.listen(&claim.resource).await
    }

    async fn inspect(&self, scope: Scope<'_>) -> Result<Vec<State>> {
        match scope {
            Scope::One(name) => Ok(vec![self.state(name).await?]),
            Scope::Prefix(prefix) => {
                let mut states = Vec::new();
                for names in self.names(prefix).await?.chunks(64) {
                    // A key that vanished or changed in between is none of ours.
                    let found = self.bounded("listing", async { Ok(join_all(names.iter().map(|n| self.state(n))).await) });
                    states.extend(found.await?.into_iter().flatten().filter(|s| self.is_lock(s)));
                }
                Ok(states)
            }
        }
    }

    async fn break_hold(&self, name: &Resource) -> Result<Option<Broken>> {
        let keys = [name.as_str(), &self.layout.token(name), &keys::note(name)];
        let args = [&*self.layout.channel(name), &*self.token_idle];
        let answer = self.link.eval("breaking", &self.scripts.break_hold, &keys, &args).await?;
        if answer == Value::Nil {
            return Ok(None);
        }
        let answer = array(answer, "breaking")?;
        let [fence, left, old, note, holders @ ..] = &*answer else { return Err(unexpected("breaking")) };
        let fence = token_of(fence).ok_or_else(|| unexpected("breaking"))?;
        self.link.wake(name);
        Ok(Some(Broken { holders: self.holders(left, token_of(old), note, holders).await, fence }))
    }

    async fn close(&self) -> Result<()> {
        let mut del = cmd("DEL");
        del.arg(keys::client(self.client.id));
        // The record ends by itself if this does not reach the server.
        drop(self.link.command("removing the client's record", &del).await);
        self.link.close();
        Ok(())
    }
}

/// An owner, or what Redisson's read/write lock keeps in the same hash.
fn is_redisson_field(field: &str) -> bool {
    let owner = field.strip_suffix(":write").unwrap_or(field);
    field == "mode" || owner.parse::<OwnerId>().is_ok()
}

fn array(value: Value, doing: &str) -> Result<Vec<Value>> {
    match value {
        Value::Array(items) => Ok(items),
        _ => Err(unexpected(doing)),
    }
}

fn int(value: &Value) -> Option<i64> {
    match value {
        Value::Int(n) => Some(*n),
        other => text(other)?.parse().ok(),
    }
}

fn token_of(value: &Value) -> Option<Token> {
    text(value)?.parse().ok()
}

fn unexpected(doing: &str) -> Error {
    Error::backend(NAME, doing, Fault::Protocol, "the server's answer has another form than expected")
}
