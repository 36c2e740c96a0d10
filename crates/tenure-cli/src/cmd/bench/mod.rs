//! `tenure bench`: what a lock costs on the user's own store.

mod cases;
mod check;
mod clock;
mod crowd;
mod histogram;
mod holds;
mod json;
mod member;
mod outcome;
mod plot;
mod progress;
mod table;
mod team;

use std::path::PathBuf;
use std::time::Duration;

use tenure::backend::Reach;
use tenure::{ClientId, Locker};
use tokio::runtime::{Builder, Runtime};

use crate::cmd::run::Signals;
use crate::exit::{self, Failure};
use crate::output;
use crate::plan::Store;
pub(crate) use cases::GROUPS;
use cases::{CASES, Case, Kind};
use check::Check;
use crowd::Round;
pub(crate) use member::hidden_subcommand;
use outcome::{Found, Outcome, Row};
use progress::Progress;
use team::Team;

/// How long a case runs if nothing is said, and how long locks are held.
const SECONDS: Duration = Duration::from_secs(2);
const HOLD_SECONDS: Duration = Duration::from_secs(5);
/// The longest time before a round in which its tasks do the same on other names.
const WARM_UP: Duration = Duration::from_millis(200);

/// What is to be measured, and how it is shown.
pub(crate) struct Bench {
    /// Scenarios; all if there are none.
    pub(crate) only: Vec<String>,
    pub(crate) lasts: Option<Duration>,
    pub(crate) rounds: u32,
    pub(crate) holds: usize,
    pub(crate) json: bool,
    pub(crate) svg: Option<PathBuf>,
}

/// Two workers, so that what tasks share must be shared between threads.
pub(crate) fn runtime() -> Result<Runtime, Failure> {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.map_err(|e| Failure::new(exit::FAILED, format!("cannot start: {e}")))
}

pub(crate) async fn bench(store: &Store, wanted: &Bench) -> Result<u8, Failure> {
    let signals = Signals::listen_for_end();
    let mut signals = signals.map_err(|e| Failure::new(exit::FAILED, format!("cannot listen to signals: {e}")))?;
    let locker = tokio::select! {
        biased;
        signal = signals.next() => return Err(silent(exit::of_signal(signal.as_raw()))),
        locker = Locker::connect(&store.url) => locker?,
    };
    let measured = tokio::select! {
        biased;
        signal = signals.next() => Err(silent(exit::of_signal(signal.as_raw()))),
        rows = measure(store, &locker, wanted) => rows,
    };
    // Whatever happened: nothing may be left behind in the store.
    let closed = locker.close().await;
    let rows = measured?;
    closed?;
    finish(locker.capabilities().backend, wanted, &rows)
}

/// # Cancel safety
/// Dropping it ends all tasks and processes. What they hold is given back before [`Locker::close`] is done.
async fn measure(store: &Store, locker: &Locker, wanted: &Bench) -> Result<Vec<Row>, Failure> {
    let asked = |case: &&Case| wanted.only.is_empty() || wanted.only.iter().any(|id| id.eq_ignore_ascii_case(case.group()));
    let mut cases: Vec<&'static Case> = CASES.iter().filter(asked).collect();
    // Memory that other cases have given back would hide what a hold takes.
    cases.sort_by_key(|case| case.kind != Kind::Hold);
    // Nobody else has such names.
    let run = ClientId::random().map_err(|e| Failure::new(exit::FAILED, e.to_string()))?.to_string();
    let bench = Run { store, locker, wanted, prefix: format!("tenure-bench:{}:", run.get(..8).unwrap_or(&run)) };
    let mut progress = Progress::new(cases.iter().map(|case| bench.lasts(case)).sum::<Duration>() * wanted.rounds);
    let mut rows = Vec::with_capacity(cases.len());
    for case in cases {
        let found = match bench.obstacle(case) {
            Some(why) => Found::Skipped(why),
            None => Found::of(&bench.rounds(case, &mut progress).await?),
        };
        rows.push(Row { case, found });
    }
    rows.sort_by_key(|row| row.case.id);
    Ok(rows)
}

/// One run of the command.
struct Run<'a> {
    store: &'a Store,
    locker: &'a Locker,
    wanted: &'a Bench,
    /// What all names begin with.
    prefix: String,
}

impl Run<'_> {
    fn lasts(&self, case: &Case) -> Duration {
        let usual = if case.kind == Kind::Hold { HOLD_SECONDS } else { SECONDS };
        self.wanted.lasts.unwrap_or(usual)
    }

    /// Why a case cannot be measured here.
    fn obstacle(&self, case: &Case) -> Option<&'static str> {
        let alone = self.locker.capabilities().reach == Reach::Process;
        (case.kind == Kind::Processes && alone).then_some("only one process can use this store")
    }

    async fn rounds(&self, case: &Case, progress: &mut Progress) -> Result<Vec<Outcome>, Failure> {
        let lasts = self.lasts(case);
        let mut team = match case.kind {
            Kind::Processes => Some(Team::start(&self.store.url, lasts).await?),
            _ => None,
        };
        let mut rounds = Vec::new();
        for _ in 0..self.wanted.rounds {
            rounds.push(progress.during(case, lasts, self.round(case, team.as_mut())).await?);
        }
        Ok(rounds)
    }

    async fn round(&self, case: &Case, team: Option<&mut Team>) -> Result<Outcome, Failure> {
        let (Self { locker, prefix, .. }, lasts) = (self, self.lasts(case));
        let name = format!("{prefix}{}", case.id);
        let warm_up = WARM_UP.min(lasts / 4);
        match (case.kind, team) {
            (Kind::Drain, _) => Ok(crowd::drain(locker, case, name).await?),
            (Kind::Hold, _) => {
                let (holds, takers, prefix) = (self.wanted.holds, case.tasks, format!("{name}:"));
                Ok(holds::hold(locker, &holds::Wanted { holds, lasts, takers, prefix }).await?)
            }
            (_, Some(team)) => {
                let warm = team.round(&name, Some(warm_up)).await?;
                Ok(after(&warm, team.round(&name, None).await?))
            }
            (_, None) => {
                let warm = self.cycles(case, &name, warm_up).await?;
                Ok(after(&warm, self.cycles(case, &name, lasts).await?))
            }
        }
    }

    async fn cycles(&self, case: &Case, name: &str, lasts: Duration) -> Result<Outcome, Failure> {
        let check = if case.one_name { Check::within(case.tasks) } else { Check::apart() };
        let name = |task| if case.one_name { name.to_owned() } else { format!("{name}:{task}") };
        let round = Round::new(case, check, clock::now(), lasts);
        Ok(crowd::cycles(self.locker, round, name).await?)
    }
}

/// What was seen in the warm-up is not measured, but a fault there is one too.
fn after(warm_up: &Outcome, mut round: Outcome) -> Outcome {
    round.faults.add(warm_up.faults);
    round
}

/// Prints and draws what was measured, and says how it ends.
fn finish(backend: &str, wanted: &Bench, rows: &[Row]) -> Result<u8, Failure> {
    if wanted.json {
        output::print_json(&json::Report::new(backend, rows))?;
    } else {
        output::print(&table::all(backend, rows))?;
    }
    if let Some(file) = &wanted.svg {
        let written = std::fs::write(file, plot::svg(backend, rows));
        written.map_err(|e| Failure::new(exit::FAILED, format!("cannot write the histogram to {}: {e}", file.display())))?;
    }
    Ok(if rows.iter().all(Row::is_well) { 0 } else { exit::FAILED })
}

fn silent(code: u8) -> Failure {
    Failure::silent(code)
}
