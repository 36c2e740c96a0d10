//! Calls under way: how they end other than by an answer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::fault::{Failure, NAME};
use super::link::Link;
use super::shared::lock;
use crate::error::{Error, Fault};

/// A server that has not answered for this long is not just slow.
const HICCUP: Duration = Duration::from_millis(200);

/// Tells all who wait for an answer that none is coming that could be believed.
///
/// Whoever waits over a connection is told by its end, and so costs nothing to tell; whoever has none yet, by the bell.
#[derive(Default)]
pub(super) struct Over {
    flag: AtomicBool,
    bell: Notify,
    drivers: Mutex<Vec<AbortHandle>>,
}

impl Over {
    pub(super) fn set(&self) {
        self.flag.store(true, Ordering::Release);
        self.bell.notify_waiters();
        lock(&self.drivers).drain(..).for_each(|driver| driver.abort());
    }

    pub(super) fn is_set(&self) -> bool {
        self.flag.load(Ordering::Acquire)
    }

    /// Ends this connection, too.
    pub(super) fn ends(&self, driver: AbortHandle) {
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

impl Link {
    /// Sees a call to its end, unless the link ends all calls before: then no answer is believed, as it may be another's.
    pub(super) async fn until_over<T>(&self, doing: &str, call: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        let over = self.over();
        let answer = tokio::select! {
            biased;
            () = over.wait() => return Err(given_up(doing)),
            answer = call => answer,
        };
        if over.is_set() { Err(given_up(doing)) } else { answer }
    }

    /// Believes no answer that is still to come over the connections that end with this, and uses none of them.
    pub(super) fn abandon(&self, over: &Arc<Over>) {
        self.renew_over(over);
        over.set();
        let mut live = self.live();
        if live.as_ref().is_some_and(|live| Arc::ptr_eq(&live.over, over)) {
            *live = None;
        }
    }

    /// Ends the connection, and the calls under way.
    pub(super) fn give_up(&self) {
        self.abandon(&self.over());
    }
}

pub(super) fn given_up(doing: &str) -> Failure {
    let detail = "the connection was given up before the answer";
    Failure::lost(Error::unavailable(NAME, doing, Fault::Connection, detail))
}

/// A call under way. One that is dropped was cut off for taking too long: its connection may be half open.
pub(super) struct Flight<'a> {
    link: &'a Link,
    id: u64,
    took_off: Instant,
    landed: bool,
}

impl<'a> Flight<'a> {
    pub(super) fn new(link: &'a Link, id: u64) -> Self {
        Self { link, id, took_off: Instant::now(), landed: false }
    }

    pub(super) fn land(mut self) {
        self.landed = true;
        // Most find it so, and need not write what all share.
        if self.link.cut_off.load(Ordering::Relaxed) > 0 {
            self.link.cut_off.store(0, Ordering::Relaxed);
        }
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
            self.link.lost_touch();
        }
    }
}

impl Link {
    /// A connection was given up. Nobody may call again for a while, and those who wait hear nothing without one.
    pub(super) fn lost_touch(&self) {
        let router = self.shared.router.get().and_then(Weak::upgrade);
        if let (Some(router), Some(link)) = (router, self.me.upgrade()) {
            router.lost_touch(&link);
        }
    }
}
