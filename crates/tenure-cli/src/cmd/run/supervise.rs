//! From the start of the program to its end: passes signals on, keeps to the terminal's rules, and stops the program
//! when its lock goes.

use std::time::Duration;

use rustix::process::Signal;
use tenure::clock::{Clock, Instant};
use tenure::{Guard, Lost};

use super::child::{Change, Child};
use super::guardian::Guardian;
use super::signals::Signals;
use super::terminal::{self, OnStop, Terminal};
use super::warden::{Order, Warden};
use crate::exit::Failure;
use crate::output;
use crate::plan::Job;

/// How often a group that must end is looked at after the program itself has ended.
const REST_POLL: Duration = Duration::from_millis(20);

/// How the program ended.
pub(super) enum Outcome {
    /// By itself, with this code.
    Ended(u8),
    /// It was stopped.
    Stopped {
        why: String,
        /// The signal that had asked for its end besides, if one had.
        asked: Option<Signal>,
    },
}

struct Supervisor<'a> {
    guard: &'a Guard,
    clock: Clock,
    child: Child,
    terminal: Option<Terminal>,
    warden: Warden,
    lost: Option<Lost>,
    asked: Option<Signal>,
}

/// Runs the program under the guard.
pub(super) async fn supervise(job: &Job, guard: &Guard, granted: Instant, signals: &mut Signals) -> Result<Outcome, Failure> {
    // The machine may have slept since the grant: a program that must not run is best not started.
    if let Err(lost) = guard.check() {
        return Ok(Outcome::Stopped { why: format!("lost {}: {}", job.name, lost.reason), asked: None });
    }
    let child = Child::start(job, guard)?;
    let guardian = Guardian::start(child.group()).inspect_err(|e| output::say(&format!("the program has no guardian: {e}"))).ok();
    let mut terminal = Terminal::open();
    if let Some(terminal) = &mut terminal {
        terminal.give_at_start(&child);
    }
    let warden = Warden::new(granted, guard.lease(), job.max_hold);
    let mut all = Supervisor { guard, clock: Clock::system(), child, terminal, warden, lost: None, asked: None };
    let code = all.until_ended(job, signals).await;
    if all.warden.is_ending() {
        all.until_rest_ended().await;
    }
    if let Some(guardian) = guardian {
        guardian.dismiss();
    }
    if let Some(terminal) = &mut all.terminal {
        terminal.take_back();
    }
    Ok(match all.warden.reason(&job.name) {
        Some(why) => Outcome::Stopped { why, asked: all.asked },
        None => Outcome::Ended(code),
    })
}

impl Supervisor<'_> {
    async fn until_ended(&mut self, job: &Job, signals: &mut Signals) -> u8 {
        loop {
            // Also before the first wait: the news of a short program may have come already.
            match self.child.news() {
                Some(Change::Ended(code)) => return code,
                Some(Change::Stopped(signal)) => self.stopped(signal),
                None => {}
            }
            let (order, wake) = self.look();
            match order {
                Some(Order::Terminate) => {
                    self.announce(job);
                    self.child.signal(Signal::TERM);
                    // A stopped program cannot act on it.
                    self.child.signal(Signal::CONT);
                }
                Some(Order::Kill) => self.child.signal(Signal::KILL),
                None => {}
            }
            tokio::select! {
                biased;
                lost = self.guard.lost(), if self.lost.is_none() => self.lost = Some(lost),
                signal = signals.next() => self.pass_on(signal),
                () = pause(wake) => {}
            }
        }
    }

    /// After the program itself, the rest of its group must end too: it ran under the same lock.
    async fn until_rest_ended(&mut self) {
        while self.child.rest_is_alive() {
            let (order, wake) = self.look();
            if order == Some(Order::Kill) || wake.is_none() {
                return self.child.signal_rest(Signal::KILL);
            }
            let wake = wake.map_or(REST_POLL, |wake| wake.min(REST_POLL));
            tokio::select! {
                biased;
                lost = self.guard.lost(), if self.lost.is_none() => self.lost = Some(lost),
                () = tokio::time::sleep(wake) => {}
            }
        }
    }

    fn look(&mut self) -> (Option<Order>, Option<Duration>) {
        let now = self.clock.now();
        let expires_in = self.guard.expires_in();
        // A lost lock expires in no time, whatever the reason: the reason decides what the program is owed.
        if self.lost.is_none() {
            self.lost = self.guard.check().err();
        }
        let step = self.warden.look(now, expires_in, self.lost.as_ref());
        (step.order, step.wake.map(|wake| wake.since(now)))
    }

    fn pass_on(&mut self, signal: Signal) {
        match signal {
            Signal::CHILD => return,
            Signal::INT | Signal::TERM | Signal::QUIT => self.asked = Some(signal),
            // To many programs it means to read their settings again.
            Signal::HUP if self.warden.is_ending() => self.asked = Some(signal),
            _ => {}
        }
        self.child.signal(signal);
    }

    fn stopped(&mut self, signal: Option<Signal>) {
        let Some(terminal) = &mut self.terminal else { return };
        match terminal.on_stop(signal) {
            OnStop::Nothing => {}
            OnStop::Give => terminal.give(&self.child),
            OnStop::StopToo => {
                let had_it = terminal.take_back();
                terminal::stop_here();
                // A program that was asleep for longer than its lock never runs again: the warden kills it instead.
                if !self.guard.is_valid() {
                    return;
                }
                if had_it && terminal.is_ours() {
                    terminal.give(&self.child);
                } else {
                    self.child.signal(Signal::CONT);
                }
            }
        }
    }

    fn announce(&self, job: &Job) {
        if job.verbose
            && let Some(why) = self.warden.reason(&job.name)
        {
            terminal::without_stopping(|| output::say(&format!("stopping the program: {why}")));
        }
    }
}

async fn pause(wake: Option<Duration>) {
    match wake {
        Some(wake) => tokio::time::sleep(wake).await,
        None => std::future::pending().await,
    }
}
