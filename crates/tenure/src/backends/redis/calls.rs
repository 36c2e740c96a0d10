//! Calls over a link, and how they end: by an answer, or because the link aborts them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use redis::{RedisError, Value};
use tokio::sync::Notify;

use super::driver::Driver;
use super::fault::{Failure, NAME, is_broken};
use super::link::{Link, Live};
use super::question::{Question, Tracking};
use super::shared::lock;
use crate::error::{Error, Fault};

/// A server that has not answered for this long is not just slow.
pub(super) const HICCUP: Duration = Duration::from_millis(200);

/// What a server said, and over which connection.
pub(super) struct Answer {
    pub(super) value: Value,
    pub(super) live: Arc<Live>,
    pub(super) tracking: Tracking,
}

/// Tells all calls of a link that no answer is coming that could be believed.
///
/// Calls over a connection are told by its end, which costs them nothing; calls that have none yet, by the bell.
#[derive(Default)]
pub(super) struct Aborted {
    flag: AtomicBool,
    bell: Notify,
    drivers: Mutex<Vec<Driver>>,
}

impl Aborted {
    fn set(&self) {
        self.flag.store(true, Ordering::Release);
        self.bell.notify_waiters();
        // Not under the lock: the calls are told by it.
        let drivers = std::mem::take(&mut *lock(&self.drivers));
        drivers.iter().for_each(Driver::abort);
    }

    pub(super) fn is_set(&self) -> bool {
        self.flag.load(Ordering::Acquire)
    }

    /// Ends this connection, too.
    pub(super) fn ends(&self, driver: Driver) {
        let mut drivers = lock(&self.drivers);
        drivers.retain(|driver| !driver.is_finished());
        drivers.push(driver);
    }

    async fn wait(&self) {
        let mut bell = std::pin::pin!(self.bell.notified());
        bell.as_mut().enable();
        if !self.is_set() {
            bell.await;
        }
    }
}

/// The failure of a call that was aborted.
pub(super) fn given_up(doing: &str) -> Failure {
    let detail = "the connection was given up before the answer";
    Failure::lost(Error::unavailable(NAME, doing, Fault::Connection, detail))
}

impl Link {
    /// Asks once. With `asking`, also for a slot that has yet to arrive at this server.
    pub(super) async fn ask(&self, question: Question<'_>, asking: bool) -> Result<Answer, Failure> {
        // All in one function: the future of most calls stays small.
        let doing = question.doing;
        let near =
            (question.may_be_near() && !asking && self.in_flight.load(Ordering::Relaxed) == 0).then(|| self.near()).flatten();
        let near_call = near.as_ref().map(|_| self.near.begin());
        let live = match near.or_else(|| self.live().clone()) {
            Some(live) => live,
            None => Box::pin(self.unless_aborted(doing, self.connected())).await?,
        };
        let call = InFlightCall::new(self, live.id);
        let answer = question.send(&live.connection, asking).await;
        call.complete();
        drop(near_call);
        // After an abort no answer is believed: it may be that of another call.
        if live.aborted.is_set() {
            return Err(given_up(doing));
        }
        let (value, tracking) = answer.map_err(|e| self.broken(doing, live.id, &e))?;
        if tracking == Tracking::Refused {
            // The next connection finds out how else waiters are woken.
            self.discard(live.id);
        }
        if let Value::Push { .. } = value {
            self.abort(&live.aborted);
            return Err(given_up(doing));
        }
        Ok(Answer { value, live, tracking })
    }

    /// The failure of a call. A connection that broke is used no more.
    pub(super) fn broken(&self, doing: &str, id: u64, error: &RedisError) -> Failure {
        if is_broken(error) {
            self.discard(id);
        }
        Failure::of(doing, error)
    }

    /// Sees a call to its end, unless the link aborts it.
    pub(super) async fn unless_aborted<T>(
        &self,
        doing: &str,
        call: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let aborted = self.generation();
        let answer = tokio::select! {
            biased;
            () = aborted.wait() => return Err(given_up(doing)),
            answer = call => answer,
        };
        if aborted.is_set() { Err(given_up(doing)) } else { answer }
    }

    /// What aborts the calls of this moment.
    pub(super) fn generation(&self) -> Arc<Aborted> {
        Arc::clone(&lock(&self.generation))
    }

    /// Ends the connections and calls of this generation. Those to come belong to the next one.
    pub(super) fn abort(&self, generation: &Arc<Aborted>) {
        let mut present = lock(&self.generation);
        if Arc::ptr_eq(&present, generation) {
            *present = Arc::default();
        }
        drop(present);
        generation.set();
        self.near.discard(None);
        let mut live = self.live();
        if live.as_ref().is_some_and(|live| Arc::ptr_eq(&live.aborted, generation)) {
            *live = None;
        }
    }

    /// Ends the connection and the calls under way.
    pub(super) fn abort_all(&self) {
        self.abort(&self.generation());
    }

    /// A connection was given up. The router looks for the next one: waiters hear nothing without one, and may not call for a while.
    pub(super) fn lost_touch(&self) {
        let router = self.shared.router.get().and_then(Weak::upgrade);
        if let (Some(router), Some(link)) = (router, self.me.upgrade()) {
            router.lost_touch(&link);
        }
    }
}

/// A call under way. One that is dropped took too long: its connection may be half open.
pub(super) struct InFlightCall<'a> {
    link: &'a Link,
    id: u64,
    began: Instant,
    completed: bool,
}

impl<'a> InFlightCall<'a> {
    pub(super) fn new(link: &'a Link, id: u64) -> Self {
        link.in_flight.fetch_add(1, Ordering::Relaxed);
        Self { link, id, began: Instant::now(), completed: false }
    }

    pub(super) fn complete(mut self) {
        self.completed = true;
        // Read first: most calls need not write what all share.
        if self.link.cut_off.load(Ordering::Relaxed) > 0 {
            self.link.cut_off.store(0, Ordering::Relaxed);
        }
    }
}

impl Drop for InFlightCall<'_> {
    fn drop(&mut self) {
        self.link.in_flight.fetch_sub(1, Ordering::Relaxed);
        if self.completed {
            return;
        }
        // Its undoing must not overtake it over another connection than its own.
        self.link.near.discard(None);
        // A short lease cuts calls off after a few milliseconds: once may be a hiccup, twice in a row is not.
        let again = self.link.cut_off.fetch_add(1, Ordering::Relaxed) > 0;
        if again || self.began.elapsed() >= HICCUP {
            self.link.discard(self.id);
            self.link.lost_touch();
        }
    }
}
