//! [`Multi`]: the locks of several names, all or none.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};

use crate::clock::Instant;
use crate::engine::Engine;
use crate::engine::acquire::{Patience, late};
use crate::engine::guard::{Guard, run_under};
use crate::error::{Error, Result};
use crate::lost::Lost;
use crate::name::{ClientId, Token};
use crate::primitives::mutex::Mutex;

/// Several locks that are held together or not at all.
///
/// All are asked for at once, in one round trip. If one of them is busy, the others are given back, and all are taken one after the other
/// in an order that is the same in every process: by store, then by name. So there is no deadlock.
///
/// A store is told from another by its URL without credentials: **spell the URLs alike** in all programs that lock
/// names of several stores together. Stores without a URL ([`Builder::backend`](crate::Builder::backend)) are told apart by the
/// kind of store alone. Duplicates are merged; the first one's options count.
///
/// ```
/// # #[tokio::main] async fn main() -> tenure::Result<()> {
/// let locker = tenure::Locker::connect("memory:").await?;
/// let both = locker.multi(["account:7", "account:9"]).lock().await?;
/// both.run(async { /* move the money */ }).await?;
/// both.release().await?;
/// # locker.close().await }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is locked yet"]
pub struct Multi {
    /// In the order that all processes share; not empty.
    parts: Result<Arc<[Mutex]>>,
}

/// The key of a lock in the order of all locks of all stores. The client only tells apart what has no other difference.
type OrderKey = (String, String, ClientId);

fn order_key(mutex: &Mutex) -> Result<OrderKey> {
    let engine = mutex.engine();
    let name = mutex.resource()?;
    let (address, full) = match &engine.label {
        Some(label) => (label.address.clone(), format!("{}{name}", label.prefix)),
        None => (engine.capabilities.backend.to_owned(), name.to_string()),
    };
    Ok((address, full, engine.owners.client()))
}

fn in_order(mutexes: impl IntoIterator<Item = Mutex>) -> Result<Arc<[Mutex]>> {
    let keyed = mutexes.into_iter().map(|mutex| Ok((order_key(&mutex)?, mutex)));
    let mut keyed: Vec<(OrderKey, Mutex)> = keyed.collect::<Result<_>>()?;
    // Stable: of duplicates the first stays.
    keyed.sort_by(|(a, _), (b, _)| a.cmp(b));
    keyed.dedup_by(|(a, _), (b, _)| a == b);
    for pair in keyed.windows(2) {
        let [((a_store, a_name, _), _), ((b_store, b_name, _), _)] = pair else { continue };
        // It might wait for itself: two backends of the caller's own may be one store.
        if (a_store, a_name) == (b_store, b_name) {
            return Err(Error::misuse(format!("the lock {a_name:?}"), "is asked for through two lockers", "each lock once"));
        }
    }
    if keyed.is_empty() {
        return Err(Error::config("a lock of no names", "would protect nothing", "one name or more"));
    }
    Ok(keyed.into_iter().map(|(_, mutex)| mutex).collect())
}

impl Multi {
    /// The locks of several lockers, or with options of their own. None at all, and a bad name, are reported by the
    /// first call that uses it.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> tenure::Result<()> {
    /// # let (here, there) = (tenure::Locker::connect("memory:").await?, tenure::Locker::connect("memory:").await?);
    /// let both = tenure::Multi::of([here.mutex("order:7").note("export"), there.mutex("order:7")]);
    /// assert!(both.try_lock().await?.is_some());
    /// # Ok(()) }
    /// ```
    pub fn of(mutexes: impl IntoIterator<Item = Mutex>) -> Self {
        Self { parts: in_order(mutexes) }
    }

    /// Waits until all are held. Fails as [`Mutex::lock`] does, and when one is lost while another is waited for; then
    /// none is held.
    ///
    /// # Cancel safety
    /// Safe: dropping the future leaves neither a lock nor a queue position behind.
    pub fn lock(&self) -> impl Future<Output = Result<MultiGuard>> + Send + use<> {
        let asked = self.clone();
        async move { acquire(&asked.parts?, None).await?.ok_or(Error::Closed) }
    }

    /// As [`lock`](Self::lock), for a limited time in all. `None`: another owner had one of them. Zero asks once, as
    /// [`try_lock`](Self::try_lock) does. Locks that are not needed may be given back in the background.
    /// Cancel safe as [`lock`](Self::lock) is.
    pub fn try_lock_for(&self, wait: Duration) -> impl Future<Output = Result<Option<MultiGuard>>> + Send + use<> {
        let asked = self.clone();
        async move {
            let parts = asked.parts?;
            if wait.is_zero() { try_all(&parts, None).await } else { acquire(&parts, Some(wait)).await }
        }
    }

    /// Asks once for each. `None`: another owner has one of them; those that were granted are given back by then.
    /// Cancel safe as [`lock`](Self::lock) is.
    pub fn try_lock(&self) -> impl Future<Output = Result<Option<MultiGuard>>> + Send + use<> {
        let asked = self.clone();
        async move { try_all(&asked.parts?, None).await }
    }
}

