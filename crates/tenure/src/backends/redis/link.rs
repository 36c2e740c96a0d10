//! The connection to one server: commands and pushes over one multiplexed RESP3 connection, made anew when it breaks.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use redis::aio::AsyncPushSender;
use redis::{AsyncConnectionConfig, PushInfo, PushKind};
use tokio::sync::oneshot;
use tracing::debug;

use super::calls::{Aborted, given_up};
use super::channels::Channels;
use super::connection::Connection;
use super::dial::Server;
use super::fault::{Failure, NAME};
use super::near::Near;
use super::sentinel::Sentinels;
use super::shared::{Shared, Wake, lock};
use super::single_flight::SingleFlight;
use crate::error::{Error, Fault, Result};
use crate::retry::jitter;

/// How many calls can wait to be sent at the same time.
const CALLS_AT_ONCE: usize = 1 << 20;

/// Where a link's server is.
pub(super) enum Endpoint {
    /// Always there.
    Fixed(Server),
    /// Where the sentinels say that the master is. A replica will not do.
    Master(Arc<Sentinels>),
}

impl Endpoint {
    async fn server(&self) -> Result<Server, Failure> {
        match self {
            Self::Fixed(server) => Ok(server.clone()),
            Self::Master(sentinels) => sentinels.master().await.map_err(Failure::lost),
        }
    }
}

pub(super) struct Link {
    pub(super) me: Weak<Self>,
    endpoint: Endpoint,
    pub(super) shared: Arc<Shared>,
    live: Mutex<Option<Arc<Live>>>,
    /// Aborts the calls under way, also those without a connection yet.
    pub(super) generation: Mutex<Arc<Aborted>>,
    connecting: tokio::sync::Mutex<()>,
    /// Where the last connection was to go, to compare with what sentinels say.
    dialled: Mutex<String>,
    pub(super) near: Near,
    /// Calls under way.
    pub(super) in_flight: AtomicUsize,
    /// Calls in a row that were cut off.
    pub(super) cut_off: AtomicU64,
    /// Held while the server is told, so only with a limit.
    pub(super) channels: tokio::sync::Mutex<Channels>,
}

/// A connection that worked when last heard of.
pub(super) struct Live {
    pub(super) link: Weak<Link>,
    pub(super) connection: Connection,
    pub(super) id: u64,
    pub(super) wake: Wake,
    pub(super) aborted: Arc<Aborted>,
    /// `WAIT` for replicas.
    pub(super) waits: SingleFlight<u32>,
}

impl Live {
    /// The connection over which the server pushes: of a near one, that beside it.
    pub(super) fn session(&self) -> u64 {
        self.link.upgrade().map_or(self.id, |link| link.session())
    }
}

