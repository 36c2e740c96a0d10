//! Tenure itself: `tenure`, and after a dash what is different.

use std::time::Duration;

use tenure::{Guard, Locker, Mutex, RwLock, Semaphore};
use tenure_bench::options::Options;

use crate::Fault;
use crate::crowd::{Client, Lock};

/// How long an idle hold is kept for the next task of the process, in the contenders that ask for it.
const LINGER: &str = "linger=50ms";

pub(crate) struct Ours {
    locker: Locker,
    mode: String,
    fair: bool,
    drops: bool,
}

impl Ours {
    pub(crate) async fn connect(options: &Options) -> Result<Self, Fault> {
        let variants: Vec<&str> = options.contender.split('-').skip(1).collect();
        let has = |variant| variants.contains(&variant);
        let mut query = Vec::new();
        if has("linger") {
            query.push(LINGER.to_owned());
        }
        if has("plain") {
            query.push("layout=plain".to_owned());
        }
        if let Some(lease) = options.lease_ms {
            query.push(format!("lease={lease}ms"));
        }
        let url = match &*options.urls {
            [one] => one.clone(),
            nodes => {
                // These servers are new: there is nothing that they could have forgotten.
                query.push("quarantine=off".to_owned());
                format!("quorum:{}", nodes.join("|"))
            }
        };
        let url = if query.is_empty() { url } else { format!("{url}?{}", query.join("&")) };
        let locker = Locker::connect(&url).await?;
        let fair = has("fair") || options.mode == "fair";
        Ok(Self { locker, mode: options.mode.clone(), fair, drops: has("drop") })
    }
}

impl Client for Ours {
    type Lock = OurLock;

    fn lock(&self, name: &str) -> OurLock {
        let kind = match &*self.mode {
            "rw" => Kind::Rw(self.locker.rwlock(name)),
            "semaphore" => Kind::Semaphore(self.locker.semaphore(name, 8)),
            _ if self.fair => Kind::Mutex(self.locker.mutex(name).fair()),
            _ => Kind::Mutex(self.locker.mutex(name)),
        };
        OurLock { kind, drops: self.drops }
    }
}

#[derive(Clone)]
enum Kind {
    Mutex(Mutex),
    Rw(RwLock),
    Semaphore(Semaphore),
}

#[derive(Clone)]
pub(crate) struct OurLock {
    kind: Kind,
    drops: bool,
}

impl Lock for OurLock {
    type Held = Guard;

    async fn acquire(&mut self, write: bool) -> Result<Guard, Fault> {
        Ok(match &self.kind {
            Kind::Mutex(mutex) => mutex.lock().await?,
            Kind::Rw(lock) if write => lock.write().await?,
            Kind::Rw(lock) => lock.read().await?,
            Kind::Semaphore(semaphore) => semaphore.acquire().await?,
        })
    }

    fn token(guard: &Guard) -> Option<u64> {
        Some(guard.token().get())
    }

    async fn release(&mut self, guard: Guard) -> Result<(), Fault> {
        if self.drops {
            drop(guard);
            return Ok(());
        }
        Ok(guard.release().await?)
    }
}

/// The lease of those who have none of their own choice.
pub(crate) const LEASE: Duration = Duration::from_secs(30);
