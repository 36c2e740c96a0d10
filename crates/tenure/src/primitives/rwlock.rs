//! [`RwLock`]: many readers or one writer.

use std::sync::Arc;
use std::time::Duration;

use super::wanted::{Named, Wanted, options};
use crate::backend::{Broken, Mode, State};
use crate::engine::Engine;
use crate::engine::acquire::Patience;
use crate::engine::guard::Guard;
use crate::engine::owner::Owner;
use crate::error::{Error, Result};

/// A lock that many can hold to read, or one alone to write.
///
/// A writer that waits stops readers that come after it, and when those who read have gone, the others leave the lock to it
/// for 300 ms: if it hears of that and asks within this time, it comes to its turn, however near the readers are. When a
/// writer has gone, it is first come, so that readers come to theirs.
///
/// Each reader holds a share of its own, with its own lease: one that dies costs nobody but those who wait for it. Both kinds
/// of guard carry a token; only a writer's is worth checking.
///
/// Re-entry is by [`Owner`], as with [`Mutex`](crate::Mutex): reading again, writing again, and reading while writing
/// share one hold. To write while reading is refused at once, because two readers who both do it would wait for each
/// other for ever.
///
/// ```
/// # async fn example() -> tenure::Result<()> {
/// let locker = tenure::Locker::connect("memory:").await?;
/// let prices = locker.rwlock("prices");
/// let (one, two) = (prices.read().await?, prices.read().await?);
/// assert!(prices.try_write().await?.is_none());
/// drop((one, two));
///
/// let writer = prices.write().await?;
/// let reader = prices.downgrade(writer).await?; // nobody else wrote in between
/// assert!(prices.try_read().await?.is_some());
/// reader.release().await?;
/// # locker.close().await
/// # }
/// # fn main() -> tenure::Result<()> { tokio::runtime::Runtime::new().unwrap().block_on(example()) }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a lock does nothing until it is taken"]
pub struct RwLock {
    pub(crate) wanted: Wanted,
}

impl RwLock {
    pub(crate) fn new(engine: Arc<Engine>, resource: Named) -> Self {
        Self { wanted: Wanted::new(engine, resource) }
    }

    options!();

    /// Whose nested calls re-enter; otherwise the owner of the [scope](Owner::scope), if there is one.
    pub fn owner(mut self, owner: &Owner) -> Self {
        self.wanted.owner = Some(owner.clone());
        self
    }

    /// Waits until it may be read.
    ///
    /// # Cancel safety
    /// Safe: dropping the future leaves neither a lock nor a place in line behind.
    pub fn read(&self) -> impl Future<Output = Result<Guard>> + Send + use<> {
        self.endless(Mode::Read)
    }

    /// As [`read`](Self::read), for a limited time. `None`: it was busy all the time.
    ///
    /// # Cancel safety
    /// As [`read`](Self::read).
    pub fn try_read_for(&self, wait: Duration) -> impl Future<Output = Result<Option<Guard>>> + Send + use<> {
        self.limited(Mode::Read, wait)
    }

    /// Asks once. `None`: somebody writes, or waits to, also if nobody holds it at this moment.
    ///
    /// # Cancel safety
    /// As [`read`](Self::read).
    pub fn try_read(&self) -> impl Future<Output = Result<Option<Guard>>> + Send + use<> {
        self.limited(Mode::Read, Duration::ZERO)
    }

    /// Waits until nobody else reads or writes.
    ///
    /// # Cancel safety
    /// As [`read`](Self::read).
    pub fn write(&self) -> impl Future<Output = Result<Guard>> + Send + use<> {
        self.endless(Mode::Write)
    }

    /// As [`write`](Self::write), for a limited time. `None`: it was busy all the time.
    ///
    /// # Cancel safety
    /// As [`read`](Self::read).
    pub fn try_write_for(&self, wait: Duration) -> impl Future<Output = Result<Option<Guard>>> + Send + use<> {
        self.limited(Mode::Write, wait)
    }

    /// Asks once. `None`: somebody else reads or writes.
    ///
    /// # Cancel safety
    /// As [`read`](Self::read).
    pub fn try_write(&self) -> impl Future<Output = Result<Option<Guard>>> + Send + use<> {
        self.limited(Mode::Write, Duration::ZERO)
    }

    /// Turns a writer's guard into a reader's, under the same token: other readers come in, and no writer in between.
    ///
    /// A downgrade does not lengthen the lease: the reader has its own or the writer's, whichever is shorter.
    ///
    /// Refused if it is not the only writer's guard of its hold on this name. The guard ends in any case: after a refusal or
    /// an error of the store nothing is held.
    ///
    /// # Cancel safety
    /// Dropping the future gives the lock back.
    pub fn downgrade(&self, writer: Guard) -> impl Future<Output = Result<Guard>> + Send + use<> {
        let asked = self.wanted.clone();
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

    /// Who reads or writes, and how many wait.
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

    fn endless(&self, mode: Mode) -> impl Future<Output = Result<Guard>> + Send + use<> {
        let asked = self.wanted.clone();
        async move { asked.acquire(mode, Patience::Endless).await?.ok_or(Error::Closed) }
    }

    fn limited(&self, mode: Mode, wait: Duration) -> impl Future<Output = Result<Option<Guard>>> + Send + use<> {
        let asked = self.wanted.clone();
        async move { asked.acquire(mode, asked.patience(wait)).await }
    }
}
