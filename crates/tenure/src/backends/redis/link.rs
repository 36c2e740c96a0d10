//! The connection to one server: commands and pushes over one multiplexed RESP3 connection, made anew when it breaks.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, ErrorKind, PushInfo, PushKind, RedisError, ServerErrorKind, Value, cmd};
use tokio::runtime::Handle;
use tracing::debug;

use super::fault::{NAME, sort};
use super::keys::Layout;
use super::reply::text;
use super::scripts::Source;
use crate::error::{Error, Fault, Result};
use crate::name::{OwnerId, Resource};
use crate::retry::jitter;
use crate::signal::{Hub, Signal};

/// How waiters are woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wake {
    /// `CLIENT TRACKING`: the busy answer itself has read the key, so any change of it is pushed, whoever makes it.
    Tracking,
    /// The channel of the lock: costs a subscription, and hears only of those who publish.
    PubSub,
}

/// A wait that lasts longer than this becomes visible to others through a subscription.
const VISIBLE_AFTER: Duration = Duration::from_millis(500);

/// A server that has not answered for this long is not just slow.
const HICCUP: Duration = Duration::from_millis(200);

pub(crate) struct Link {
    me: Weak<Self>,
    client: Client,
    timeout: Duration,
    layout: Layout,
    /// `None`: tracking where the server allows it.
    wanted: Option<Wake>,
    runtime: Handle,
    hub: Hub,
    live: Mutex<Option<Live>>,
    connecting: tokio::sync::Mutex<()>,
    connections: AtomicU64,
    /// Calls in a row that were cut off.
    cut_off: AtomicU64,
    /// Names whose channels the present connection is subscribed to. Held while the server is told, so only with a
    /// limit: a new connection waits for it.
    subscribed: tokio::sync::Mutex<HashSet<String>>,
    /// Names that somebody waits for, since when.
    waits: Mutex<HashMap<String, (OwnerId, Instant)>>,
}

/// A connection that worked when last heard of.
#[derive(Clone)]
struct Live {
    connection: MultiplexedConnection,
    id: u64,
    wake: Wake,
}

impl Link {
    /// A link that connects when it is first used.
    pub(crate) fn new(client: Client, timeout: Duration, layout: Layout, wanted: Option<Wake>) -> Arc<Self> {
        Arc::new_cyclic(|me: &Weak<Self>| {
            let on_last = {
                let me = Weak::clone(me);
                move |name: &str| {
                    if let Some(link) = me.upgrade() {
                        link.stopped_listening(name);
                    }
                }
            };
            Self {
                me: Weak::clone(me),
                client,
                timeout,
                layout,
                wanted,
                runtime: Handle::current(),
                hub: Hub::with_on_last(on_last),
                live: Mutex::default(),
                connecting: tokio::sync::Mutex::default(),
                connections: AtomicU64::new(0),
                cut_off: AtomicU64::new(0),
                subscribed: tokio::sync::Mutex::default(),
                waits: Mutex::default(),
            }
        })
    }

    /// Connects if need be, and says how waiters are woken.
    pub(crate) async fn connect(&self) -> Result<Wake> {
        Ok(self.connected().await?.wake)
    }

