//! Many locks that are held for a while: what their renewals cost.

use std::sync::Arc;
use std::time::Duration;

use tenure::{Error, Guard, Locker};
use tokio::task::JoinSet;

use super::clock;
use super::crowd::nanos;
use super::histogram::Counts;
use super::outcome::{Faults, Holds, Outcome};

/// A shorter lease would be lost on a machine that stands still for a moment.
const SHORTEST_LEASE: Duration = Duration::from_secs(3);
/// A third of it is the time between renewals: a longer one would show none.
const LONGEST_LEASE: Duration = Duration::from_secs(30);

/// What is to be held, and how.
pub(super) struct Wanted {
    pub(super) holds: usize,
    pub(super) lasts: Duration,
    /// How many tasks take the locks.
    pub(super) takers: usize,
    /// What all names begin with.
    pub(super) prefix: String,
}

/// Takes all locks, keeps them, and gives them back. A cycle is one that was taken.
///
/// # Cancel safety
/// Dropping it gives everything back in the background.
pub(super) async fn hold(locker: &Locker, wanted: &Wanted) -> tenure::Result<Outcome> {
    let leases = locker.capabilities().leases;
    let lease = wanted.lasts.clamp(SHORTEST_LEASE, LONGEST_LEASE);
    let lease = leases.fit(lease.clamp(leases.shortest, leases.longest))?;
    let (memory, cpu, since) = (clock::resident_kib(), clock::cpu(), clock::now());
    let taken = Arc::new(Counts::default());
    let (guards, tasks) = take(locker, wanted, lease, &taken).await?;
    let took = clock::now() - since;
    let grown_kib = clock::resident_kib().zip(memory).map(|(after, before)| (after - before).max(0));
    let (cpu, before) = (clock::cpu() - cpu, Used::now(locker));
    tokio::time::sleep(wanted.lasts).await;
    let Used { renewals, cpu: while_held } = Used::now(locker).since(before);
    let count = guards.len() as u64;
    let lost = give_back(guards, wanted.takers).await?;
    let held = nanos(wanted.lasts);
    Ok(Outcome {
        cycles: count,
        total: count,
        tasks,
        took,
        latency: taken.total(),
        longest: taken.longest(),
        longest_wait: taken.longest(),
        faults: Faults { lost, ..Faults::default() },
        cpu,
        holds: Some(Holds { count, lease: nanos(lease), held, renewals, cpu: while_held, grown_kib }),
        ..Outcome::default()
    })
}

/// What the locker has used so far, or since then.
struct Used {
    renewals: u64,
    cpu: u64,
}

impl Used {
    fn now(locker: &Locker) -> Self {
        Self { renewals: locker.stats().renewed, cpu: clock::cpu() }
    }

    fn since(self, before: Self) -> Self {
        Self { renewals: self.renewals - before.renewals, cpu: self.cpu - before.cpu }
    }
}

/// All guards, and how many each task has taken.
async fn take(locker: &Locker, wanted: &Wanted, lease: Duration, counts: &Arc<Counts>) -> tenure::Result<(Vec<Guard>, Vec<u64>)> {
    let mut takers = JoinSet::new();
    for taker in 0..wanted.takers.min(wanted.holds) {
        let (locker, prefix, counts) = (locker.clone(), wanted.prefix.clone(), Arc::clone(counts));
        let (holds, step) = (wanted.holds, wanted.takers);
        takers.spawn(async move {
            let mut taken = Vec::with_capacity(holds / step + 1);
            for n in (taker..holds).step_by(step) {
                let before = clock::now();
                taken.push(locker.mutex(format!("{prefix}{n}")).lease(lease).lock().await?);
                counts.add(clock::now() - before);
            }
            Ok(taken)
        });
    }
    let (mut all, mut tasks) = (Vec::with_capacity(wanted.holds), Vec::new());
    while let Some(ended) = takers.join_next().await {
        let taken: Vec<Guard> = ended.unwrap_or(Err(Error::Closed))?;
        tasks.push(taken.len() as u64);
        all.extend(taken);
    }
    Ok((all, tasks))
}

/// Returns how many had been lost.
async fn give_back(mut guards: Vec<Guard>, takers: usize) -> tenure::Result<u64> {
    let mut givers = JoinSet::new();
    let each = guards.len().div_ceil(takers.max(1)).max(1);
    while !guards.is_empty() {
        let some = guards.split_off(guards.len().saturating_sub(each));
        givers.spawn(async move {
            let mut lost = 0;
            for guard in some {
                match guard.release().await {
                    Ok(()) => {}
                    Err(Error::Lost(_)) => lost += 1,
                    Err(e) => return Err(e),
                }
            }
            Ok(lost)
        });
    }
    let mut lost = 0;
    while let Some(ended) = givers.join_next().await {
        lost += ended.unwrap_or(Err(Error::Closed))?;
    }
    Ok(lost)
}
