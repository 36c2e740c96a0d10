//! [`RwLock`]: many readers or one writer.

use std::sync::Arc;
use std::time::Duration;

use super::request::{LockRequest, Named, options};
use crate::backend::{Broken, Mode, State};
use crate::engine::Engine;
use crate::engine::guard::Guard;
use crate::engine::owner::Owner;
use crate::error::{Error, Result};

/// A lock that many can hold to read, or one alone to write.
///
/// A waiting writer stops later readers. When the present readers have gone, the others leave the free lock to the writer for 300 ms, so
/// that it gets its turn however near the readers are. After a writer it is first come, first served, so that readers get theirs.
///
/// Each reader holds a share of its own, with its own lease. Both kinds of guard carry a token; only a writer's is worth checking.
///
/// Re-entry is by [`Owner`], as with [`Mutex`](crate::Mutex): reading again, writing again, and reading while writing share one hold. To
/// write while reading is refused at once, because two readers that both do it would wait for each other forever.
///
/// ```
/// # #[tokio::main] async fn main() -> tenure::Result<()> {
/// let locker = tenure::Locker::connect("memory:").await?;
/// let prices = locker.rwlock("prices");
/// let (one, two) = (prices.read().await?, prices.read().await?);
/// assert!(prices.try_write().await?.is_none());
/// drop((one, two));
///
/// let writer = prices.write().await?;
/// let reader = prices.downgrade(writer).await?; // no other writer in between
/// assert!(prices.try_read().await?.is_some());
/// reader.release().await?;
/// # locker.close().await }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a lock does nothing until it is taken"]
pub struct RwLock {
    pub(crate) request: LockRequest,
}

impl RwLock {
    pub(crate) fn new(engine: Arc<Engine>, resource: Named) -> Self {
        Self { request: LockRequest::new(engine, resource) }
    }

    options!(owner);

    /// Waits until it may be read.
    ///
    /// # Cancel safety
    /// Safe: dropping the future leaves neither a lock nor a queue position behind.
    pub fn read(&self) -> impl Future<Output = Result<Guard>> + Send + use<> {
        self.request.lock(Mode::Read)
    }

    /// As [`read`](Self::read), for a limited time. `None`: it was busy all the time. Cancel safe as [`read`](Self::read) is.
    pub fn try_read_for(&self, wait: Duration) -> impl Future<Output = Result<Option<Guard>>> + Send + use<> {
        self.request.try_lock_for(Mode::Read, wait)
    }

    /// Asks once. `None`: another owner writes, or waits to. Cancel safe as [`read`](Self::read) is.
    pub fn try_read(&self) -> impl Future<Output = Result<Option<Guard>>> + Send + use<> {
        self.request.try_lock_for(Mode::Read, Duration::ZERO)
    }

    /// Waits until no other owner reads or writes. Cancel safe as [`read`](Self::read) is.
    pub fn write(&self) -> impl Future<Output = Result<Guard>> + Send + use<> {
        self.request.lock(Mode::Write)
    }

    /// As [`write`](Self::write), for a limited time. `None`: it was busy all the time. Cancel safe as [`read`](Self::read) is.
    pub fn try_write_for(&self, wait: Duration) -> impl Future<Output = Result<Option<Guard>>> + Send + use<> {
        self.request.try_lock_for(Mode::Write, wait)
    }

    /// Asks once. `None`: another owner reads or writes. Cancel safe as [`read`](Self::read) is.
    pub fn try_write(&self) -> impl Future<Output = Result<Option<Guard>>> + Send + use<> {
        self.request.try_lock_for(Mode::Write, Duration::ZERO)
    }

    /// Turns a writer's guard into a reader's, under the same token: other readers come in, and no writer in between. The lease of the
    /// reader is its own or the writer's, whichever is shorter.
    ///
    /// Refused if it is not the only writer's guard of its hold on this name. The guard ends in any case: after a refusal or an error of
    /// the store nothing is held.
    ///
    /// # Cancel safety
    /// Dropping the future gives the lock back.
    pub fn downgrade(&self, writer: Guard) -> impl Future<Output = Result<Guard>> + Send + use<> {
        let asked = self.request.clone();
        async move {
            let name = asked.resource.clone()?;
            let here = *writer.resource() == name && writer.owner_id().client == asked.engine.owners.client();
            if writer.mode() != Mode::Write || !here {
                let problem = format!("was asked for with another guard than that of a writer of {name:?}");
                return Err(Error::misuse("a downgrade", problem, "the only guard of a write lock of this name"));
            }
            asked.change(writer, Mode::Downgrade).await
        }
    }
}
