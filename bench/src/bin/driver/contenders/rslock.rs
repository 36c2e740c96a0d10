//! rslock, with its own choice of pauses.

use std::sync::Arc;
use std::time::Duration;

use rslock::LockManager;
use tenure_bench::options::Options;

use super::only;
use super::ours::LEASE;
use crate::Fault;
use crate::crowd::{Client, Lock};

pub(crate) struct Rslock {
    manager: LockManager,
    lease: Duration,
}

impl Rslock {
    pub(crate) fn connect(options: &Options) -> Result<Self, Fault> {
        only(options, &["mutex"])?;
        if options.scenario == "hold" {
            return Err("renews only inside of `using`".into());
        }
        let lease = options.lease_ms.map_or(LEASE, Duration::from_millis);
        Ok(Self { manager: LockManager::new(options.urls.clone()), lease })
    }
}

impl Client for Rslock {
    type Lock = RslockLock;

    fn lock(&self, name: &str) -> RslockLock {
        RslockLock { manager: self.manager.clone(), name: Arc::from(name), lease: self.lease }
    }
}

#[derive(Clone)]
pub(crate) struct RslockLock {
    manager: LockManager,
    name: Arc<str>,
    lease: Duration,
}

impl Lock for RslockLock {
    type Held = rslock::LockGuard;

    async fn acquire(&mut self, _write: bool) -> Result<rslock::LockGuard, Fault> {
        self.manager.acquire(&*self.name, self.lease).await.map_err(|e| format!("{e:?}").into())
    }

    async fn release(&mut self, held: rslock::LockGuard) -> Result<(), Fault> {
        held.release().await;
        Ok(())
    }
}
