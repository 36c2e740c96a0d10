//! From the start of the program to its end: passes signals on, follows the terminal's rules, and stops the program
//! when its lock is lost.

use std::time::Duration;

use rustix::process::Signal;
use tenure::clock::{Clock, Instant};
use tenure::{Guard, Locker, Lost};

use super::cgroup::Cgroup;
use super::child::{Change, Child, Rest};
use super::guardian::{Guardian, Watched};
use super::signals::Signals;
use super::terminal::{self, OnStop, Terminal};
use super::warden::{Order, Warden};
use crate::exit::Failure;
use crate::output;
use crate::plan::Job;

/// How often a group that must end is looked at after the program itself has ended.
const REST_POLL: Duration = Duration::from_millis(20);

/// How long the dead may take to be gone.
const DYING: Duration = Duration::from_secs(1);

/// However short the lease, the processor is not kept busy by looking.
const LEAST_BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// How the program ended.
pub(super) enum Outcome {
    /// By itself, with this code.
    Ended(u8),
    /// It was stopped.
    Stopped {
        why: String,
        /// The signal that had asked for its end besides, if one had.
        asked: Option<Signal>,
        /// Whether a part of it still runs, as another user.
        runs_on: bool,
    },
}

struct Supervisor<'a> {
    guard: &'a Guard,
    clock: Clock,
    child: Child,
    watched: Watched,
    guardian: Option<Guardian>,
    /// Whether it was said that there is none.
    unguarded: bool,
    terminal: Option<Terminal>,
    warden: Warden,
    lost: Option<Lost>,
    asked: Option<Signal>,
    /// Whether it was said that the program cannot be stopped.
    warned: bool,
    runs_on: bool,
}

/// Runs the program under the guard.
pub(super) async fn supervise(
    job: &Job,
    (locker, guard): (&Locker, &Guard),
    granted: Instant,
    signals: &mut Signals,
) -> Result<Outcome, Failure> {
    // The machine may have slept since the grant: a program that must not run is best not started.
    if let Err(lost) = guard.check() {
        let why = format!("lost {}: {}", job.name, lost.reason);
        return Ok(Outcome::Stopped { why, asked: None, runs_on: false });
    }
    let child = Child::start(job, guard)?;
    let clock = Clock::system();
    // The guardian is told before the first look.
    let warden = Warden::new(granted, guard.lease(), job.max_hold).ends(clock.now().after(guard.expires_in()));
    let cgroup = child.cgroup().map(|cgroup| cgroup.path().to_owned());
    let watched = Watched { group: child.group(), cgroup, locker: locker.clone() };
    let (guardian, unguarded, terminal) = (None, false, Terminal::open());
    let (lost, asked, warned, runs_on) = (None, None, false, false);
    let mut all =
        Supervisor { guard, clock, child, watched, guardian, unguarded, terminal, warden, lost, asked, warned, runs_on };
    all.find_guardian();
    all.child.until_prepared().await;
    all.begin();
    let code = all.until_ended(job, signals).await;
    all.warden.stood_still(all.clock.now());
    if all.warden.is_ending() && !all.runs_on {
        all.until_rest_ended().await;
    }
    if let Some(guardian) = all.guardian.take() {
        guardian.dismiss();
    }
    all.child.remove_cgroup().await;
    if let Some(terminal) = &mut all.terminal {
        terminal.take_back();
    }
    Ok(match all.warden.reason(&job.name) {
        Some(why) => Outcome::Stopped { why, asked: all.asked, runs_on: all.runs_on },
        None => Outcome::Ended(code),
    })
}

