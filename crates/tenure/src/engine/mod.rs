//! The engine: one way to acquire, keep, hand over and lose a hold, under all primitives and over all stores.
//!
//! It owns time. [`acquire`] asks, waits and asks again. [`turnstile`] lets one task of this process ask for a name at a time.
//! A grant becomes a [`hold`], whose one word says until when it is valid. [`keeper`] renews, releases and declares a loss by the
//! deadline. [`guard`] is what the user has of a hold, and [`owner`] re-enters it.

pub(crate) mod acquire;
pub(crate) mod background;
pub(crate) mod driven;
pub(crate) mod guard;
pub(crate) mod hold;
pub(crate) mod keeper;
pub(crate) mod owner;
pub(crate) mod turnstile;

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;

use self::acquire::{Patience, sleep_long};
use self::background::Background;
use self::driven::{Desk, Driven, bounded};
use self::keeper::{Keeper, UnderWay};
use self::turnstile::Turnstile;
use crate::audit;
use crate::backend::{Backend, Broken, Capabilities, Claim, Client, Mode, Nodes, Scope, State};
use crate::clock::{Clock, Drift};
use crate::error::{Error, Result};
use crate::lifeline::Lifeline;
use crate::name::{ClientId, OwnerIds, Resource};
use crate::retry::RetryPolicy;
use crate::signal::Signal;
use crate::stats::Counters;
use crate::store::Label;

/// How many times the call timeout a listing may take.
const LIST_CALLS: u32 = 100;

/// What every part of the engine works with.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) clock: Clock,
    pub(crate) drift: Drift,
    pub(crate) timeout: Duration,
    pub(crate) retry: RetryPolicy,
    pub(crate) counters: Arc<Counters>,
}

/// One client of a store, at work.
pub(crate) struct Engine {
    pub(crate) settings: Settings,
    pub(crate) capabilities: Capabilities,
    pub(crate) lease: Duration,
    /// How long holds stay with the process after a release, unless a lock says otherwise.
    pub(crate) linger: Duration,
    pub(crate) owners: OwnerIds,
    pub(crate) turnstile: Turnstile,
    pub(crate) keeper: Keeper,
    pub(crate) background: Background,
    closed: AtomicBool,
    /// How closing ended, once it has. All who close wait for it.
    ended: watch::Sender<Option<Result<()>>>,
    acquiring: UnderWay,
    /// Which store this is, where a URL has said so.
    pub(crate) label: Option<Label>,
    /// What this client says of itself.
    pub(crate) about: Arc<str>,
    pub(crate) lifeline: Lifeline,
    /// Of a store that is made of several.
    pub(crate) nodes: Option<Arc<dyn Nodes>>,
}

/// Counts an acquisition under way, so that closing can wait for it.
pub(crate) struct Acquiring {
    engine: Arc<Engine>,
    /// Whether its caller waits: not before it is in the process's queue, and not after the answer.
    waiting: Option<bool>,
}

impl Acquiring {
    /// It is in the queue.
    fn waits(&mut self) {
        self.waiting = Some(true);
        self.engine.settings.counters.waiting.up();
    }

    /// Its caller has been answered. False if it was before.
    fn answered(&mut self) -> bool {
        let before = self.waiting.replace(false);
        if before == Some(true) {
            self.engine.settings.counters.waiting.down();
        }
        before != Some(false)
    }
}

impl Drop for Acquiring {
    fn drop(&mut self) {
        self.answered();
        self.engine.acquiring.end();
    }
}

/// Closes a locker. The waiters for that are told also if the runtime ends under it.
struct Closing(Arc<Engine>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.ended.send_if_modified(|ended| {
            let cut_off = ended.is_none();
            ended.get_or_insert(Err(Error::Closed));
            cut_off
        });
    }
}

impl Engine {
    /// Starts the keeper on the given runtime.
    pub(crate) fn new(
        settings: Settings,
        capabilities: Capabilities,
        lease: Duration,
        client: ClientId,
        runtime: Handle,
    ) -> Self {
        let background = Background::new(runtime);
        let keeper = Keeper::start(settings.clone(), &background);
        Self {
            settings,
            capabilities,
            lease,
            linger: Duration::ZERO,
            owners: OwnerIds::new(client),
            turnstile: Turnstile::default(),
            keeper,
            background,
            closed: AtomicBool::new(false),
            ended: watch::Sender::new(None),
            acquiring: UnderWay::default(),
            label: None,
            about: Arc::from(""),
            lifeline: Lifeline::default(),
            nodes: None,
        }
    }

