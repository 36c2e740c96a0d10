//! The signals that tenure passes on or acts upon.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use nix::sys::signal::SigSet;
use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};

/// All but `SIGCHLD`, which is always listened to.
const PASSED_ON: [Signal; 8] =
    [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2, Signal::WINCH, Signal::TSTP];

/// What asks tenure to end.
const ENDS: [Signal; 4] = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT];

/// Listens to signals, from its making on.
pub(in crate::cmd) struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    /// Signals that are ignored (by `nohup`, or for background jobs of a script) stay so, here and in the program.
    pub(super) fn listen() -> io::Result<Self> {
        Self::listen_to(std::iter::once(Signal::CHILD).chain(not_ignored(&PASSED_ON)))
    }

    /// Only what asks tenure to end, for a command that runs no program.
    pub(in crate::cmd) fn listen_for_end() -> io::Result<Self> {
        Self::listen_to(not_ignored(&ENDS))
    }

    fn listen_to(wanted: impl Iterator<Item = Signal>) -> io::Result<Self> {
        let listen = |signal: Signal| Ok((signal, unix::signal(SignalKind::from_raw(signal.as_raw()))?));
        let listened: Vec<_> = wanted.map(listen).collect::<io::Result<_>>()?;
        // Whoever has started tenure may have blocked them, to read them otherwise.
        let known = listened.iter().filter_map(|(signal, _)| nix::sys::signal::Signal::try_from(signal.as_raw()).ok());
        known.collect::<SigSet>().thread_unblock()?;
        Ok(Self(listened))
    }

    /// The next signal.
    ///
    /// # Cancel safety
    /// Safe: nothing is missed.
    pub(in crate::cmd) async fn next(&mut self) -> Signal {
        poll_fn(|cx| {
            for (signal, stream) in &mut self.0 {
                if stream.poll_recv(cx).is_ready() {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// The next signal that asks tenure to end, while no program runs.
    ///
    /// # Cancel safety
    /// Safe: nothing is missed.
    pub(super) async fn next_end(&mut self) -> Signal {
        loop {
            match self.next().await {
                signal if ENDS.contains(&signal) => return signal,
                Signal::TSTP => super::terminal::stop_here(),
                Signal::CHILD => super::child::bury(),
                _ => {}
            }
        }
    }
}

fn not_ignored(signals: &[Signal]) -> impl Iterator<Item = Signal> {
    let ignored = ignored();
    signals.iter().copied().filter(move |signal| ignored & (1 << (signal.as_raw() - 1)) == 0)
}

/// The signals that this process was started to ignore, as a bit set.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0)
}
