//! One client of a crowd, which wants the same lock as all others.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, PushInfo, PushKind};
use tenure::{Guard, Locker};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::crowd::{Crowd, Strategy};
use crate::error::{LabError, Result};
use crate::locks::LOCK;
use crate::password;
use crate::setnx_lock::{RELEASE, unique};

/// Says that the lock is free.
pub(crate) const CHANNEL: &str = "unlocked:stock:1001";

/// Deletes the client's own lock and tells all listeners, in one step, as Redisson does.
const RELEASE_AND_TELL: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('publish', ARGV[2], '0') return redis.call('del', KEYS[1]) end return 0";

/// How long a server may take to answer a thousand clients on a busy machine.
const LIMIT: Duration = Duration::from_secs(20);

pub(crate) struct CrowdClient {
    pub(crate) name: String,
    /// Which of all, so that not all begin with the same part.
    n: u32,
    parts: u32,
    lease: Duration,
    client: Client,
}

enum Client {
    Polls(MultiplexedConnection, Duration),
    Listens(MultiplexedConnection, UnboundedReceiver<PushInfo>),
    Tenure { locker: Locker, fair: bool },
}

/// The lock of a part.
pub(crate) struct Taken {
    pub(crate) part: u32,
    by: By,
}

enum By {
    Value(String),
    Guard(Guard),
}

impl Taken {
    pub(crate) fn token(&self) -> Option<u64> {
        match &self.by {
            By::Value(_) => None,
            By::Guard(guard) => Some(guard.token().get()),
        }
    }
}

impl CrowdClient {
    /// `shared` is the client of all, where all have the same.
    pub(crate) async fn connect(crowd: &Crowd, name: &str, n: u32, shared: &mut Option<Locker>) -> Result<Self> {
        let client = match &crowd.strategy {
            Strategy::Polls { port, every } => Client::Polls(connect(*port, AsyncConnectionConfig::new()).await?, *every),
            Strategy::Listens { port } => {
                let (told, calls) = unbounded_channel();
                let mut raw = connect(*port, AsyncConnectionConfig::new().set_push_sender(told)).await?;
                raw.subscribe(CHANNEL).await?;
                Client::Listens(raw, calls)
            }
            Strategy::Tenure { url } => {
                let locker = match shared.take() {
                    Some(locker) => locker,
                    None => Locker::builder().lease(crowd.lease).about(name).connect(url).await?,
                };
                *shared = Some(locker.clone());
                Client::Tenure { locker, fair: false }
            }
            Strategy::Queues { url } => {
                let locker = Locker::builder().lease(crowd.lease).about(name).connect(url).await?;
                Client::Tenure { locker, fair: true }
            }
        };
        Ok(Self { name: name.to_owned(), n, parts: crowd.parts, lease: crowd.lease, client })
    }

    /// The name under which a store knows it, if it has one.
    pub(crate) fn known_as(&self) -> Option<String> {
        match &self.client {
            Client::Tenure { locker, .. } => Some(locker.client_id().to_string()),
            Client::Polls(..) | Client::Listens(..) => None,
        }
    }

    /// Waits for the lock of one of the open parts. `waits` is called when it begins to wait, or does not have to.
    pub(crate) async fn take(&mut self, open: &[u32], waits: impl FnOnce()) -> Result<Taken> {
        // Not all at the same part.
        let (before, after) = open.split_at(self.n as usize % open.len());
        let open: Vec<u32> = after.iter().chain(before).copied().collect();
        if let Client::Tenure { locker, fair } = &self.client {
            waits();
            let (part, guard) = of_tenure(locker, self.parts, *fair, &open).await?;
            return Ok(Taken { part, by: By::Guard(guard) });
        }
        let value = unique(&self.name);
        let mut waits = Some(waits);
        loop {
            let granted = self.ask(&open, &value).await?;
            if let Some(waits) = waits.take() {
                waits();
            }
            if let Some(part) = granted {
                return Ok(Taken { part, by: By::Value(value) });
            }
            match &mut self.client {
                Client::Polls(_, every) => tokio::time::sleep(*every).await,
                Client::Listens(_, calls) => hear(calls, self.lease).await?,
                Client::Tenure { .. } => {}
            }
        }
    }

    async fn ask(&mut self, open: &[u32], value: &str) -> Result<Option<u32>> {
        for part in open {
            let key = key(*part, self.parts);
            let raw = self.raw()?;
            let mut set = redis::cmd("SET");
            set.arg(key).arg(value).arg("NX").arg("PX").arg(crate::millis(LIMIT));
            if set.query_async::<Option<String>>(raw).await?.is_some() {
                return Ok(Some(*part));
            }
        }
        Ok(None)
    }

    pub(crate) async fn give_back(&mut self, taken: Taken) -> Result<()> {
        let key = key(taken.part, self.parts);
        let tells = matches!(self.client, Client::Listens(..));
        match taken.by {
            By::Guard(guard) => Ok(guard.release().await?),
            By::Value(value) => {
                let mut release = redis::cmd("EVAL");
                release.arg(if tells { RELEASE_AND_TELL } else { RELEASE }).arg(1).arg(key).arg(value).arg(CHANNEL);
                Ok(release.query_async::<()>(self.raw()?).await?)
            }
        }
    }

    fn raw(&mut self) -> Result<&mut MultiplexedConnection> {
        match &mut self.client {
            Client::Polls(raw, _) | Client::Listens(raw, _) => Ok(raw),
            Client::Tenure { .. } => Err(LabError::new("Tenure needs no commands")),
        }
    }
}

async fn of_tenure(locker: &Locker, parts: u32, fair: bool, open: &[u32]) -> Result<(u32, Guard)> {
    if parts <= 1 {
        let mutex = locker.mutex(LOCK);
        let mutex = if fair { mutex.fair() } else { mutex };
        return Ok((0, mutex.lock().await?));
    }
    let stripes = locker.striped(LOCK, parts);
    let rest = open.first().and_then(|part| Some((*part, stripes.stripe(*part)?)));
    match rest.filter(|_| open.len() < parts as usize) {
        // Some are sold out: one of the rest, then.
        Some((part, mutex)) => Ok((part, mutex.lock().await?)),
        None => Ok(stripes.lock_any().await?),
    }
}

/// Waits for a message, for as long as the lock lasts.
async fn hear(calls: &mut UnboundedReceiver<PushInfo>, lease: Duration) -> Result<()> {
    let message = async {
        while let Some(push) = calls.recv().await {
            if push.kind == PushKind::Message {
                return Ok(());
            }
        }
        Err(LabError::new("the server does not call any more"))
    };
    tokio::time::timeout(lease, message).await.unwrap_or(Ok(()))
}

async fn connect(port: u16, config: AsyncConnectionConfig) -> Result<MultiplexedConnection> {
    let client = redis::Client::open(password::url(port, "protocol=resp3"))?;
    let config = config.set_connection_timeout(Some(LIMIT)).set_response_timeout(Some(LIMIT));
    Ok(client.get_multiplexed_async_connection_with_config(&config).await?)
}

/// As Tenure names stripes.
fn key(part: u32, parts: u32) -> String {
    if parts > 1 { format!("{LOCK}#{part}") } else { LOCK.to_owned() }
}
