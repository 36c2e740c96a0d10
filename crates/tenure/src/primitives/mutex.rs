//! [`Mutex`]: one holder at any time.

use std::sync::Arc;
use std::time::Duration;

use super::request::{LockRequest, Named, options};
use crate::backend::{Broken, Mode, State};
use crate::engine::Engine;
use crate::engine::guard::Guard;
use crate::engine::owner::Owner;
use crate::error::Result;
use crate::name::Resource;

/// A lock that one owner at a time can hold, re-entrant by [`Owner`].
///
/// [`lock`](Self::lock), [`try_lock_for`](Self::try_lock_for) and [`try_lock`](Self::try_lock) keep the lock alive until
/// the guard is dropped, unless [`lease_fixed`](Self::lease_fixed) was called. A busy lock is a value, not an
/// error. The futures own what they need: they can be spawned.
#[derive(Debug, Clone)]
#[must_use = "a mutex does nothing until it is locked"]
pub struct Mutex {
    pub(crate) request: LockRequest,
    mode: Mode,
}

impl Mutex {
    pub(crate) fn new(engine: Arc<Engine>, resource: Named) -> Self {
        Self { request: LockRequest::new(engine, resource), mode: Mode::Exclusive }
    }

    options!(owner);

    /// Each hold is granted by the store, under a token that all can see.
    pub(crate) fn never_handed_over(mut self) -> Self {
        self.request.bypass_local_queue = true;
        self
    }

    /// First come, first served, across all processes: each call has its own position in the queue of the store. Slower than without: a
    /// hold is never handed over inside the process. All users of the name should do so; others come in between.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> tenure::Result<()> {
    /// let locker = tenure::Locker::connect("memory:").await?;
    /// let guard = locker.mutex("ticket counter").fair().lock().await?;
    /// guard.release().await?;
    /// # locker.close().await }
    /// ```
    pub fn fair(mut self) -> Self {
        self.mode = Mode::Fair;
        self
    }

    /// How long a lock that was released stays with this process, instead of what the [locker](crate::Builder::linger) says.
    pub fn linger(mut self, linger: Duration) -> Self {
        self.request.linger = linger;
        self
    }

    /// Waits until the lock is held. Fails when the store is unavailable for longer than the retry policy allows.
    ///
    /// # Cancel safety
    /// Safe: dropping the future leaves neither a lock nor a queue position behind.
    pub fn lock(&self) -> impl Future<Output = Result<Guard>> + Send + use<> {
        self.request.lock(self.mode)
    }

    /// As [`lock`](Self::lock), for a limited time. `None`: another owner had the lock all the time. Zero asks once, as
    /// [`try_lock`](Self::try_lock) does. Cancel safe as [`lock`](Self::lock) is.
    pub fn try_lock_for(&self, wait: Duration) -> impl Future<Output = Result<Option<Guard>>> + Send + use<> {
        self.request.try_lock_for(self.mode, wait)
    }

    /// Asks once. `None`: another owner has the lock. An unavailable store is reported at once.
    /// Cancel safe as [`lock`](Self::lock) is.
    pub fn try_lock(&self) -> impl Future<Output = Result<Option<Guard>>> + Send + use<> {
        self.request.try_lock_for(self.mode, Duration::ZERO)
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.request.engine
    }

    pub(crate) fn resource(&self) -> Result<&Resource> {
        self.request.resource.as_ref().map_err(|e| e.clone().into())
    }
}
