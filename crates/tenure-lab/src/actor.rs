//! An actor, seen from the lab: a process that gets requests, and can be killed and stopped.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::actor_process::ACTOR_SUBCOMMAND;
use crate::error::{LabError, Result};
use crate::launcher::Launcher;
use crate::protocol::{Reply, Request};
use crate::timeline::{During, Moment, OpenSpan, Recorder};
use crate::{password, process};

/// How long an actor may take for a request that waits for no other actor.
pub(super) const LIMIT: Duration = Duration::from_secs(10);

/// What all actors of a testbed share.
#[derive(Debug, Clone)]
pub(crate) struct ActorContext {
    pub(crate) recorder: Recorder,
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
    pub(super) beliefs: Mutex<Vec<Option<OpenSpan>>>,
    lost: AtomicBool,
}

impl Told {
    fn no_belief_is_left(&self, recorder: &Recorder, at: Instant) {
        lock(&self.beliefs).drain(..).flatten().for_each(|belief| recorder.end(belief, at));
    }
}

#[derive(Debug)]
pub(crate) struct Actor {
    pub(crate) name: String,
    pub(super) lane: usize,
    child: Child,
    to: ChildStdin,
    answers: Receiver<(Instant, Reply)>,
    pub(super) told: Arc<Told>,
    pub(super) waiting: Option<(Instant, Option<Duration>, OpenSpan)>,
    paused: Option<OpenSpan>,
    pub(super) token: Option<u64>,
    pub(super) context: ActorContext,
}

impl Actor {
    /// To be called from the main thread: the actor ends with the calling one.
    pub(crate) fn start(launcher: &Launcher, name: &str, dir: &Path, shop: &Path, context: ActorContext) -> Result<Self> {
        let args = [ACTOR_SUBCOMMAND.into(), name.into(), shop.into()];
        let mut command = launcher.command(launcher.own_program.as_os_str(), &args)?;
        command.current_dir(dir).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let (Some(mut to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(LabError::new("an actor without pipes"));
        };
        to.write_all(format!("{}\n", password::made_up()?).as_bytes())?;
        let lane = context.recorder.lane(name);
        let told = Arc::<Told>::default();
        let (heard, answers) = channel();
        let listener = (context.recorder.clone(), Arc::clone(&told));
        std::thread::spawn(move || {
            let (recorder, told) = listener;
            for line in BufReader::new(from).lines().map_while(Result::ok) {
                let at = Instant::now();
                match serde_json::from_str(&line) {
                    Ok(Reply::Lost(why)) => {
                        recorder.mark(lane, at, Moment::Told, format!("told that the lock is lost: {why}"));
                        told.no_belief_is_left(&recorder, at);
                        told.lost.store(true, Ordering::Release);
                    }
                    Ok(reply) => drop(heard.send((at, reply))),
                    Err(_) => return,
                }
            }
        });
        Ok(Self { name: name.to_owned(), lane, child, to, answers, told, waiting: None, paused: None, token: None, context })
    }

    /// Tells it what to do, without waiting for the reply.
    pub(crate) fn tell(&mut self, request: &Request) -> Result<()> {
        let mut line = serde_json::to_string(request).map_err(LabError::while_doing("telling an actor"))?;
        line.push('\n');
        self.to.write_all(line.as_bytes()).map_err(LabError::while_doing(&format!("telling {}", self.name)))
    }

    /// The next reply, and when it came.
    pub(crate) fn reply(&mut self, limit: Duration) -> Result<(Instant, Reply)> {
        match self.any_reply(limit)? {
            (_, Reply::Failed(why)) => Err(LabError::new(format!("{}: {why}", self.name))),
            reply => Ok(reply),
        }
    }

    /// The next reply, also that something could not be done.
    pub(super) fn any_reply(&mut self, limit: Duration) -> Result<(Instant, Reply)> {
        self.answers.recv_timeout(limit).map_err(|_| LabError::new(format!("{} does not answer", self.name)))
    }

    pub(super) fn ask(&mut self, request: &Request) -> Result<(Instant, Reply)> {
        self.tell(request)?;
        self.reply(LIMIT)
    }

    /// SIGKILL.
    pub(crate) fn kill(mut self) -> Result<Instant> {
        let now = Instant::now();
        self.child.kill()?;
        self.child.wait()?;
        self.is_dead(now, "is killed");
        Ok(now)
    }

    /// Waits for its death by its own doing; `why` is for the timeline. The number of the signal that it died of.
    pub(crate) fn dies(mut self, why: impl FnOnce() -> Result<String>) -> Result<Option<i32>> {
        let give_up = Instant::now() + LIMIT;
        while Instant::now() < give_up {
            if let Some(status) = self.child.try_wait()? {
                let why = why()?;
                self.is_dead(Instant::now(), &why);
                return Ok(status.signal());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(LabError::new(format!("{} lives on", self.name)))
    }

    fn is_dead(&mut self, now: Instant, why: &str) {
        if let Some((since, _, span)) = self.waiting.take() {
            self.context.recorder.end(span, now);
            let mut waits = lock(&self.context.waits);
            waits.total += now.saturating_duration_since(since);
            waits.in_vain += 1;
        }
        self.context.recorder.mark(self.lane, now, Moment::Killed, why);
        self.told.no_belief_is_left(&self.context.recorder, now);
    }

    /// Whether it was told that the lock is lost.
    pub(crate) fn was_told(&self) -> bool {
        self.told.lost.load(Ordering::Acquire)
    }

    /// SIGSTOP.
    pub(crate) fn stop(&mut self) -> Result<()> {
        process::stop(self.child.id())?;
        self.paused = Some(self.context.recorder.begin(self.lane, Instant::now(), During::Paused, "stands still"));
        Ok(())
    }

    /// SIGCONT.
    pub(crate) fn go_on(&mut self) -> Result<()> {
        process::signal(self.child.id(), Signal::CONT)?;
        if let Some(paused) = self.paused.take() {
            self.context.recorder.end(paused, Instant::now());
        }
        Ok(())
    }

    /// Marks a step on its lane.
    pub(crate) fn did(&self, what: &str) {
        self.context.recorder.mark(self.lane, Instant::now(), Moment::Did, what);
    }

    pub(super) fn confused(&self, reply: &Reply) -> LabError {
        LabError::new(format!("{} answers something else: {reply:?}", self.name))
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
