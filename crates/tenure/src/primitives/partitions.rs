//! [`Partitions`]: split work, spread over the members of a group.

mod balance;
mod member;
mod members;

use std::sync::Arc;
use std::time::Duration;

pub use self::member::Member;
pub(super) use self::member::Tenure;
use self::members::Members;
use crate::engine::Engine;
use crate::engine::guard::Watcher;
use crate::error::Result;
use crate::name::{Resource, Token};
use crate::primitives::mutex::Mutex;
use crate::primitives::request::Named;
use crate::primitives::striped::{check_parts, part_of};

/// `n` partitions `name/0` … `name/n-1`, spread evenly over the members that live: any two have the same number of them, or one more or
/// less. Partitions move when members join, leave or die. There are 65 536 at most.
///
/// Needs a store that carries read/write locks: the members are the readers of `name/members`.
///
/// Each partition is a lock, so it never has two owners. Its fencing token protects what lies outside of the store.
///
/// ```
/// # #[tokio::main] async fn main() -> tenure::Result<()> {
/// # let locker = tenure::Locker::connect("memory:").await?;
/// let work = locker.partitions("ingest", 12).run(|partition| async move {
///     println!("owns {} under token {}", partition.index(), partition.token());
///     std::future::pending::<()>().await // works until it is stopped
/// });
/// # tokio::time::timeout(std::time::Duration::from_millis(100), work).await.ok();
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
#[must_use = "there is no member yet"]
pub struct Partitions {
    engine: Arc<Engine>,
    name: Arc<str>,
    count: u32,
    lease: Duration,
    note: Option<Arc<str>>,
}

impl Partitions {
    pub(crate) fn new(engine: Arc<Engine>, name: &str, count: u32) -> Self {
        let lease = engine.lease;
        Self { engine, name: name.into(), count, lease, note: None }
    }

    /// The lease, instead of the locker's: how long a dead member keeps its partitions where the store does not notice.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// A note that `inspect` shows with the partitions of this member.
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into().into());
        self
    }

    /// The partition of a key, counted as [`Striped`](crate::Striped) does; 0 if there are none.
    #[must_use]
    pub fn index(&self, key: impl AsRef<[u8]>) -> u32 {
        part_of(key.as_ref(), self.count)
    }

    /// Takes part. Partitions come and go from then on, until the member is dropped or [leaves](Member::leave).
    ///
    /// # Cancel safety
    /// Safe: dropping the future leaves nothing behind.
    pub fn join(&self) -> impl Future<Output = Result<Member>> + Send + use<> {
        let group = self.clone();
        async move {
            check_parts(&group.name, group.count, "partitions")?;
            Resource::new(&group.name)?;
            let members = Members::new(&group)?;
            let seat = members.join().await?;
            Ok(Member::new(group, seat, members))
        }
    }

    /// Takes part and runs `work` once for every partition that is owned here. See [`Member::run`]. Dropping the future
    /// leaves the group. As cancel safe as the work that it runs.
    pub fn run<W, F>(&self, work: W) -> impl Future<Output = Result<()>> + use<W, F>
    where
        W: Fn(Partition) -> F,
        F: Future<Output = ()>,
    {
        let joining = self.join();
        async move { joining.await?.run(work).await }
    }

    fn resource(&self, part: &str) -> Named {
        Resource::new(format!("{}/{part}", self.name))
    }

    fn mutex(&self, part: &str) -> Mutex {
        let mutex = Mutex::new(Arc::clone(&self.engine), self.resource(part)).lease(self.lease);
        match &self.note {
            Some(note) => mutex.note(&**note),
            None => mutex,
        }
    }
}

/// A partition that is owned here. A clone keeps nothing alive: it only tells.
///
/// ```
/// # #[tokio::main] async fn main() -> tenure::Result<()> {
/// # let locker = tenure::Locker::connect("memory:").await?;
/// # let member = locker.partitions("ingest", 3).join().await?;
/// let work = member.run(|partition| async move {
///     let elsewhere = tokio::spawn({
///         let partition = partition.clone();
///         async move { while partition.is_valid() { tokio::task::yield_now().await } }
///     });
///     partition.ended().await;
///     elsewhere.await.ok();
/// });
/// # tokio::time::timeout(std::time::Duration::from_millis(50), work).await.ok();
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Partition {
    index: u32,
    token: Token,
    hold: Watcher,
}

impl Partition {
    /// Which one: 0 to n - 1.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The fencing token: larger than that of every earlier owner. Send it along with each write.
    #[must_use]
    pub fn token(&self) -> Token {
        self.token
    }

    /// Whether it is owned at this moment. Once false, always false.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.hold.is_valid()
    }

    /// Resolves when it is not owned any more: given back, or lost. Cancel safe: nothing is missed.
    pub async fn ended(&self) {
        self.hold.ended().await;
    }
}
