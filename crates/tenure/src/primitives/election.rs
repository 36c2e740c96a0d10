//! [`Election`]: one leader at any time, known to all.

use std::sync::Arc;
use std::time::Duration;

use futures_util::Stream;
use tracing::debug;

use crate::backend::{Mode, State};
use crate::engine::Engine;
use crate::engine::guard::{Guard, Watcher};
use crate::error::Result;
use crate::name::{Resource, Token};
use crate::primitives::changes::ChangeWatch;
use crate::primitives::mutex::Mutex;
use crate::retry::jitter;

/// One leader among all candidates under a name.
///
/// The leader is the holder of the lock of that name. Its term is the lock's fencing [token](Guard::token), larger than the terms of all
/// leaders before it. **To resign is to release the guard**, or to drop it. A leader that dies is replaced as a dead holder is: after
/// the lease, or at once where the store notices.
///
/// ```
/// # #[tokio::main] async fn main() -> tenure::Result<()> {
/// let locker = tenure::Locker::connect("memory:").await?;
/// let election = locker.election("scheduler");
/// let term = election.campaign("10.0.0.7:8080").await?; // waits until elected
/// let leader = election.leader().await?.expect("elected");
/// assert_eq!(leader.value.as_deref(), Some("10.0.0.7:8080"));
/// term.run(async { /* lead; dropped when the lead is lost */ }).await?;
/// term.release().await?; // resigns
/// assert!(election.leader().await?.is_none());
/// # locker.close().await }
/// ```
#[derive(Debug, Clone)]
#[must_use = "there is no candidate yet"]
pub struct Election {
    engine: Arc<Engine>,
    name: Arc<str>,
    lease: Duration,
}

/// The leader that the store knows.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// What the leader campaigned with.
    pub value: Option<String>,
    /// The term: the leader's token, less than every later leader's.
    pub term: Option<Token>,
    /// The owner as the store writes it.
    pub owner: String,
}

impl Election {
    pub(crate) fn new(engine: Arc<Engine>, name: &str) -> Self {
        let lease = engine.lease;
        Self { engine, name: name.into(), lease }
    }

    /// The lease, instead of the locker's: how long a dead leader is still shown as the leader.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Waits to be elected. [`leader`](Self::leader) shows the value: an address, for example, of up to 4096 bytes.
    ///
    /// # Cancel safety
    /// Safe: dropping the future ends the candidature.
    pub fn campaign(&self, value: &str) -> impl Future<Output = Result<Guard>> + Send + use<> {
        self.candidate(value).lock()
    }

    /// As [`campaign`](Self::campaign), for a limited time. `None`: another candidate led all the time.
    /// Cancel safe as [`campaign`](Self::campaign) is.
    pub fn try_campaign_for(&self, value: &str, wait: Duration) -> impl Future<Output = Result<Option<Guard>>> + Send + use<> {
        self.candidate(value).try_lock_for(wait)
    }

    /// Asks once. `None`: another candidate leads. Cancel safe as [`campaign`](Self::campaign) is.
    pub fn try_campaign(&self, value: &str) -> impl Future<Output = Result<Option<Guard>>> + Send + use<> {
        self.candidate(value).try_lock()
    }

