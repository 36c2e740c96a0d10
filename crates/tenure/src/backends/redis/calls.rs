//! Calls under way: how they end other than by an answer.

use std::sync::Weak;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::link::Link;

/// A server that has not answered for this long is not just slow.
const HICCUP: Duration = Duration::from_millis(200);

/// Tells all who wait for an answer that none is coming that could be believed.
#[derive(Default)]
pub(super) struct Over {
    flag: AtomicBool,
    bell: Notify,
}

impl Over {
    pub(super) fn set(&self) {
        self.flag.store(true, Ordering::Release);
        self.bell.notify_waiters();
    }

    pub(super) fn is_set(&self) -> bool {
        self.flag.load(Ordering::Acquire)
    }

    pub(super) async fn wait(&self) {
        let mut bell = std::pin::pin!(self.bell.notified());
        bell.as_mut().enable();
        if !self.is_set() {
            bell.await;
        }
    }
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