    fn begin(self: &Arc<Self>) -> Acquiring {
        self.acquiring.begin();
        Acquiring { engine: Arc::clone(self), waiting: None }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Resolves when the locker closes.
    async fn closing(&self, number: u64) {
        self.background.closing(number, || self.is_closed()).await;
    }

    /// Sees a call of the backend to its end, driven by the caller. Dropped half-way, it goes on in the background.
    async fn call<T, F, Fut>(&self, doing: &'static str, limit: Duration, call: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(Arc<dyn Backend>) -> Fut,
        Fut: Future<Output = Result<T>> + Send + 'static,
    {
        if self.is_closed() {
            return Err(Error::Closed);
        }
        let backend = Arc::clone(&self.settings.backend);
        let call = call(Arc::clone(&backend));
        let work = |desk: Desk<Result<T>>| async move {
            drop(desk.answer(bounded(limit, &*backend, doing, call).await));
        };
        Driven::new(&self.background, work).await.unwrap_or(Err(Error::Closed))
    }

    /// Sleeps, on whatever executor.
    pub(crate) async fn pause(&self, pause: Duration) {
        let until = self.settings.clock.now().after(pause);
        self.within(Patience::Until(until), std::future::pending::<()>()).await;
    }

    /// Bounds a wait of the caller's own future, which may run on an executor without timers.
    pub(crate) async fn within<T>(&self, patience: Patience, wait: impl Future<Output = T>) -> Option<T> {
        let left = patience.bound().since(self.settings.clock.now());
        let mut wait = pin!(wait);
        let mut timer = pin!(sleep_long(left));
        std::future::poll_fn(|cx| {
            if let Poll::Ready(done) = wait.as_mut().poll(cx) {
                return Poll::Ready(Some(done));
            }
            match self.background.enter() {
                Some(_entered) if !self.background.has_ended() => timer.as_mut().poll(cx).map(|()| None),
                // A thread in its last moment has no timers.
                _ => Poll::Ready(None),
            }
        })
        .await
    }

    /// As [`within`](Self::within), and also `None` when the locker closes.
    pub(crate) async fn within_or_closed<T>(&self, patience: Patience, wait: impl Future<Output = T>) -> Option<T> {
        let (mut wait, mut closing) = (pin!(wait), pin!(self.closing(0)));
        let first = std::future::poll_fn(|cx| match wait.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => closing.as_mut().poll(cx).map(|()| None),
        });
        self.within(patience, first).await.flatten()
    }

    /// What the store says of all held locks whose names start with `prefix`.
    pub(crate) async fn list(&self, prefix: &str) -> Result<Vec<State>> {
        let prefix = prefix.to_owned();
        // A store may have to look through all it has, in many round trips; it bounds each of them by itself.
        let limit = self.settings.timeout.saturating_mul(LIST_CALLS);
        self.call("listing", limit, |b| async move { b.inspect(Scope::Prefix(&prefix)).await }).await
    }

    pub(crate) async fn inspect(&self, resource: Resource) -> Result<State> {
        let free = State::free(resource.clone());
        let inspect = |b: Arc<dyn Backend>| async move { b.inspect(Scope::One(&resource)).await };
        let states = self.call("inspecting", self.settings.timeout, inspect).await?;
        Ok(states.into_iter().next().unwrap_or(free))
    }

    /// Fires when a look at this name may show something new.
    pub(crate) async fn watch(&self, resource: Resource, mode: Mode) -> Result<Signal> {
        let claim = Claim::new(resource, self.owners.next(), mode, self.lease);
        self.call("subscribing", self.settings.timeout, |b| async move { b.watch(&claim).await }).await
    }

    pub(crate) async fn break_hold(self: &Arc<Self>, resource: Resource) -> Result<Option<Broken>> {
        let engine = Arc::clone(self);
        if engine.is_closed() {
            return Err(Error::Closed);
        }
        let background = self.background.clone();
        // The audit event comes even if the caller has gone.
        let work = |desk: Desk<Result<Option<Broken>>>| async move {
            let Settings { backend, timeout, .. } = &engine.settings;
            let broken = bounded(*timeout, &**backend, "breaking", backend.break_hold(&resource)).await;
            let by = Client { id: engine.owners.client(), about: Arc::clone(&engine.about) };
            audit::break_hold(&by, &resource, &broken);
            drop(desk.answer(broken));
        };
        Driven::new(&background, work).await.unwrap_or(Err(Error::Closed))
    }

    /// Releases everything and ends the background work. All who close are answered when it is done.
    pub(crate) async fn close(self: &Arc<Self>) -> Result<()> {
        let mut ended = self.ended.subscribe();
        if !self.closed.swap(true, Ordering::AcqRel) {
            self.background.close();
            let closing = Closing(Arc::clone(self));
            self.background.spawn(async move {
                let Self { settings, acquiring, keeper, .. } = &*closing.0;
                let Settings { backend, timeout, .. } = settings;
                drop(tokio::time::timeout(*timeout, acquiring.idle()).await);
                keeper.close().await;
                let closed = bounded(*timeout, &**backend, "closing", backend.close()).await;
                closing.0.ended.send_replace(Some(closed));
            });
        }
        let ended = ended.wait_for(Option::is_some).await.map(|ended| ended.clone());
        ended.ok().flatten().unwrap_or(Err(Error::Closed))
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("backend", &self.settings.backend)
            .field("client", &self.owners.client())
            .finish_non_exhaustive()
    }
}
