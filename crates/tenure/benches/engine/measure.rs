//! Contenders, rounds and verdicts.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

const ROUNDS: usize = 11;
const ROUND: Duration = Duration::from_millis(300);

/// The cycles of one task.
pub(crate) struct Laps {
    end: Instant,
    every: u64,
    done: u64,
}

impl Laps {
    /// Whether there is time for another one.
    pub(crate) fn go_on(&mut self) -> bool {
        let on = !self.done.is_multiple_of(self.every) || Instant::now() < self.end;
        self.done += u64::from(on);
        on
    }

    pub(crate) fn done(&self) -> u64 {
        self.done
    }
}

/// Runs tasks for the time of a round, and returns how many cycles they made.
pub(crate) fn crowd<F>(runtime: &Runtime, tasks: usize, task: impl Fn(usize, Laps) -> F) -> u64
where
    F: Future<Output = u64> + Send + 'static,
{
    // The shortest cycles take little longer than a look at the clock. In a crowd all must end at the same time.
    let every = if tasks > 2 { 1 } else { 16 };
    runtime.block_on(async {
        let end = Instant::now() + ROUND;
        let all: JoinSet<u64> = (0..tasks).map(|n| task(n, Laps { end, every, done: 0 })).collect();
        all.join_all().await.iter().sum()
    })
}

/// One way to do the same.
pub(crate) struct Contender<'a> {
    name: &'static str,
    run: Box<dyn FnMut() -> u64 + 'a>,
    count: Box<dyn Fn() -> [f64; 2] + 'a>,
}

impl<'a> Contender<'a> {
    pub(crate) fn new(name: &'static str, run: impl FnMut() -> u64 + 'a) -> Self {
        Self { name, run: Box::new(run), count: Box::new(|| [0.0; 2]) }
    }

    /// What else is counted while it runs.
    pub(crate) fn count(mut self, count: impl Fn() -> [f64; 2] + 'a) -> Self {
        self.count = Box::new(count);
        self
    }

    /// One round, for a program that measures by itself.
    #[allow(dead_code, reason = "not every program has others that run for it")]
    pub(crate) fn run(&mut self) -> u64 {
        (self.run)()
    }

    fn measure(&mut self) -> Sample {
        let before = (self.count)();
        let (allocations, cpu, start) = (allocations(), cpu(), Instant::now());
        let cycles = as_float((self.run)());
        let (micros, cpu) = (start.elapsed().as_secs_f64() * 1e6 / cycles, (self::cpu() - cpu) / cycles);
        let allocations = (self::allocations() - allocations) / cycles;
        let after = (self.count)();
        Sample { micros, cpu, allocations, counted: std::array::from_fn(|i| (after[i] - before[i]) / cycles) }
    }
}

/// A round of one contender, per cycle.
struct Sample {
    micros: f64,
    cpu: f64,
    allocations: f64,
    counted: [f64; 2],
}

/// All rounds of one contender.
#[derive(Default)]
pub(crate) struct Samples(Vec<Sample>);

impl Samples {
    /// How many times the time of another one it takes.
    pub(crate) fn times(&self, other: &Self) -> Found {
        let (ours, theirs) = (self.each(|sample| sample.micros), other.each(|sample| sample.micros));
        let best = Some(least(&ours) / least(&theirs));
        Found { rounds: ours.iter().zip(&theirs).map(|(ours, theirs)| ours / theirs).collect(), best }
    }

    pub(crate) fn allocations(&self) -> Found {
        Found { rounds: self.each(|sample| sample.allocations), best: None }
    }

    pub(crate) fn counted(&self, which: usize) -> Found {
        Found { rounds: self.each(|sample| sample.counted[which]), best: None }
    }

    fn each(&self, of: impl Fn(&Sample) -> f64) -> Vec<f64> {
        self.0.iter().map(of).collect()
    }
}

/// What is judged: by round, and between the best rounds if it is a ratio.
pub(crate) struct Found {
    rounds: Vec<f64>,
    best: Option<f64>,
}

#[derive(Clone, Copy)]
pub(crate) enum Bar {
    AtMost(f64),
    AtLeast(f64),
}

/// Prints what was measured, and remembers what was missed.
#[derive(Default)]
pub(crate) struct Report {
    missed: usize,
}

