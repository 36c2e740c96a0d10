//! From `ready` to the end of the input: one outcome for every `go`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tenure_bench::clock;
use tenure_bench::options::Options;
use tenure_bench::outcome::Outcome;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::Fault;
use crate::check::{Check, Rule};
use crate::crowd::{self, Client, Lock, Round};
use crate::heap;
use crate::orders::{self, Order};

/// How long waiters of a drain get to be in line before the gate opens.
const IN_LINE: Duration = Duration::from_secs(1);
/// How many tasks take the locks that are held.
const TAKERS: usize = 64;

pub(crate) struct Session<'a, C: Client> {
    runtime: &'a Runtime,
    options: &'a Options,
    client: Arc<C>,
    /// What was taken before all others.
    gate: Option<(C::Lock, <C::Lock as Lock>::Held)>,
}

impl<'a, C: Client> Session<'a, C> {
    pub(crate) fn new(runtime: &'a Runtime, options: &'a Options, client: C) -> Self {
        Self { runtime, options, client: Arc::new(client), gate: None }
    }

    pub(crate) fn run(mut self) -> Result<(), Fault> {
        self.warm_up()?;
        orders::word("ready");
        while let Some(order) = orders::next() {
            match order {
                Order::Gate(round) => {
                    let mut lock = self.client.lock(&self.name(round, 0));
                    let held = self.runtime.block_on(lock.acquire(true))?;
                    self.gate = Some((lock, held));
                    orders::word("gated");
                }
                Order::Go { round, start } => {
                    let outcome = self.round(round, start);
                    let outcome = outcome.unwrap_or_else(|e| Outcome { error: Some(e.to_string()), ..Outcome::default() });
                    orders::say(&outcome);
                }
                Order::Release => {}
            }
        }
        Ok(())
    }

    /// The same in all processes where all want one name.
    fn name(&self, round: u64, task: usize) -> String {
        let Options { contender, one_name, process, .. } = self.options;
        if *one_name { format!("bench:{contender}:{round}") } else { format!("bench:{contender}:{round}:{process}:{task}") }
    }

    fn check(&self) -> Result<Check, Fault> {
        let Options { one_name, mode, check, process, tasks, .. } = self.options;
        let rule = match &**mode {
            _ if !one_name => Rule::Apart,
            "rw" => Rule::Shared,
            "semaphore" => Rule::Permits,
            _ => Rule::One,
        };
        Ok(Check::new(rule, check.as_deref(), *process, *tasks)?)
    }

    fn warm_up(&self) -> Result<(), Fault> {
        if self.options.warmup <= 0.0 || self.options.scenario != "cycles" {
            return Ok(());
        }
        let start = clock::now();
        let check = Check::new(Rule::Apart, None, 0, self.options.tasks)?;
        let round = Arc::new(Round::new(self.options, check, start, start + nanos(self.options.warmup)));
        self.runtime.block_on(crowd::run(&*self.client, &round, |task| self.name(0, task)))?;
        Ok(())
    }

    fn round(&mut self, round: u64, start: u64) -> Result<Outcome, Fault> {
        match &*self.options.scenario {
            "drain" => self.drain(round, start),
            "hold" => self.hold(round),
            "crash" => self.next_holder(round),
            _ => self.cycles(round, start),
        }
    }

    fn cycles(&self, number: u64, start: u64) -> Result<Outcome, Fault> {
        let round = Arc::new(Round::new(self.options, self.check()?, start, start + nanos(self.options.seconds)));
        let before = Spent::now();
        let stuck = self.runtime.block_on(crowd::run(&*self.client, &round, |task| self.name(number, task)))?;
        Ok(report(&round, stuck, before))
    }

    /// Every task gets the lock once, after all of them are in line.
    fn drain(&mut self, number: u64, start: u64) -> Result<Outcome, Fault> {
        let mut round = Round::new(self.options, self.check()?, start, start + nanos(self.options.seconds));
        round.cycles = Some(1);
        let round = Arc::new(round);
        let (client, shared, names) = (Arc::clone(&self.client), Arc::clone(&round), self.names(number));
        let crowd = self.runtime.spawn(async move { crowd::run(&*client, &shared, |task| names[task].clone()).await });
        std::thread::sleep(Duration::from_nanos(start.saturating_sub(clock::now())) + IN_LINE);
        orders::word("waiting");
        while !matches!(orders::next().ok_or("the input has ended")?, Order::Release) {}
        let before = Spent::now();
        let opened = Instant::now();
        if let Some((mut lock, held)) = self.gate.take() {
            self.runtime.block_on(lock.release(held))?;
        }
        let stuck = self.runtime.block_on(crowd)??;
        let took_us = Some(opened.elapsed().as_secs_f64() * 1e6);
        Ok(Outcome { took_us, ..report(&round, stuck, before) })
    }

