//! [`Latch`]: waits until others have done their part.

use std::sync::Arc;
use std::time::Duration;

use super::request::{LockRequest, Named};
use crate::backend::Mode;
use crate::engine::Engine;
use crate::engine::acquire::Patience;
use crate::error::{Error, Result};

/// A count that goes down to zero, and waiters that go on then.
///
/// A waiter waits for the state: a lost signal costs a moment, and a late waiter finds the latch open. A latch that was not set, or was
/// removed, is open. It holds nothing and has no owner: a count down is final, also if its process dies.
///
/// ```
/// # #[tokio::main] async fn main() -> tenure::Result<()> {
/// let locker = tenure::Locker::connect("memory:").await?;
/// let ready = locker.latch("import:7");
/// assert!(ready.set(2).await?);
/// assert_eq!(ready.count_down().await?, 1);
/// assert!(!ready.wait_for(std::time::Duration::from_millis(5)).await?);
/// assert_eq!(ready.count_down().await?, 0);
/// ready.wait().await?;
/// # locker.close().await }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a latch does nothing by itself"]
pub struct Latch {
    request: LockRequest,
}

impl Latch {
    pub(crate) fn new(engine: Arc<Engine>, resource: Named) -> Self {
        Self { request: LockRequest::new(engine, resource) }
    }

    /// Sets the count, at least one, unless there is one. Whether it was set. Cancelled, it may or may not have happened.
    pub fn set(&self, count: u32) -> impl Future<Output = Result<bool>> + Send + use<> {
        let asked = self.request.clone();
        async move {
            if count == 0 {
                return Err(Error::config("a latch with a count of 0", "would be open from the beginning", "at least 1"));
            }
            Ok(asked.ask(Mode::SetCount { of: count }, Patience::Endless).await?.is_some())
        }
    }

    /// Counts down by one and returns what is left. At zero all waiters go on. An open latch stays open.
    /// Cancelled, it may or may not have happened.
    pub fn count_down(&self) -> impl Future<Output = Result<u64>> + Send + use<> {
        let asked = self.request.clone();
        async move { asked.ask(Mode::CountDown, Patience::Endless).await?.ok_or(Error::Closed) }
    }

    /// Waits until the count is zero. Cancel safe: it only reads.
    pub fn wait(&self) -> impl Future<Output = Result<()>> + Send + use<> {
        let asked = self.request.clone();
        async move { asked.ask(Mode::CountZero, Patience::Endless).await?.map(drop).ok_or(Error::Closed) }
    }

    /// As [`wait`](Self::wait), for a limited time. Whether the count is zero. Cancel safe: it only reads.
    pub fn wait_for(&self, wait: Duration) -> impl Future<Output = Result<bool>> + Send + use<> {
        let asked = self.request.clone();
        async move { Ok(asked.ask(Mode::CountZero, asked.patience(wait)).await?.is_some()) }
    }

    /// The count; zero if there is no such latch. Cancel safe: it only reads.
    pub fn count(&self) -> impl Future<Output = Result<u64>> + Send + use<> {
        let asked = self.request.clone();
        async move { Ok(asked.inspect().await?.count.unwrap_or(0)) }
    }

    /// Removes the latch: all waiters go on. It can then be set again. Cancelled, it may or may not have happened.
    pub fn remove(&self) -> impl Future<Output = Result<()>> + Send + use<> {
        let asked = self.request.clone();
        async move { asked.ask(Mode::RemoveCount, Patience::Endless).await?.map(drop).ok_or(Error::Closed) }
    }
}