async fn acquire(parts: &[Mutex], wait: Option<Duration>) -> Result<Option<MultiGuard>> {
    let Some(first) = parts.first() else { return Ok(None) };
    let clock = &first.engine().settings.clock;
    let until = wait.map(|wait| clock.now().after(wait));
    match try_all(parts, until).await {
        Ok(Some(guards)) => return Ok(Some(guards)),
        Ok(None) => {}
        // The time is up, or asking again is of no use.
        Err(error) if !error.is_transient() || until.is_some_and(|until| clock.now() >= until) => return Err(error),
        Err(_) => {}
    }
    let mut held = MultiGuard { guards: Vec::with_capacity(parts.len()) };
    for part in parts {
        let next = async {
            match until.map(|until: Instant| until.since(clock.now())) {
                None => part.lock().await.map(Some),
                Some(Duration::ZERO) => Ok(None),
                Some(left) => part.try_lock_for(left).await,
            }
        };
        // One that is lost meanwhile makes the others useless.
        match held.run(next).await?? {
            Some(guard) => held.guards.push(guard),
            None => {
                held.give_back(first.engine(), until).await;
                return Ok(None);
            }
        }
    }
    held.check()?;
    Ok(Some(held))
}

/// Asks for all before the first answer is awaited. What was got is given back before the answer, if it is not all.
async fn try_all(parts: &[Mutex], until: Option<Instant>) -> Result<Option<MultiGuard>> {
    let Some(first) = parts.first() else { return Ok(None) };
    let ask = |(index, part): (usize, &Mutex)| {
        let answer = part.try_lock();
        async move { (index, answer.await) }
    };
    let mut asked: FuturesUnordered<_> = parts.iter().enumerate().map(ask).collect();
    let (mut got, mut busy, mut error) = (Vec::with_capacity(parts.len()), false, None);
    let all = async {
        while let Some((index, answer)) = asked.next().await {
            match answer {
                Ok(Some(guard)) => got.push((index, guard)),
                Ok(None) => busy = true,
                Err(e) => error = error.take().or(Some(e)),
            }
        }
    };
    let engine = first.engine();
    let answered = match until {
        Some(until) => engine.within(Patience::Until(until), all).await.is_some(),
        None => {
            all.await;
            true
        }
    };
    drop(asked);
    got.sort_by_key(|(index, _)| *index);
    let held = MultiGuard { guards: got.into_iter().map(|(_, guard)| guard).collect() };
    if let Some(error) = error {
        return Err(error);
    }
    if answered && !busy {
        held.check()?;
        return Ok(Some(held));
    }
    if !answered && !busy {
        return Err(late(engine, "acquiring"));
    }
    held.give_back(engine, until).await;
    Ok(None)
}

/// Several locks that are held together: the loss of one is the loss of all. Dropping it gives all of them back, as
/// dropping a [`Guard`] does.
///
/// ```
/// # #[tokio::main] async fn main() -> tenure::Result<()> {
/// # let locker = tenure::Locker::connect("memory:").await?;
/// let both = locker.multi(["b", "a"]).lock().await?;
/// for guard in both.guards() {
///     println!("{} under token {}", guard.resource(), guard.token());
/// }
/// assert!(both.is_valid());
/// assert_eq!(both.token("a"), Some(both.guards()[0].token()));
/// # both.release().await }
/// ```
#[must_use = "dropping the guard gives the locks back at once"]
#[clippy::has_significant_drop]
pub struct MultiGuard {
    guards: Vec<Guard>,
}

impl MultiGuard {
    /// The guards, in the order of the locks.
    pub fn guards(&self) -> &[Guard] {
        &self.guards
    }

    /// The guards, each for itself from now on.
    pub fn into_guards(self) -> Vec<Guard> {
        self.guards
    }

    /// The fencing token of a name, which goes along with each write to what the name protects. `None` if it is not
    /// among those; the first, if several stores have it.
    #[must_use]
    pub fn token(&self, name: &str) -> Option<Token> {
        self.guards.iter().find(|guard| guard.resource().as_str() == name).map(Guard::token)
    }

    /// Whether all are held at this moment. Once false, always false.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.guards.iter().all(Guard::is_valid)
    }

    /// [`is_valid`](Self::is_valid) for the `?` operator: the loss of the first that is lost.
    pub fn check(&self) -> Result<(), Lost> {
        self.guards.iter().try_for_each(Guard::check)
    }

    /// Resolves when the first of them is lost. Cancel safe: nothing is missed.
    pub async fn lost(&self) -> Lost {
        let mut any: FuturesUnordered<_> = self.guards.iter().map(Guard::lost).collect();
        match any.next().await {
            Some(lost) => lost,
            // Nothing is held, so nothing can be lost.
            None => std::future::pending().await,
        }
    }

    /// Runs a future under all locks and drops it the moment the first of them is lost. `Ok` means that all were held
    /// from beginning to end.
    ///
    /// # Cancel safety
    /// As safe as the future that it runs.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, Lost> {
        run_under(self.lost(), || self.check(), work).await
    }

    /// Gives all back, the last one first, and waits until the stores have confirmed it. Reports the first error; the
    /// others are still given back.
    ///
    /// # Cancel safety
    /// Safe: the release goes on in the background.
    pub async fn release(self) -> Result<()> {
        join_all(self.guards.into_iter().rev().map(Guard::release)).await.into_iter().collect()
    }

    /// Gives back locks that are not needed, before the answer if the stores confirm it in time. The releases go on by themselves.
    async fn give_back(self, engine: &Engine, until: Option<Instant>) {
        match until {
            Some(until) => drop(engine.within(Patience::Until(until), self.release()).await),
            None => drop(self.release().await),
        }
    }
}

impl fmt::Debug for MultiGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.guards).finish()
    }
}
