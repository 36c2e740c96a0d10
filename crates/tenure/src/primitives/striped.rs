//! [`Striped`]: several locks under one name, for what can be split.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};

use crate::clock::Instant;
use crate::engine::Engine;
use crate::engine::acquire::{Patience, late};
use crate::engine::guard::Guard;
use crate::error::{Error, Result};
use crate::invalid::Invalid;
use crate::name::Resource;
use crate::primitives::mutex::Mutex;

/// `n` locks `name#0` … `name#n-1` under one name: the one [of a key](Self::of), or [any that is free](Self::lock_any).
///
/// A stock of 500 is one lock that all sellers wait for. In five stripes of 100 each, five sell at the same time:
///
/// ```
/// # #[tokio::main] async fn main() -> tenure::Result<()> {
/// let locker = tenure::Locker::connect("memory:").await?;
/// let stock = locker.striped("stock:1001", 5);
/// let (stripe, guard) = stock.lock_any().await?;
/// println!("sells from part {stripe} under token {}", guard.token());
/// guard.release().await?;
/// # locker.close().await }
/// ```
///
/// # Which stripe a key has
/// FNV-1a (64 bit) of the key's bytes, modulo the number of stripes: `"foobar"` has the hash `0x85944171f73967e8`, so of
/// 5 stripes the stripe 3. Programs in other languages can do the same. Another number of stripes is another assignment:
/// all must use the same.
#[derive(Debug, Clone)]
#[must_use = "nothing is locked yet"]
pub struct Striped {
    engine: Arc<Engine>,
    name: Arc<str>,
    count: u32,
    lease: Option<Duration>,
}

impl Striped {
    pub(crate) fn new(engine: Arc<Engine>, name: &str, count: u32) -> Self {
        Self { engine, name: name.into(), count, lease: None }
    }

    /// The lease, instead of the locker's. See [`Mutex::lease`].
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// How many stripes there are.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The number of a key's stripe; 0 if there are none.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> tenure::Result<()> {
    /// # let locker = tenure::Locker::connect("memory:").await?;
    /// assert_eq!(locker.striped("users", 5).index("foobar"), 3);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn index(&self, key: impl AsRef<[u8]>) -> u32 {
        part_of(key.as_ref(), self.count)
    }

    /// The lock of a key: always the same stripe, shared with the other keys of that stripe. That there are no stripes
    /// is reported when it is used.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> tenure::Result<()> {
    /// # let locker = tenure::Locker::connect("memory:").await?;
    /// let guard = locker.striped("users", 5).of("foobar").lock().await?;
    /// assert_eq!(guard.resource().as_str(), "users#3");
    /// # Ok(()) }
    /// ```
    pub fn of(&self, key: impl AsRef<[u8]>) -> Mutex {
        self.mutex(self.index(key))
    }

    /// The lock of one stripe. `None` if there is no such stripe.
    #[must_use]
    pub fn stripe(&self, index: u32) -> Option<Mutex> {
        (index < self.count).then(|| self.mutex(index))
    }

    /// Waits until one of the stripes is held: tries them from a random one on, then waits for all of them at once. Returns its number
    /// beside the guard. Fails when no stripe can be had any more, and if there are more than 65 536.
    ///
    /// # Cancel safety
    /// Safe: dropping the future leaves neither a lock nor a queue position behind.
    pub fn lock_any(&self) -> impl Future<Output = Result<(u32, Guard)>> + Send + use<> {
        let asked = self.clone();
        async move { asked.any(None).await?.ok_or(Error::Closed) }
    }

    /// As [`lock_any`](Self::lock_any), for a limited time in all. `None`: others had all stripes all the time. Zero asks once,
    /// as [`try_lock_any`](Self::try_lock_any) does. Cancel safe as [`lock_any`](Self::lock_any) is.
    pub fn try_lock_any_for(&self, wait: Duration) -> impl Future<Output = Result<Option<(u32, Guard)>>> + Send + use<> {
        let asked = self.clone();
        async move { asked.any(Some(wait)).await }
    }

    /// Asks once for each, until one is free. `None`: others have all of them.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> tenure::Result<()> {
    /// # let locker = tenure::Locker::connect("memory:").await?;
    /// let seats = locker.striped("seats", 1);
    /// let taken = seats.lock_any().await?;
    /// assert!(seats.try_lock_any().await?.is_none());
    /// # Ok(()) }
    /// ```
    ///
    /// Cancel safe as [`lock_any`](Self::lock_any) is.
    pub fn try_lock_any(&self) -> impl Future<Output = Result<Option<(u32, Guard)>>> + Send + use<> {
        self.try_lock_any_for(Duration::ZERO)
    }

    async fn any(&self, wait: Option<Duration>) -> Result<Option<(u32, Guard)>> {
        check_parts(&self.name, self.count, "stripes")?;
        let clock = &self.engine.settings.clock;
        let limit = wait.filter(|wait| !wait.is_zero()).map(|wait| (clock.now().after(wait / 2), clock.now().after(wait)));
        let start = getrandom::u32().unwrap_or(0) % self.count;
        let stripes: Vec<u32> = (start..self.count).chain(0..start).collect();
        let tried = self.try_any(&stripes, limit).await;
        match (tried, limit) {
            (Ok(Some(got)), _) => Ok(Some(got)),
            (Err(error), _) if !error.is_transient() => Err(error),
            (tried, None) if wait.is_some() => tried,
            (_, None) => {
                let lock = |&index| {
                    let lock = self.mutex(index).lock();
                    (index, async move { lock.await.map(Some) })
                };
                first(stripes.iter().map(lock)).await
            }
            (tried, Some((_, until))) => match until.since(clock.now()) {
                Duration::ZERO => tried,
                left => first(stripes.iter().map(|&index| (index, self.mutex(index).try_lock_for(left)))).await,
            },
        }
    }

    /// Doubles the batch: few are taken needlessly when most are free, and few round trips are needed when they are not. The limit says when to
    /// try no more, and when the time is up.
    async fn try_any(&self, stripes: &[u32], limit: Option<(Instant, Instant)>) -> Result<Option<(u32, Guard)>> {
        let engine = &self.engine;
        let (mut from, mut size, mut error) = (0, 1, None);
        while let Some(batch) = stripes.get(from..stripes.len().min(from + size)).filter(|batch| !batch.is_empty()) {
            let asked = first(batch.iter().map(|&index| (index, self.mutex(index).try_lock())));
            let answer = match limit {
                Some((enough, _)) if from > 0 && engine.settings.clock.now() >= enough => break,
                Some((_, until)) => {
                    let answer = engine.within(Patience::Until(until), asked).await;
                    answer.unwrap_or_else(|| Err(late(engine, "acquiring")))
                }
                None => asked.await,
            };
            match answer {
                Ok(None) => {}
                Ok(got) => return Ok(got),
                Err(e) => error = error.or(Some(e)),
            }
            (from, size) = (from + size, size * 2);
        }
        error.map_or(Ok(None), Err)
    }

    fn mutex(&self, index: u32) -> Mutex {
        let name = if self.count == 0 {
            Err(no_parts(&self.name, "stripes"))
        } else {
            Resource::new(&self.name).and_then(|name| Resource::new(format!("{name}#{index}")))
        };
        let mutex = Mutex::new(Arc::clone(&self.engine), name);
        match self.lease {
            Some(lease) => mutex.lease(lease),
            None => mutex,
        }
    }
}

