//! An actor as the lab sees it: a process that is told what to do, and can be killed and stopped.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::server::Server;
use super::timeline::{During, Moment, Notes, Open};
use super::upset::{Played, Upset};
use super::words::{Answer, Lock, Value, Word};
use super::{player, process};
use crate::cmd::run::{exec, own_program};

/// How long an actor may take for what does not wait for anybody.
const LIMIT: Duration = Duration::from_secs(10);

/// What all actors of a stage share.
#[derive(Debug, Clone)]
pub(crate) struct Company {
    pub(crate) notes: Notes,
    pub(crate) waits: Arc<Mutex<Waits>>,
    /// Which actor is meant by a name that a store has.
    pub(crate) known_as: Arc<Mutex<Vec<(String, String)>>>,
}

/// How long actors have waited for locks, all together.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Waits {
    pub(crate) total: Duration,
    /// How many gave up.
    pub(crate) in_vain: u64,
}

/// What an actor has said without being asked, and what it thinks by that.
#[derive(Debug, Default)]
struct Told {
    /// One for each lock that it thinks it holds; only the outermost of nested ones is drawn.
    beliefs: Mutex<Vec<Option<Open>>>,
    lost: AtomicBool,
}

impl Told {
    fn no_belief_is_left(&self, notes: &Notes, at: Instant) {
        lock(&self.beliefs).drain(..).flatten().for_each(|belief| notes.end(belief, at));
    }
}

#[derive(Debug)]
pub(crate) struct Actor {
    pub(crate) name: String,
    lane: usize,
    child: Child,
    to: ChildStdin,
    answers: Receiver<(Instant, Answer)>,
    told: Arc<Told>,
    waiting: Option<(Instant, Option<Duration>, Open)>,
    paused: Option<Open>,
    company: Company,
}