    fn names(&self, round: u64) -> Vec<String> {
        (0..self.options.tasks).map(|task| self.name(round, task)).collect()
    }

    /// Takes many locks, and keeps them until it is told to let go.
    fn hold(&self, number: u64) -> Result<Outcome, Fault> {
        let memory = heap::resident_kib();
        let taken = Instant::now();
        let held = self.runtime.block_on(self.take_all(number))?;
        let took_us = Some(taken.elapsed().as_secs_f64() * 1e6);
        let grown_kib = Some(heap::resident_kib() - memory);
        orders::word("waiting");
        let before = Spent::now();
        while !matches!(orders::next().ok_or("the input has ended")?, Order::Release) {}
        let Spent { cpu_us, allocations } = before.until_now();
        let total = held.len() as u64;
        drop(held);
        Ok(Outcome { total, cycles: total, took_us, grown_kib, cpu_us, allocations, ..Outcome::default() })
    }

    /// Only what is held is kept, and not the lock that it was made by: that would be memory of this driver.
    async fn take_all(&self, round: u64) -> Result<Vec<<C::Lock as Lock>::Held>, Fault> {
        let mut takers = JoinSet::new();
        for taker in 0..TAKERS {
            let (client, name, holds) = (Arc::clone(&self.client), self.name(round, 0), self.options.holds);
            takers.spawn(async move {
                let mut all = Vec::with_capacity(holds / TAKERS + 1);
                for n in (taker..holds).step_by(TAKERS) {
                    all.push(client.lock(&format!("{name}:{n}")).acquire(true).await?);
                }
                Ok::<_, Fault>(all)
            });
        }
        let mut all = Vec::with_capacity(self.options.holds);
        while let Some(taken) = takers.join_next().await {
            all.extend(taken??);
        }
        Ok(all)
    }

    /// Waits for a lock whose holder is killed meanwhile.
    fn next_holder(&self, number: u64) -> Result<Outcome, Fault> {
        let mut lock = self.client.lock(&self.name(number, 0));
        let held = self.runtime.block_on(lock.acquire(true))?;
        let granted_ns = Some(clock::now());
        self.runtime.block_on(lock.release(held))?;
        Ok(Outcome { cycles: 1, total: 1, granted_ns, ..Outcome::default() })
    }
}

/// What this process has used so far, or since then.
struct Spent {
    cpu_us: f64,
    allocations: Option<u64>,
}

impl Spent {
    fn now() -> Self {
        Self { cpu_us: clock::cpu() as f64 / 1e3, allocations: heap::allocations() }
    }

    fn until_now(self) -> Self {
        let now = Self::now();
        let allocations = now.allocations.zip(self.allocations).map(|(after, before)| after - before);
        Self { cpu_us: now.cpu_us - self.cpu_us, allocations }
    }
}

fn report(round: &Round, stuck: u64, before: Spent) -> Outcome {
    let Spent { cpu_us, allocations } = before.until_now();
    let tasks = round.in_time();
    let check = &round.check;
    let count = |of: &std::sync::atomic::AtomicU64| of.load(std::sync::atomic::Ordering::Relaxed);
    Outcome {
        cycles: tasks.iter().sum(),
        total: round.total(),
        tasks,
        waits: round.waits.total(),
        longest_wait_us: round.longest_wait() as f64 / 1e3,
        handed: check.handed.total(),
        crossed: check.crossed.total(),
        intruders: count(&check.intruders),
        stale_tokens: (count(&check.has_tokens) > 0).then(|| count(&check.stale)),
        stuck,
        cpu_us,
        allocations,
        ..Outcome::default()
    }
}

fn nanos(seconds: f64) -> u64 {
    Duration::from_secs_f64(seconds).as_nanos() as u64
}
