//! [`Serial`]: the work of one key in order, the work of many keys at once.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::error::Result;
use crate::primitives::partitions::{Member, Partition, Tenure};

/// Runs the work of one key strictly in the order of submission, on the one member that owns the key's partition; the
/// work of different keys runs at the same time.
///
/// ```
/// # #[tokio::main] async fn main() -> tenure::Result<()> {
/// # let locker = tenure::Locker::connect("memory:").await?;
/// use tenure::Serial;
/// use tenure::partitions::Outcome;
///
/// let serial = Serial::new(locker.partitions("orders", 12).join().await?);
/// # while !serial.owns("order:7") { tokio::task::yield_now().await; }
/// match serial.submit("order:7", async { 42 }).await? {
///     Outcome::Done(answer) => assert_eq!(answer, 42),
///     Outcome::Elsewhere => println!("another member has it: ask there"),
///     Outcome::Stopped => println!("the partition went away while it ran"),
/// }
/// serial.leave().await?;
/// # locker.close().await }
/// ```
#[derive(Debug)]
#[must_use = "dropping it leaves the group"]
pub struct Serial {
    member: Member,
    lanes: Lanes,
}

/// What became of submitted work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "the work may not have been run"]
pub enum Outcome<T> {
    /// It ended, and the partition was owned all the time.
    Done(T),
    /// It was not begun: the partition is not owned here, or not any more.
    Elsewhere,
    /// It was begun and then dropped, because the partition moved or was lost.
    Stopped,
}

impl Serial {
    /// On the partitions of a member.
    pub fn new(member: Member) -> Self {
        Self { member, lanes: Lanes::default() }
    }

    /// The member that this runs on.
    pub fn member(&self) -> &Member {
        &self.member
    }

    /// Whether the partition of a key is owned here at this moment.
    #[must_use]
    pub fn owns(&self, key: impl AsRef<[u8]>) -> bool {
        let index = self.member.group().index(key);
        self.member.state().borrow().term(index).is_some()
    }

    /// Queues work at once; the answer comes when the work is done. The work runs inside of the returned future: **poll it or drop it**,
    /// for example by spawning it, or the work behind it waits, and its partition cannot move.
    ///
    /// When the partition moves, all queued work is answered with [`Outcome::Elsewhere`], also if the partition comes back: nothing
    /// overtakes work that was stopped. Fails only when the locker was closed or the store refuses for good.
    ///
    /// # Cancel safety
    /// Dropping the future before its turn leaves the queue; later, it is as safe as the work.
    pub fn submit<K, F>(&self, key: &K, work: F) -> impl Future<Output = Result<Outcome<F::Output>>> + use<K, F>
    where
        K: AsRef<[u8]> + ?Sized,
        F: Future,
    {
        self.submit_with(key, move |_| work)
    }

    /// As [`submit`](Self::submit), for work that wants the partition, and with it the fencing token.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> tenure::Result<()> {
    /// # let locker = tenure::Locker::connect("memory:").await?;
    /// # let serial = tenure::Serial::new(locker.partitions("orders", 2).join().await?);
    /// # while !serial.owns("order:7") { tokio::task::yield_now().await; }
    /// let paid = tokio::spawn(serial.submit_with("order:7", async |partition| pay(partition.token()).await));
    /// let sent = tokio::spawn(serial.submit("order:7", async { "sent" })); // after it was paid
    /// # assert!(matches!(paid.await.unwrap()?, tenure::partitions::Outcome::Done(())));
    /// # assert_eq!(sent.await.unwrap()?, tenure::partitions::Outcome::Done("sent"));
    /// # serial.leave().await }
    /// # async fn pay(_: tenure::Token) {}
    /// ```
    ///
    /// Cancel safe as [`submit`](Self::submit) is.
    pub fn submit_with<K, W, F>(&self, key: &K, work: W) -> impl Future<Output = Result<Outcome<F::Output>>> + use<K, W, F>
    where
        K: AsRef<[u8]> + ?Sized,
        W: FnOnce(Partition) -> F,
        F: Future,
    {
        let key = key.as_ref();
        let index = self.member.group().index(key);
        let state = Arc::clone(self.member.state());
        // What is submitted under one term is not run under another.
        let (term, ended) = {
            let state = state.borrow();
            (state.term(index), state.ended())
        };
        let asked = term.map(|term| (term, self.lanes.enter(key)));
        async move {
            ended?;
            let Some((term, mut position)) = asked else { return Ok(Outcome::Elsewhere) };
            position.turn().await;
            let tenure = Tenure::of(&state, index).filter(|tenure| tenure.term() == term);
            let Some(tenure) = tenure else { return Ok(Outcome::Elsewhere) };
            let work = work(tenure.partition());
            let done = tenure.run(work).await;
            drop(position);
            Ok(done.map_or(Outcome::Stopped, Outcome::Done))
        }
    }

    /// As [`Member::leave`]: work under way is stopped. Cancel safe as [`Member::leave`] is.
    pub async fn leave(self) -> Result<()> {
        self.member.leave().await
    }
}

/// The queues of all keys. The first in each runs.
#[derive(Debug, Clone, Default)]
struct Lanes(Arc<Mutex<HashMap<Arc<[u8]>, Lane>>>);

#[derive(Debug, Default)]
struct Lane {
    next: u64,
    /// The numbers of the queued work, and how to call it unless it was called.
    queue: VecDeque<(u64, Option<oneshot::Sender<()>>)>,
}

impl Lane {
    fn call_first(&mut self) {
        if let Some(turn) = self.queue.front_mut().and_then(|(_, turn)| turn.take()) {
            // Work that does not listen is leaving, and has the next one called.
            let _leaving = turn.send(());
        }
    }
}

impl Lanes {
    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<[u8]>, Lane>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, key: &[u8]) -> Position {
        let key: Arc<[u8]> = key.into();
        let mut lanes = self.lock();
        let lane = lanes.entry(Arc::clone(&key)).or_default();
        let (turn, mine) = oneshot::channel();
        let number = lane.next;
        lane.next += 1;
        lane.queue.push_back((number, Some(turn)));
        lane.call_first();
        drop(lanes);
        Position { lanes: self.clone(), key, number, mine }
    }
}

/// A position in the queue of a key, until it is dropped.
#[derive(Debug)]
struct Position {
    lanes: Lanes,
    key: Arc<[u8]>,
    number: u64,
    mine: oneshot::Receiver<()>,
}

impl Position {
    /// Waits to be the first.
    async fn turn(&mut self) {
        // Never an error: the sender is kept until the position is dropped.
        drop((&mut self.mine).await);
    }
}

impl Drop for Position {
    fn drop(&mut self) {
        let mut lanes = self.lanes.lock();
        let Some(lane) = lanes.get_mut(&self.key) else { return };
        lane.queue.retain(|(number, _)| *number != self.number);
        lane.call_first();
        if lane.queue.is_empty() {
            lanes.remove(&self.key);
        }
    }
}
