//! Many clients in one process that want the same lock, and sell under it until the stock is empty.

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use crate::actor::lock;
use crate::crowd_client::{CrowdClient, Taken};
use crate::error::{LabError, Result};
use crate::protocol::Reply;
use crate::shop::{Sale, Shop, part};

/// A crowd as a story has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Crowd {
    pub(crate) clients: u32,
    pub(crate) strategy: Strategy,
    pub(crate) lease: Duration,
    /// How long a sale takes, between the look at the stock and the write.
    pub(crate) work: Duration,
    /// Into how many parts the stock is split, each with a lock of its own.
    pub(crate) parts: u32,
}

/// How each of them gets a lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Strategy {
    /// Asks again and again. Each has a connection of its own.
    Polls { port: u16, every: Duration },
    /// Asks again whenever the lock's channel says that it is free. Each has a connection of its own.
    Listens { port: u16 },
    /// All are tasks of one client of Tenure's.
    Tenure { url: String },
    /// Waits in the queue of a fair lock. Each is a client of Tenure.
    Queues { url: String },
}

/// So much for each of so many, told in tenths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ratio {
    tenths: u64,
}

impl Ratio {
    pub(crate) fn new(n: u64, of: u32) -> Self {
        Self { tenths: (n * 10).div_ceil(u64::from(of)) }
    }

    pub(crate) fn is_at_least(self, n: u64) -> bool {
        self.tenths >= n * 10
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.tenths / 10, self.tenths % 10) {
            (n @ 20.., _) => write!(f, "{n}"),
            (n, tenths) => write!(f, "{n}.{tenths}"),
        }
    }
}

/// A crowd that is at it.
pub(crate) struct RunningCrowd {
    members: JoinSet<()>,
    news: UnboundedReceiver<Result<Waits>>,
    state: Arc<CrowdState>,
}

/// What a member says when it has asked for the lock. Later it speaks up only if something is wrong.
struct Waits;

struct CrowdState {
    crowd: Crowd,
    name: String,
    shop: Mutex<Shop>,
    /// By part.
    empty: Vec<AtomicBool>,
    waited_us: AtomicU64,
    say: UnboundedSender<Result<Waits>>,
}

impl RunningCrowd {
    /// Returns when all have asked for the lock, with the names under which a store knows them and their own.
    pub(crate) fn start(runtime: &Runtime, name: &str, shop: &Path, crowd: Crowd) -> Result<(Self, Vec<(String, String)>)> {
        let (say, news) = unbounded_channel();
        let empty = (0..crowd.parts).map(|_| AtomicBool::new(false)).collect();
        let (shop, name, clients) = (Mutex::new(Shop::enter(shop)?), name.to_owned(), crowd.clients);
        let state = Arc::new(CrowdState { crowd, name, shop, empty, waited_us: AtomicU64::new(0), say });
        let mut running = Self { members: JoinSet::new(), news, state };
        runtime.block_on(async {
            let (mut shared, mut known_as) = (None, Vec::new());
            for n in 0..clients {
                let name = format!("{}.{n}", running.state.name);
                let client = CrowdClient::connect(&running.state.crowd, &name, n, &mut shared).await?;
                known_as.extend(client.known_as().map(|id| (id, name)));
                running.members.spawn(member(Arc::clone(&running.state), client));
            }
            for _ in 0..clients {
                running.next().await?;
            }
            Ok((running, known_as))
        })
    }

    /// Sends all home.
    pub(crate) fn stop(mut self, runtime: &Runtime) -> Result<Reply> {
        runtime.block_on(self.members.shutdown());
        while let Ok(said) = self.news.try_recv() {
            said?;
        }
        Ok(Reply::CrowdStopped { waited: Duration::from_micros(self.state.waited_us.load(Ordering::Relaxed)) })
    }

    async fn next(&mut self) -> Result<Waits> {
        self.news.recv().await.ok_or_else(|| LabError::new("nobody is left"))?
    }
}

async fn member(state: Arc<CrowdState>, mut client: CrowdClient) {
    let mut begin = Some(state.say.clone());
    if let Err(error) = state.sell_until_nothing_is_left(&mut client, &mut begin).await {
        // The receiver is gone when the story is over.
        let _heard = state.say.send(Err(error));
    }
}

impl CrowdState {
    async fn sell_until_nothing_is_left(
        &self,
        client: &mut CrowdClient,
        begin: &mut Option<UnboundedSender<Result<Waits>>>,
    ) -> Result<()> {
        while let Some(open) = self.open_parts() {
            let since = Instant::now();
            let taken = client
                .take(&open, || {
                    if let Some(say) = begin.take() {
                        let _heard = say.send(Ok(Waits));
                    }
                })
                .await?;
            let waited = u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX);
            self.waited_us.fetch_add(waited, Ordering::Relaxed);
            self.sell(&client.name, &taken).await?;
            client.give_back(taken).await?;
        }
        Ok(())
    }

    /// The parts that no member has seen empty. `None`: all are sold out.
    fn open_parts(&self) -> Option<Vec<u32>> {
        let open = |n: &u32| !self.empty[*n as usize].load(Ordering::Relaxed);
        let open: Vec<u32> = (0..self.crowd.parts).filter(open).collect();
        (!open.is_empty()).then_some(open)
    }

    async fn sell(&self, who: &str, taken: &Taken) -> Result<()> {
        let (item, token) = (part(taken.part, self.crowd.parts), taken.token());
        let (under, seen) = {
            let mut shop = lock(&self.shop);
            let under = shop.granted(who, &item, token)?;
            if let Some(token) = token {
                shop.raise(&item, token)?;
            }
            (under, shop.look(&item)?)
        };
        if seen.units > 0 {
            tokio::time::sleep(self.crowd.work).await;
            let sale = Sale { who, item: &item, left: seen.units - 1, under: Some(under), token, lease: None };
            lock(&self.shop).sell(&sale)?;
        } else {
            self.empty[taken.part as usize].store(true, Ordering::Relaxed);
        }
        lock(&self.shop).left(who, &item)
    }
}
