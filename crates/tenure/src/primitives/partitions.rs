//! [`Partitions`]: work that is split, spread over whoever is there.

mod balance;
mod members;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::balance::Balancer;
use self::members::Members;
use crate::error::{Error, Result};
use crate::guard::{Guard, Watcher};
use crate::locker::Locker;
use crate::name::{Resource, Token};
use crate::primitives::mutex::Mutex;
use crate::primitives::striped::{no_parts, part_of};

/// `n` partitions `name/0` … `name/n-1`, spread evenly over the members that live: the numbers of partitions of any two
/// differ by one at most. They move when members join, leave or die.
///
/// Each partition is a lock: it never has two owners, whatever the members believe of each other. Its fencing token
/// protects what lies outside of the store.
///
/// ```
/// # async fn example() -> tenure::Result<()> {
/// # let locker = tenure::Locker::connect("memory:").await?;
/// let work = locker.partitions("ingest", 12).run(|partition| async move {
///     println!("owns {} under token {}", partition.index(), partition.token());
///     std::future::pending::<()>().await // works until it is stopped
/// });
/// # tokio::time::timeout(std::time::Duration::from_millis(100), work).await.ok();
/// # Ok(())
/// # }
/// # fn main() -> tenure::Result<()> { tokio::runtime::Runtime::new().unwrap().block_on(example()) }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nobody takes part yet"]
pub struct Partitions {
    locker: Locker,
    name: Arc<str>,
    count: u32,
    lease: Duration,
    note: Option<Arc<str>>,
}

impl Partitions {
    pub(crate) fn new(locker: Locker, name: &str, count: u32) -> Self {
        let lease = locker.core.lease;
        Self { locker, name: name.into(), count, lease, note: None }
    }

    /// The lease, instead of the locker's: how long a dead member keeps its partitions where the store does not notice.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Words for those who ask who owns a partition.
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
    pub async fn join(&self) -> Result<Member> {
        if self.count == 0 {
            return Err(no_parts(&self.name, "partitions"));
        }
        Resource::new(&self.name)?;
        let members = Members::new(self.clone());
        let seat = Some(members.join().await?);
        let state = Arc::new(watch::Sender::new(State { seat, ..State::default() }));
        let mut task = JoinSet::new();
        task.spawn_on(Balancer::new(self.clone(), Arc::clone(&state), members).run(), &self.locker.core.runtime);
        Ok(Member { group: self.clone(), state, task, told: BTreeMap::new() })
    }

    /// Takes part and runs `work` once for every partition that is owned here. See [`Member::run`]. Dropping the future
    /// leaves the group.
    ///
    /// # Cancel safety
    /// As safe as the work that it runs.
    pub async fn run<W, F>(&self, work: W) -> Result<()>
    where
        W: Fn(Partition) -> F,
        F: Future<Output = ()>,
    {
        self.join().await?.run(work).await
    }

    fn resource(&self, part: &str) -> Result<Resource> {
        Resource::new(format!("{}/{part}", self.name))
    }

    fn mutex(&self, part: &str) -> Mutex {
        let mutex = Mutex::new(self.locker.clone(), self.resource(part)).lease(self.lease);
        match &self.note {
            Some(note) => mutex.note(&**note),
            None => mutex,
        }
    }
}

/// What a member has. Only the balancer adds to it.
#[derive(Debug, Default)]
pub(super) struct State {
    owned: BTreeMap<u32, Guard>,
    seat: Option<Guard>,
    /// Why nothing changes at present.
    trouble: Option<Error>,
    /// Left, or refused for good: nothing comes any more.
    over: bool,
}

impl State {
    fn guards(&self) -> impl Iterator<Item = &Guard> {
        self.owned.values().chain(&self.seat)
    }

    fn own(&mut self, index: u32, guard: Guard) {
        if !self.over {
            self.owned.insert(index, guard);
        }
    }

    fn sit(&mut self, seat: Guard) {
        if !self.over {
            self.seat = Some(seat);
        }
    }

    /// What is to be given back, and the seat after it: whoever sees that free finds the partitions free.
    fn end(&mut self, error: Option<Error>) -> (Vec<Guard>, Option<Guard>) {
        self.over = true;
        self.trouble = error;
        (std::mem::take(&mut self.owned).into_values().collect(), self.seat.take())
    }

    pub(super) fn ended(&self) -> Result<()> {
        if self.over { Err(self.trouble.clone().unwrap_or(Error::Closed)) } else { Ok(()) }
    }

    /// The term under which a partition is owned.
    pub(super) fn term(&self, index: u32) -> Option<Token> {
        self.owned.get(&index).filter(|guard| guard.is_valid()).map(Guard::token)
    }
}

/// One process's part in [`Partitions`]. Dropping it gives everything back, in the background.
///
/// ```
/// # async fn example() -> tenure::Result<()> {
/// # let locker = tenure::Locker::connect("memory:").await?;
/// let mut member = locker.partitions("ingest", 3).join().await?;
/// while member.owned().len() < 3 {
///     member.changed().await?;
/// }
/// member.leave().await?;
/// # locker.close().await
/// # }
/// # fn main() -> tenure::Result<()> { tokio::runtime::Runtime::new().unwrap().block_on(example()) }
/// ```
#[derive(Debug)]
#[must_use = "dropping the member leaves the group"]
pub struct Member {
    group: Partitions,
    state: Arc<watch::Sender<State>>,
    task: JoinSet<()>,
    told: BTreeMap<u32, Token>,
}

