//! [`AnyLock`]: a lock whose kind is known when the program runs.

use std::sync::Arc;
use std::time::Duration;

use super::semaphore;
use super::wanted::{Named, Wanted, options};
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
/// # async fn example() -> tenure::Result<()> {
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
/// # locker.close().await
/// # }
/// # fn main() -> tenure::Result<()> { tokio::runtime::Runtime::new().unwrap().block_on(example()) }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a lock does nothing until it is acquired"]
pub struct AnyLock {
    wanted: Wanted,
    mode: Mode,
}

impl AnyLock {
    pub(crate) fn new(engine: Arc<Engine>, resource: Named, mode: Mode) -> Self {
        Self { wanted: Wanted::new(engine, resource), mode }
    }

    options!();

    /// Whose nested calls re-enter; otherwise the owner of the [scope](Owner::scope), if there is one. Permits are not re-entrant.
    pub fn owner(mut self, owner: &Owner) -> Self {
        self.wanted.owner = Some(owner.clone());
        self
    }

    /// How it is locked.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Waits until it is held. A mode that holds nothing, and [`Mode::Downgrade`], are refused.
    ///
    /// # Cancel safety
    /// Safe: dropping the future leaves neither a lock nor a place in the queue behind.
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
        async move { asked.take(asked.wanted.patience(wait)).await }
    }

    /// Asks once. `None`: it is busy.
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    pub fn try_acquire(&self) -> impl Future<Output = Result<Option<Guard>>> + Send + use<> {
        self.try_acquire_for(Duration::ZERO)
    }

    /// Who holds it, and how many wait.
    ///
    /// # Cancel safety
    /// Safe: it only reads.
    pub fn inspect(&self) -> impl Future<Output = Result<State>> + Send + use<> {
        self.wanted.clone().inspect()
    }

    /// Ends all holds by force, as [`Mutex::break_hold`](crate::Mutex::break_hold).
    ///
    /// # Cancel safety
    /// The break may or may not have happened.
    pub fn break_hold(&self) -> impl Future<Output = Result<Option<Broken>>> + Send + use<> {
        self.wanted.clone().break_hold()
    }

    async fn take(&self, patience: Patience) -> Result<Option<Guard>> {
        match self.mode {
            Mode::Permits { take, of } => {
                semaphore::check(take, of)?;
                self.wanted.acquire_anew(self.mode, patience).await
            }
            mode if mode.holds() && mode != Mode::Downgrade => self.wanted.acquire(mode, patience).await,
            mode => {
                let allowed = "Exclusive, Fair, Read, Write or Permits";
                Err(Error::config(format!("the mode {mode:?}"), "takes no lock of its own", allowed))
            }
        }
    }
}
