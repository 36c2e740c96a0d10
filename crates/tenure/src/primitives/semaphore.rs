//! [`Semaphore`]: up to so many holders at any time.

use std::sync::Arc;
use std::time::Duration;

use super::request::{LockRequest, Named, options};
use crate::backend::{Broken, Mode, State};
use crate::engine::Engine;
use crate::engine::acquire::Patience;
use crate::engine::guard::Guard;
use crate::error::{Error, Result};

/// The most permits that one call may take.
const MAX_TAKE: u32 = 1024;

/// A number of permits, each of which one holder has at a time.
///
/// A permit is a [`Guard`] as a lock is: it has a lease, is renewed, comes back by itself when its holder dies, and says when it is lost.
/// The store keeps the number of permits: the first holder sets it, and [`resize`](Self::resize) changes it, also while permits are
/// held. A permit is not re-entrant.
///
/// ```
/// # #[tokio::main] async fn main() -> tenure::Result<()> {
/// let locker = tenure::Locker::connect("memory:").await?;
/// let exports = locker.semaphore("exports", 3);
/// let one = exports.acquire().await?;
/// let two = exports.acquire_many(2).await?;
/// assert!(exports.try_acquire().await?.is_none());
/// two.release().await?; // both at once
/// assert!(exports.try_acquire().await?.is_some());
/// # drop(one);
/// # locker.close().await }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a semaphore does nothing until a permit is taken"]
pub struct Semaphore {
    pub(crate) request: LockRequest,
    of: u32,
}

impl Semaphore {
    pub(crate) fn new(engine: Arc<Engine>, resource: Named, of: u32) -> Self {
        Self { request: LockRequest::new(engine, resource), of }
    }

    options!();

    /// Waits for a permit.
    ///
    /// # Cancel safety
    /// Safe: dropping the future leaves no permit behind.
    pub fn acquire(&self) -> impl Future<Output = Result<Guard>> + Send + use<> {
        self.acquire_many(1)
    }

    /// As [`acquire`](Self::acquire), for a limited time. `None`: there was none all the time.
    /// Cancel safe as [`acquire`](Self::acquire) is.
    pub fn try_acquire_for(&self, wait: Duration) -> impl Future<Output = Result<Option<Guard>>> + Send + use<> {
        self.try_acquire_many_for(1, wait)
    }

    /// Asks once. `None`: none is free. Cancel safe as [`acquire`](Self::acquire) is.
    pub fn try_acquire(&self) -> impl Future<Output = Result<Option<Guard>>> + Send + use<> {
        self.try_acquire_many_for(1, Duration::ZERO)
    }

    /// Waits for several permits, up to 1024, which one guard takes and gives back together. Tasks of one process are served in the order in
    /// which they came, however many each wants. So a task that wants more than there are, because [`resize`](Self::resize) has lowered
    /// the number, blocks the tasks behind it until there are enough, or it gives up.
    /// Cancel safe as [`acquire`](Self::acquire) is.
    pub fn acquire_many(&self, permits: u32) -> impl Future<Output = Result<Guard>> + Send + use<> {
        let asked = self.clone();
        async move { asked.take(permits, Patience::Endless).await?.ok_or(Error::Closed) }
    }

    /// As [`acquire_many`](Self::acquire_many), for a limited time; zero asks once. `None`: there were not enough.
    /// Cancel safe as [`acquire`](Self::acquire) is.
    pub fn try_acquire_many_for(
        &self,
        permits: u32,
        wait: Duration,
    ) -> impl Future<Output = Result<Option<Guard>>> + Send + use<> {
        let asked = self.clone();
        async move { asked.take(permits, asked.request.patience(wait)).await }
    }

    /// Sets how many permits there are, for all users of the name. When more are held, none is granted until enough have come back.
    /// Cancelled, it may or may not have happened.
    pub fn resize(&self, permits: u32) -> impl Future<Output = Result<()>> + Send + use<> {
        let asked = self.request.clone();
        async move { asked.ask(Mode::Resize { of: permits }, Patience::Endless).await?.map(drop).ok_or(Error::Closed) }
    }

    async fn take(&self, take: u32, patience: Patience) -> Result<Option<Guard>> {
        let of = self.of;
        check(take, of)?;
        self.request.acquire_anew(Mode::Permits { take, of }, patience).await
    }
}

/// Refuses a number of permits that can never be granted; zero of them leaves their number to others.
pub(super) fn check(take: u32, of: u32) -> Result<()> {
    let most = if of == 0 { MAX_TAKE } else { MAX_TAKE.min(of) };
    if (1..=most).contains(&take) {
        return Ok(());
    }
    Err(Error::config(format!("{take} permits"), "is out of range", format!("1 to {most}")))
}
