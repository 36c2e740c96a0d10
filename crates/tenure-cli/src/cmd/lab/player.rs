//! The life of an actor: a process that does what it is told, line by line, and ends with the lab.

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

use super::crowd::Gathered;
use super::habits::{self, Listener};
use super::password;
use super::redlock::Redlock;
use super::shop::{ITEM, Shop};
use super::trade::{Grant, Trade};
use super::upset::{Played, Upset};
use super::usual::{self, Usual};
use super::words::{Answer, Check, Lock, TenureLock, Word};
use crate::exit::{self, Failure};

/// The hidden name under which tenure starts itself as an actor.
pub(crate) const MARK: &str = "__lab";

/// The lock that only one process knows of.
static LOCAL: Mutex<()> = Mutex::new(());

/// Plays until the lab ends it. The words after [`MARK`] are a name and the place of the shop.
pub(crate) fn play(mut args: impl Iterator<Item = OsString>) -> Option<Failure> {
    let (name, shop) = (args.next()?, args.next()?);
    // An actor that dies of what it shows leaves no file behind.
    let _as_it_was = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    let played = Player::new(&name.to_string_lossy(), Path::new(&shop)).map(|mut player| {
        for word in words() {
            let answer = player.act(word).unwrap_or_else(Answer::Failed);
            say(&answer);
        }
    });
    Some(played.map_or_else(|upset| Failure::new(exit::FAILED, upset.to_string()), |()| Failure::silent(0)))
}

/// What the lab says, after the password of its servers. Read in a thread of its own, so that an actor that is busy notices the end too.
fn words() -> Receiver<Word> {
    let (heard, words) = channel();
    std::thread::spawn(move || {
        let mut lines = std::io::stdin().lock().lines().map_while(Result::ok);
        if let Some(first) = lines.next() {
            password::told(&first);
        }
        for line in lines {
            let Ok(word) = serde_json::from_str(&line) else { break };
            if heard.send(word).is_err() {
                break;
            }
        }
        std::process::exit(0);
    });
    words
}

fn say(answer: &Answer) {
    let Ok(mut line) = serde_json::to_string(answer) else { return };
    line.push('\n');
    let mut out = std::io::stdout().lock();
    // A lab that does not listen any more has ended.
    if out.write_all(line.as_bytes()).and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}

struct Player {
    name: String,
    trade: Trade,
    runtime: Runtime,
    servers: HashMap<u16, Connection>,
    lockers: HashMap<String, Locker>,
    owner: tenure::Owner,
    /// What was taken, with the number of the grant.
    held: Vec<(i64, Held)>,
    last_grant: Option<i64>,
    listener: Option<Listener>,
    crowd: Option<Gathered>,
}

