//! Waiting for the lock, and the line that tells a person at a terminal what is being waited for.

use std::io::{IsTerminal, Write};
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

/// Waits for the lock as long as the job is willing to.
///
/// # Cancel safety
/// Safe: dropping the future leaves neither a lock nor a place in line behind.
pub(super) async fn acquire(lock: &Lock, job: &Job) -> tenure::Result<Option<Guard>> {
    let guard = tokio::select! {
        biased;
        guard = lock.acquire(job.patience) => guard?,
        never = narrate(lock, job), if job.patience != Patience::None => match never {},
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
                Line::draw(&told::waiting(&state, Some(waited), lock.place(&state)));
            }
            tokio::time::sleep(BETWEEN_LINES).await;
        }
    }
    if job.verbose
        && let Ok(state) = lock.inspect().await
    {
        output::say(&told::waiting(&state, None, lock.place(&state)));
    }
    std::future::pending().await
}

/// Why there is no lock, for one who does not wait (any longer).
pub(super) async fn refusal(lock: &Lock, job: &Job) -> String {
    told::refusal(lock.inspect().await.ok().as_ref(), job)
}

/// A line on the terminal that is drawn over and over, and erased at the end.
struct Line;

impl Line {
    fn draw(text: &str) {
        let mut stderr = std::io::stderr();
        // Serial lines and fresh pseudo-terminals do not know their size.
        let columns = rustix::termios::tcgetwinsize(&stderr).ok().map(|size| usize::from(size.ws_col)).filter(|n| *n > 0);
        // A line that is as wide as the terminal would break and not be drawn over.
        let text = output::cut(text, columns.unwrap_or(100).saturating_sub(1));
        drop(write!(stderr, "\r{text}\x1b[K"));
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        drop(write!(std::io::stderr(), "\r\x1b[K"));
    }
}
