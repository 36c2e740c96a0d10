//! Waiting for the lock, and the line that shows it at a terminal.

use std::io::IsTerminal;
use std::time::Duration;

use tenure::Guard;
use tokio::time::Instant;

use super::lock::Lock;
use super::terminal::Terminal;
use super::told;
use crate::output;
use crate::plan::{Job, Patience};

/// Locks are mostly free: the line appears only when this one is not.
const BEFORE_FIRST_LINE: Duration = Duration::from_millis(300);
const BETWEEN_LINES: Duration = Duration::from_secs(1);

/// Waits for the lock as long as the job is (still) willing to.
///
/// # Cancel safety
/// Safe: dropping the future leaves neither a lock nor a queue position behind.
pub(super) async fn acquire(lock: &Lock, job: &Job, patience: Patience) -> tenure::Result<Option<Guard>> {
    let guard = tokio::select! {
        biased;
        guard = lock.acquire(patience) => guard?,
        never = narrate(lock, job), if patience != Patience::None => match never {},
    };
    lock.tell_number().await;
    Ok(guard)
}

/// Says who is waited for: on a terminal as a line that stays up to date, elsewhere once, if asked to.
async fn narrate(lock: &Lock, job: &Job) -> std::convert::Infallible {
    let since = Instant::now();
    tokio::time::sleep(BEFORE_FIRST_LINE).await;
    lock.tell_number().await;
    let in_sight = std::io::stderr().is_terminal() && Terminal::open().is_none_or(|terminal| terminal.is_ours());
    if in_sight {
        let _erased_at_the_end = Line;
        loop {
            // A store that does not answer is the acquisition's business.
            if let Ok(state) = lock.inspect().await {
                let waited = Duration::from_secs(since.elapsed().as_secs());
                output::draw_over(&told::waiting(&state, Some(waited), lock.position(&state)));
            }
            tokio::time::sleep(BETWEEN_LINES).await;
        }
    }
    if job.verbose
        && let Ok(state) = lock.inspect().await
    {
        output::say(&told::waiting(&state, None, lock.position(&state)));
    }
    std::future::pending().await
}

/// Why there is no lock, for a call that does not wait (any longer).
pub(super) async fn refusal(lock: &Lock, job: &Job) -> String {
    told::refusal(lock.inspect().await.ok().as_ref(), job)
}

/// Erases the line on the terminal that is drawn over and over, at the end.
struct Line;

impl Drop for Line {
    fn drop(&mut self) {
        output::erase_line();
    }
}
