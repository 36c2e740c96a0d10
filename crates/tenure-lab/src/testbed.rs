//! The testbed of a way: its servers, its shop, its actors, and the timeline of what they do.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::actor::{Actor, ActorContext, Waits, lock};
use crate::clock::Clock;
use crate::crowd::Crowd;
use crate::error::{LabError, Result};
use crate::holder_probe;
use crate::launcher::Launcher;
use crate::locks::LOCK;
use crate::protocol::LockSpec;
use crate::redis_server::Setup;
use crate::server::Server;
use crate::shop::{Sales, Shop};
use crate::timeline::{Moment, Recorder, Timeline};

/// How long a sale takes, between the look at the stock and the write: long enough to be seen in a picture.
pub(crate) const SALE: Duration = Duration::from_millis(120);

/// How long a story waits for what must come.
const LIMIT: Duration = Duration::from_secs(10);

pub(crate) struct Testbed {
    launcher: Launcher,
    dir: PathBuf,
    shop: Shop,
    context: ActorContext,
    servers: RefCell<Vec<Rc<Server>>>,
}

/// The lane of something that is no actor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lane(usize);

/// What a way has cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) sales: Sales,
    pub(crate) waits: Waits,
    pub(crate) requests: u64,
    pub(crate) timeline: Timeline,
}

impl Testbed {
    /// A testbed in a new directory, with so many units in the shop.
    pub(crate) fn new(launcher: Launcher, dir: &Path, stock: u32) -> Result<Self> {
        std::fs::create_dir_all(dir)?;
        let shop = Shop::found(&dir.join("shop.db"), stock)?;
        let context = ActorContext { recorder: Recorder::new(), waits: Arc::default(), known_as: Arc::default() };
        Ok(Self { launcher, dir: dir.to_owned(), shop, context, servers: RefCell::default() })
    }

    /// A server, and a lane that shows which client it takes for the holder of [`LOCK`].
    pub(crate) fn server(&self) -> Result<Rc<Server>> {
        let server = self.server_with(Setup::default())?;
        self.watch(&server, "Redis")?;
        Ok(server)
    }

    /// A server of any kind, without a lane.
    pub(crate) fn server_with(&self, setup: Setup) -> Result<Rc<Server>> {
        let n = self.servers.borrow().len();
        let server = Rc::new(Server::start(&self.launcher, &self.dir.join(format!("server{n}")), setup)?);
        self.servers.borrow_mut().push(Rc::clone(&server));
        Ok(server)
    }

    /// A lane that shows which client a server takes for the holder of [`LOCK`].
    pub(crate) fn watch(&self, server: &Server, name: &str) -> Result<Lane> {
        let lane = self.lane(name);
        self.watch_again(server, lane)?;
        Ok(lane)
    }

    /// The same on the lane that it had before it was restarted.
    pub(crate) fn watch_again(&self, server: &Server, Lane(lane): Lane) -> Result<()> {
        holder_probe::watch(server, LOCK, lane, self.context.clone())
    }

    /// A lane for something that is no actor.
    pub(crate) fn lane(&self, name: &str) -> Lane {
        Lane(self.context.recorder.lane(name))
    }

    /// Marks an event on such a lane.
    pub(crate) fn mark(&self, Lane(lane): Lane, what: Moment, text: &str) {
        self.context.recorder.mark(lane, Instant::now(), what, text);
    }

    /// A process of its own. On the timeline it has the next lane.
    pub(crate) fn actor(&self, name: &str) -> Result<Actor> {
        Actor::start(&self.launcher, name, &self.dir, self.shop.path(), self.context.clone())
    }

    /// Actors that are ready to take a lock.
    pub(crate) fn actors<const N: usize>(&self, names: [&str; N], lock: &LockSpec) -> Result<[Actor; N]> {
        let mut actors = Vec::with_capacity(N);
        for name in names {
            let mut actor = self.actor(name)?;
            actor.prepare(lock)?;
            actors.push(actor);
        }
        actors.try_into().map_err(|_| LabError::new("too few actors"))
    }

