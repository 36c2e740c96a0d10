//! Tasks that lock and release: until the time is over, or once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure::{Error, Locker, Mutex};
use tokio::task::JoinSet;

use super::cases::Case;
use super::check::Check;
use super::clock;
use super::histogram::Counts;
use super::outcome::{Faults, Outcome};

/// How long a task may wait after the end before it counts as stuck.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long the waiters of a drain get to be in line.
const IN_LINE: Duration = Duration::from_secs(10);

/// One round, as all tasks see it. Times are on the clock that all processes share.
pub(super) struct Round {
    start: u64,
    end: u64,
    /// Whether each task locks only once.
    once: bool,
    /// Before this, no wait counts.
    opened: AtomicU64,
    section: u64,
    check: Check,
    latency: Counts,
    waits: Counts,
    lost: AtomicU64,
    tasks: Vec<Progress>,
}

#[derive(Default)]
struct Progress {
    in_time: AtomicU64,
    total: AtomicU64,
}

impl Round {
    pub(super) fn new(case: &Case, check: Check, start: u64, lasts: Duration) -> Self {
        Self {
            start,
            end: start.saturating_add(nanos(lasts)),
            once: false,
            opened: AtomicU64::new(0),
            section: nanos(case.section),
            check,
            latency: Counts::default(),
            waits: Counts::default(),
            lost: AtomicU64::new(0),
            tasks: (0..case.tasks).map(|_| Progress::default()).collect(),
        }
    }

    async fn task(&self, me: usize, mutex: Mutex) -> tenure::Result<()> {
        tokio::time::sleep(Duration::from_nanos(self.start.saturating_sub(clock::now()))).await;
        let mut last_token = 0;
        let mut before = clock::now();
        while before < self.end {
            let guard = mutex.lock().await?;
            let granted = clock::now();
            let token = guard.token().get();
            self.check.enter(me, token, last_token, granted);
            last_token = token;
            if self.section > 0 {
                compute(granted + self.section);
            }
            self.check.leave(me, token);
            match guard.release().await {
                Ok(()) => {}
                Err(Error::Lost(_)) => drop(self.lost.fetch_add(1, Ordering::Relaxed)),
                Err(e) => return Err(e),
            }
            let after = clock::now();
            self.note(me, before, granted, after);
            before = after;
            if self.once {
                break;
            }
        }
        Ok(())
    }

    fn note(&self, me: usize, before: u64, granted: u64, after: u64) {
        let since = before.max(self.opened.load(Ordering::Relaxed));
        self.waits.add(granted.saturating_sub(since));
        self.latency.add(after.saturating_sub(since));
        let task = &self.tasks[me];
        task.total.fetch_add(1, Ordering::Relaxed);
        if after <= self.end {
            task.in_time.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn outcome(&self, took: u64, stuck: u64, cpu: u64) -> Outcome {
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        let tasks: Vec<u64> = self.tasks.iter().map(|task| count(&task.in_time)).collect();
        let faults = Faults {
            intruders: count(&self.check.intruders),
            stale_tokens: count(&self.check.stale),
            lost: count(&self.lost),
            stuck,
        };
        Outcome {
            cycles: tasks.iter().sum(),
            total: self.tasks.iter().map(|task| count(&task.total)).sum(),
            tasks,
            took,
            latency: self.latency.total(),
            longest: self.latency.longest(),
            longest_wait: self.waits.longest(),
            handed: self.check.handed.total(),
            crossed: self.check.crossed.total(),
            faults,
            cpu,
            holds: None,
        }
    }
}

/// Sleeping would measure timers.
fn compute(until: u64) {
    while clock::now() < until {
        std::hint::spin_loop();
    }
}

/// Locks and releases until the time is over. Who waits at the end is still served.
///
/// # Cancel safety
/// Dropping it ends all tasks; what they hold is given back in the background.
pub(super) async fn cycles(locker: &Locker, round: Round, name: impl Fn(usize) -> String) -> tenure::Result<Outcome> {
    let round = Arc::new(round);
    let tasks = start(locker, &round, name);
    tokio::time::sleep(Duration::from_nanos(round.start.saturating_sub(clock::now()))).await;
    let cpu = clock::cpu();
    let left = Duration::from_nanos(round.end.saturating_sub(clock::now()));
    let stuck = end(tasks, left + PATIENCE).await?;
    Ok(round.outcome(round.end - round.start, stuck, clock::cpu() - cpu))
}

/// Every task gets the lock once, after all of them are in line. Counted from there.
///
/// # Cancel safety
/// As [`cycles`].
pub(super) async fn drain(locker: &Locker, case: &Case, name: String) -> tenure::Result<Outcome> {
    let mut round = Round::new(case, Check::within(case.tasks), clock::now(), Duration::MAX);
    round.once = true;
    let round = Arc::new(round);
    let gate = locker.mutex(&name).lock().await?;
    let tasks = start(locker, &round, |_| name.clone());
    let limit = tokio::time::Instant::now() + IN_LINE;
    while locker.stats().waiting < case.tasks as u64 && tokio::time::Instant::now() < limit {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (opened, cpu) = (clock::now(), clock::cpu());
    round.opened.store(opened, Ordering::Relaxed);
    gate.release().await?;
    let stuck = end(tasks, PATIENCE).await?;
    Ok(round.outcome(clock::now() - opened, stuck, clock::cpu() - cpu))
}

fn start(locker: &Locker, round: &Arc<Round>, name: impl Fn(usize) -> String) -> JoinSet<tenure::Result<()>> {
    let mut tasks = JoinSet::new();
    for me in 0..round.tasks.len() {
        let (round, mutex) = (Arc::clone(round), locker.mutex(name(me)));
        tasks.spawn(async move { round.task(me, mutex).await });
    }
    tasks
}

/// Waits for all tasks. Returns how many are stuck, after which they are gone too.
async fn end(mut tasks: JoinSet<tenure::Result<()>>, limit: Duration) -> tenure::Result<u64> {
    let limit = tokio::time::Instant::now() + limit;
    loop {
        match tokio::time::timeout_at(limit, tasks.join_next()).await {
            Ok(None) => return Ok(0),
            Ok(Some(ended)) => ended.unwrap_or(Err(Error::Closed))?,
            Err(_) => {
                let stuck = tasks.len() as u64;
                tasks.shutdown().await;
                return Ok(stuck);
            }
        }
    }
}

pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
