//! [`Latch`]: waits until others have done their part.

use std::sync::Arc;
use std::time::Duration;

use super::wanted::{Named, Wanted};
use crate::backend::Mode;
use crate::engine::Engine;
use crate::engine::acquire::Patience;
use crate::error::{Error, Result};

/// A count that goes down to zero, and those who wait until it is there.
///
/// Waiting is for a state, not for a message: one that is lost costs a while, never a waiter, and who comes late finds
/// the latch open. A latch that nobody has set, or that was removed, is open. It holds nothing and has no owner: who has
/// counted down has done so for good, also if it dies then.
///
/// ```
/// # async fn example() -> tenure::Result<()> {
/// let locker = tenure::Locker::connect("memory:").await?;
/// let ready = locker.latch("import:7");
/// assert!(ready.set(2).await?);
/// assert_eq!(ready.count_down().await?, 1);
/// assert!(!ready.wait_for(std::time::Duration::from_millis(5)).await?);
/// assert_eq!(ready.count_down().await?, 0);
/// ready.wait().await?;
/// # locker.close().await
/// # }
/// # fn main() -> tenure::Result<()> { tokio::runtime::Runtime::new().unwrap().block_on(example()) }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a latch does nothing by itself"]
pub struct Latch {
    wanted: Wanted,
}

impl Latch {
    pub(crate) fn new(engine: Arc<Engine>, resource: Named) -> Self {
        Self { wanted: Wanted::new(engine, resource) }
    }

    /// Sets the count, at least one, unless there is one. Whether it was set.
    ///
    /// # Cancel safety
    /// It may or may not have happened.
    pub fn set(&self, count: u32) -> impl Future<Output = Result<bool>> + Send + use<> {
        let asked = self.wanted.clone();
        async move {
            if count == 0 {
                return Err(Error::config("a latch with a count of 0", "would be open from the beginning", "at least 1"));
            }
            Ok(asked.ask(Mode::SetCount { of: count }, Patience::Endless).await?.is_some())
        }
    }

    /// Counts down by one and returns what is left. At zero all who wait go on. A latch that is open stays so.
    ///
    /// # Cancel safety
    /// It may or may not have happened.
    pub fn count_down(&self) -> impl Future<Output = Result<u64>> + Send + use<> {
        let asked = self.wanted.clone();
        async move { asked.ask(Mode::CountDown, Patience::Endless).await?.ok_or(Error::Closed) }
    }

    /// Waits until the count is zero.
    ///
    /// # Cancel safety
    /// Safe: it only reads.
    pub fn wait(&self) -> impl Future<Output = Result<()>> + Send + use<> {
        let asked = self.wanted.clone();
        async move { asked.ask(Mode::CountZero, Patience::Endless).await?.map(drop).ok_or(Error::Closed) }
    }

    /// As [`wait`](Self::wait), for a limited time. Whether the count is zero.
    ///
    /// # Cancel safety
    /// Safe: it only reads.
    pub fn wait_for(&self, wait: Duration) -> impl Future<Output = Result<bool>> + Send + use<> {
        let asked = self.wanted.clone();
        async move { Ok(asked.ask(Mode::CountZero, asked.patience(wait)).await?.is_some()) }
    }

    /// The count; zero if there is no such latch.
    ///
    /// # Cancel safety
    /// Safe: it only reads.
    pub fn count(&self) -> impl Future<Output = Result<u64>> + Send + use<> {
        let asked = self.wanted.clone();
        async move { Ok(asked.inspect().await?.count.unwrap_or(0)) }
    }

    /// Removes the latch, which lets all who wait go on. It can be set anew then.
    ///
    /// # Cancel safety
    /// It may or may not have happened.
    pub fn remove(&self) -> impl Future<Output = Result<()>> + Send + use<> {
        let asked = self.wanted.clone();
        async move { asked.ask(Mode::RemoveCount, Patience::Endless).await?.map(drop).ok_or(Error::Closed) }
    }
}
