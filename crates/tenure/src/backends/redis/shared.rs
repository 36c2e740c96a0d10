//! What the links of one client share: its waiters, and how they are woken.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

use super::claims::Claims;
use super::keys::Layout;
use super::link::Link;
use super::places::Places;
use super::route::Router;
use super::watched::Watched;
use crate::name::OwnerId;
use crate::signal::Hub;

/// How waiters are woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wake {
    /// `CLIENT TRACKING`: a waiter has the key read in the same step in which it asks. The server then pushes any change of it,
    /// by any client. What is pushed is forgotten, and nothing is forgotten without a push.
    Tracking,
    /// The channel of the lock: costs a subscription, and tells only of releases that are published.
    PubSub,
}

/// Per key, the connection over which its next change is told, and how much had been heard when that was asked for.
type Told = HashMap<String, (u64, u64)>;

pub(super) struct Shared {
    pub(super) timeout: Duration,
    pub(super) layout: Layout,
    /// `None`: tracking where the server allows it.
    pub(super) wanted: Option<Wake>,
    /// Whether channels are those of a cluster's shards.
    pub(super) sharded: AtomicBool,
    pub(super) closed: AtomicBool,
    pub(super) runtime: Handle,
    pub(super) hub: Hub,
    /// Connections made so far, to whatever server: one that is new to us may not know what others were told.
    pub(super) connections: AtomicU64,
    ids: AtomicU64,
    /// Channels with waiters, since when.
    waits: Mutex<HashMap<String, (OwnerId, Instant)>>,
    pub(super) places: Places,
    /// Of which keys servers will tell, by channel: not every channel has one name, and readers depend on more keys.
    told: Mutex<HashMap<String, Told>>,
    /// Who looks after what is broken.
    pub(super) router: OnceLock<Weak<Router>>,
    links: Mutex<Vec<Weak<Link>>>,
    /// Holds that servers watch for us.
    pub(super) watched: Watched,
    /// Set with the first hold that may linger.
    pub(super) claims: OnceLock<Claims>,
}

impl Shared {
    pub(super) fn new(timeout: Duration, layout: Layout, wanted: Option<Wake>) -> Arc<Self> {
        Arc::new_cyclic(|me: &Weak<Self>| {
            let me = Weak::clone(me);
            let on_last = move |channel: &str| {
                let Some(shared) = me.upgrade() else { return };
                lock(&shared.waits).remove(channel);
                shared.places.leave(channel);
                lock(&shared.told).remove(channel);
                let links: Vec<_> = lock(&shared.links).iter().filter_map(Weak::upgrade).collect();
                links.iter().for_each(|link| link.stopped_listening(channel));
            };
            Self {
                timeout,
                layout,
                wanted,
                sharded: AtomicBool::new(false),
                closed: AtomicBool::new(false),
                runtime: Handle::current(),
                hub: Hub::with_on_last(on_last),
                connections: AtomicU64::new(0),
                ids: AtomicU64::new(0),
                waits: Mutex::default(),
                places: Places::default(),
                told: Mutex::default(),
                router: OnceLock::new(),
                links: Mutex::default(),
                watched: Watched::default(),
                claims: OnceLock::new(),
            }
        })
    }

    /// A number for a connection, never zero.
    pub(super) fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Remembers a link for as long as it lives.
    pub(super) fn add(&self, link: Weak<Link>) {
        let mut links = lock(&self.links);
        links.retain(|link| link.strong_count() > 0);
        links.push(link);
    }

    /// Notes that an owner waits on a channel, and says for how long it has done so. Its successor starts again.
    pub(super) fn waits_since(&self, channel: &str, owner: OwnerId) -> Duration {
        let mut waits = lock(&self.waits);
        // Nobody would take it away again after the last one who listens.
        if !self.hub.listens(channel) {
            return Duration::ZERO;
        }
        let wait = waits.entry(channel.to_owned()).or_insert_with(|| (owner, Instant::now()));
        if wait.0 != owner {
            *wait = (owner, Instant::now());
        }
        wait.1.elapsed()
    }

    /// Whether the next change of these keys will be told over this connection, because nothing was `heard` since that was asked for.
    pub(super) fn is_told(&self, channel: &str, keys: &[&str], session: u64, heard: u64) -> bool {
        let told = lock(&self.told);
        told.get(channel).is_some_and(|told| keys.iter().all(|key| told.get(*key) == Some(&(session, heard))))
    }

    pub(super) fn will_be_told(&self, channel: &str, keys: &[&str], session: u64, heard: u64) {
        let mut told = lock(&self.told);
        // Nobody would take it away again after the last one who listens.
        if self.hub.listens(channel) {
            let told = told.entry(channel.to_owned()).or_default();
            told.extend(keys.iter().map(|key| ((*key).to_owned(), (session, heard))));
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("layout", &self.layout).finish_non_exhaustive()
    }
}

/// A lock that a panic elsewhere does not spoil: what it guards is always whole.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