impl Report {
    /// Lets all run in turns, each round in the other order than the one before. The first round only warms them up.
    pub(crate) fn rounds<const N: usize>(
        &self,
        title: &str,
        counted: [&str; 2],
        mut contenders: [Contender<'_>; N],
    ) -> [Samples; N] {
        let mut samples: [Samples; N] = std::array::from_fn(|_| Samples::default());
        for round in 0..=ROUNDS {
            for turn in 0..N {
                let at = if round % 2 == 0 { turn } else { N - 1 - turn };
                let sample = contenders[at].measure();
                if round > 0 {
                    samples[at].0.push(sample);
                }
            }
        }
        let [one, other] = counted;
        println!("\n{title}, per cycle\n{:<20} {:>26} {:>9} {:>12} {one:>12} {other:>12}", "", "µs", "CPU µs", "allocations");
        for (Contender { name, .. }, samples) in contenders.iter().zip(&samples) {
            let middle = |of: fn(&Sample) -> f64| median(&samples.each(of));
            let [one, other] = [0, 1].map(|i| {
                if counted[i].is_empty() {
                    String::new()
                } else {
                    format!("{:.2}", median(&samples.each(|sample| sample.counted[i])))
                }
            });
            println!(
                "{name:<20} {:>26} {:>9.2} {:>12.2} {one:>12} {other:>12}",
                spread(&samples.each(|sample| sample.micros)),
                middle(|sample| sample.cpu),
                middle(|sample| sample.allocations),
            );
        }
        samples
    }

    pub(crate) fn judge(&mut self, what: &str, Found { rounds, best }: &Found, bar: Bar) {
        // As it is printed: a round also pays for starting its tasks.
        let found = (median(rounds) * 100.0).round() / 100.0;
        let best = best.map(|best| format!(", best rounds {best:.2}")).unwrap_or_default();
        let (met, bar) = match bar {
            Bar::AtMost(most) => (found <= most, format!("at most {most}")),
            Bar::AtLeast(least) => (found >= least, format!("at least {least}")),
        };
        self.verdict(&format!("{what}: {}{best}; {bar}", spread(rounds)), met);
    }

    /// Whether something is as it should be.
    pub(crate) fn verdict(&mut self, what: &str, met: bool) {
        println!("  {} {what}", if met { "met   " } else { "MISSED" });
        if !met {
            self.missed += 1;
        }
    }

    /// Whether a bar was missed.
    pub(crate) fn end(self) -> bool {
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        println!("\n{} missed; load average {}", self.missed, load.split(' ').next().unwrap_or_default());
        self.missed > 0
    }
}

fn median(of: &[f64]) -> f64 {
    let mut sorted = of.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

fn spread(of: &[f64]) -> String {
    format!("{:.2} ({:.2}–{:.2})", median(of), least(of), of.iter().copied().fold(0.0, f64::max))
}

fn least(of: &[f64]) -> f64 {
    of.iter().copied().fold(f64::INFINITY, f64::min)
}

/// Of all threads. A block that grows may be another one.
fn allocations() -> f64 {
    as_float(super::heap::allocations())
}

/// The processor time of this process in microseconds: not the server's.
fn cpu() -> f64 {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(spent.tv_sec.unsigned_abs(), u32::try_from(spent.tv_nsec).expect("below a second")).as_secs_f64() * 1e6
}

#[expect(clippy::cast_precision_loss)]
pub(crate) fn as_float(n: u64) -> f64 {
    n as f64
}

/// A part of a bench, and the name by which it is asked for.
pub(crate) type Section = (&'static str, fn(&mut Report));

/// Runs the sections that the arguments choose. With `--check`, a missed bar is a failure.
pub(crate) fn run(sections: &[Section]) -> ExitCode {
    let (mut check, mut chosen) = (false, sections.to_vec());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match &*argument {
            "--check" => check = true,
            "--only" => {
                let only = arguments.next();
                chosen.retain(|(name, _)| only.as_deref() == Some(name));
            }
            // Cargo's own.
            "--bench" => {}
            _ => chosen.clear(),
        }
    }
    if chosen.is_empty() {
        let names: Vec<_> = sections.iter().map(|(name, _)| *name).collect();
        eprintln!("unknown arguments; allowed are --check and --only {}", names.join("|"));
        return ExitCode::from(2);
    }
    if let Some(done) = crate::heap::run_counted() {
        return done;
    }
    let mut report = Report::default();
    for (_, section) in chosen {
        section(&mut report);
    }
    let missed = report.end();
    if check && missed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

pub(crate) fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

pub(crate) fn threads(count: usize) -> Runtime {
    Builder::new_multi_thread().worker_threads(count).enable_all().build().expect("a runtime")
}
