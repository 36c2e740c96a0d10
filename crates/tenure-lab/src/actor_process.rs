//! The process of an actor: it carries out the requests of the lab, line by line, and ends with the lab.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::OsString;
use std::io::{BufRead, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use redis::{Connection, ConnectionLike};
use rustix::process::{Resource, Rlimit, setrlimit};
use tenure::{Guard, Locker};
use tokio::runtime::Runtime;

use crate::crowd::RunningCrowd;
use crate::error::{LabError, Result};
use crate::naive_clients::{self, Listener};
use crate::password;
use crate::protocol::{Check, LockSpec, Reply, Request, TenureSpec};
use crate::redlock::Redlock;
use crate::seller::{Grant, Seller};
use crate::server::command_of;
use crate::setnx_lock::{self, SetNxLock};
use crate::shop::{ITEM, Shop};

/// The hidden subcommand by which the embedding program runs as an actor.
pub const ACTOR_SUBCOMMAND: &str = "__lab";

/// The lock that only one process knows of.
static LOCAL: Mutex<()> = Mutex::new(());

/// Runs an actor until the lab ends it. `args` follow [`ACTOR_SUBCOMMAND`]: a name, and the path of the shop. `None` if they are
/// missing: the lab did not make this command line.
pub fn run_actor(mut args: impl Iterator<Item = OsString>) -> Option<Result<()>> {
    let (name, shop) = (args.next()?, args.next()?);
    // An actor that dies of what it shows leaves no file behind.
    let _as_it_was = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    Some(ActorProcess::new(&name.to_string_lossy(), Path::new(&shop)).map(|mut actor| {
        for request in requests() {
            send(&actor.act(request).unwrap_or_else(Reply::Failed));
        }
    }))
}

/// The requests of the lab, which follow the password of its servers. A thread reads them, so that a busy actor notices the end too.
fn requests() -> Receiver<Request> {
    let (received, requests) = channel();
    std::thread::spawn(move || {
        let mut lines = std::io::stdin().lock().lines().map_while(Result::ok);
        if let Some(first) = lines.next() {
            password::told(&first);
        }
        for line in lines {
            let Ok(request) = serde_json::from_str(&line) else { break };
            if received.send(request).is_err() {
                break;
            }
        }
        std::process::exit(0);
    });
    requests
}

fn send(reply: &Reply) {
    let Ok(mut line) = serde_json::to_string(reply) else { return };
    line.push('\n');
    let mut out = std::io::stdout().lock();
    // A lab that does not listen any more has ended.
    if out.write_all(line.as_bytes()).and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}

struct ActorProcess {
    name: String,
    seller: Seller,
    runtime: Runtime,
    servers: HashMap<u16, Connection>,
    lockers: HashMap<String, Locker>,
    owner: tenure::Owner,
    /// What was taken, with the number of the grant.
    held: Vec<(i64, Held)>,
    last_grant: Option<i64>,
    listener: Option<Listener>,
    crowd: Option<RunningCrowd>,
}

enum Held {
    /// By commands that the story sent, with the token that came of them.
    ByHand(Option<u64>),
    Local(MutexGuard<'static, ()>),
    SetNx(u16, SetNxLock),
    Redlock(Redlock),
    Tenure(Guard),
}

impl Held {
    fn token(&self) -> Option<u64> {
        match self {
            Self::ByHand(token) => *token,
            Self::SetNx(_, lock) => lock.token,
            Self::Tenure(guard) => Some(guard.token().get()),
            Self::Local(_) | Self::Redlock(_) => None,
        }
    }
}

impl ActorProcess {
    fn new(name: &str, shop: &Path) -> Result<Self> {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        Ok(Self {
            name: name.to_owned(),
            seller: Seller::new(name, Shop::enter(shop)?),
            runtime: runtime.worker_threads(1).enable_all().build()?,
            servers: HashMap::new(),
            lockers: HashMap::new(),
            owner: tenure::Owner::new(),
            held: Vec::new(),
            last_grant: None,
            listener: None,
            crowd: None,
        })
    }

    fn act(&mut self, request: Request) -> Result<Reply> {
        match request {
            Request::Redis { port, command } => {
                let raw = self.server(port)?;
                match command_of(&command).query::<redis::Value>(raw) {
                    Ok(value) => Ok(Reply::Value(value.into())),
                    Err(error) if error.code().is_some() => Ok(Reply::Value(crate::protocol::Value::Error(error.to_string()))),
                    Err(error) => Err(error.into()),
                }
            }
            Request::Prepare(lock) => self.prepare(&lock),
            Request::Take { lock, wait } => self.take(&lock, wait),
            Request::GiveBack => self.give_back(),
            Request::Granted { token } => self.granted(Held::ByHand(token)),
            Request::IsHeld => Ok(Reply::Is(match self.held.last() {
                Some((_, Held::Tenure(guard))) => guard.is_valid(),
                Some((_, Held::Redlock(redlock))) => redlock.is_valid(),
                // The others have no way to know.
                other => other.is_some(),
            })),
            Request::IsRenewed => Ok(Reply::Is(match self.held.last() {
                Some((_, Held::SetNx(_, lock))) => lock.is_renewed(),
                Some((_, Held::Redlock(redlock))) => redlock.is_renewed(),
                _ => false,
            })),
            Request::Waiters(lock) => {
                let inspect = self.locker(&lock)?.mutex(&lock.name).inspect();
                Ok(Reply::Waiting(self.runtime.block_on(inspect)?.waiting.unwrap_or_default()))
            }
            Request::Recurse { port, command, stack } => {
                naive_clients::recurse(port, command, stack)?;
                self.granted(Held::ByHand(None))
            }
            Request::Subscribe { port, channel } => {
                self.listener = Some(Listener::subscribe(port, channel)?);
                Ok(Reply::Done)
            }
            Request::Hear { limit } => {
                let listener = self.listener.as_mut().ok_or_else(|| LabError::new("has not subscribed"))?;
                Ok(Reply::Is(listener.hear(limit)?))
            }
            Request::Look => self.seller.look(self.grant()),
            Request::Sell => self.seller.sell(self.grant()),
            Request::Check(check) => {
                self.seller.check = Some(check);
                Ok(Reply::Done)
            }
            Request::BeginSale => {
                let Some((_, Held::Tenure(guard))) = self.held.last() else { return Err(LabError::new("holds no guard")) };
                let guard = guard.reenter().map_err(tenure::Error::from)?;
                self.seller.begin(&self.runtime, guard, self.grant())
            }
            Request::EndSale => self.seller.end(&self.runtime),
            Request::StartCrowd(crowd) => {
                let (crowd, known_as) = RunningCrowd::start(&self.runtime, &self.name, self.seller.shop.path(), crowd)?;
                self.crowd = Some(crowd);
                Ok(Reply::CrowdStarted { known_as })
            }
            Request::StopCrowd => {
                let crowd = self.crowd.take().ok_or_else(|| LabError::new("is no crowd"))?;
                crowd.stop(&self.runtime)
            }
        }
    }

    fn prepare(&mut self, lock: &LockSpec) -> Result<Reply> {
        let known_as = match lock {
            // Who asks several servers connects to each when it asks.
            LockSpec::Local | LockSpec::Redlock(_) => None,
            LockSpec::SetNx(lock) => {
                self.server(lock.port)?;
                None
            }
            LockSpec::Tenure(lock) => Some(self.locker(lock)?.client_id().to_string()),
        };
        Ok(Reply::Ready { known_as })
    }

    fn take(&mut self, lock: &LockSpec, wait: Option<Duration>) -> Result<Reply> {
        match lock {
            LockSpec::Local => match LOCAL.try_lock() {
                Ok(guard) => self.granted(Held::Local(guard)),
                Err(_) => Ok(Reply::Busy),
            },
            LockSpec::SetNx(lock) => {
                let who = self.name.clone();
                match SetNxLock::take(self.server(lock.port)?, &who, lock, wait)? {
                    Some(granted) => self.granted(Held::SetNx(lock.port, granted)),
                    None => Ok(Reply::Busy),
                }
            }
            LockSpec::Redlock(lock) => match Redlock::take(&self.name, lock) {
                Some(redlock) => self.granted(Held::Redlock(redlock)),
                None => Ok(Reply::Busy),
            },
            LockSpec::Tenure(lock) => {
                let mutex = self.locker(lock)?.mutex(&lock.name).owner(&self.owner);
                let mutex = if lock.fixed { mutex.lease_fixed(lock.lease) } else { mutex.lease(lock.lease) };
                let mutex = if lock.fair { mutex.fair() } else { mutex };
                let taken = match wait {
                    Some(wait) => self.runtime.block_on(mutex.try_lock_for(wait))?,
                    None => self.runtime.block_on(mutex.try_lock())?,
                };
                let Some(guard) = taken else { return Ok(Reply::Busy) };
                let watcher = guard.watcher();
                self.runtime.spawn(async move {
                    if let Some(lost) = watcher.ended().await {
                        send(&Reply::Lost(lost.reason.to_string()));
                    }
                });
                self.granted(Held::Tenure(guard))
            }
        }
    }

    fn granted(&mut self, held: Held) -> Result<Reply> {
        let token = held.token();
        let n = self.seller.shop.granted(&self.name, ITEM, token)?;
        self.held.push((n, held));
        self.last_grant = Some(n);
        Ok(Reply::Granted { token })
    }

    /// Says whether it was still held.
    fn give_back(&mut self) -> Result<Reply> {
        let (_, held) = self.held.pop().ok_or_else(|| LabError::new(format!("{} has nothing to give back", self.name)))?;
        Ok(Reply::Is(match held {
            Held::ByHand(_) => true,
            Held::Local(guard) => {
                drop(guard);
                true
            }
            Held::SetNx(port, lock) => lock.give_back(self.server(port)?)?,
            Held::Redlock(redlock) => redlock.give_back(),
            Held::Tenure(guard) => match self.runtime.block_on(guard.release()) {
                Err(tenure::Error::Lost(_)) => false,
                done => done.map(|()| true)?,
            },
        }))
    }

    /// What it has to show for what was taken last.
    fn grant(&self) -> Grant {
        let held = self.held.last();
        let check = held.map_or(Check::Nothing, |(_, held)| match held {
            Held::Tenure(_) => Check::BeforeTheRead,
            held if held.token().is_some() => Check::AtTheWrite,
            _ => Check::Nothing,
        });
        Grant { n: held.map(|(n, _)| *n).or(self.last_grant), token: held.and_then(|(_, held)| held.token()), check }
    }

    /// A connection that works: like any pool, it is tried before it is used.
    fn server(&mut self, port: u16) -> Result<&mut Connection> {
        Ok(match self.servers.entry(port) {
            Entry::Occupied(mut connected) => {
                if !connected.get_mut().check_connection() {
                    connected.insert(setnx_lock::connect(port)?);
                }
                connected.into_mut()
            }
            Entry::Vacant(place) => place.insert(setnx_lock::connect(port)?),
        })
    }

    fn locker(&mut self, lock: &TenureSpec) -> Result<Locker> {
        if let Some(locker) = self.lockers.get(&lock.url) {
            return Ok(locker.clone());
        }
        let connect = Locker::builder().lease(lock.lease).about(&*self.name).connect(&lock.url);
        let locker = self.runtime.block_on(connect)?;
        self.lockers.insert(lock.url.clone(), locker.clone());
        Ok(locker)
    }
}
