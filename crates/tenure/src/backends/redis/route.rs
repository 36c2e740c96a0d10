//! Which server is asked: one, the master that sentinels name, or the one that has the slot. The verbs do not know.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use async_trait::async_trait;

use super::fault::{Cause, Failure, NAME};
use super::link::Link;
use super::question::{Answer, Question};
use super::reserved::refuse_reserved;
use super::shared::{Shared, Wake, lock};
use crate::error::{Error, Fault, Result};
use crate::name::Resource;
use crate::retry::jitter;
use crate::signal::Signal;

/// How often one question is sent on from server to server.
const HOPS: usize = 5;

/// A server that has not answered for this long may not be the one to ask any more.
const SLOW: Duration = Duration::from_millis(250);

/// How long what is broken is looked after when nobody has asked for it any more.
const CARE: Duration = Duration::from_secs(10);

/// A deployment of Redis, as far as it decides who is asked.
#[async_trait]
pub(super) trait Route: fmt::Debug + Send + Sync {
    /// Which slot a name is in. Refuses names whose keys would be in several.
    fn slot(&self, name: &Resource) -> Result<u16>;

    /// The slot of a key that stands for itself.
    fn slot_of_key(&self, key: &str) -> u16;

    /// The link to the server that has a slot, if one is known.
    fn known_link(&self, slot: u16) -> Option<Arc<Link>>;

    /// Looks for the server that has a slot.
    async fn find_link(&self, slot: u16) -> Result<Arc<Link>>;

    /// Whether another server may take the place of one that is slow.
    fn has_others(&self) -> bool;

    /// Whether a link still is the one for a slot.
    fn is_current(&self, slot: u16, link: &Arc<Link>) -> bool;

    /// Where to ask instead, if the question was not heard for being put to the wrong server.
    async fn instead(&self, slot: u16, failed: &Arc<Link>, failure: &Failure) -> Option<Hop>;

    /// The links to all known servers, the most promising first: whatever any of them could say.
    fn servers(&self) -> Vec<Arc<Link>>;

    /// The links to all servers that have locks.
    async fn masters(&self) -> Result<Vec<Arc<Link>>>;

    /// Takes note that a server does not answer; it may, or somebody else may take its place.
    fn suspect(&self, link: &Arc<Link>);

    /// Looks once whether all that calls have found broken works again, and wakes those who wait for it.
    async fn mend(&self) -> bool;

    fn close(&self);
}

/// The next server to be asked.
pub(super) struct Hop {
    pub(super) link: Arc<Link>,
    /// Although the slot has yet to arrive there.
    pub(super) asking: bool,
}

/// One server at a time: always the same, or the master of the moment.
#[derive(Debug)]
pub(super) struct One(pub(super) Arc<Link>);

#[async_trait]
impl Route for One {
    fn slot(&self, _: &Resource) -> Result<u16> {
        Ok(0)
    }

    fn slot_of_key(&self, _: &str) -> u16 {
        0
    }

    fn known_link(&self, _: u16) -> Option<Arc<Link>> {
        Some(Arc::clone(&self.0))
    }

    async fn find_link(&self, _: u16) -> Result<Arc<Link>> {
        Ok(Arc::clone(&self.0))
    }

    fn has_others(&self) -> bool {
        self.0.follows_master()
    }

    fn is_current(&self, _: u16, _: &Arc<Link>) -> bool {
        true
    }

    async fn instead(&self, _: u16, _: &Arc<Link>, _: &Failure) -> Option<Hop> {
        None
    }

    fn servers(&self) -> Vec<Arc<Link>> {
        vec![Arc::clone(&self.0)]
    }

    async fn masters(&self) -> Result<Vec<Arc<Link>>> {
        Ok(self.servers())
    }

    fn suspect(&self, _: &Arc<Link>) {}

    async fn mend(&self) -> bool {
        self.0.connect().await.is_ok()
    }

    fn close(&self) {
        self.0.close();
    }
}

