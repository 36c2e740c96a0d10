//! The program: a process in a group of its own.

use std::os::unix::process::CommandExt;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, getpgrp, kill_process, kill_process_group, test_kill_process_group, waitpid};
use tenure::Guard;

use super::exec;
use crate::exit::{self, Failure};
use crate::plan::Job;

/// The program as it runs. Its process id is its group's id too.
pub(super) struct Child {
    pid: Pid,
}

/// What became of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// It is over; the exit code to pass on.
    Ended(u8),
    /// A signal stopped it.
    Stopped(Option<Signal>),
}

impl Child {
    /// Starts the program. To be called from a thread that lives as long as the process.
    pub(super) fn start(job: &Job, guard: &Guard) -> Result<Self, Failure> {
        let mut command = exec::command(&job.program, &job.args).map_err(|e| exec::not_started(&job.program, &e))?;
        let token = guard.token().to_string();
        command
            .env("TENURE_NAME", job.name.as_str())
            .env("TENURE_TOKEN", &token)
            .env("TENURE_OWNER", guard.owner_id().to_string())
            .process_group(0);
        if job.campaigns {
            command.env("TENURE_TERM", token);
        }
        let started = command.spawn().map_err(|e| exec::not_spawned(&job.program, &e))?;
        let pid = i32::try_from(started.id()).ok().and_then(Pid::from_raw);
        pid.map(|pid| Self { pid }).ok_or_else(|| Failure::new(exit::NOT_EXECUTABLE, "the program has no process id"))
    }

    /// The program's process group.
    pub(super) fn group(&self) -> Pid {
        self.pid
    }

    /// Sends a signal to the whole group.
    pub(super) fn signal(&self, signal: Signal) {
        // A program that has left its group is still ours to stop. Nothing can be done about other refusals.
        if kill_process_group(self.pid, signal) == Err(Errno::SRCH) {
            let _ = kill_process(self.pid, signal);
        }
    }

    /// News of the program, without waiting for it.
    pub(super) fn news(&self) -> Option<Change> {
        loop {
            return match waitpid(Some(self.pid), WaitOptions::NOHANG | WaitOptions::UNTRACED) {
                Ok(Some((_, status))) if status.stopped() => {
                    Some(Change::Stopped(status.stopping_signal().and_then(Signal::from_named_raw)))
                }
                Ok(Some((_, status))) => {
                    let code = status.exit_status().and_then(|code| u8::try_from(code).ok());
                    let killed = status.terminating_signal().map(exit::of_signal);
                    Some(Change::Ended(code.or(killed).unwrap_or(u8::MAX)))
                }
                Ok(None) => None,
                Err(Errno::INTR) => continue,
                // Somebody else has taken the status.
                Err(_) => Some(Change::Ended(u8::MAX)),
            };
        }
    }

    /// Sends a signal to what is left of the group after the program has ended.
    pub(super) fn signal_rest(&self, signal: Signal) {
        let _ = kill_process_group(self.pid, signal);
    }

    /// Whether anything of the group is left after the program has ended.
    pub(super) fn rest_is_alive(&self) -> bool {
        self.pid != getpgrp() && test_kill_process_group(self.pid).is_ok()
    }
}
