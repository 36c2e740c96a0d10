//! The way to the store. A call that waits for a lock also waits for its store.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::Path;
use std::time::Duration;

use tenure::{Locker, RetryPolicy};
use tokio::time::Instant;

use crate::output;
use crate::plan::{Job, Patience, Store};

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Connects, and says how long the lock is to be waited for then.
///
/// # Cancel safety
/// Safe: nothing is locked yet.
pub(super) async fn reach(store: &Store, job: &Job) -> tenure::Result<(Locker, Patience)> {
    let since = Instant::now();
    let mut builder = Locker::builder().about(about(job));
    if job.campaigns || !job.reach_within.is_zero() {
        // Also later: the wait decides, not the number of attempts. A campaign outlasts a store that goes away.
        builder = builder.retry(RetryPolicy::for_ever());
    }
    let mut pause = FIRST_PAUSE;
    loop {
        let error = match builder.clone().connect(&store.url).await {
            Ok(locker) => return Ok((locker, left(job.patience, since.elapsed()))),
            Err(error) => error,
        };
        // Who has not said how long to try may have mistyped the store's name, and is told at once.
        let time = job.reach_within.saturating_sub(since.elapsed());
        if !error.is_transient() || time.is_zero() {
            return Err(error);
        }
        if job.verbose && pause == FIRST_PAUSE {
            output::say(&format!("{error}; trying again"));
        }
        tokio::time::sleep((pause / 2 + pause.mul_f64(random_half())).min(time)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

fn left(patience: Patience, waited: Duration) -> Patience {
    match patience {
        Patience::For(wait) => Patience::For(wait.saturating_sub(waited)),
        other => other,
    }
}

/// From 0 to 0.5, so that many clients that wait for one store do not come back at the same moment.
fn random_half() -> f64 {
    let [byte, ..] = RandomState::new().build_hasher().finish().to_ne_bytes();
    f64::from(byte) / 510.0
}

/// Host, process id and program: what others are told of the holder.
fn about(job: &Job) -> String {
    let uname = rustix::system::uname();
    let program = Path::new(&job.program).file_name().unwrap_or(&job.program);
    // A name has at most 255 bytes, but this is what was typed.
    let program: String = program.to_string_lossy().chars().take(255).collect();
    format!("{} {} {program}", uname.nodename().to_string_lossy(), std::process::id())
}