impl Member {
    /// The partitions that this member owns at this moment, in order.
    #[must_use]
    pub fn owned(&self) -> Vec<u32> {
        self.state.borrow().owned.iter().filter(|(_, guard)| guard.is_valid()).map(|(index, _)| *index).collect()
    }

    /// What keeps this member from taking its share at present: an error of the store that may pass.
    #[must_use]
    pub fn trouble(&self) -> Option<Error> {
        self.state.borrow().trouble.clone()
    }

    /// The group that this is a member of.
    pub fn group(&self) -> &Partitions {
        &self.group
    }

    /// Waits until other partitions are owned than when it was last called (before that: none), or one of them anew.
    /// Fails when the store refuses for good, or the locker was closed.
    ///
    /// # Cancel safety
    /// Safe: what was not told is told by the next call.
    pub async fn changed(&mut self) -> Result<Vec<u32>> {
        let mut seen = self.state.subscribe();
        loop {
            let now: BTreeMap<u32, Token> = {
                let state = seen.borrow_and_update();
                state.ended()?;
                state.owned.iter().map(|(index, guard)| (*index, guard.token())).collect()
            };
            if now != self.told {
                self.told = now;
                return Ok(self.told.keys().copied().collect());
            }
            seen.changed().await.map_err(|_| Error::Closed)?;
        }
    }

    /// Runs `work` once for every partition while it is owned here. It is dropped when the partition must move or is
    /// lost, before the partition can be had by another member; it runs again, here or there, where the partition is
    /// owned next. Work that has come to its end is not run again as long as the partition stays.
    ///
    /// All of it runs inside of this future, one step at a time. Work that is spawned elsewhere is not stopped by itself:
    /// let it watch [`Partition::ended`].
    ///
    /// # Cancel safety
    /// As safe as the work that it runs.
    pub async fn run<W, F>(&self, work: W) -> Result<()>
    where
        W: Fn(Partition) -> F,
        F: Future<Output = ()>,
    {
        let mut seen = self.state.subscribe();
        let mut jobs = FuturesUnordered::new();
        // The term under which work was last begun, and whether it still runs.
        let mut begun = BTreeMap::<u32, (Token, bool)>::new();
        loop {
            let owned: Vec<u32> = {
                let state = seen.borrow_and_update();
                state.ended()?;
                state.owned.keys().copied().collect()
            };
            for index in owned {
                let before = begun.get(&index);
                // Two terms of one partition do not meet.
                if before.is_some_and(|(_, runs)| *runs) {
                    continue;
                }
                let Some(tenure) = Tenure::of(&self.state, index) else { continue };
                if before.is_some_and(|(term, _)| *term == tenure.guard.token()) {
                    continue;
                }
                begun.insert(index, (tenure.guard.token(), true));
                let job = work(tenure.partition());
                jobs.push(async move {
                    tenure.run(job).await;
                    index
                });
            }
            tokio::select! {
                biased;
                changed = seen.changed() => changed.map_err(|_| Error::Closed)?,
                Some(index) = jobs.next() => {
                    if let Some((_, runs)) = begun.get_mut(&index) {
                        *runs = false;
                    }
                }
            }
        }
    }

    /// Gives all partitions back and leaves; waits until the store has confirmed it, and reports the first error.
    ///
    /// # Cancel safety
    /// Safe: leaving goes on in the background.
    pub async fn leave(mut self) -> Result<()> {
        self.task.abort_all();
        let (mut owned, mut seat) = (Vec::new(), None);
        self.state.send_modify(|state| (owned, seat) = state.end(None));
        let released: Result<()> = join_all(owned.into_iter().map(Guard::release)).await.into_iter().collect();
        let left = match seat {
            Some(seat) => seat.release().await,
            None => Ok(()),
        };
        released.and(left)
    }

    pub(super) fn state(&self) -> &Arc<watch::Sender<State>> {
        &self.state
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // Others may listen to the state for longer than this.
        self.state.send_modify(|state| {
            if !state.over {
                drop(state.end(None));
            }
        });
    }
}

/// A partition's lock, shared with the balancer for as long as something runs under it.
pub(super) struct Tenure {
    index: u32,
    guard: Guard,
    state: watch::Receiver<State>,
}

impl Tenure {
    /// `None` if the partition is not owned.
    pub(super) fn of(state: &watch::Sender<State>, index: u32) -> Option<Self> {
        let guard = state.borrow().owned.get(&index)?.reenter().ok()?;
        Some(Self { index, guard, state: state.subscribe() })
    }

    pub(super) fn term(&self) -> Token {
        self.guard.token()
    }

    pub(super) fn partition(&self) -> Partition {
        Partition { index: self.index, token: self.guard.token(), hold: self.guard.watcher() }
    }

    /// Runs work until its end, or `None`: it was dropped, because the partition moves or is lost.
    pub(super) async fn run<F: Future>(self, work: F) -> Option<F::Output> {
        let Self { index, guard, mut state } = self;
        let term = guard.token();
        tokio::select! {
            biased;
            _ = state.wait_for(|state| state.term(index) != Some(term)) => None,
            done = guard.run(work) => done.ok(),
        }
    }
}

/// A partition that is owned here.
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

    /// Resolves when it is not owned any more: given back, or lost.
    ///
    /// # Cancel safety
    /// Safe: nothing is missed.
    pub async fn ended(&self) {
        self.hold.ended().await;
    }
}
