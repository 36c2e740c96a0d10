//! Which server is asked: one, the master that sentinels name, or the owner of a cluster's slot. The verbs do not know.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use super::calls::Answer;
use super::cluster::Cluster;
use super::fault::{Cause, Failure, NAME};
use super::link::Link;
use super::question::Question;
use super::reserved::refuse_reserved;
use super::shared::{Shared, Wake, lock};
use super::slots::{slot_of, slot_of_name};
use crate::error::{Error, Fault, Result};
use crate::name::Resource;
use crate::retry::jitter;
use crate::signal::Signal;

/// How many servers are asked one question.
const HOPS: usize = 5;

/// A server that has not answered for this long may have been replaced.
const SLOW: Duration = Duration::from_millis(250);

/// How long a broken deployment is probed after the last failed call.
const CARE: Duration = Duration::from_secs(10);

/// How a deployment decides which server is asked.
#[derive(Debug)]
pub(super) enum Route {
    /// One server at a time: always the same, or the present master.
    One(Arc<Link>),
    /// The owner of the slot.
    Cluster(Arc<Cluster>),
}

/// The next server to ask.
pub(super) struct Hop {
    pub(super) link: Arc<Link>,
    /// The slot has yet to arrive there.
    pub(super) asking: bool,
}

/// Asks along a route.
#[derive(Debug)]
pub(super) struct Router {
    me: Weak<Self>,
    route: Route,
    pub(super) shared: Arc<Shared>,
    mending: AtomicBool,
    last_failure: Mutex<Instant>,
    last_probe: Mutex<Option<Instant>>,
}

