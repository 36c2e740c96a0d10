//! Waiting for the lock, and the line that tells a person at a terminal what is being waited for.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use tenure::backend::State;
use tenure::{Guard, Mutex};
use tokio::time::Instant;

use super::terminal::Terminal;
use crate::output;
use crate::plan::{Job, Patience};

/// Locks are mostly free: the line appears only when this one is not.
const BEFORE_FIRST_LINE: Duration = Duration::from_millis(300);
const BETWEEN_LINES: Duration = Duration::from_secs(1);

/// Waits for the lock as long as the job is willing to.
///
/// # Cancel safety
/// Safe: dropping the future leaves neither a lock nor a place in line behind.
pub(super) async fn lock(mutex: &Mutex, job: &Job) -> tenure::Result<Option<Guard>> {
    let patience = job.patience;
    let acquire = async {
        match patience {
            Patience::None => mutex.try_lock().await,
            Patience::For(wait) => mutex.lock_within(wait).await,
            Patience::Endless => mutex.lock().await.map(Some),
        }
    };
    tokio::select! {
        biased;
        guard = acquire => guard,
        never = narrate(mutex, job), if patience != Patience::None => match never {},
    }
}

/// Says who is waited for: on a terminal as a line that stays up to date, elsewhere once, if asked to.
async fn narrate(mutex: &Mutex, job: &Job) -> std::convert::Infallible {
    let since = Instant::now();
    tokio::time::sleep(BEFORE_FIRST_LINE).await;
    let in_sight = std::io::stderr().is_terminal() && Terminal::open().is_none_or(|terminal| terminal.is_ours());
    if in_sight {
        let _erased_at_the_end = Line;
        loop {
            // A store that does not answer is the acquisition's business.
            if let Ok(state) = mutex.inspect().await {
                Line::draw(&told(&state, Some(Duration::from_secs(since.elapsed().as_secs()))));
            }
            tokio::time::sleep(BETWEEN_LINES).await;
        }
    }
    if job.verbose
        && let Ok(state) = mutex.inspect().await
    {
        output::say(&told(&state, None));
    }
    std::future::pending().await
}

/// `waiting 12s for deploy — held for 3m2s by host 4711 backup.sh (18s of lease left), 2 waiting`
fn told(state: &State, waited: Option<Duration>) -> String {
    let waited = waited.map(|d| format!(" {}", output::seconds(d))).unwrap_or_default();
    let mut text = format!("waiting{waited} for {}{}", output::printable(state.resource.as_str()), held(state));
    // One of them is ourselves.
    if let Some(waiting) = state.waiting.filter(|n| *n > 1) {
        text.push_str(&format!(", {waiting} waiting"));
    }
    text
}

/// ` — held for 3m2s by host 4711 backup.sh (18s of lease left)`, or nothing if nobody holds it any more.
fn held(state: &State) -> String {
    let Some(holder) = state.holders.first() else { return String::new() };
    let since = output::held_for(holder).map(|d| format!(" for {}", output::seconds(d))).unwrap_or_default();
    let left = holder.expires_in.map(|left| format!(" ({} of lease left)", output::seconds(left))).unwrap_or_default();
    format!(" — held{since} by {}{left}", output::who(holder))
}

/// Why there is no lock, for one who does not wait (any longer).
pub(super) async fn refusal(mutex: &Mutex, job: &Job) -> String {
    let held = mutex.inspect().await.map(|state| held(&state)).unwrap_or_default();
    format!("somebody else has {}{held}", job.name)
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

#[cfg(test)]
mod tests {
    use super::*;
    use tenure::Resource;
    use tenure::backend::Holder;

    #[test]
    fn the_line_tells_who_is_waited_for() -> tenure::Result<()> {
        let holder = Holder {
            owner: "o".to_owned(),
            token: None,
            since: std::time::SystemTime::now().checked_sub(Duration::from_secs(182)),
            expires_in: Some(Duration::from_millis(18_500)),
            note: Some("host 4711 backup.sh".to_owned()),
        };
        let mut state = State { resource: Resource::new("deploy")?, holders: vec![holder], waiting: Some(2), fence: None };
        let full = "waiting 12s for deploy — held for 3m2s by host 4711 backup.sh (18s of lease left), 2 waiting";
        assert_eq!(told(&state, Some(Duration::from_secs(12))), full);
        state.holders.clear();
        state.waiting = None;
        assert_eq!(told(&state, None), "waiting for deploy");
        Ok(())
    }
}
