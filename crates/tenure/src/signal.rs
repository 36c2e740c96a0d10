//! [`Hub`] and [`Signal`]: many waiters, one subscription.
//!
//! A backend owns one hub. Code that wakes waiters (a push, a pipe, a local release) calls [`Hub::fire`]; a backend
//! that must tell its server what it listens to learns the first and the last listener of a key.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::select_all;
use tokio::sync::watch;

/// Resolves when asking again may help. A firing between two waits is not lost.
#[derive(Debug)]
pub struct Signal {
    seen: watch::Receiver<u64>,
    // Dropped last: unsubscribes.
    _listener: Listener,
    /// Where this one comes from, if there are others.
    place: usize,
    others: Vec<Self>,
    /// The places whose firing matters, as bits.
    heeded: Option<Arc<AtomicU64>>,
}

impl Signal {
    /// Waits for the next firing that this signal has not reported yet.
    ///
    /// # Cancel safety
    /// A firing is reported by the next call if this one is dropped.
    pub async fn fired(&mut self) {
        if self.others.is_empty() && self.heeded.is_none() {
            return changed(&mut self.seen).await;
        }
        loop {
            let all = std::iter::once(&mut self.seen).chain(self.others.iter_mut().map(|other| &mut other.seen));
            let (_, which, _) = select_all(all.map(|seen| Box::pin(changed(seen)))).await;
            if self.hears_what_matters(which) {
                return;
            }
        }
    }

    /// One signal of several, each from a place below 64. Only those places matter whose bits are set.
    pub(crate) fn any_of(signals: Vec<(usize, Self)>, heeded: Arc<AtomicU64>) -> Option<Self> {
        let mut signals = signals.into_iter().map(|(place, signal)| Self { place, ..signal });
        let first = signals.next()?;
        Some(Self { others: signals.collect(), heeded: Some(heeded), ..first })
    }

    /// Takes note of all that has fired: one asking again serves for all of it.
    fn hears_what_matters(&mut self, first: usize) -> bool {
        let heeded = self.heeded.as_ref().map_or(u64::MAX, |heeded| heeded.load(Ordering::Acquire));
        let mut matters = false;
        let all = std::iter::once((self.place, &mut self.seen));
        let all = all.chain(self.others.iter_mut().map(|other| (other.place, &mut other.seen)));
        for (i, (place, seen)) in all.enumerate() {
            if i == first || seen.has_changed().unwrap_or(false) {
                seen.mark_unchanged();
                matters |= heeded >> place & 1 == 1;
            }
        }
        matters
    }
}

async fn changed(seen: &mut watch::Receiver<u64>) {
    if seen.changed().await.is_err() {
        // The hub is gone with its backend; nothing will fire any more and the caller's poll decides.
        std::future::pending::<()>().await;
    }
}

type OnLast = dyn Fn(&str) + Send + Sync;

/// The listeners of one backend, by key.
#[derive(Clone)]
pub struct Hub(Arc<Shared>);

struct Shared {
    topics: Mutex<HashMap<Arc<str>, Topic>>,
    /// Counts topics, so that what was heard of one is never taken for what was heard of its successor.
    made: AtomicU64,
    on_last: Option<Box<OnLast>>,
}

struct Topic {
    listeners: usize,
    version: watch::Sender<u64>,
}

#[derive(Debug)]
struct Listener {
    key: Arc<str>,
    hub: Hub,
}

impl Default for Hub {
    fn default() -> Self {
        Self(Arc::new(Shared { topics: Mutex::default(), made: AtomicU64::new(0), on_last: None }))
    }
}

impl Hub {
    /// A hub that tells when the last listener of a key has gone.
    pub fn with_on_last(on_last: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(Shared { topics: Mutex::default(), made: AtomicU64::new(0), on_last: Some(Box::new(on_last)) }))
    }

    /// Listens to a key. The flag says whether this is its first listener.
    #[must_use]
    pub fn listen(&self, key: &str) -> (Signal, bool) {
        let key: Arc<str> = key.into();
        let mut topics = self.topics();
        let (seen, first) = match topics.entry(Arc::clone(&key)) {
            Entry::Occupied(mut e) => {
                e.get_mut().listeners += 1;
                (e.get().version.subscribe(), false)
            }
            Entry::Vacant(e) => {
                let made = self.0.made.fetch_add(1, Ordering::Relaxed);
                let topic = e.insert(Topic { listeners: 1, version: watch::Sender::new(made << 32) });
                (topic.version.subscribe(), true)
            }
        };
        drop(topics);
        let _listener = Listener { key, hub: self.clone() };
        (Signal { seen, _listener, place: 0, others: Vec::new(), heeded: None }, first)
    }

    /// Wakes the listeners of a key.
    pub fn fire(&self, key: &str) {
        // Not under the lock: a task that is woken may drop a signal, which takes it.
        let version = self.topics().get(key).map(|topic| topic.version.clone());
        version.iter().for_each(|version| version.send_modify(|v| *v = v.wrapping_add(1)));
    }

    /// Wakes all listeners: after a reconnect it is unknown what was missed.
    pub fn fire_all(&self) {
        let versions: Vec<_> = self.topics().values().map(|topic| topic.version.clone()).collect();
        versions.iter().for_each(|version| version.send_modify(|v| *v = v.wrapping_add(1)));
    }

    /// The keys with listeners.
    #[must_use]
    pub fn keys(&self) -> Vec<Arc<str>> {
        self.topics().keys().map(Arc::clone).collect()
    }

    /// Whether there are no listeners at all.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.topics().is_empty()
    }

    /// Whether this key has listeners.
    #[must_use]
    pub fn listens(&self, key: &str) -> bool {
        self.topics().contains_key(key)
    }

    /// The version of a key with listeners: another number after each firing.
    #[must_use]
    pub fn version(&self, key: &str) -> Option<u64> {
        self.topics().get(key).map(|topic| *topic.version.borrow())
    }

    fn topics(&self) -> MutexGuard<'_, HashMap<Arc<str>, Topic>> {
        self.0.topics.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub").field("keys", &self.topics().len()).finish()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut topics = self.hub.topics();
        let Some(topic) = topics.get_mut(&self.key) else { return };
        topic.listeners -= 1;
        if topic.listeners == 0 {
            topics.remove(&self.key);
            drop(topics);
            if let Some(on_last) = &self.hub.0.on_last {
                on_last(&self.key);
            }
        }
    }
}
