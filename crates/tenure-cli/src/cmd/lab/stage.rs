//! What a way is played on: servers, a shop and actors of its own, and a timeline.

use std::cell::RefCell;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::actor::{Actor, Company, Waits, lock};
use super::address::Place;
use super::clock::Clock;
use super::crowd::Crowd;
use super::server::{Server, Setup};
use super::shop::{Sales, Shop};
use super::timeline::{Moment, Notes, Timeline};
use super::upset::{Played, Upset};
use super::witness;
use super::words::{Lock, TenureLock, UsualLock};

/// The lock of what the shop sells.
pub(crate) const LOCK: &str = "lock:stock:1001";

/// How long a sale takes, between the look at the stock and the write: long enough to be seen in a picture.
pub(crate) const SALE: Duration = Duration::from_millis(120);

/// How long a story waits for what must come.
const LIMIT: Duration = Duration::from_secs(10);

/// How often the usual way asks again: what redis-py does.
const POLL: Duration = Duration::from_millis(100);

pub(crate) struct Stage {
    program: OsString,
    dir: PathBuf,
    shop: Shop,
    company: Company,
    servers: RefCell<Vec<Rc<Server>>>,
}

/// The lane of one who is no actor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lane(usize);

/// What a way has cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bill {
    pub(crate) sales: Sales,
    pub(crate) waits: Waits,
    pub(crate) requests: u64,
    pub(crate) timeline: Timeline,
}

impl Stage {
    /// A stage in a new directory, with so many units in the shop.
    pub(crate) fn new(program: OsString, dir: &Path, stock: u32) -> Played<Self> {
        std::fs::create_dir_all(dir)?;
        let shop = Shop::found(&dir.join("shop.db"), stock)?;
        let company = Company { notes: Notes::new(), waits: Arc::default(), known_as: Arc::default() };
        Ok(Self { program, dir: dir.to_owned(), shop, company, servers: RefCell::default() })
    }

    /// A server, and a lane that shows whom it takes for the holder of [`LOCK`].
    pub(crate) fn server(&self) -> Played<Rc<Server>> {
        let server = self.server_with(Setup::default())?;
        self.watch(&server, "Redis")?;
        Ok(server)
    }

    /// A server of any kind, without a lane.
    pub(crate) fn server_with(&self, setup: Setup) -> Played<Rc<Server>> {
        let n = self.servers.borrow().len();
        let server = Rc::new(Server::start(&self.program, &self.dir.join(format!("server{n}")), setup)?);
        self.servers.borrow_mut().push(Rc::clone(&server));
        Ok(server)
    }

    /// A lane that shows whom a server takes for the holder of [`LOCK`].
    pub(crate) fn watch(&self, server: &Server, name: &str) -> Played<Lane> {
        let lane = self.lane(name);
        self.watch_again(server, lane)?;
        Ok(lane)
    }

    /// The same on the lane that it had before it was restarted.
    pub(crate) fn watch_again(&self, server: &Server, Lane(lane): Lane) -> Played<()> {
        witness::watch(server, LOCK, lane, self.company.clone())
    }

    /// A lane for one who is no actor.
    pub(crate) fn lane(&self, name: &str) -> Lane {
        Lane(self.company.notes.lane(name))
    }

    /// Notes what happens to one who has such a lane.
    pub(crate) fn mark(&self, Lane(lane): Lane, what: Moment, text: &str) {
        self.company.notes.mark(lane, Instant::now(), what, text);
    }

    /// A process of its own. On the timeline it has the next lane.
    pub(crate) fn actor(&self, name: &str) -> Played<Actor> {
        Actor::start(name, &self.dir, self.shop.path(), self.company.clone())
    }

    /// Actors who are ready to take a lock.
    pub(crate) fn actors<const N: usize>(&self, names: [&str; N], lock: &Lock) -> Played<[Actor; N]> {
        let mut actors = Vec::with_capacity(N);
        for name in names {
            let mut actor = self.actor(name)?;
            actor.prepare(lock)?;
            actors.push(actor);
        }
        actors.try_into().map_err(|_| Upset::new("too few actors"))
    }

    /// A clock for servers, which can be moved.
    pub(crate) fn clock(&self, name: &str) -> Played<Clock> {
        // One library does for all stages.
        Clock::new(self.file(name), &self.dir.with_file_name("clock_shim.so"))
    }

    /// A file of this stage, such as a lock file.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Waits for something that must come, by asking for it.
    pub(crate) fn until(&self, what: &str, is_so: impl FnMut() -> Played<bool>) -> Played<()> {
        self.until_at_most(LIMIT, what, is_so)
    }

