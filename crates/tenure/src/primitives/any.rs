//! [`AnyLock`]: a lock whose kind is known when the program runs.

use std::sync::Arc;
use std::time::Duration;

use super::request::{LockRequest, Named, options};
use super::semaphore;
use crate::backend::{Broken, Mode, State};
use crate::engine::Engine;
use crate::engine::acquire::Patience;
use crate::engine::guard::Guard;
use crate::engine::owner::Owner;
use crate::error::{Error, Result};

/// A name, a [`Mode`] and terms: a lock whose kind a configuration or a command line says.
///
/// It is the same lock as that of [`Mutex`](crate::Mutex), [`RwLock`](crate::RwLock) or [`Semaphore`](crate::Semaphore) with the name.
///
/// ```
/// use tenure::Mode;
///
/// # #[tokio::main] async fn main() -> tenure::Result<()> {
/// # let asked = "read";
/// let mode = match asked {
///     "read" => Mode::Read,
///     "write" => Mode::Write,
///     "one of three" => Mode::Permits { take: 1, of: 3 },
///     _ => Mode::Exclusive,
/// };
/// let locker = tenure::Locker::connect("memory:").await?;
/// let guard = locker.any_lock("report", mode).note("nightly").acquire().await?;
/// assert!(locker.rwlock("report").try_write().await?.is_none());
/// # drop(guard);
/// # locker.close().await }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a lock does nothing until it is acquired"]
pub struct AnyLock {
    request: LockRequest,
    mode: Mode,
}

impl AnyLock {
    pub(crate) fn new(engine: Arc<Engine>, resource: Named, mode: Mode) -> Self {
        Self { request: LockRequest::new(engine, resource), mode }
    }

    options!(owner);

    /// How it is locked.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Waits until it is held. A mode that holds nothing, and [`Mode::Downgrade`], are refused.
    ///
    /// # Cancel safety
    /// Safe: dropping the future leaves neither a lock nor a queue position behind.
    pub fn acquire(&self) -> impl Future<Output = Result<Guard>> + Send + use<> {
        let asked = self.clone();
        async move { asked.take(Patience::Endless).await?.ok_or(Error::Closed) }
    }

    /// As [`acquire`](Self::acquire), for a limited time. `None`: it was busy all the time. Zero asks once.
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    pub fn try_acquire_for(&self, wait: Duration) -> impl Future<Output = Result<Option<Guard>>> + Send + use<> {
        let asked = self.clone();
        async move { asked.take(asked.request.patience(wait)).await }
    }

    /// Asks once. `None`: it is busy.
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    pub fn try_acquire(&self) -> impl Future<Output = Result<Option<Guard>>> + Send + use<> {
        self.try_acquire_for(Duration::ZERO)
    }

    async fn take(&self, patience: Patience) -> Result<Option<Guard>> {
        match self.mode {
            Mode::Permits { take, of } => {
                semaphore::check(take, of)?;
                self.request.acquire_anew(self.mode, patience).await
            }
            mode if mode.holds() && mode != Mode::Downgrade => self.request.acquire(mode, patience).await,
            mode => {
                let allowed = "Exclusive, Fair, Read, Write or Permits";
                Err(Error::config(format!("the mode {mode:?}"), "takes no lock of its own", allowed))
            }
        }
    }
}