enum Held {
    /// By commands that the story sent, with the token that came of them.
    ByHand(Option<u64>),
    Local(MutexGuard<'static, ()>),
    Usual(u16, Usual),
    Redlock(Redlock),
    Tenure(Guard),
}

impl Held {
    fn token(&self) -> Option<u64> {
        match self {
            Self::ByHand(token) => *token,
            Self::Usual(_, usual) => usual.token,
            Self::Tenure(guard) => Some(guard.token().get()),
            Self::Local(_) | Self::Redlock(_) => None,
        }
    }
}

impl Player {
    fn new(name: &str, shop: &Path) -> Played<Self> {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        Ok(Self {
            name: name.to_owned(),
            trade: Trade::new(name, Shop::enter(shop)?),
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

    fn act(&mut self, word: Word) -> Played<Answer> {
        match word {
            Word::Redis { port, command } => {
                let raw = self.server(port)?;
                match super::server::asked(&command).query::<redis::Value>(raw) {
                    Ok(value) => Ok(Answer::Value(value.into())),
                    Err(error) if error.code().is_some() => Ok(Answer::Value(super::words::Value::Error(error.to_string()))),
                    Err(error) => Err(error.into()),
                }
            }
            Word::Prepare(lock) => self.prepare(&lock),
            Word::Take { lock, wait } => self.take(&lock, wait),
            Word::GiveBack => self.give_back(),
            Word::Granted { token } => self.granted(Held::ByHand(token)),
            Word::IsHeld => Ok(Answer::Is(match self.held.last() {
                Some((_, Held::Tenure(guard))) => guard.is_valid(),
                Some((_, Held::Redlock(redlock))) => redlock.is_valid(),
                // The others have no way to know.
                other => other.is_some(),
            })),
            Word::IsRenewed => Ok(Answer::Is(match self.held.last() {
                Some((_, Held::Usual(_, usual))) => usual.is_renewed(),
                Some((_, Held::Redlock(redlock))) => redlock.is_renewed(),
                _ => false,
            })),
            Word::Waiters(lock) => {
                let inspect = self.locker(&lock)?.mutex(&lock.name).inspect();
                Ok(Answer::Waiting(self.runtime.block_on(inspect)?.waiting.unwrap_or_default()))
            }
            Word::Recurse { port, command, stack } => {
                habits::recurse(port, command, stack)?;
                self.granted(Held::ByHand(None))
            }
            Word::Subscribe { port, channel } => {
                self.listener = Some(Listener::subscribe(port, channel)?);
                Ok(Answer::Done)
            }
            Word::Hear { limit } => {
                let listener = self.listener.as_mut().ok_or_else(|| Upset::new("has not subscribed"))?;
                Ok(Answer::Is(listener.hear(limit)?))
            }
            Word::Look => self.trade.look(self.grant()),
            Word::Sell => self.trade.sell(self.grant()),
            Word::Check(check) => {
                self.trade.check = Some(check);
                Ok(Answer::Done)
            }
            Word::BeginSale => {
                let Some((_, Held::Tenure(guard))) = self.held.last() else { return Err(Upset::new("holds no guard")) };
                let guard = guard.reenter().map_err(tenure::Error::from)?;
                self.trade.begin(&self.runtime, guard, self.grant())
            }
            Word::EndSale => self.trade.end(&self.runtime),
            Word::Gather(crowd) => {
                let (crowd, known_as) = Gathered::gather(&self.runtime, &self.name, self.trade.shop.path(), crowd)?;
                self.crowd = Some(crowd);
                Ok(Answer::Gathered { known_as })
            }
            Word::Disperse => {
                let crowd = self.crowd.take().ok_or_else(|| Upset::new("is no crowd"))?;
                crowd.disperse(&self.runtime)
            }
        }
    }

    fn prepare(&mut self, lock: &Lock) -> Played<Answer> {
        let known_as = match lock {
            // Who asks several servers connects to each when it asks.
            Lock::Local | Lock::Redlock(_) => None,
            Lock::Usual(lock) => {
                self.server(lock.port)?;
                None
            }
            Lock::Tenure(lock) => Some(self.locker(lock)?.client_id().to_string()),
        };
        Ok(Answer::Ready { known_as })
    }

    fn take(&mut self, lock: &Lock, wait: Option<Duration>) -> Played<Answer> {
        match lock {
            Lock::Local => match LOCAL.try_lock() {
                Ok(guard) => self.granted(Held::Local(guard)),
                Err(_) => Ok(Answer::Busy),
            },
            Lock::Usual(lock) => {
                let who = self.name.clone();
                match Usual::take(self.server(lock.port)?, &who, lock, wait)? {
                    Some(usual) => self.granted(Held::Usual(lock.port, usual)),
                    None => Ok(Answer::Busy),
                }
            }
            Lock::Redlock(lock) => match Redlock::take(&self.name, lock) {
                Some(redlock) => self.granted(Held::Redlock(redlock)),
                None => Ok(Answer::Busy),
            },
            Lock::Tenure(lock) => {
                let mutex = self.locker(lock)?.mutex(&lock.name).owner(&self.owner);
                let mutex = if lock.fixed { mutex.lease_fixed(lock.lease) } else { mutex.lease(lock.lease) };
                let mutex = if lock.fair { mutex.fair() } else { mutex };
                let taken = match wait {
                    Some(wait) => self.runtime.block_on(mutex.try_lock_for(wait))?,
                    None => self.runtime.block_on(mutex.try_lock())?,
                };
                let Some(guard) = taken else { return Ok(Answer::Busy) };
                let watcher = guard.watcher();
                self.runtime.spawn(async move {
                    if let Some(lost) = watcher.ended().await {
                        say(&Answer::Lost(lost.reason.to_string()));
                    }
                });
                self.granted(Held::Tenure(guard))
            }
        }
    }

    fn granted(&mut self, held: Held) -> Played<Answer> {
        let token = held.token();
        let n = self.trade.shop.granted(&self.name, ITEM, token)?;
        self.held.push((n, held));
        self.last_grant = Some(n);
        Ok(Answer::Granted { token })
    }

    /// Says whether it was still held.
    fn give_back(&mut self) -> Played<Answer> {
        let (_, held) = self.held.pop().ok_or_else(|| Upset::new(format!("{} has nothing to give back", self.name)))?;
        Ok(Answer::Is(match held {
            Held::ByHand(_) => true,
            Held::Local(guard) => {
                drop(guard);
                true
            }
            Held::Usual(port, usual) => usual.give_back(self.server(port)?)?,
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
    fn server(&mut self, port: u16) -> Played<&mut Connection> {
        Ok(match self.servers.entry(port) {
            Entry::Occupied(mut connected) => {
                if !connected.get_mut().check_connection() {
                    connected.insert(usual::connect(port)?);
                }
                connected.into_mut()
            }
            Entry::Vacant(place) => place.insert(usual::connect(port)?),
        })
    }

    fn locker(&mut self, lock: &TenureLock) -> Played<Locker> {
        if let Some(locker) = self.lockers.get(&lock.url) {
            return Ok(locker.clone());
        }
        let connect = Locker::builder().lease(lock.lease).about(&*self.name).connect(&lock.url);
        let locker = self.runtime.block_on(connect)?;
        self.lockers.insert(lock.url.clone(), locker.clone());
        Ok(locker)
    }
}
