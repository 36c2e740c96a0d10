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

use super::timeline::{During, Moment, Notes, Open};
use super::upset::{Played, Upset};
use super::words::{Answer, Word};
use super::{password, player, process};
use crate::cmd::run::own_program;

/// How long an actor may take for what does not wait for anybody.
pub(super) const LIMIT: Duration = Duration::from_secs(10);

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
pub(super) struct Told {
    /// One for each lock that it thinks it holds; only the outermost of nested ones is drawn.
    pub(super) beliefs: Mutex<Vec<Option<Open>>>,
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
    pub(super) lane: usize,
    child: Child,
    to: ChildStdin,
    answers: Receiver<(Instant, Answer)>,
    pub(super) told: Arc<Told>,
    pub(super) waiting: Option<(Instant, Option<Duration>, Open)>,
    paused: Option<Open>,
    pub(super) token: Option<u64>,
    pub(super) company: Company,
}

impl Actor {
    /// To be called from the main thread: the actor ends with the calling one.
    pub(crate) fn start(name: &str, dir: &Path, shop: &Path, company: Company) -> Played<Self> {
        let own = own_program()?;
        let args = [player::MARK.into(), name.into(), shop.into()];
        let mut command = process::tied(own.as_os_str(), &args)?;
        command.current_dir(dir).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let (Some(mut to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Upset::new("an actor without pipes"));
        };
        to.write_all(format!("{}\n", password::made_up()?).as_bytes())?;
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
        Ok(Self { name: name.to_owned(), lane, child, to, answers, told, waiting: None, paused: None, token: None, company })
    }

    /// Tells it what to do, without waiting for the answer.
    pub(crate) fn tell(&mut self, word: &Word) -> Played<()> {
        let mut line = serde_json::to_string(word).map_err(Upset::while_doing("telling an actor"))?;
        line.push('\n');
        self.to.write_all(line.as_bytes()).map_err(Upset::while_doing(&format!("telling {}", self.name)))
    }

    /// The next answer, and when it came.
    pub(crate) fn answer(&mut self, limit: Duration) -> Played<(Instant, Answer)> {
        match self.any_answer(limit)? {
            (_, Answer::Failed(why)) => Err(Upset::new(format!("{}: {why}", self.name))),
            answer => Ok(answer),
        }
    }

    /// The next answer, also that something could not be done.
    pub(super) fn any_answer(&mut self, limit: Duration) -> Played<(Instant, Answer)> {
        self.answers.recv_timeout(limit).map_err(|_| Upset::new(format!("{} does not answer", self.name)))
    }

    pub(super) fn ask(&mut self, word: &Word) -> Played<(Instant, Answer)> {
        self.tell(word)?;
        self.answer(LIMIT)
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

    pub(super) fn confused(&self, answer: &Answer) -> Upset {
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