    /// The same for what takes longer.
    pub(crate) fn until_at_most(&self, limit: Duration, what: &str, mut is_so: impl FnMut() -> Played<bool>) -> Played<()> {
        let give_up = Instant::now() + limit;
        while !is_so()? {
            if Instant::now() > give_up {
                return Err(Upset::new(format!("waited in vain until {what}")));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Lets an actor wait for a lock, and goes on when a server has heard of it.
    pub(crate) fn let_wait(&self, actor: &mut Actor, lock: &Lock, patience: Duration) -> Played<()> {
        let before = self.requests()?;
        actor.begin_to_take(lock, patience)?;
        self.until(&format!("{} has asked", actor.name), || Ok(self.requests()? > before))
    }

    /// Waits until nothing renews any more what an actor holds. A lock that is never renewed is a story's mistake.
    pub(crate) fn until_renewal_fails(&self, actor: &mut Actor) -> Played<()> {
        self.until(&format!("{}'s renewal has failed", actor.name), || Ok(!actor.is_renewed()?))?;
        actor.did("its renewal has failed, and nobody tells it");
        Ok(())
    }

    /// Waits until a server has no such key any more.
    pub(crate) fn until_gone(&self, server: &Server, key: &str) -> Played<()> {
        self.until(&format!("{key} has run out"), || Ok(server.ask::<u64>(&["EXISTS", key])? == 0))
    }

    /// Lets time go by that is a part of the story: work takes as long as it takes.
    pub(crate) fn work(&self, how_long: Duration) {
        std::thread::sleep(how_long);
    }

    /// Splits the stock into equal parts, each of which has a lock of its own.
    pub(crate) fn split_stock(&self, parts: u32) -> Played<()> {
        Shop::enter(self.shop.path())?.split(parts)
    }

    /// How many of a crowd had a lock at the same time, at most.
    pub(crate) fn most_at_once(&self) -> Played<u64> {
        self.shop.most_at_once()
    }

    /// Processes that are crowds, all of whom wait for the same lock.
    pub(crate) fn crowds(&self, names: &[&str], crowd: &Crowd) -> Played<Vec<Actor>> {
        let mut services = names.iter().map(|name| self.actor(name)).collect::<Played<Vec<Actor>>>()?;
        for service in &mut services {
            service.begin_to_gather(crowd)?;
        }
        for service in &mut services {
            service.gathered(crowd)?;
        }
        Ok(services)
    }

    /// What the shop says so far.
    pub(crate) fn sales(&self) -> Played<Sales> {
        self.shop.sales()
    }

    /// How long actors have waited so far.
    pub(crate) fn waits(&self) -> Waits {
        *lock(&self.company.waits)
    }

    /// How many requests all servers have had so far.
    pub(crate) fn requests(&self) -> Played<u64> {
        self.servers.borrow().iter().map(|server| server.requests()).sum()
    }

    pub(crate) fn bill(&self) -> Played<Bill> {
        let requests = self.requests()?;
        Ok(Bill { sales: self.sales()?, waits: self.waits(), requests, timeline: self.company.notes.finish() })
    }
}

/// The usual lock on a server: renewed, and asked for again every tenth of a second.
pub(crate) fn usual(server: &impl Place, ttl: Duration) -> Lock {
    Lock::Usual(UsualLock { port: server.port(), key: LOCK.to_owned(), ttl, renewed: true, poll: POLL, counter: None })
}

/// The usual lock with the number of a counter as its token.
pub(crate) fn usual_counted(server: &impl Place, ttl: Duration, counter: &str) -> Lock {
    let (port, key, counter) = (server.port(), LOCK.to_owned(), Some(counter.to_owned()));
    Lock::Usual(UsualLock { port, key, ttl, renewed: true, poll: POLL, counter })
}

/// The usual lock for a time that is not renewed.
pub(crate) fn usual_fixed(server: &impl Place, ttl: Duration) -> Lock {
    Lock::Usual(UsualLock { port: server.port(), key: LOCK.to_owned(), ttl, renewed: false, poll: POLL, counter: None })
}

/// Tenure's lock at a URL, renewed.
pub(crate) fn tenure(url: impl Into<String>, lease: Duration) -> Lock {
    Lock::Tenure(TenureLock { url: url.into(), name: LOCK.to_owned(), lease, fixed: false, fair: false })
}

/// Tenure's lock for a time that is not renewed.
pub(crate) fn tenure_fixed(url: impl Into<String>, lease: Duration) -> Lock {
    Lock::Tenure(TenureLock { url: url.into(), name: LOCK.to_owned(), lease, fixed: true, fair: false })
}

/// Tenure's lock for those who stand in line.
pub(crate) fn tenure_fair(url: impl Into<String>, lease: Duration) -> Lock {
    Lock::Tenure(TenureLock { url: url.into(), name: LOCK.to_owned(), lease, fixed: false, fair: true })
}
