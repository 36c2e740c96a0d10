//! A bar on the terminal of stderr while the cases run; elsewhere nothing.

use std::io::IsTerminal;
use std::pin::pin;
use std::time::{Duration, Instant};

use super::cases::Case;
use crate::output;

const BETWEEN_LINES: Duration = Duration::from_millis(200);
const WIDTH: usize = 24;

pub(super) struct Progress {
    draws: bool,
    whole: Duration,
    done: Duration,
}

impl Progress {
    /// `whole` is how long all cases will about take.
    pub(super) fn new(whole: Duration) -> Self {
        Self { draws: std::io::stderr().is_terminal(), whole, done: Duration::ZERO }
    }

    /// Does a part of the work that will about take so long.
    pub(super) async fn during<T>(&mut self, case: &Case, about: Duration, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        let since = Instant::now();
        let mut tick = tokio::time::interval(BETWEEN_LINES);
        let result = loop {
            tokio::select! {
                biased;
                result = &mut work => break result,
                _ = tick.tick(), if self.draws => output::draw_over(&self.line(case, since.elapsed().min(about))),
            }
        };
        self.done += about;
        result
    }

    fn line(&self, case: &Case, more: Duration) -> String {
        let share = ((self.done + more).as_secs_f64() / self.whole.as_secs_f64().max(1e-9)).min(1.0);
        format!("{} {:3.0} %  {}: {}", bar(share), share * 100.0, case.id, case.title)
    }
}

fn bar(share: f64) -> String {
    let full = (0..WIDTH).filter(|step| (*step as f64 + 0.5) / WIDTH as f64 <= share).count();
    format!("[{}{}]", "#".repeat(full), ".".repeat(WIDTH - full))
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.draws {
            output::erase_line();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_filled_from_nothing_to_all() {
        assert_eq!(bar(0.0), format!("[{}]", ".".repeat(WIDTH)));
        assert_eq!(bar(1.0), format!("[{}]", "#".repeat(WIDTH)));
        assert_eq!(bar(0.5).matches('#').count(), WIDTH / 2);
    }
}