    /// A clock for servers, which can be moved.
    pub(crate) fn clock(&self, name: &str) -> Result<Clock> {
        // All testbeds of a lab share the library.
        Ok(Clock::new(self.file(name), self.dir.parent().unwrap_or(&self.dir))?)
    }

    /// A file of this testbed, such as a lock file.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Waits for something that must come, by asking for it.
    pub(crate) fn until(&self, what: &str, is_so: impl FnMut() -> Result<bool>) -> Result<()> {
        self.until_at_most(LIMIT, what, is_so)
    }

    /// The same for what takes longer.
    pub(crate) fn until_at_most(&self, limit: Duration, what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
        let give_up = Instant::now() + limit;
        while !is_so()? {
            if Instant::now() > give_up {
                return Err(LabError::new(format!("waited in vain until {what}")));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Lets an actor wait for a lock, and goes on when a server has heard of it.
    pub(crate) fn let_wait(&self, actor: &mut Actor, lock: &LockSpec, patience: Duration) -> Result<()> {
        let before = self.requests()?;
        actor.begin_to_take(lock, patience)?;
        self.until(&format!("{} has asked", actor.name), || Ok(self.requests()? > before))
    }

    /// Waits until nothing renews any more what an actor holds. A lock that is never renewed is a story's mistake.
    pub(crate) fn until_renewal_fails(&self, actor: &mut Actor) -> Result<()> {
        self.until(&format!("{}'s renewal has failed", actor.name), || Ok(!actor.is_renewed()?))?;
        actor.did("its renewal has failed, and nobody tells it");
        Ok(())
    }

    /// Waits until a server has no such key any more.
    pub(crate) fn until_gone(&self, server: &Server, key: &str) -> Result<()> {
        self.until(&format!("{key} has run out"), || Ok(server.ask::<u64>(&["EXISTS", key])? == 0))
    }

    /// Lets time go by that is a part of the story: work takes as long as it takes.
    pub(crate) fn work(&self, how_long: Duration) {
        std::thread::sleep(how_long);
    }

    /// A holder sells one unit if there is one, and gives its lock back.
    pub(crate) fn sell_one(&self, holder: &mut Actor) -> Result<()> {
        if holder.look()? > 0 {
            self.work(SALE);
            holder.sell()?;
            holder.give_back()?;
        }
        Ok(())
    }

    /// Splits the stock into equal parts, each of which has a lock of its own.
    pub(crate) fn split_stock(&self, parts: u32) -> Result<()> {
        Shop::enter(self.shop.path())?.split(parts)
    }

    /// How many of a crowd had a lock at the same time, at most.
    pub(crate) fn most_at_once(&self) -> Result<u64> {
        self.shop.most_at_once()
    }

    /// Processes that are crowds of clients; all wait for the same lock.
    pub(crate) fn crowds(&self, names: &[&str], crowd: &Crowd) -> Result<Vec<Actor>> {
        let mut services = names.iter().map(|name| self.actor(name)).collect::<Result<Vec<Actor>>>()?;
        for service in &mut services {
            service.start_crowd(crowd)?;
        }
        for service in &mut services {
            service.crowd_started(crowd)?;
        }
        Ok(services)
    }

    /// What the shop says so far.
    pub(crate) fn sales(&self) -> Result<Sales> {
        self.shop.sales()
    }

    /// How long actors have waited so far.
    pub(crate) fn waits(&self) -> Waits {
        *lock(&self.context.waits)
    }

    /// How many requests all servers have had so far.
    pub(crate) fn requests(&self) -> Result<u64> {
        self.servers.borrow().iter().map(|server| server.requests()).sum()
    }

    pub(crate) fn totals(&self) -> Result<Totals> {
        let requests = self.requests()?;
        Ok(Totals { sales: self.sales()?, waits: self.waits(), requests, timeline: self.context.recorder.finish() })
    }
}
