//! A store that serves one call at a time, as slowly as a test says.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::backend::{Attempt, Claim, Client, Layer, Layered, Opened, Released, Renewal};
use tenure::backends::memory::Memory;
use tenure::clock::Clock;
use tenure::{ClientId, Error, Fault, Locker, Result};
use tokio::runtime::Handle;
use tokio::time::Instant;

pub(crate) const WHILE: Duration = Duration::from_millis(50);

/// What a call may take, unless the builder is told otherwise.
pub(crate) const CALL: Duration = Duration::from_secs(3);

#[derive(Debug, Default)]
pub(crate) struct Slow {
    /// How long a question takes to arrive.
    pub(crate) question_takes: Duration,
    /// How late an answer comes.
    pub(crate) answer_takes: Duration,
    /// How long one claim that is renewed or given back occupies the store, which does one after the other.
    pub(crate) claim_takes: Duration,
    /// When it has done all that it was asked so far.
    pub(crate) done_at: Mutex<Option<Instant>>,
    pub(crate) closing_takes: Duration,
    pub(crate) acquire_fails: AtomicBool,
    pub(crate) acquire_hangs: AtomicBool,
    pub(crate) release_hangs: AtomicBool,
    pub(crate) renew_hangs: AtomicBool,
    pub(crate) renew_panics: AtomicBool,
    /// Says with every release that others wait, who never come.
    pub(crate) says_others_wait: bool,
    pub(crate) asked: AtomicU64,
}

impl Slow {
    /// Waits until the store has done this, too.
    async fn work(&self, claims: usize) {
        let takes = self.claim_takes * u32::try_from(claims).expect("few");
        if takes.is_zero() {
            return;
        }
        let now = Instant::now();
        let done_at = {
            let mut last = self.done_at.lock().expect("not poisoned");
            let done_at = last.map_or(now, |last| last.max(now)) + takes;
            *last = Some(done_at);
            done_at
        };
        tokio::time::sleep_until(done_at).await;
    }
}

async fn hang(while_it_is_set: &AtomicBool) {
    if while_it_is_set.load(Ordering::SeqCst) {
        std::future::pending::<()>().await;
    }
}

impl Layer for Slow {
    async fn acquire(&self, _: &Claim, inner: impl Future<Output = Result<Attempt>> + Send) -> Result<Attempt> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        if self.acquire_fails.load(Ordering::SeqCst) {
            return Err(Error::unavailable("slow", "acquiring", Fault::Connection, "on purpose"));
        }
        hang(&self.acquire_hangs).await;
        tokio::time::sleep(self.question_takes).await;
        let answer = inner.await;
        tokio::time::sleep(self.answer_takes).await;
        answer
    }

    async fn renew(&self, claims: &[Claim], inner: impl Future<Output = Result<Vec<Renewal>>> + Send) -> Result<Vec<Renewal>> {
        hang(&self.renew_hangs).await;
        assert!(!self.renew_panics.swap(false, Ordering::SeqCst), "on purpose");
        self.work(claims.len()).await;
        inner.await
    }

    async fn release(&self, _: &Claim, inner: impl Future<Output = Result<Released>> + Send) -> Result<Released> {
        hang(&self.release_hangs).await;
        self.work(1).await;
        let released = inner.await?;
        let seems_awaited = self.says_others_wait && released != Released::NotHeld;
        Ok(if seems_awaited { Released::Yes { others_wait: true } } else { released })
    }

    async fn close(&self, inner: impl Future<Output = Result<()>> + Send) -> Result<()> {
        tokio::time::sleep(self.closing_takes).await;
        inner.await
    }
}

pub(crate) fn client() -> Client {
    Client { id: ClientId::random().expect("random bits"), about: "slow".into() }
}

/// A store, a locker of it, and one of another client of the same store to which it is fast.
pub(crate) fn store(slow: Slow) -> (Arc<Layered<Slow, Memory>>, Locker, Locker) {
    let clock = Clock::for_tests();
    let memory = Memory::new(client(), clock.clone());
    let other = Arc::new(memory.client(client()));
    let store = Arc::new(Layered::new(slow, Arc::new(memory)));
    let over =
        |store: Opened| Locker::builder().clock(clock.clone()).runtime(Handle::current()).backend(store).expect("a locker");
    (Arc::clone(&store), over(store.into()), over(other.into()))
}

/// The same, without the store below.
pub(crate) fn lockers(slow: Slow) -> (Arc<Slow>, Locker, Locker) {
    let (store, locker, other) = store(slow);
    (Arc::clone(store.layer()), locker, other)
}
