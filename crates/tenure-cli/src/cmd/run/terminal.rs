//! The controlling terminal, which the program must own to read from it and to be interrupted from it.

use std::fs::{File, OpenOptions};
use std::io::IsTerminal;

use nix::sys::signal::{SigSet, SigmaskHow, Signal as NixSignal, raise};
use rustix::process::{Pid, Signal, getpid};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

use super::child::{Child, own_group};

/// The terminal that tenure was started from.
pub(super) struct Terminal {
    tty: File,
    ours: Pid,
    /// The process group that it was given to.
    given: Option<Pid>,
}

/// What to do about a program that stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OnStop {
    /// It wants the terminal and can have it.
    Give,
    /// It was suspended by the user: so are we.
    StopToo,
    /// An operator stopped it, who will know how to go on.
    Nothing,
}

impl Terminal {
    /// `None` without a controlling terminal, as under cron, or without a group that could have it.
    pub(super) fn open() -> Option<Self> {
        let tty = OpenOptions::new().read(true).write(true).open("/dev/tty").ok()?;
        Some(Self { tty, ours: own_group()?, given: None })
    }

    /// Whether our group is the one in the foreground.
    pub(super) fn is_ours(&self) -> bool {
        tcgetpgrp(&self.tty).is_ok_and(|group| group == self.ours)
    }

    /// Gives the terminal away from the start where no other process can want it: in a job of our own, not in a pipeline or
    /// a script. Elsewhere the program gets it when it first asks, see [`on_stop`](Self::on_stop).
    pub(super) fn give_at_start(&mut self, child: &Child) {
        let alone = self.ours == getpid() && std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
        if alone && self.is_ours() {
            self.give(child);
        }
    }

    /// Makes the program's group the foreground one, and wakes it: it may have stopped for the lack of it.
    pub(super) fn give(&mut self, child: &Child) {
        if without_stopping(|| tcsetpgrp(&self.tty, child.group())).is_ok() {
            self.given = Some(child.group());
        }
        child.signal(Signal::CONT);
    }

    /// Takes the terminal back if the program still has it. True if it did.
    pub(super) fn take_back(&mut self) -> bool {
        let Some(given) = self.given.take() else { return false };
        // Nobody's terminal, when the program's group has ended, is ours again; another job's is not.
        let now = tcgetpgrp(&self.tty).ok();
        if now.is_none_or(|group| group == given || rustix::process::test_kill_process_group(group).is_err()) {
            let _ = without_stopping(|| tcsetpgrp(&self.tty, self.ours));
        }
        true
    }

    /// What a stop of the program asks for.
    pub(super) fn on_stop(&self, signal: Option<Signal>) -> OnStop {
        on_stop(signal, self.given.is_some(), self.is_ours())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.take_back();
    }
}

fn on_stop(signal: Option<Signal>, given: bool, ours: bool) -> OnStop {
    match signal {
        Some(Signal::TTIN | Signal::TTOU) if ours => OnStop::Give,
        Some(Signal::TTIN | Signal::TTOU | Signal::TSTP) => OnStop::StopToo,
        _ if given => OnStop::StopToo,
        _ => OnStop::Nothing,
    }
}

/// Stops this process; returns when it is continued.
pub(super) fn stop_here() {
    let _ = raise(NixSignal::SIGSTOP);
}

/// Uses the terminal from the background, which would otherwise stop us.
fn without_stopping<T>(use_it: impl FnOnce() -> T) -> T {
    let ttou = SigSet::from(NixSignal::SIGTTOU);
    let before = ttou.thread_swap_mask(SigmaskHow::SIG_BLOCK);
    let used = use_it();
    if let Ok(before) = before {
        let _ = before.thread_set_mask();
    }
    used
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_program_gets_the_terminal_or_company() {
        for (signal, given, ours, what) in [
            (Signal::TTIN, false, true, OnStop::Give),
            (Signal::TTOU, true, true, OnStop::Give),
            (Signal::TTIN, false, false, OnStop::StopToo),
            (Signal::TSTP, true, false, OnStop::StopToo),
            (Signal::TSTP, false, true, OnStop::StopToo),
            (Signal::STOP, true, false, OnStop::StopToo),
            (Signal::STOP, false, true, OnStop::Nothing),
        ] {
            assert_eq!(on_stop(Some(signal), given, ours), what, "{signal:?} given={given} ours={ours}");
        }
    }
}