impl Link {
    /// A link that connects when it is first used.
    pub(super) fn new(endpoint: Endpoint, shared: &Arc<Shared>) -> Arc<Self> {
        let link = Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            endpoint,
            shared: Arc::clone(shared),
            live: Mutex::default(),
            generation: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
            dialled: Mutex::default(),
            near: Near::default(),
            in_flight: AtomicUsize::new(0),
            cut_off: AtomicU64::new(0),
            channels: tokio::sync::Mutex::default(),
        });
        shared.add(Arc::downgrade(&link));
        link
    }

    /// Whether its server may be another one from now on.
    pub(super) fn follows_master(&self) -> bool {
        matches!(self.endpoint, Endpoint::Master(_))
    }

    /// Connects if need be, and says how waiters are woken.
    pub(super) async fn connect(&self) -> Result<Wake, Failure> {
        Ok(self.unless_aborted("connecting", self.connected()).await?.wake)
    }

    pub(super) fn live(&self) -> MutexGuard<'_, Option<Arc<Live>>> {
        lock(&self.live)
    }

    /// How waiters are woken, if there is a connection that has not been heard to break.
    pub(super) fn wake(&self) -> Option<Wake> {
        self.live().as_ref().map(|live| live.wake)
    }

    /// The present connection, zero if there is none.
    pub(super) fn session(&self) -> u64 {
        self.live().as_ref().map_or(0, |live| live.id)
    }

    pub(super) fn is_live(&self) -> bool {
        self.live().is_some()
    }

    pub(super) async fn connected(&self) -> Result<Arc<Live>, Failure> {
        if let Some(live) = self.live().clone() {
            return Ok(live);
        }
        let Some(link) = self.me.upgrade() else { return Err(given_up("connecting")) };
        let (mut answer, connected) = oneshot::channel();
        // Spawned: a caller may stop half-way for any time, and must not keep the others from connecting.
        self.shared.runtime.spawn(async move {
            let _one_at_a_time = tokio::select! {
                biased;
                // A caller that has left begins nothing: calls to a silent server would pile up, each with a dial of its own.
                () = answer.closed() => return,
                alone = link.connecting.lock() => alone,
            };
            drop(answer.send(link.connect_alone().await));
        });
        connected.await.unwrap_or_else(|_| Err(given_up("connecting")))
    }

    async fn connect_alone(&self) -> Result<Arc<Live>, Failure> {
        if let Some(live) = self.live().clone() {
            return Ok(live);
        }
        let late = |_| {
            let detail = format!("no answer within {:?}", self.shared.timeout);
            Err(Failure::lost(Error::unavailable(NAME, "connecting", Fault::Timeout, detail)))
        };
        // Given up with all calls: the server may be elsewhere now, and this dial hang.
        let made = self.unless_aborted("connecting", self.make_connection());
        tokio::time::timeout(self.shared.timeout, made).await.unwrap_or_else(late)
    }

    async fn make_connection(&self) -> Result<Arc<Live>, Failure> {
        let (me, id, aborted) = (Weak::clone(&self.me), self.shared.next_id(), self.generation());
        let generation = Arc::clone(&aborted);
        let on_push = move |push: PushInfo| {
            if let Some(link) = me.upgrade() {
                // Unasked. redis-rs takes it for an answer, and every later answer would be that of another call.
                if is_unasked(&push.kind) {
                    link.abort(&generation);
                }
                link.on_push(id, &push);
            }
            Ok::<(), ()>(())
        };
        let (connection, address) = self.dial(on_push).await?;
        let wake = connection.start_pushes(self.shared.wanted).await?;
        let is_master = connection.is_master().await?;
        if let (Endpoint::Master(_), false) = (&self.endpoint, is_master) {
            let detail = format!("the sentinels name {address} as the master, which it is not (any more)");
            return Err(Failure::lost(Error::unavailable(NAME, "connecting", Fault::ReadOnly, detail)));
        }
        aborted.ends(connection.driver());
        let live = Arc::new(Live { link: Weak::clone(&self.me), connection, id, wake, aborted, waits: SingleFlight::default() });
        {
            let mut present = self.live();
            // All calls were ended meanwhile, perhaps because the server is elsewhere now.
            if live.aborted.is_set() {
                return Err(given_up("connecting"));
            }
            *present = Some(Arc::clone(&live));
        }
        self.cut_off.store(0, Ordering::Relaxed);
        self.shared.connections.fetch_add(1, Ordering::Relaxed);
        debug!(connection = id, address, ?wake, "connected to redis");
        // Pushes may have been missed meanwhile; but a replica has no locks to give.
        if is_master {
            self.shared.hub.fire_all();
            self.shared.watched.lost_sight();
        }
        Ok(live)
    }

    /// A connection to the server, wherever that is now, and the address.
    pub(super) async fn dial(&self, on_push: impl AsyncPushSender) -> Result<(Connection, String), Failure> {
        if self.shared.closed.load(Ordering::Relaxed) {
            return Err(Failure::lost(Error::Closed));
        }
        if self.shared.connections.load(Ordering::Relaxed) > 0 {
            // All clients of a server that dropped them would come back in the same millisecond.
            tokio::time::sleep(jitter(Duration::from_millis(20))).await;
        }
        let config = AsyncConnectionConfig::new()
            // On purpose none: the engine bounds every call, and a call that it cuts off ends the connection.
            .set_response_timeout(None)
            // Never full: a caller that stands still with its place in the buffer would keep out renewals.
            .set_pipeline_buffer_size(CALLS_AT_ONCE)
            .set_push_sender(on_push);
        let server = self.endpoint.server().await?;
        let address = server.to_string();
        lock(&self.dialled).clone_from(&address);
        let connect = server.connect(config, self.shared.timeout);
        Ok((connect.await.map_err(|e| Failure::of("connecting", &e))?, address))
    }

    /// Uses a connection no more; calls under way may still be answered.
    pub(super) fn discard(&self, id: u64) {
        let mut live = self.live();
        if live.as_ref().is_some_and(|live| live.id == id) {
            *live = None;
        }
        drop(live);
        self.near.discard(Some(id));
    }

    /// Gives back all connections for good.
    pub(super) fn close(&self) {
        self.abort_all();
        if let Endpoint::Master(sentinels) = &self.endpoint {
            sentinels.close();
        }
        if let Ok(mut channels) = self.channels.try_lock() {
            *channels = Channels::default();
        }
    }

    /// The server is at another address now: what is under way to this one will not be answered by the one that counts.
    pub(super) fn moved_to(&self, address: &str) {
        let was_elsewhere = {
            let mut dialled = lock(&self.dialled);
            // From now on: several sentinels say the same, and the connection that is made for the first must not end for the next.
            std::mem::replace(&mut *dialled, address.to_owned()) != address
        };
        if was_elsewhere {
            self.abort_all();
        }
        let unwanted = self.is_live() || self.shared.closed.load(Ordering::Relaxed);
        let (false, Some(link)) = (unwanted, self.me.upgrade()) else { return };
        // The next renewal or waiter should find a connection.
        self.shared.runtime.spawn(async move {
            if link.connect().await.is_err() {
                link.lost_touch();
            }
        });
    }
}

/// Whether a push is the answer to a command that is never sent over a link's own connection.
fn is_unasked(kind: &PushKind) -> bool {
    matches!(kind, PushKind::SSubscribe | PushKind::SUnsubscribe | PushKind::PSubscribe | PushKind::PUnsubscribe)
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The address, not the credentials.
        let address = match &self.endpoint {
            Endpoint::Fixed(server) => server.to_string(),
            Endpoint::Master(sentinels) => format!("{sentinels:?}"),
        };
        f.debug_struct("Link").field("address", &address).finish_non_exhaustive()
    }
}