/// The first that is granted; another one granted in the same moment is dropped, and so given back. Errors count only when none is granted.
async fn first<F>(asked: impl Iterator<Item = (u32, F)>) -> Result<Option<(u32, Guard)>>
where
    F: Future<Output = Result<Option<Guard>>>,
{
    let mut answers: FuturesUnordered<_> = asked.map(|(index, ask)| async move { (index, ask.await) }).collect();
    let mut error = None;
    while let Some((index, answer)) = answers.next().await {
        match answer {
            Ok(Some(guard)) => return Ok(Some((index, guard))),
            Ok(None) => {}
            Err(e) => error = error.or(Some(e)),
        }
    }
    error.map_or(Ok(None), Err)
}

/// The most parts that are asked for one by one.
const MOST_PARTS: u32 = 65_536;

/// Refuses none, and more than can be asked for one by one.
pub(super) fn check_parts(name: &str, count: u32, what: &str) -> Result<()> {
    match count {
        0 => Err(no_parts(name, what).into()),
        1..=MOST_PARTS => Ok(()),
        _ => Err(Error::config(format!("{name:?} with {count} {what}"), "has too many to ask for", format!("1 to {MOST_PARTS}"))),
    }
}

fn no_parts(name: &str, what: &str) -> Invalid {
    Invalid::new(format!("{name:?} with 0 {what}"), "has nothing to lock", "1 or more")
}

/// The part of a key among `count`: FNV-1a, 64 bit, modulo the count. Other languages do the same: it must not change.
pub(super) fn part_of(key: &[u8], count: u32) -> u32 {
    let hash = key.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    hash.checked_rem(u64::from(count)).and_then(|part| u32::try_from(part).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::part_of;

    #[test]
    fn keys_stay_where_they_are() {
        // The hashes are those of the algorithm's authors.
        let vectors = [("", 0xcbf2_9ce4_8422_2325_u64), ("a", 0xaf63_dc4c_8601_ec8c), ("foobar", 0x8594_4171_f739_67e8)];
        for (key, hash) in vectors {
            for count in [1_u32, 5, 16, 1021] {
                assert_eq!(u64::from(part_of(key.as_bytes(), count)), hash % u64::from(count), "{key:?} of {count}");
            }
        }
        assert_eq!(part_of(b"foobar", 5), 3);
        assert_eq!(part_of(b"foobar", 0), 0);
    }
}