    /// Counts the connections made so far: a server on a new one may have lost what it was told before.
    pub(crate) fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    /// Runs a script by its hash, or by its text if the server does not know it.
    pub(crate) async fn eval(&self, doing: &str, script: &Source, keys: &[&str], args: &[&str]) -> Result<Value> {
        let call = |verb: &str, body: &str| {
            let mut call = cmd(verb);
            call.arg(body).arg(keys.len()).arg(keys).arg(args);
            call
        };
        self.attempt(doing, async |connection| match call("EVALSHA", &script.hash).query_async(connection).await {
            Err(e) if e.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                call("EVAL", &script.text).query_async(connection).await
            }
            answer => answer,
        })
        .await
    }

    /// Runs one command.
    pub(crate) async fn command(&self, doing: &str, command: &Cmd) -> Result<Value> {
        self.attempt(doing, async |connection| command.query_async(connection).await).await
    }

    async fn attempt(
        &self,
        doing: &str,
        call: impl AsyncFnOnce(&mut MultiplexedConnection) -> redis::RedisResult<Value>,
    ) -> Result<Value> {
        let mut live = self.connected().await?;
        let flight = Flight { link: self, id: live.id, took_off: Instant::now(), landed: false };
        let answer = call(&mut live.connection).await;
        flight.land();
        answer.map_err(|e| {
            if is_broken(&e) {
                self.discard(live.id);
            }
            sort(doing, &e)
        })
    }

    fn live(&self) -> MutexGuard<'_, Option<Live>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn connected(&self) -> Result<Live> {
        if let Some(live) = self.live().clone() {
            return Ok(live);
        }
        let _one_at_a_time = self.connecting.lock().await;
        if let Some(live) = self.live().clone() {
            return Ok(live);
        }
        let id = self.connections.fetch_add(1, Ordering::Relaxed);
        if id > 0 {
            // All clients of a server that dropped them would come back in the same millisecond.
            tokio::time::sleep(jitter(Duration::from_millis(20))).await;
        }
        let me = Weak::clone(&self.me);
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.timeout))
            // On purpose none: the engine bounds every call, and a call that it cuts off ends the connection.
            .set_response_timeout(None)
            .set_push_sender(move |push| {
                if let Some(link) = me.upgrade() {
                    link.on_push(id, &push);
                }
                Ok::<(), ()>(())
            });
        let connect = self.client.get_multiplexed_async_connection_with_config(&config);
        let mut connection = connect.await.map_err(|e| sort("connecting", &e))?;
        let wake = self.start_pushes(&mut connection).await?;
        let live = Live { connection, id, wake };
        *self.live() = Some(live.clone());
        debug!(connection = id, ?wake, "connected to redis");
        // Nobody knows what was missed meanwhile.
        self.hub.fire_all();
        Ok(live)
    }

    async fn start_pushes(&self, connection: &mut MultiplexedConnection) -> Result<Wake> {
        let mut subscribed = self.subscribed.lock().await;
        subscribed.clear();
        if self.wanted != Some(Wake::PubSub) {
            // NOLOOP: our own writes are no news to us.
            let answer = cmd("CLIENT").arg("TRACKING").arg("ON").arg("NOLOOP").query_async::<Value>(connection).await;
            match answer {
                Ok(_) => return Ok(Wake::Tracking),
                Err(e) if is_broken(&e) || self.wanted.is_some() => return Err(sort("turning on CLIENT TRACKING", &e)),
                Err(e) => debug!(error = %e, "no CLIENT TRACKING here; waiters subscribe"),
            }
        }
        let names: Vec<String> = self.hub.keys().iter().map(ToString::to_string).collect();
        if !names.is_empty() {
            let channels: Vec<String> = names.iter().filter_map(|n| Some(self.layout.channel(&Resource::new(n).ok()?))).collect();
            connection.subscribe(channels).await.map_err(|e| sort("subscribing", &e))?;
            subscribed.extend(names);
        }
        Ok(Wake::PubSub)
    }

    fn discard(&self, id: u64) {
        let mut live = self.live();
        if live.as_ref().is_some_and(|live| live.id == id) {
            *live = None;
        }
    }

    /// Ends the connection for good; calls under way fail.
    pub(crate) fn close(&self) {
        *self.live() = None;
    }

    fn on_push(&self, id: u64, push: &PushInfo) {
        match push.kind {
            PushKind::Invalidate => match push.data.first() {
                Some(Value::Array(keys)) => keys.iter().filter_map(text).for_each(|name| self.hub.fire(name)),
                // The whole database was emptied.
                _ => self.hub.fire_all(),
            },
            PushKind::Message => {
                // With tracking the same release has been told already; a subscription there only makes us visible.
                let listens = self.live().as_ref().is_some_and(|live| live.wake == Wake::PubSub);
                let names = push.data.first().and_then(text).and_then(|channel| self.layout.names_of_channel(channel));
                if let (true, Some(names)) = (listens, names) {
                    names.iter().for_each(|name| self.hub.fire(name));
                }
            }
            PushKind::Disconnection => {
                self.discard(id);
                // Those who wait ask again, and so connect again, each with its own back-off.
                self.hub.fire_all();
            }
            _ => {}
        }
    }

    /// Listens for changes of a name.
    pub(crate) async fn listen(&self, name: &Resource) -> Result<Signal> {
        let (signal, _) = self.hub.listen(name.as_str());
        if self.connected().await?.wake == Wake::PubSub {
            self.subscribe(name).await?;
        }
        Ok(signal)
    }

    /// Wakes those of this process who wait: the server does not tell us of our own writes.
    pub(crate) fn wake(&self, name: &Resource) {
        self.hub.fire(name.as_str());
    }

    /// Notes that an owner was told "busy" and will wait; says how long it may do so before it asks again.
    pub(crate) fn waits(&self, name: &Resource, owner: OwnerId) -> Duration {
        // Who does not listen has nothing that would forget it again.
        if !self.hub.listens(name.as_str()) {
            return 2 * VISIBLE_AFTER;
        }
        let visible = {
            let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
            let (who, since) = *waits.entry(name.as_str().to_owned()).or_insert_with(|| (owner, Instant::now()));
            if who != owner {
                waits.insert(name.as_str().to_owned(), (owner, Instant::now()));
            }
            who == owner && since.elapsed() >= VISIBLE_AFTER
        };
        if !visible {
            return 2 * VISIBLE_AFTER;
        }
        let (Some(link), name) = (self.me.upgrade(), name.clone()) else { return 2 * VISIBLE_AFTER };
        // Nobody needs to wait for this: it only lets `inspect` count us.
        self.runtime.spawn(async move { drop(tokio::time::timeout(link.timeout, link.subscribe(&name)).await) });
        10 * VISIBLE_AFTER
    }

    async fn subscribe(&self, name: &Resource) -> Result<()> {
        let mut subscribed = self.subscribed.lock().await;
        if subscribed.contains(name.as_str()) || !self.hub.listens(name.as_str()) {
            return Ok(());
        }
        let Some(mut live) = self.live().clone() else {
            return Err(Error::unavailable(NAME, "subscribing", Fault::Connection, "the connection broke"));
        };
        live.connection.subscribe(self.layout.channel(name)).await.map_err(|e| sort("subscribing", &e))?;
        subscribed.insert(name.as_str().to_owned());
        Ok(())
    }

    fn stopped_listening(&self, name: &str) {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
        let might_be = self.subscribed.try_lock().map_or(true, |subscribed| subscribed.contains(name));
        let (true, Some(link), Ok(name)) = (might_be, self.me.upgrade(), Resource::new(name)) else { return };
        self.runtime.spawn(async move {
            let mut subscribed = link.subscribed.lock().await;
            // Somebody may have begun to listen again.
            if link.hub.listens(name.as_str()) || !subscribed.remove(name.as_str()) {
                return;
            }
            let live = link.live().clone();
            if let Some(mut live) = live {
                drop(tokio::time::timeout(link.timeout, live.connection.unsubscribe(link.layout.channel(&name))).await);
            }
        });
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The address, not the credentials.
        f.debug_struct("Link").field("address", &self.client.get_connection_info().addr().to_string()).finish_non_exhaustive()
    }
}

/// A call under way. One that is dropped was cut off for taking too long: its connection may be half open.
struct Flight<'a> {
    link: &'a Link,
    id: u64,
    took_off: Instant,
    landed: bool,
}

impl Flight<'_> {
    fn land(mut self) {
        self.landed = true;
        self.link.cut_off.store(0, Ordering::Relaxed);
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        if self.landed {
            return;
        }
        // A short lease cuts calls off after a few milliseconds: once may be a hiccup, twice in a row is not.
        let again = self.link.cut_off.fetch_add(1, Ordering::Relaxed) > 0;
        if again || self.took_off.elapsed() >= HICCUP {
            self.link.discard(self.id);
        }
    }
}

/// Whether a new connection is needed; a demoted server may have a successor under the same name.
fn is_broken(e: &RedisError) -> bool {
    e.is_unrecoverable_error()
        || e.is_connection_dropped()
        || e.is_io_error()
        || e.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly)
}