impl Supervisor<'_> {
    /// Lets the program begin, unless its lock is gone: then it never does.
    fn begin(&mut self) {
        if !self.guard.is_valid() {
            self.child.kill();
            return;
        }
        if let Some(terminal) = &mut self.terminal {
            terminal.give_at_start(&self.child);
        }
        self.child.go();
    }

    async fn until_ended(&mut self, job: &Job, signals: &mut Signals) -> u8 {
        loop {
            // Also before the first wait: the news of a short program may have come already.
            match self.child.news() {
                Some(Change::Ended(code)) => return code,
                Some(Change::Stopped(_)) if self.child.is_prepared() => self.begin(),
                Some(Change::Stopped(signal)) => self.stopped(signal),
                // There may be more news.
                Some(other) => {
                    self.hear(other);
                    continue;
                }
                None => {}
            }
            let (order, wake) = self.look();
            match order {
                Some(Order::Terminate) => {
                    self.child.signal(Signal::TERM);
                    // A stopped program cannot act on it.
                    self.child.signal(Signal::CONT);
                    self.announce(job);
                }
                Some(Order::Kill) => {
                    let reached = self.child.kill();
                    if !reached {
                        self.runs_on = true;
                        return u8::MAX;
                    }
                }
                None => {}
            }
            self.warn();
            tokio::select! {
                biased;
                lost = self.guard.lost(), if self.lost.is_none() => self.lost = Some(lost),
                signal = signals.next() => self.pass_on(signal),
                // Also after the last order, should the news of the end not come.
                () = tokio::time::sleep(wake.unwrap_or(self.between_looks())) => {}
            }
        }
    }

    /// After the program itself, the rest of its group must end too: it ran under the same lock.
    async fn until_rest_ended(&mut self) {
        while self.rest() != Rest::None {
            let (order, wake) = self.look();
            if order == Some(Order::Kill) || wake.is_none() {
                return self.kill_rest().await;
            }
            let wake = wake.map_or(REST_POLL, |wake| wake.min(REST_POLL));
            tokio::select! {
                biased;
                lost = self.guard.lost(), if self.lost.is_none() => self.lost = Some(lost),
                () = tokio::time::sleep(wake) => {}
            }
        }
    }

    /// What is left after the program, and the other children buried.
    fn rest(&mut self) -> Rest {
        while let Some(other @ (Change::OtherStopped(_) | Change::OtherEnded(_))) = self.child.news() {
            self.hear(other);
        }
        self.child.rest()
    }

    /// Takes note of what has become of other children.
    fn hear(&mut self, change: Change) {
        match change {
            Change::OtherStopped(child) => self.tell_guardian(|guardian| guardian.stopped(child)),
            Change::OtherEnded(child) => self.tell_guardian(|guardian| guardian.ended(child)),
            Change::Ended(_) | Change::Stopped(_) => {}
        }
    }

    async fn kill_rest(&mut self) {
        self.child.kill_rest();
        let end = self.clock.now().after(DYING);
        // A control group is killed as a whole: who is out of reach may be dead, and not buried yet.
        let whole = self.child.cgroup().is_some();
        let dies = |rest| rest == Rest::Alive || (whole && rest == Rest::OutOfReach);
        while dies(self.rest()) && self.clock.now() < end {
            tokio::time::sleep(REST_POLL).await;
        }
        self.runs_on = match self.rest() {
            Rest::None => false,
            Rest::Alive => self.child.cgroup().is_some_and(Cgroup::is_populated),
            Rest::OutOfReach => true,
        };
    }

    /// Says once, and as soon as it is known, that the program cannot be stopped.
    fn warn(&mut self) {
        if !self.warned && self.child.is_out_of_reach() {
            self.warned = true;
            let (outside, also) = match self.child.cgroup() {
                Some(_) => (" and has left its control group", ""),
                None => ("", "; --cgroup stops it all the same"),
            };
            output::say(&format!(
                "the program runs as another user{outside}, whom tenure may not stop: when the lock is lost, only its token stops it \
                 (--no-new-privs keeps a program from becoming another user{also})",
            ));
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
        let deadlines = self.warden.deadlines();
        self.tell_guardian(|guardian| guardian.tell(deadlines));
        self.find_guardian();
        (step.order, step.wake.map(|wake| wake.since(now).min(self.between_looks())))
    }

    fn tell_guardian(&mut self, tell: impl FnOnce(&mut Guardian) -> std::io::Result<()>) {
        if let Some(guardian) = &mut self.guardian
            && let Err(e) = tell(guardian)
        {
            self.guardian = None;
            self.has_no_guardian(&e);
        }
    }

    /// Starts a guardian if there is none: what made it fail may have been for a moment.
    fn find_guardian(&mut self) {
        if self.guardian.is_some() {
            return;
        }
        match Guardian::start(self.watched.clone(), self.warden.deadlines()) {
            Ok(guardian) => (self.guardian, self.unguarded) = (Some(guardian), false),
            Err(e) => self.has_no_guardian(&e),
        }
    }

    /// Says so once.
    fn has_no_guardian(&mut self, error: &std::io::Error) {
        if !std::mem::replace(&mut self.unguarded, true) {
            output::say(&format!("the program has no guardian, and would outlive its lock if tenure stood still: {error}"));
        }
    }

    /// The guardian has to know of renewals soon.
    fn between_looks(&self) -> Duration {
        (self.guard.lease() / 10).max(LEAST_BETWEEN_LOOKS)
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
            output::say(&format!("stopping the program: {why}"));
        }
    }
}
