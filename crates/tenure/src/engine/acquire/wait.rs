//! How long a caller waits, and what ends a wait before its time.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use super::Contender;
use super::step::Event;
use crate::clock::Instant;
use crate::engine::Settings;

/// How long the caller is willing to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Ask once.
    None,
    Until(Instant),
    Endless,
}

impl Patience {
    pub(crate) fn bound(self) -> Instant {
        match self {
            Self::None | Self::Endless => Instant::from_nanos(u64::MAX),
            Self::Until(when) => when,
        }
    }

    /// How much of it is left.
    pub(super) fn left(self, settings: &Settings) -> Duration {
        match self {
            Self::None | Self::Endless => Duration::MAX,
            Self::Until(when) => when.since(settings.clock.now()),
        }
    }
}

/// Why a wait ended.
pub(super) enum Woken {
    /// Go on.
    Go,
    /// The time is up, the caller has gone, or the locker is closing.
    Stop,
}

impl From<Woken> for Event {
    fn from(woken: Woken) -> Self {
        match woken {
            Woken::Go => Self::Woken,
            Woken::Stop => Self::Stopped,
        }
    }
}

impl Contender {
    /// Whether nobody waits for the answer any more.
    pub(super) fn is_stopped(&self) -> bool {
        self.engine().is_closed() || !self.desk.is_open()
    }

    /// Runs a wait until the caller's time is up, the caller has gone or the locker closes.
    pub(super) async fn unless_stopped(&self, wait: impl Future<Output = ()>) -> Woken {
        let mut wait = pin!(wait);
        // Most calls are answered before there is anything to wait for.
        let first = std::future::poll_fn(|cx| {
            Poll::Ready(if self.is_stopped() {
                Some(Woken::Stop)
            } else {
                wait.as_mut().poll(cx).is_ready().then_some(Woken::Go)
            })
        });
        if let Some(woken) = first.await {
            return woken;
        }
        let engine = self.engine();
        let give_up = match self.request.patience {
            // Both questions together take no longer than one call may.
            Patience::None => self.asked.after(engine.settings.timeout),
            patience => patience.bound(),
        };
        let mut closing = pin!(engine.closing());
        let mut time = pin!(sleep_long(give_up.since(engine.settings.clock.now())));
        std::future::poll_fn(|cx| {
            // A caller that has gone leaves this to the background, which polls it then.
            if self.is_stopped() || closing.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Woken::Stop);
            }
            if wait.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Woken::Go);
            }
            time.as_mut().poll(cx).map(|()| Woken::Stop)
        })
        .await
    }
}

pub(super) async fn timeout(after: Duration, wait: impl Future<Output = ()>) {
    drop(tokio::time::timeout(after, wait).await);
}

/// As tokio's sleep, which cannot reach the end of time.
pub(crate) async fn sleep_long(d: Duration) {
    if d > Duration::from_secs(365 * 24 * 60 * 60) {
        std::future::pending().await
    } else {
        tokio::time::sleep(d).await;
    }
}
