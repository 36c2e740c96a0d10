//! [`Ledger`]: takes the lock, reads the record, runs the work, and records its result.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Key;
use super::attempt::{Done, OnceAttempt, Start, Started, give_back};
use super::error::Error;
use super::keep::{self, KEEP, Turns};
use super::records::{Begin, Begun, Finished, Record, Records};
use crate::backend::Mode;
use crate::engine::guard::Guard;
use crate::error::{Fault, Result};
use crate::fence::{FenceCounters, FenceStats};
use crate::locker::Locker;
use crate::name::Token;
use crate::retry::RetryPolicy;

const WAIT: Duration = Duration::from_secs(60);

/// Work that is done once: a locker, and records of what is done. Cheap to clone; clones count together.
#[derive(Clone)]
pub struct Ledger {
    pub(super) locker: Locker,
    pub(super) counters: FenceCounters,
    records: Arc<dyn Records>,
    keep: Duration,
    wait: Duration,
    lease: Option<Duration>,
    retry: RetryPolicy,
    repeat: bool,
    turns: Turns,
}

impl Ledger {
    /// On these records, under this locker's locks. All processes that do the same work must use the same two stores.
    #[must_use]
    pub fn new(locker: &Locker, records: Arc<dyn Records>) -> Self {
        let (counters, retry, turns) = (FenceCounters::default(), RetryPolicy::default(), Turns::default());
        Self { locker: locker.clone(), counters, records, keep: KEEP, wait: WAIT, lease: None, retry, repeat: true, turns }
    }

    /// How long results and marks are kept, instead of seven days. **After that the work is done again** when it is asked for: keep
    /// them for longer than a request may be repeated.
    #[must_use]
    pub fn keep(mut self, keep: Duration) -> Self {
        self.keep = keep;
        self
    }

    /// How long to wait for another process that is doing the work, instead of a minute. Zero does not wait.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// The lease of the lock, instead of the locker's: for how long a crash keeps others waiting.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// How often records that cannot be reached are asked again, instead of ten times.
    #[must_use]
    pub fn retry(mut self, retry: RetryPolicy) -> Self {
        self.retry = retry;
        self
    }

    /// Never does the work a second time: if an earlier attempt began and recorded no end, that is an
    /// [error](Error::Unfinished) until it is [forgotten](Self::forget) or its mark ends. Work that failed counts too.
    #[must_use]
    pub fn at_most_once(mut self) -> Self {
        self.repeat = false;
        self
    }

    /// Work of this name. A bad name is reported when it is run.
    #[must_use = "nothing is done yet"]
    pub fn once(&self, key: impl AsRef<str>) -> Once {
        let asked = key.as_ref();
        Once { ledger: self.clone(), key: Key::new(asked).map_err(|e| (asked.chars().take(32).collect(), e)) }
    }

    /// What is known of a key.
    ///
    /// # Cancel safety
    /// Safe: it only reads.
    pub async fn look(&self, key: impl AsRef<str>) -> Result<Option<Record>> {
        let look = |records: Arc<dyn Records>, key: Key| async move { records.look(&key).await };
        self.ask_of("looking", || true, &Key::new(key)?, look).await
    }

    /// Forgets what is known of a key, if it is the record of this token: for an attempt of which you know what became. Returns
    /// the token of the record that is there afterwards.
    ///
    /// # Cancel safety
    /// It may or may not be forgotten.
    pub async fn forget(&self, key: impl AsRef<str>, token: Token) -> Result<Option<Token>> {
        let forget = move |records: Arc<dyn Records>, key: Key| async move { records.forget(&key, token).await };
        self.ask_of("forgetting", || true, &Key::new(key)?, forget).await
    }

    /// Deletes expired records. The ledger does so by itself. See [`Records::sweep`].
    ///
    /// # Cancel safety
    /// Some of them may be deleted.
    pub async fn sweep(&self) -> Result<u64> {
        self.ask("sweeping", || true, |records| async move { records.sweep().await }).await
    }

    /// How many results were recorded, and how many came too late.
    #[must_use]
    pub fn stats(&self) -> FenceStats {
        self.counters.stats()
    }

    /// Takes the lock of a key. `None`: another owner has had it all the time.
    async fn lock(&self, key: &Key) -> Result<Option<Guard>> {
        let mut mutex = self.locker.mutex(key.lock()).note("work that is done once");
        if let Some(lease) = self.lease {
            mutex = mutex.lease(lease);
        }
        // Never by re-entry: two calls of one owner would share a token, and both would do the work.
        mutex.request.acquire_anew(Mode::Exclusive, mutex.request.patience(self.wait)).await
    }

    /// Whether there is something to do.
    async fn start<T: DeserializeOwned, E>(&self, key: &Key) -> Result<Start<T>, Error<T, E>> {
        let not_begun = |e| Error::not_begun(key, e);
        keep::millis(self.keep).map_err(not_begun)?;
        let Some(guard) = self.lock(key).await.map_err(not_begun)? else {
            return Err(Error::Underway { key: key.clone(), waited: self.wait });
        };
        self.sweep_in_turn();
        let start = match self.begin(key, &guard).await {
            Ok(Begun::Yours { unfinished }) => return Ok(Start::Yours(Started::new(self, key, guard, unfinished))),
            Ok(Begun::Done { token, result }) => read(key, token, &result).map(Start::Done),
            Ok(Begun::Unfinished { token }) => Err(Error::Unfinished { key: key.clone(), token }),
            Ok(Begun::Stale { seen }) => Err(Error::Overtaken(self.counters.too_late(key.as_str(), &guard, seen))),
            Err(e) => Err(Error::not_begun(key, e)),
        };
        give_back(guard).await;
        start
    }

