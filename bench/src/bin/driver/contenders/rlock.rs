//! rlock, with its own choice of pauses and of when to renew.

use std::sync::Arc;
use std::time::Duration;

use rlock::AcquireOptions;
use rlock::async_lock::{RLock, RLockGuard, RReadLockGuard, RWriteLockGuard};
use tenure_bench::options::Options;

use super::only;
use super::ours::LEASE;
use crate::Fault;
use crate::crowd::{Client, Lock};

pub(crate) struct Rlock {
    client: Arc<RLock>,
    options: AcquireOptions,
    shared: bool,
}

impl Rlock {
    pub(crate) async fn connect(options: &Options) -> Result<Self, Fault> {
        only(options, &["mutex", "rw"])?;
        let [url] = &*options.urls else { return Err("talks to one server".into()) };
        let lease = options.lease_ms.map_or(LEASE, Duration::from_millis);
        let acquire = AcquireOptions::builder().ttl(lease).build()?;
        Ok(Self { client: Arc::new(RLock::new(url.as_str()).await?), options: acquire, shared: options.mode == "rw" })
    }
}

impl Client for Rlock {
    type Lock = RlockLock;

    fn lock(&self, name: &str) -> RlockLock {
        let Self { client, options, shared } = self;
        RlockLock { client: Arc::clone(client), options: options.clone(), shared: *shared, name: name.into() }
    }
}

#[derive(Clone)]
pub(crate) struct RlockLock {
    client: Arc<RLock>,
    options: AcquireOptions,
    shared: bool,
    name: Arc<str>,
}

pub(crate) enum RlockHeld {
    Mutex(RLockGuard),
    Read(RReadLockGuard),
    Write(RWriteLockGuard),
}

impl Lock for RlockLock {
    type Held = RlockHeld;

    async fn acquire(&mut self, write: bool) -> Result<RlockHeld, Fault> {
        let (name, options) = (&*self.name, self.options.clone());
        Ok(match (self.shared, write) {
            (false, _) => RlockHeld::Mutex(self.client.acquire_mutex_with_options(name, options).await?),
            (true, false) => RlockHeld::Read(self.client.acquire_read_with_options(name, options).await?),
            (true, true) => RlockHeld::Write(self.client.acquire_write_with_options(name, options).await?),
        })
    }

    async fn release(&mut self, held: RlockHeld) -> Result<(), Fault> {
        match held {
            RlockHeld::Mutex(mut guard) => guard.release().await?,
            RlockHeld::Read(mut guard) => guard.release().await?,
            RlockHeld::Write(mut guard) => guard.release().await?,
        }
        Ok(())
    }
}
