//! `tenure run`: a program that lives no longer than its lock; and `tenure elect`, which starts it again.

mod cgroup;
mod child;
pub(super) mod exec;
mod guardian;
mod lock;
mod reach;
mod signals;
mod supervise;
mod terminal;
mod told;
mod wait;
mod warden;

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use tenure::clock::Clock;
use tenure::{Error, Guard, Mode};

use crate::exit::{self, Failure};
use crate::output;
use crate::plan::{Job, Patience, Store};
use lock::Lock;
pub(super) use signals::Signals;
use supervise::{Outcome, supervise};

/// Runs a command line that tenure made for itself; `None` for one that a user typed.
pub(crate) fn hidden_subcommand(mut words: impl Iterator<Item = OsString>) -> Option<Failure> {
    words.next()?;
    let mark = words.next()?;
    if mark == exec::MARK {
        return exec::Request::read(words).map(exec::Request::become_program);
    }
    if mark == guardian::MARK {
        guardian::Request::read(words)?.guard();
        return Some(Failure::silent(0));
    }
    None
}

/// Starts tenure again under a hidden name.
pub(super) fn again(mark: &str) -> std::io::Result<Command> {
    let mut command = Command::new(own_program()?);
    command.arg0("tenure").arg(mark);
    Ok(command)
}

/// This program, as it is to be started again.
pub(super) fn own_program() -> std::io::Result<PathBuf> {
    // On Linux still right when the file was replaced by an update meanwhile.
    if cfg!(target_os = "linux") { Ok("/proc/self/exe".into()) } else { std::env::current_exe() }
}

pub(crate) async fn run(store: &Store, job: &Job) -> Result<u8, Failure> {
    let mut signals = Signals::listen().map_err(|e| Failure::new(exit::FAILED, format!("cannot listen to signals: {e}")))?;
    job.cgroup.as_deref().map_or(Ok(()), cgroup::Cgroup::check)?;
    let (locker, patience) = tokio::select! {
        biased;
        signal = signals.next_end() => return Err(interrupted(signal)),
        reached = reach::reach(store, job) => reached?,
    };
    let done = run_or_campaign(&Lock::new(&locker, job), job, patience, &mut signals).await;
    // Whatever happened: nothing may be left behind in the store.
    if let Err(e) = locker.close().await
        && job.verbose
    {
        output::say(&e.to_string());
    }
    done
}

async fn run_or_campaign(lock: &Lock, job: &Job, patience: Patience, signals: &mut Signals) -> Result<u8, Failure> {
    loop {
        match with_lock(lock, job, patience, signals).await? {
            Outcome::Ended(code) => return Ok(code),
            // A service manager may be able to do what we are not. And nothing is started beside it.
            Outcome::Stopped { why, runs_on: true, .. } => {
                let how = match job.cgroup {
                    Some(_) => "although its control group was killed",
                    None => "as another user, whom tenure may not stop",
                };
                return Err(Failure::new(exit::RUNS_ON, format!("{why}; a part of the program runs on {how}")));
            }
            Outcome::Stopped { why, .. } if !job.campaigns => return Err(Failure::new(exit::LOST, why)),
            // Who was asked to end does not begin anew.
            Outcome::Stopped { why, asked: Some(signal), .. } => return Err(Failure::new(exit::of_signal(signal.as_raw()), why)),
            Outcome::Stopped { why, asked: None, .. } => output::say(&format!("{why}; the campaign goes on")),
        }
    }
}

async fn with_lock(lock: &Lock, job: &Job, patience: Patience, signals: &mut Signals) -> Result<Outcome, Failure> {
    let guard = tokio::select! {
        biased;
        signal = signals.next_end() => return Err(interrupted(signal)),
        guard = wait::acquire(lock, job, patience) => guard?,
    };
    let Some(guard) = guard else {
        return Err(Failure::new(job.busy_code, wait::refusal(lock, job).await));
    };
    if job.verbose {
        output::say(&granted(job, &guard));
    }
    let since = Clock::system().now();
    match supervise(job, (lock.locker(), &guard), since, signals).await {
        Ok(Outcome::Ended(code)) => {
            let kept = keep_for_min_hold(job, &guard, since, signals).await;
            give_back(job, guard, kept, code).await.map(Outcome::Ended)
        }
        // Given back in the background, should it still be ours: the store may be out of reach.
        Ok(stopped) => Ok(stopped),
        Err(failure) => {
            drop(guard.release().await);
            Err(failure)
        }
    }
}

fn granted(job: &Job, guard: &Guard) -> String {
    let (name, token) = (&job.name, guard.token());
    match job.mode {
        _ if job.campaigns => format!("elected for {name}, term {token}"),
        Mode::Read => format!("locked {name} to read, token {token}"),
        Mode::Write => format!("locked {name} to write, token {token}"),
        Mode::Permits { .. } => format!("took a permit of {name}, token {token}"),
        _ => format!("locked {name}, token {token}"),
    }
}

/// Keeps the lock for what is left of `--min-hold`. True if there was something left.
async fn keep_for_min_hold(job: &Job, guard: &Guard, granted: tenure::clock::Instant, signals: &mut Signals) -> bool {
    let left = granted.after(job.min_hold).since(Clock::system().now());
    if left == Duration::ZERO {
        return false;
    }
    if job.verbose {
        output::say(&format!("keeping {} locked for another {}", job.name, output::seconds(left)));
    }
    tokio::select! {
        _ = signals.next_end() => {}
        lost = guard.lost() => output::say(&format!("lost {} after the program had ended: {}", job.name, lost.reason)),
        () = tokio::time::sleep(left) => {}
    }
    true
}

async fn give_back(job: &Job, guard: Guard, kept: bool, code: u8) -> Result<u8, Failure> {
    match guard.release().await {
        Ok(()) if job.verbose => output::say(&format!("released {}", job.name)),
        Ok(()) => {}
        // Reported when it happened, after the program had ended.
        Err(Error::Lost(_)) if kept => {}
        // Not noticed before the program ended: part of it ran without the lock.
        Err(Error::Lost(lost)) => {
            return Err(Failure::new(exit::LOST, format!("lost {} while the program ran: {}", job.name, lost.reason)));
        }
        Err(e) => output::say(&format!("could not give {} back, it ends with its lease: {e}", job.name)),
    }
    Ok(code)
}

fn interrupted(signal: Signal) -> Failure {
    Failure::silent(exit::of_signal(signal.as_raw()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_users_type_is_not_taken_for_a_hidden_subcommand() {
        let typed: [&[&str]; 9] = [
            &[],
            &["tenure"],
            &["tenure", "run", "x", "--", "true"],
            &["tenure", "__exec"],
            &["tenure", "__exec", "1", "any", "at-once", "--"],
            &["tenure", "__exec", "1", "any", "at-once", "/group", "true"],
            &["tenure", "__exec", "1", "any", "--", "true"],
            &["tenure", "__guard"],
            &["tenure", "__guard", "1"],
        ];
        for words in typed {
            assert_eq!(hidden_subcommand(words.iter().map(OsString::from)), None, "{words:?}");
        }
    }
}