    /// Leads whenever it is elected, until the work is done: campaigns, runs the future that `lead` makes for the term, and campaigns
    /// again when the lock is lost. The future is dropped in that moment. When it ends by itself, this resigns and returns its output.
    ///
    /// A store that is away is waited for. Fails with errors that asking again will not change.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> tenure::Result<()> {
    /// let locker = tenure::Locker::connect("memory:").await?;
    /// let done = locker.election("scheduler").run("10.0.0.7:8080", |term| async move { term.token() }).await?;
    /// assert!(done.get() > 0);
    /// # locker.close().await }
    /// ```
    ///
    /// # Cancel safety
    /// Safe: dropping the future ends the candidature, or resigns.
    pub fn run<T, F, L>(&self, value: &str, mut lead: L) -> impl Future<Output = Result<T>> + use<T, F, L>
    where
        F: Future<Output = T>,
        L: FnMut(Watcher) -> F,
    {
        let (election, value) = (self.clone(), value.to_owned());
        async move {
            loop {
                let term = match election.campaign(&value).await {
                    Ok(term) => term,
                    Err(error) if error.is_transient() => {
                        debug!(name = &*election.name, %error, "cannot campaign");
                        election.engine.pause(election.lease / 10 + jitter(election.lease / 10)).await;
                        continue;
                    }
                    Err(error) => return Err(error),
                };
                if let Ok(done) = term.run(lead(term.watcher())).await {
                    // The work is done. A store that cannot be reached now is told in the background.
                    drop(term.release().await);
                    return Ok(done);
                }
            }
        }
    }

    /// The present leader, if there is one. Cancel safe: it only reads.
    pub fn leader(&self) -> impl Future<Output = Result<Option<Leader>>> + Send + use<> {
        let (engine, name) = (Arc::clone(&self.engine), Resource::new(&self.name));
        async move { Ok(Leader::of(engine.inspect(name?).await?)) }
    }

    /// Follows the leader. The first answer is the present one.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> tenure::Result<()> {
    /// # let locker = tenure::Locker::connect("memory:").await?;
    /// # let election = locker.election("scheduler");
    /// let mut changes = election.changes();
    /// assert!(changes.next().await?.is_none()); // none yet
    /// let term = election.campaign("a").await?;
    /// assert_eq!(changes.next().await?.expect("a leader").term, Some(term.token()));
    /// # Ok(()) }
    /// ```
    #[must_use = "it does not look until it is asked"]
    pub fn changes(&self) -> Changes {
        Changes { election: self.clone(), watch: ChangeWatch::new(Arc::clone(&self.engine), self.lease), told: None }
    }

    fn candidate(&self, value: &str) -> Mutex {
        Mutex::new(Arc::clone(&self.engine), Resource::new(&self.name)).lease(self.lease).note(value).never_handed_over()
    }
}

impl Leader {
    fn of(state: State) -> Option<Self> {
        let holder = state.holders.into_iter().next()?;
        Some(Self { value: holder.note, term: holder.token, owner: holder.owner })
    }
}

/// Tells the leader, whenever it has changed.
///
/// It tells the state, not the history: a leader between two looks may be missed. A change is seen when the store signals it, and after
/// about a second at the latest.
#[derive(Debug)]
pub struct Changes {
    election: Election,
    watch: ChangeWatch,
    /// What the last answer was, if there was one.
    told: Option<Option<Leader>>,
}

impl Changes {
    /// The same as a stream, which never ends.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> tenure::Result<()> {
    /// # let locker = tenure::Locker::connect("memory:").await?;
    /// use futures_util::StreamExt;
    /// let mut leaders = std::pin::pin!(locker.election("scheduler").changes().into_stream());
    /// assert!(leaders.next().await.expect("it never ends")?.is_none());
    /// # Ok(()) }
    /// ```
    pub fn into_stream(self) -> impl Stream<Item = Result<Option<Leader>>> + Send {
        futures_util::stream::unfold(self, async |mut changes| Some((changes.next().await, changes)))
    }

    /// Waits until the leader differs from the last answer, or there is none. An error of the store ends this wait and not the
    /// changes: the next call goes on. Cancel safe: the next call reports what this one did not.
    pub async fn next(&mut self) -> Result<Option<Leader>> {
        let name = [(Resource::new(&self.election.name)?, Mode::Exclusive)];
        loop {
            self.watch.listen(&name).await;
            let now = self.election.leader().await?;
            if self.told.as_ref() != Some(&now) {
                self.told = Some(now.clone());
                return Ok(now);
            }
            self.watch.wait().await;
        }
    }
}