impl Router {
    pub(super) fn new(route: Route, shared: Arc<Shared>) -> Arc<Self> {
        let router = Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            route,
            shared,
            mending: AtomicBool::new(false),
            last_failure: Mutex::new(Instant::now()),
            last_probe: Mutex::default(),
        });
        drop(router.shared.router.set(Arc::downgrade(&router)));
        router
    }

    /// The slot of a name. Refuses names that no lock may have, and names whose keys would be in several slots: all verbs come by here.
    pub(super) fn slot(&self, name: &Resource) -> Result<u16> {
        refuse_reserved(name)?;
        match &self.route {
            Route::One(_) => Ok(0),
            Route::Cluster(_) => slot_of_name(name),
        }
    }

    /// The slot of a key that belongs to no name.
    pub(super) fn slot_of_key(&self, key: &str) -> u16 {
        match &self.route {
            Route::One(_) => 0,
            Route::Cluster(_) => slot_of(key),
        }
    }

    /// The links to all servers that have locks.
    pub(super) async fn masters(&self) -> Result<Vec<Arc<Link>>> {
        match &self.route {
            Route::One(link) => Ok(vec![Arc::clone(link)]),
            Route::Cluster(cluster) => cluster.masters().await,
        }
    }

    /// The connection to the only server; zero while there is none, and in a cluster of several.
    pub(super) fn session(&self) -> u64 {
        match &*self.servers() {
            [one] => one.session(),
            _ => 0,
        }
    }

    /// The connection to the server that has a slot, zero while there is none.
    pub(super) fn session_of(&self, slot: u16) -> u64 {
        self.known_link(slot).map_or(0, |link| link.session())
    }

    /// The links to all known servers, the most promising first.
    fn servers(&self) -> Vec<Arc<Link>> {
        match &self.route {
            Route::One(link) => vec![Arc::clone(link)],
            Route::Cluster(cluster) => cluster.servers(),
        }
    }

    /// How waiters are woken here.
    pub(super) async fn wake(&self) -> Result<Wake> {
        let mut trouble = Error::unavailable(NAME, "connecting", Fault::Connection, "no server is known");
        for link in self.servers() {
            match link.connect().await {
                Ok(wake) => return Ok(wake),
                Err(failure) => trouble = failure.error,
            }
        }
        Err(trouble)
    }

    pub(super) fn known_link(&self, slot: u16) -> Option<Arc<Link>> {
        match &self.route {
            Route::One(link) => Some(Arc::clone(link)),
            Route::Cluster(cluster) => cluster.owner(slot),
        }
    }

    async fn find_link(&self, slot: u16) -> Result<Arc<Link>> {
        match &self.route {
            Route::One(link) => Ok(Arc::clone(link)),
            Route::Cluster(cluster) => cluster.find_owner(slot).await,
        }
    }

    /// Asks the server that has a slot, wherever that is by now.
    pub(super) async fn ask(&self, slot: u16, question: Question<'_>) -> Result<Answer> {
        let link = match self.known_link(slot) {
            Some(link) => link,
            None => Box::pin(self.find_link(slot)).await.inspect_err(|_| self.look_after())?,
        };
        let hop = Hop { link, asking: false };
        match self.ask_at(&hop, slot, question).await {
            Ok(answer) => Ok(answer),
            // Boxed: the future of most calls stays small.
            Err(failure) => Box::pin(self.ask_on(hop, failure, slot, question)).await,
        }
    }

    /// Asks elsewhere, if the question was put to the wrong server and so not heard.
    async fn ask_on(&self, mut hop: Hop, mut failure: Failure, slot: u16, question: Question<'_>) -> Result<Answer> {
        let moving = |detail: &str| Error::unavailable(NAME, question.doing, Fault::Moving, detail);
        for asked in 1.. {
            let next = match &self.route {
                Route::One(_) => None,
                Route::Cluster(cluster) => cluster.instead(slot, &hop.link, &failure).await,
            };
            match next {
                Some(next) if next.asking && question.looks_further() => {
                    return Err(moving("a part of the slot has yet to arrive"));
                }
                Some(_) if asked == HOPS => break,
                Some(next) => hop = next,
                None => {
                    if failure.cause != Cause::Other {
                        self.look_after();
                    }
                    return Err(failure.error);
                }
            }
            failure = match self.ask_at(&hop, slot, question).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
        }
        Err(moving(&format!("sent on {HOPS} times: the cluster is being changed")))
    }

    async fn ask_at(&self, hop: &Hop, slot: u16, question: Question<'_>) -> Result<Answer, Failure> {
        match &self.route {
            Route::One(link) if !link.follows_master() => hop.link.ask(question, hop.asking).await,
            _ => Box::pin(self.ask_replaceable(hop, slot, question)).await,
        }
    }

    /// Asks a server that another one may replace. A slow call checks for that: the replacement may have come just before the call,
    /// when there was nothing to abort yet.
    async fn ask_replaceable(&self, hop: &Hop, slot: u16, question: Question<'_>) -> Result<Answer, Failure> {
        let mut call = std::pin::pin!(hop.link.ask(question, hop.asking));
        loop {
            if let Ok(answer) = tokio::time::timeout(SLOW.min(self.shared.timeout / 2), &mut call).await {
                return answer;
            }
            if let Route::Cluster(cluster) = &self.route
                && !hop.asking
                && !cluster.is_current(slot, &hop.link)
            {
                let detail = "another server has taken this one's place";
                return Err(Failure::lost(Error::unavailable(NAME, question.doing, Fault::Connection, detail)));
            }
            self.lost_touch(&hop.link);
        }
    }

    /// Listens for changes of a name, and for the return of a server. A transient failure to subscribe is made up for by the busy
    /// answer over the next connection.
    pub(super) async fn listen(&self, name: &Resource, channel: &str) -> Result<Signal> {
        let slot = self.slot(name)?;
        let (signal, _) = self.shared.hub.listen(channel);
        if let Ok(link) = self.find_link(slot).await
            && link.wake() == Some(Wake::PubSub)
        {
            let channel = channel.to_owned();
            // Spawned: a caller that leaves must not cut it off.
            let subscribe = async move { link.subscribe(&channel).await };
            let subscribed = self.shared.runtime.spawn(subscribe).await.map_err(|_| Error::Closed)?;
            subscribed.map(drop).or_else(|e| if e.is_transient() { Ok(()) } else { Err(e) })?;
        }
        Ok(signal)
    }

    /// A server does not answer, or its connection was given up.
    pub(super) fn lost_touch(&self, link: &Arc<Link>) {
        if let Route::Cluster(cluster) = &self.route {
            cluster.suspect(link, false);
        }
        self.look_after();
    }

    /// Probes a broken deployment in the background until it works again: the next call may be seconds away.
    fn look_after(&self) {
        *lock(&self.last_failure) = Instant::now();
        if self.mending.swap(true, Ordering::AcqRel) {
            return;
        }
        let me = Weak::clone(&self.me);
        self.shared.runtime.spawn(async move {
            let begun = Instant::now();
            while let Some(router) = me.upgrade() {
                // Often for as long as most failovers take; then as seldom as waiters ask.
                let pause = Duration::from_millis(if begun.elapsed() < CARE { 100 } else { 1000 });
                let due = lock(&router.last_probe).map_or(Duration::ZERO, |at| pause.saturating_sub(at.elapsed()));
                drop(router);
                // Calls that fail in a row share the pause.
                tokio::time::sleep(due.mul_f64(0.5) + jitter(due)).await;
                let Some(router) = me.upgrade() else { return };
                let probed = Instant::now();
                let works = tokio::time::timeout(router.shared.timeout, router.mend()).await;
                *lock(&router.last_probe) = Some(Instant::now());
                let unwanted = router.shared.closed.load(Ordering::Relaxed) || lock(&router.last_failure).elapsed() > CARE;
                if unwanted || matches!(works, Ok(true)) {
                    router.mending.store(false, Ordering::Release);
                    // A call that failed meanwhile has found this task at work.
                    if !unwanted && *lock(&router.last_failure) > probed {
                        router.look_after();
                    }
                    return;
                }
            }
        });
    }

    /// Whether all works again.
    async fn mend(&self) -> bool {
        match &self.route {
            Route::One(link) => link.connect().await.is_ok(),
            Route::Cluster(cluster) => cluster.mend().await,
        }
    }

    pub(super) fn close(&self) {
        self.shared.closed.store(true, Ordering::Relaxed);
        match &self.route {
            Route::One(link) => link.close(),
            Route::Cluster(cluster) => cluster.close(),
        }
    }
}