impl Actor {
    /// To be called from the main thread: the actor ends with the calling one.
    pub(crate) fn start(name: &str, dir: &Path, shop: &Path, company: Company) -> Played<Self> {
        let own = own_program()?;
        let args = [player::MARK.into(), name.into(), shop.into()];
        let mut command = exec::command(own.as_os_str(), &args)?;
        command.current_dir(dir).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Upset::new("an actor without pipes"));
        };
        let lane = company.notes.lane(name);
        let told = Arc::<Told>::default();
        let (heard, answers) = channel();
        let listener = (company.notes.clone(), Arc::clone(&told));
        std::thread::spawn(move || {
            let (notes, told) = listener;
            for line in BufReader::new(from).lines().map_while(Result::ok) {
                let at = Instant::now();
                match serde_json::from_str(&line) {
                    Ok(Answer::Lost(why)) => {
                        notes.mark(lane, at, Moment::Told, format!("told that the lock is lost: {why}"));
                        told.no_belief_is_left(&notes, at);
                        told.lost.store(true, Ordering::Release);
                    }
                    Ok(answer) => drop(heard.send((at, answer))),
                    Err(_) => return,
                }
            }
        });
        Ok(Self { name: name.to_owned(), lane, child, to, answers, told, waiting: None, paused: None, company })
    }

    /// Tells it what to do, without waiting for the answer.
    pub(crate) fn tell(&mut self, word: &Word) -> Played<()> {
        let mut line = serde_json::to_string(word).map_err(Upset::while_doing("telling an actor"))?;
        line.push('\n');
        self.to.write_all(line.as_bytes()).map_err(Upset::while_doing(&format!("telling {}", self.name)))
    }

    /// The next answer, and when it came.
    pub(crate) fn answer(&mut self, limit: Duration) -> Played<(Instant, Answer)> {
        match self.answers.recv_timeout(limit) {
            Ok((_, Answer::Failed(why))) => Err(Upset::new(format!("{}: {why}", self.name))),
            Ok(answer) => Ok(answer),
            Err(_) => Err(Upset::new(format!("{} does not answer", self.name))),
        }
    }

    fn ask(&mut self, word: &Word) -> Played<(Instant, Answer)> {
        self.tell(word)?;
        self.answer(LIMIT)
    }

    /// Sends a command to a server. What comes back is shown on the timeline.
    pub(crate) fn redis(&mut self, server: &Server, command: &[&str]) -> Played<Value> {
        let value = self.redis_quietly(server, command)?;
        self.did(&format!("{} → {value}", command.join(" ")));
        Ok(value)
    }

    /// The same without a trace on the timeline.
    pub(crate) fn redis_quietly(&mut self, server: &Server, command: &[&str]) -> Played<Value> {
        let command = command.iter().map(ToString::to_string).collect();
        match self.ask(&Word::Redis { port: server.port(), command })? {
            (_, Answer::Value(value)) => Ok(value),
            (_, other) => Err(self.confused(&other)),
        }
    }

    /// Connects, so that the story does not wait for that.
    pub(crate) fn prepare(&mut self, with: &Lock) -> Played<()> {
        match self.ask(&Word::Prepare(with.clone()))? {
            (_, Answer::Ready { known_as }) => {
                lock(&self.company.known_as).extend(known_as.map(|known_as| (known_as, self.name.clone())));
                Ok(())
            }
            (_, other) => Err(self.confused(&other)),
        }
    }

    /// Asks once for a lock.
    pub(crate) fn try_take(&mut self, wanted: &Lock) -> Played<bool> {
        let (at, answer) = self.ask(&Word::Take { lock: wanted.clone(), wait: None })?;
        self.granted_or_not(at, &answer)
    }

    /// Waits for a lock.
    pub(crate) fn take(&mut self, wanted: &Lock, wait: Duration) -> Played<bool> {
        self.begin_to_take(wanted, wait)?;
        self.taken()
    }

    /// Begins to wait for a lock. What comes of it says [`taken`](Self::taken).
    pub(crate) fn begin_to_take(&mut self, wanted: &Lock, wait: Duration) -> Played<()> {
        self.begin_to_wait(Some(wait));
        self.tell(&Word::Take { lock: wanted.clone(), wait: Some(wait) })
    }

    pub(crate) fn taken(&mut self) -> Played<bool> {
        Ok(self.taken_at()?.is_some())
    }

    /// When it was granted, if it was.
    pub(crate) fn taken_at(&mut self) -> Played<Option<Instant>> {
        let limit = self.waiting.and_then(|(_, limit, _)| limit).unwrap_or_default() + LIMIT;
        let (at, answer) = self.answer(limit)?;
        let granted = matches!(answer, Answer::Granted { .. });
        self.end_waiting(at, granted);
        Ok(self.granted_or_not(at, &answer)?.then_some(at))
    }

    /// Asks over and over, as the naive do. `ask` sends commands and says whether they were granted.
    pub(crate) fn insist(
        &mut self,
        every: Duration,
        limit: Duration,
        mut ask: impl FnMut(&mut Self) -> Played<bool>,
    ) -> Played<bool> {
        let give_up = Instant::now() + limit;
        self.begin_to_wait(Some(limit));
        let granted = loop {
            if ask(self)? {
                break true;
            }
            let left = give_up.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break false;
            }
            std::thread::sleep(every.min(left));
        };
        self.end_waiting(Instant::now(), granted);
        if granted {
            self.granted()?;
        }
        Ok(granted)
    }

    pub(crate) fn begin_to_wait(&mut self, limit: Option<Duration>) {
        let now = Instant::now();
        self.waiting = Some((now, limit, self.company.notes.begin(self.lane, now, During::Waits, "waits")));
    }

    pub(crate) fn end_waiting(&mut self, at: Instant, granted: bool) {
        let Some((since, _, span)) = self.waiting.take() else { return };
        self.company.notes.end(span, at);
        let mut waits = lock(&self.company.waits);
        waits.total += at.saturating_duration_since(since);
        waits.in_vain += u64::from(!granted);
        drop(waits);
        if !granted {
            self.did("gives up");
        }
    }

    /// Notes that commands of the story got it the lock.
    pub(crate) fn granted(&mut self) -> Played<()> {
        let (at, answer) = self.ask(&Word::Granted)?;
        self.granted_or_not(at, &answer).map(drop)
    }

    fn granted_or_not(&mut self, at: Instant, answer: &Answer) -> Played<bool> {
        match answer {
            Answer::Granted { token } => {
                let notes = &self.company.notes;
                let mut beliefs = lock(&self.told.beliefs);
                if beliefs.is_empty() {
                    let text = token.map_or_else(|| "holds".to_owned(), |token| format!("holds, token {token}"));
                    beliefs.push(Some(notes.begin(self.lane, at, During::Believes, text)));
                } else {
                    beliefs.push(None);
                    notes.mark(self.lane, at, Moment::Did, "enters again");
                }
                Ok(true)
            }
            Answer::Busy => Ok(false),
            other => Err(self.confused(other)),
        }
    }

    /// Gives back what it took last. False if that was not its own any more, and it could know.
    pub(crate) fn give_back(&mut self) -> Played<bool> {
        let (at, answer) = self.ask(&Word::GiveBack)?;
        let belief = lock(&self.told.beliefs).pop().flatten();
        if let Some(belief) = belief {
            self.company.notes.end(belief, at);
        }
        match answer {
            Answer::Is(held) => Ok(held),
            other => Err(self.confused(&other)),
        }
    }

    /// Whether it thinks that it still holds what it took last.
    pub(crate) fn is_held(&mut self) -> Played<bool> {
        match self.ask(&Word::IsHeld)? {
            (_, Answer::Is(held)) => Ok(held),
            (_, other) => Err(self.confused(&other)),
        }
    }

    /// How many wait for a lock of Tenure's, as far as the store says.
    pub(crate) fn waiters(&mut self, wanted: &Lock) -> Played<u32> {
        let Lock::Tenure(wanted) = wanted else { return Err(Upset::new("nobody can tell who waits for such a lock")) };
        match self.ask(&Word::Waiters(wanted.clone()))? {
            (_, Answer::Waiting(n)) => Ok(n),
            (_, other) => Err(self.confused(&other)),
        }
    }

    pub(crate) fn subscribe(&mut self, server: &Server, channel: &str) -> Played<()> {
        self.ask(&Word::Subscribe { port: server.port(), channel: channel.to_owned() })?;
        self.did(&format!("SUBSCRIBE {channel}"));
        Ok(())
    }

    /// Waits for a message on the channel.
    pub(crate) fn hear(&mut self, limit: Duration) -> Played<bool> {
        self.tell(&Word::Hear { limit })?;
        match self.answer(limit + LIMIT)? {
            (_, Answer::Is(heard)) => Ok(heard),
            (_, other) => Err(self.confused(&other)),
        }
    }

    /// How many units it sees in the shop.
    pub(crate) fn look(&mut self) -> Played<i64> {
        match self.ask(&Word::Look)? {
            (_, Answer::Units(units)) => Ok(units),
            (_, other) => Err(self.confused(&other)),
        }
    }

    /// Sells one of the units that it has seen, whatever has happened since. False if the shop refused.
    pub(crate) fn sell(&mut self) -> Played<bool> {
        let (at, answer) = self.ask(&Word::Sell)?;
        let (what, text) = match answer {
            Answer::Sold { stale: false } => (Moment::Sold, "sells one"),
            Answer::Sold { stale: true } => (Moment::Stale, "sells one though another was granted the lock since"),
            Answer::Refused => (Moment::Refused, "the shop refuses: its token is out of date"),
            other => return Err(self.confused(&other)),
        };
        self.company.notes.mark(self.lane, at, what, text);
        Ok(what != Moment::Refused)
    }

    /// SIGKILL.
    pub(crate) fn kill(mut self) -> Played<Instant> {
        let now = Instant::now();
        self.child.kill()?;
        self.child.wait()?;
        self.is_dead(now, "is killed");
        Ok(now)
    }

    /// Waits for its death by its own doing; `why` is for the timeline. The number of the signal that it died of.
    pub(crate) fn dies(mut self, why: impl FnOnce() -> Played<String>) -> Played<Option<i32>> {
        let give_up = Instant::now() + LIMIT;
        while Instant::now() < give_up {
            if let Some(status) = self.child.try_wait()? {
                let why = why()?;
                self.is_dead(Instant::now(), &why);
                return Ok(status.signal());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(Upset::new(format!("{} lives on", self.name)))
    }

    fn is_dead(&mut self, now: Instant, why: &str) {
        if let Some((since, _, span)) = self.waiting.take() {
            self.company.notes.end(span, now);
            let mut waits = lock(&self.company.waits);
            waits.total += now.saturating_duration_since(since);
            waits.in_vain += 1;
        }
        self.company.notes.mark(self.lane, now, Moment::Killed, why);
        self.told.no_belief_is_left(&self.company.notes, now);
    }

    /// Whether it was told that the lock is lost.
    pub(crate) fn was_told(&self) -> bool {
        self.told.lost.load(Ordering::Acquire)
    }

    /// SIGSTOP.
    pub(crate) fn stop(&mut self) -> Played<()> {
        process::stop(self.child.id())?;
        self.paused = Some(self.company.notes.begin(self.lane, Instant::now(), During::Paused, "stands still"));
        Ok(())
    }

    /// SIGCONT.
    pub(crate) fn go_on(&mut self) -> Played<()> {
        process::signal(self.child.id(), Signal::CONT)?;
        if let Some(paused) = self.paused.take() {
            self.company.notes.end(paused, Instant::now());
        }
        Ok(())
    }

    /// Notes a step on its lane.
    pub(crate) fn did(&self, what: &str) {
        self.company.notes.mark(self.lane, Instant::now(), Moment::Did, what);
    }

    fn confused(&self, answer: &Answer) -> Upset {
        Upset::new(format!("{} answers something else: {answer:?}", self.name))
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

pub(crate) fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
