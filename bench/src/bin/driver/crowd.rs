//! Tasks that lock and release until the time is over.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure_bench::clock;
use tenure_bench::histogram::Counts;
use tenure_bench::options::Options;
use tokio::sync::mpsc;

use crate::Fault;
use crate::check::Check;

/// A lock of one name, as one task has it.
pub(crate) trait Lock: Clone + Send + 'static {
    type Held: Send + 'static;

    /// Waits for it. Only a read-write lock asks whether it is to write.
    fn acquire(&mut self, write: bool) -> impl Future<Output = Result<Self::Held, Fault>> + Send;

    fn token(_held: &Self::Held) -> Option<u64> {
        None
    }

    fn release(&mut self, held: Self::Held) -> impl Future<Output = Result<(), Fault>> + Send;
}

/// One client of a library, in one process.
pub(crate) trait Client: Send + Sync + 'static {
    type Lock: Lock;

    fn lock(&self, name: &str) -> Self::Lock;

    /// Whether a call keeps its thread: then each task has one of its own.
    fn blocks(&self) -> bool {
        false
    }
}

/// How long a task may wait after the end before it counts as stuck.
const PATIENCE: Duration = Duration::from_secs(12);
/// Of so many cycles of a read-write lock one writes.
const WRITES: u64 = 16;

/// One round, as all tasks see it.
pub(crate) struct Round {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// If it is not the time that ends it.
    pub(crate) cycles: Option<u64>,
    pub(crate) section: u64,
    pub(crate) check: Check,
    pub(crate) waits: Counts,
    pub(crate) tasks: Vec<Progress>,
}

/// What one task has done, also if it never ends.
#[derive(Default)]
pub(crate) struct Progress {
    in_time: AtomicU64,
    total: AtomicU64,
    longest: AtomicU64,
    /// Zero if it does not wait.
    waits_since: AtomicU64,
}

impl Round {
    pub(crate) fn new(options: &Options, check: Check, start: u64, end: u64) -> Self {
        let tasks = (0..options.tasks).map(|_| Progress::default()).collect();
        let section = options.section_us * 1000;
        Self { start, end, cycles: None, section, check, waits: Counts::default(), tasks }
    }

    pub(crate) fn in_time(&self) -> Vec<u64> {
        self.tasks.iter().map(|task| task.in_time.load(Ordering::Relaxed)).collect()
    }

    pub(crate) fn total(&self) -> u64 {
        self.tasks.iter().map(|task| task.total.load(Ordering::Relaxed)).sum()
    }

    /// In nanoseconds; one who still waits has waited until now.
    pub(crate) fn longest_wait(&self) -> u64 {
        let now = clock::now();
        let longest = |task: &Progress| {
            let since = task.waits_since.load(Ordering::Relaxed);
            let still = if since == 0 { 0 } else { now.saturating_sub(since) };
            task.longest.load(Ordering::Relaxed).max(still)
        };
        self.tasks.iter().map(longest).max().unwrap_or(0)
    }

    async fn task<L: Lock>(&self, me: usize, mut lock: L) -> Result<(), Fault> {
        let progress = &self.tasks[me];
        let me = me as u64;
        let (mut last_token, mut done) = (0, 0);
        let mut before = clock::now();
        while before < self.end && self.cycles.is_none_or(|cycles| done < cycles) {
            progress.waits_since.store(before, Ordering::Relaxed);
            // Each task writes at another time.
            let write = (done + me).is_multiple_of(WRITES);
            let held = lock.acquire(write).await?;
            let granted = clock::now();
            progress.waits_since.store(0, Ordering::Relaxed);
            self.waits.add(granted - before);
            if granted - before > progress.longest.load(Ordering::Relaxed) {
                progress.longest.store(granted - before, Ordering::Relaxed);
            }
            let token = L::token(&held);
            self.check.enter(me, write, token, last_token, granted);
            last_token = token.unwrap_or(0);
            if self.section > 0 {
                compute(granted + self.section);
            }
            self.check.leave(me, token);
            lock.release(held).await?;
            before = clock::now();
            done += 1;
            progress.total.store(done, Ordering::Relaxed);
            if before <= self.end {
                progress.in_time.store(done, Ordering::Relaxed);
            }
        }
        Ok(())
    }
}

/// Sleeping would measure timers.
fn compute(until: u64) {
    while clock::now() < until {
        std::hint::spin_loop();
    }
}

/// Runs a round to its end. Returns how many tasks are stuck.
pub(crate) async fn run<C: Client>(client: &C, round: &Arc<Round>, name: impl Fn(usize) -> String) -> Result<u64, Fault> {
    let (done, mut ended) = mpsc::unbounded_channel();
    for me in 0..round.tasks.len() {
        let (lock, round, done) = (client.lock(&name(me)), Arc::clone(round), done.clone());
        let task = async move {
            tokio::time::sleep(Duration::from_nanos(round.start.saturating_sub(clock::now()))).await;
            let result = round.task(me, lock).await;
            // A round that has given up does not listen.
            let _ended = done.send(result);
        };
        if client.blocks() {
            let runtime = tokio::runtime::Handle::current();
            std::thread::spawn(move || runtime.block_on(task));
        } else {
            tokio::spawn(task);
        }
    }
    drop(done);
    let left = Duration::from_nanos(round.end.saturating_sub(clock::now()));
    let limit = tokio::time::Instant::now() + left + PATIENCE;
    for missing in (1..=round.tasks.len() as u64).rev() {
        match tokio::time::timeout_at(limit, ended.recv()).await {
            Ok(Some(result)) => result?,
            Ok(None) => return Err("a task ended in a panic".into()),
            Err(_) => return Ok(missing),
        }
    }
    Ok(0)
}
