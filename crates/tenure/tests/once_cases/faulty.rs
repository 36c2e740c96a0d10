//! Records that lose replies or requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tenure::once::{Begin, Begun, Finished, Key, Record, Records};
use tenure::{Error, Fault, Result, Token};

/// What is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loses {
    /// It is done, and nobody hears of it.
    Replies,
    Questions,
}

#[derive(Debug)]
pub(crate) struct Faulty {
    inner: Arc<dyn Records>,
    loses: Loses,
    /// How many calls of each verb are still to be lost.
    begins: AtomicU32,
    finishes: AtomicU32,
    pub(crate) sweeps: AtomicU32,
}

impl Faulty {
    pub(crate) fn new(inner: Arc<dyn Records>, loses: Loses, begins: u32, finishes: u32) -> Arc<Self> {
        Arc::new(Self { inner, loses, begins: begins.into(), finishes: finishes.into(), sweeps: 0.into() })
    }

    async fn through<T>(&self, left: &AtomicU32, call: impl Future<Output = Result<T>>) -> Result<T> {
        let lost = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok();
        if !lost {
            return call.await;
        }
        if self.loses == Loses::Replies {
            call.await?;
        }
        Err(Error::unavailable("a test", "asking", Fault::Connection, "lost on the way"))
    }
}

#[async_trait]
impl Records for Faulty {
    async fn begin(&self, key: &Key, begin: Begin) -> Result<Begun> {
        self.through(&self.begins, self.inner.begin(key, begin)).await
    }

    async fn finish(&self, key: &Key, token: Token, result: &[u8], keep: Duration) -> Result<Finished> {
        self.through(&self.finishes, self.inner.finish(key, token, result, keep)).await
    }

    async fn look(&self, key: &Key) -> Result<Option<Record>> {
        self.inner.look(key).await
    }

    async fn forget(&self, key: &Key, token: Token) -> Result<Option<Token>> {
        self.inner.forget(key, token).await
    }

    async fn sweep(&self) -> Result<u64> {
        self.sweeps.fetch_add(1, Ordering::SeqCst);
        self.inner.sweep().await
    }
}