    /// One call of many sweeps, in the background.
    fn sweep_in_turn(&self) {
        if !self.turns.sweeps() {
            return;
        }
        let (records, limit) = (Arc::clone(&self.records), self.locker.engine.settings.timeout);
        self.locker.engine.background.spawn(async move {
            match tokio::time::timeout(limit, records.sweep()).await {
                Ok(Ok(swept)) => tracing::debug!(swept, "records whose time is up are deleted"),
                Ok(Err(error)) => tracing::debug!(%error, "records whose time is up stay for now"),
                Err(_) => tracing::debug!("deleting records whose time is up takes too long"),
            }
        });
    }

    async fn begin(&self, key: &Key, guard: &Guard) -> Result<Begun> {
        let begin = Begin { token: guard.token(), keep: self.keep, repeat: self.repeat };
        let call = move |records: Arc<dyn Records>, key: Key| async move { records.begin(&key, begin).await };
        self.ask_of("beginning", || guard.is_valid(), key, call).await
    }

    /// Goes on also when the lock is lost: the record is fenced, and one that gets there spares a repetition.
    pub(super) async fn finish(&self, key: &Key, token: Token, result: Vec<u8>) -> Result<Finished> {
        let (result, keep) = (Arc::<[u8]>::from(result), self.keep);
        let call = move |records: Arc<dyn Records>, key: Key| {
            let result = Arc::clone(&result);
            async move { records.finish(&key, token, &result, keep).await }
        };
        self.ask_of("recording", || true, key, call).await
    }

    /// Asks the records about a key.
    async fn ask_of<A, F, Fut>(&self, doing: &'static str, go_on: impl Fn() -> bool, key: &Key, call: F) -> Result<A>
    where
        A: Send + 'static,
        F: Fn(Arc<dyn Records>, Key) -> Fut,
        Fut: Future<Output = Result<A>> + Send + 'static,
    {
        self.ask(doing, go_on, |records| call(records, key.clone())).await
    }

    /// Asks the records, on the locker's runtime: each call is bounded and is not cut off when the caller goes.
    async fn ask<A, F, Fut>(&self, doing: &'static str, go_on: impl Fn() -> bool, call: F) -> Result<A>
    where
        A: Send + 'static,
        F: Fn(Arc<dyn Records>) -> Fut,
        Fut: Future<Output = Result<A>> + Send + 'static,
    {
        let core = &self.locker.engine;
        let limit = core.settings.timeout;
        let mut failures = 0;
        loop {
            let call = call(Arc::clone(&self.records));
            let task = core.background.handle().spawn(async move { tokio::time::timeout(limit, call).await });
            let unanswered = |what| crate::Error::unavailable("the records", doing, Fault::Timeout, what);
            let error = match task.await {
                Ok(Ok(Ok(answer))) => return Ok(answer),
                Ok(Ok(Err(e))) => e,
                Ok(Err(_)) => unanswered(format!("no answer within {limit:?}")),
                Err(ended) => return Err(crate::Error::backend("the records", doing, Fault::Protocol, ended.to_string())),
            };
            failures += 1;
            if !error.is_transient() || failures >= self.retry.attempts || !go_on() {
                return Err(error);
            }
            tracing::debug!(doing, %error, "the records are asked again");
            core.pause(self.retry.pause(failures)).await;
        }
    }
}

fn read<T: DeserializeOwned, E>(key: &Key, token: Token, result: &[u8]) -> Result<Done<T>, Error<T, E>> {
    match serde_json::from_slice(result) {
        Ok(value) => Ok(Done { value, replayed: true, token }),
        Err(e) => Err(Error::Unreadable { key: key.clone(), token, problem: e.to_string() }),
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger").field("locker", &self.locker).field("records", &self.records).finish_non_exhaustive()
    }
}

/// Work of one name, on the terms of its [`Ledger`].
#[derive(Debug, Clone)]
#[must_use = "nothing is done yet"]
pub struct Once {
    ledger: Ledger,
    /// What was asked for and what is wrong with it, if that is no key.
    key: Result<Key, (String, crate::Error)>,
}

impl Once {
    /// Has the work done, or returns what was recorded when it was done: waits for the lock `once:{key}`, marks it as begun, runs
    /// it, records the result under the lock's token. The work is dropped the moment the lock is lost. A future that is not run
    /// is dropped without being polled.
    ///
    /// # Cancel safety
    /// The lock is given back. If the work had begun, the next call runs it again and is told so.
    pub async fn run<T, E, F>(self, work: F) -> Result<Done<T>, Error<T, E>>
    where
        T: Serialize + DeserializeOwned,
        F: Future<Output = Result<T, E>>,
    {
        self.run_with(|_| work).await
    }

    /// As [`run`](Self::run), for work that wants its token, or to know whether an earlier attempt left something behind.
    ///
    /// # Cancel safety
    /// As [`run`](Self::run).
    pub async fn run_with<T, E, W, F>(self, work: W) -> Result<Done<T>, Error<T, E>>
    where
        T: Serialize + DeserializeOwned,
        W: FnOnce(OnceAttempt) -> F,
        F: Future<Output = Result<T, E>>,
    {
        let started = match self.start().await? {
            Start::Yours(started) => started,
            Start::Done(done) => return Ok(done),
        };
        let done = started.work(work(started.attempt())).await?;
        started.end(done).await
    }

    pub(crate) async fn start<T: DeserializeOwned, E>(self) -> Result<Start<T>, Error<T, E>> {
        let key = self.key.map_err(|(asked, cause)| Error::NotBegun { asked, cause })?;
        self.ledger.start(&key).await
    }
}