/// Asks along a route.
#[derive(Debug)]
pub(super) struct Router {
    me: Weak<Self>,
    route: Arc<dyn Route>,
    pub(super) shared: Arc<Shared>,
    mending: AtomicBool,
    last_failure: Mutex<Instant>,
    /// When it was last looked whether what is broken works again.
    looked: Mutex<Option<Instant>>,
}

impl Router {
    pub(super) fn new(route: Arc<dyn Route>, shared: Arc<Shared>) -> Arc<Self> {
        let router = Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            route,
            shared,
            mending: AtomicBool::new(false),
            last_failure: Mutex::new(Instant::now()),
            looked: Mutex::default(),
        });
        drop(router.shared.router.set(Arc::downgrade(&router)));
        router
    }

    /// Which slot a name is in. Refuses what is no name for a lock here: the one place that all verbs come by.
    pub(super) fn slot(&self, name: &Resource) -> Result<u16> {
        refuse_reserved(name)?;
        self.route.slot(name)
    }

    pub(super) fn slot_of_key(&self, key: &str) -> u16 {
        self.route.slot_of_key(key)
    }

    pub(super) async fn masters(&self) -> Result<Vec<Arc<Link>>> {
        self.route.masters().await
    }

    /// The connection to the one server that has everything; zero while there is none, and where there are several.
    pub(super) fn session(&self) -> u64 {
        match &*self.route.servers() {
            [one] => one.session(),
            _ => 0,
        }
    }

    /// How waiters are woken here.
    pub(super) async fn wake(&self) -> Result<Wake> {
        let mut trouble = Error::unavailable(NAME, "connecting", Fault::Connection, "no server is known");
        for link in self.route.servers() {
            match link.connect().await {
                Ok(wake) => return Ok(wake),
                Err(failure) => trouble = failure.error,
            }
        }
        Err(trouble)
    }

    async fn link(&self, slot: u16) -> Result<Arc<Link>> {
        match self.route.known_link(slot) {
            Some(link) => Ok(link),
            None => self.route.find_link(slot).await,
        }
    }

    /// Asks the server that has a slot, wherever that is by now.
    pub(super) async fn ask(&self, doing: &str, slot: u16, question: Question<'_>) -> Result<Answer> {
        let link = match self.route.known_link(slot) {
            Some(link) => link,
            None => Box::pin(self.route.find_link(slot)).await.inspect_err(|_| self.look_after())?,
        };
        let hop = Hop { link, asking: false };
        match self.ask_at(&hop, doing, slot, question).await {
            Ok(answer) => Ok(answer),
            // Apart, so that the way of most is short.
            Err(failure) => Box::pin(self.ask_on(hop, failure, doing, slot, question)).await,
        }
    }

    /// Asks elsewhere, if the question was not heard where it was asked.
    async fn ask_on(&self, hop: Hop, failure: Failure, doing: &str, slot: u16, question: Question<'_>) -> Result<Answer> {
        let (mut hop, mut failed) = (hop, Some(failure));
        for _ in 0..HOPS {
            let failure = match failed.take() {
                Some(failure) => failure,
                None => match self.ask_at(&hop, doing, slot, question).await {
                    Ok(answer) => return Ok(answer),
                    Err(failure) => failure,
                },
            };
            match self.route.instead(slot, &hop.link, &failure).await {
                Some(next) if next.asking && question.looks_further() => {
                    return Err(Error::unavailable(NAME, doing, Fault::Moving, "a part of the slot has yet to arrive"));
                }
                Some(next) => hop = next,
                None => {
                    if failure.cause != Cause::Other {
                        self.look_after();
                    }
                    return Err(failure.error);
                }
            }
        }
        let detail = format!("sent on {HOPS} times: the cluster is being changed");
        Err(Error::unavailable(NAME, doing, Fault::Moving, detail))
    }

    /// Asks one server. If that takes long, looks whether it is still the one to ask: it may have been replaced at the very
    /// moment of the question, when there was no call yet that could have been ended.
    async fn ask_at(&self, hop: &Hop, doing: &str, slot: u16, question: Question<'_>) -> Result<Answer, Failure> {
        if !self.route.has_others() {
            return hop.link.ask(doing, question, hop.asking).await;
        }
        // Apart, so that what others wait in is small.
        Box::pin(self.ask_with_a_look(hop, doing, slot, question)).await
    }

    async fn ask_with_a_look(&self, hop: &Hop, doing: &str, slot: u16, question: Question<'_>) -> Result<Answer, Failure> {
        let mut call = std::pin::pin!(hop.link.ask(doing, question, hop.asking));
        loop {
            match tokio::time::timeout(SLOW.min(self.shared.timeout / 2), &mut call).await {
                Ok(answer) => return answer,
                Err(_) if hop.asking || self.route.is_current(slot, &hop.link) => {
                    self.route.suspect(&hop.link);
                    self.look_after();
                }
                Err(_) => {
                    let detail = "another server has taken this one's place";
                    return Err(Failure::lost(Error::unavailable(NAME, doing, Fault::Connection, detail)));
                }
            }
        }
    }

    /// Listens for what concerns a name, and for the return of a server that is away: without a connection, or over one that
    /// breaks, there is nothing to subscribe to, but the busy answer over the next one will see to that.
    pub(super) async fn listen(&self, name: &Resource, channel: &str) -> Result<Signal> {
        let slot = self.slot(name)?;
        let (signal, _) = self.shared.hub.listen(channel);
        if let Ok(link) = self.link(slot).await
            && link.wake() == Some(Wake::PubSub)
        {
            let channel = channel.to_owned();
            // By itself: the one who asks may go half-way.
            let subscribe = async move { link.subscribe(&channel).await };
            let subscribed = self.shared.runtime.spawn(subscribe).await.map_err(|_| Error::Closed)?;
            subscribed.map(drop).or_else(|e| if e.is_transient() { Ok(()) } else { Err(e) })?;
        }
        Ok(signal)
    }

    /// A connection to this server was given up.
    pub(super) fn lost_touch(&self, link: &Arc<Link>) {
        self.route.suspect(link);
        self.look_after();
    }

    /// Sees to it that what a call has found broken is found whole again soon: the next call may be seconds away.
    fn look_after(&self) {
        *lock(&self.last_failure) = Instant::now();
        if self.mending.swap(true, Ordering::AcqRel) {
            return;
        }
        let me = Weak::clone(&self.me);
        self.shared.runtime.spawn(async move {
            let begun = Instant::now();
            while let Some(router) = me.upgrade() {
                // As long as most failovers take, often; then as seldom as those who wait ask.
                let pause = Duration::from_millis(if begun.elapsed() < CARE { 100 } else { 1000 });
                let due = lock(&router.looked).map_or(Duration::ZERO, |at| pause.saturating_sub(at.elapsed()));
                drop(router);
                // At once for the first time; but calls that fail in a row do not make it a race.
                tokio::time::sleep(due.mul_f64(0.5) + jitter(due)).await;
                let Some(router) = me.upgrade() else { return };
                let looked = Instant::now();
                let mended = tokio::time::timeout(router.shared.timeout, router.route.mend()).await;
                *lock(&router.looked) = Some(Instant::now());
                let unwanted = router.shared.closed.load(Ordering::Relaxed) || lock(&router.last_failure).elapsed() > CARE;
                if unwanted || matches!(mended, Ok(true)) {
                    router.mending.store(false, Ordering::Release);
                    // A call may have failed meanwhile, and found that somebody looks after it.
                    if !unwanted && *lock(&router.last_failure) > looked {
                        router.look_after();
                    }
                    return;
                }
            }
        });
    }

    pub(super) fn close(&self) {
        self.shared.closed.store(true, Ordering::Relaxed);
        self.route.close();
    }
}
