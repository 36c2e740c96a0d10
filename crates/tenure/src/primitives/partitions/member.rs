//! [`Member`]: one process's part in a group.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::balance::Balancer;
use super::members::Members;
use super::{Partition, Partitions};
use crate::engine::guard::Guard;
use crate::error::{Error, Result};
use crate::name::Token;

/// What a member has. Only the balancer adds to it.
#[derive(Debug, Default)]
pub(in crate::primitives) struct Membership {
    pub(super) owned: BTreeMap<u32, Guard>,
    pub(super) seat: Option<Guard>,
    /// Why nothing changes at present.
    pub(super) trouble: Option<Error>,
    /// Left, or refused for good: nothing comes any more.
    over: bool,
}

impl Membership {
    pub(super) fn guards(&self) -> impl Iterator<Item = &Guard> {
        self.owned.values().chain(&self.seat)
    }

    pub(super) fn own(&mut self, index: u32, guard: Guard) {
        if !self.over {
            self.owned.insert(index, guard);
        }
    }

    pub(super) fn sit(&mut self, seat: Guard) {
        if !self.over {
            self.seat = Some(seat);
        }
    }

    /// What is to be given back, and the seat after it: a member that sees the seat free finds the partitions free.
    pub(super) fn end(&mut self, error: Option<Error>) -> (Vec<Guard>, Option<Guard>) {
        self.over = true;
        self.trouble = error;
        (std::mem::take(&mut self.owned).into_values().collect(), self.seat.take())
    }

    pub(in crate::primitives) fn ended(&self) -> Result<()> {
        if self.over { Err(self.trouble.clone().unwrap_or(Error::Closed)) } else { Ok(()) }
    }

    /// The term under which a partition is owned.
    pub(in crate::primitives) fn term(&self, index: u32) -> Option<Token> {
        self.owned.get(&index).filter(|guard| guard.is_valid()).map(Guard::token)
    }
}

/// One process's part in [`Partitions`]. Dropping it gives everything back, in the background.
///
/// ```
/// # #[tokio::main] async fn main() -> tenure::Result<()> {
/// # let locker = tenure::Locker::connect("memory:").await?;
/// let mut member = locker.partitions("ingest", 3).join().await?;
/// while member.owned().len() < 3 {
///     member.changed().await?;
/// }
/// member.leave().await?;
/// # locker.close().await }
/// ```
#[derive(Debug)]
#[must_use = "dropping the member leaves the group"]
pub struct Member {
    group: Partitions,
    state: Arc<watch::Sender<Membership>>,
    /// The balancer; ends with the member.
    task: JoinSet<()>,
    told: BTreeMap<u32, Token>,
}

impl Member {
    pub(super) fn new(group: Partitions, seat: Guard, members: Members) -> Self {
        let state = Arc::new(watch::Sender::new(Membership { seat: Some(seat), ..Membership::default() }));
        let mut task = JoinSet::new();
        let balancer = Balancer::new(group.clone(), Arc::clone(&state), members);
        task.spawn_on(balancer.run(), group.engine.background.handle());
        Self { group, state, task, told: BTreeMap::new() }
    }

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

    /// Waits until other partitions are owned than when it was last called (before that: none), or one of them is owned again.
    /// Fails when the store refuses permanently, or the locker was closed. Cancel safe: the next call reports what this one did not.
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
    /// let it watch [`Partition::ended`]. As cancel safe as the work that it runs.
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

    pub(in crate::primitives) fn state(&self) -> &Arc<watch::Sender<Membership>> {
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
pub(in crate::primitives) struct Tenure {
    index: u32,
    guard: Guard,
    state: watch::Receiver<Membership>,
}

impl Tenure {
    /// `None` if the partition is not owned.
    pub(in crate::primitives) fn of(state: &watch::Sender<Membership>, index: u32) -> Option<Self> {
        let guard = state.borrow().owned.get(&index)?.reenter().ok()?;
        Some(Self { index, guard, state: state.subscribe() })
    }

    pub(in crate::primitives) fn term(&self) -> Token {
        self.guard.token()
    }

    pub(in crate::primitives) fn partition(&self) -> Partition {
        Partition { index: self.index, token: self.guard.token(), hold: self.guard.watcher() }
    }

    /// Runs work until its end, or `None`: it was dropped, because the partition moves or is lost.
    pub(in crate::primitives) async fn run<F: Future>(self, work: F) -> Option<F::Output> {
        let Self { index, guard, mut state } = self;
        let term = guard.token();
        tokio::select! {
            biased;
            _ = state.wait_for(|state| state.term(index) != Some(term)) => None,
            done = guard.run(work) => done.ok(),
        }
    }
}
