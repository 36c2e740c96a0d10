//! The program: a process in a group of its own.

use std::os::unix::process::CommandExt;
#[cfg(target_os = "linux")]
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, getpgid, kill_process, kill_process_group, test_kill_process, test_kill_process_group, wait,
};
use tenure::Guard;

use super::cgroup::{self, Cgroup};
use super::exec::{self, Begins, Privileges};
use crate::exit::{self, Failure};
use crate::plan::Job;
use crate::source;

/// How long a program may take to be ready to begin, before it is supervised as one that has begun.
#[cfg(target_os = "linux")]
const PREPARING: Duration = Duration::from_secs(1);

/// The program as it runs. Its process id is its group's id too.
pub(super) struct Child {
    pid: Pid,
    cgroup: Option<Cgroup>,
}

/// What became of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// It is over; the exit code to pass on.
    Ended(u8),
    /// A signal stopped it.
    Stopped(Option<Signal>),
    /// A signal stopped another child.
    OtherStopped(Pid),
    /// Another child has ended, and is buried.
    OtherEnded(Pid),
}

/// What is left of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rest {
    None,
    Alive,
    /// All that is left runs as users whose processes we may not signal.
    OutOfReach,
}

impl Child {
    /// Prepares the program, which stands still until it [goes](Self::go). To be called from a thread that lives as long as the process.
    pub(super) fn start(job: &Job, guard: &Guard) -> Result<Self, Failure> {
        let privs = if job.no_new_privs { Privileges::Kept } else { Privileges::Any };
        let cgroup = job.cgroup.as_deref().map(Cgroup::make).transpose()?;
        let mut command = exec::command(&job.program, &job.args, (privs, Begins::WhenTold), cgroup.as_ref().map(Cgroup::path))
            .map_err(|e| exec::not_started(&job.program, &e))?;
        let token = guard.token().to_string();
        // Secrets are not for the program, and what another tenure said is not about this lock.
        let secrets = if job.pass_url { &[][..] } else { &[source::URL, source::URL_FILE] };
        for name in secrets.iter().chain(&["TENURE_TERM"]) {
            command.env_remove(name);
        }
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
        let pid = pid.ok_or_else(|| Failure::new(exit::NOT_EXECUTABLE, "the program has no process id"))?;
        Ok(Self { pid, cgroup })
    }

    /// Waits until the program stands still before its first step, or has failed, which is left for [`news`](Self::news): but not
    /// for long, as it may be frozen with its control group.
    #[cfg(target_os = "linux")]
    pub(super) async fn until_prepared(&self) {
        use rustix::process::{WaitId, WaitIdOptions, waitid};
        let look = |options| waitid(WaitId::Pid(self.pid), WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | options);
        let end = std::time::Instant::now() + PREPARING;
        while std::time::Instant::now() < end {
            match look(WaitIdOptions::EXITED | WaitIdOptions::CONTINUED | WaitIdOptions::NOWAIT) {
                Ok(None) | Err(Errno::INTR) => tokio::time::sleep(Duration::from_micros(200)).await,
                Ok(Some(seen)) if seen.stopped() => {
                    let _ = look(WaitIdOptions::empty());
                    return;
                }
                Ok(Some(_)) | Err(_) => return,
            }
        }
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) async fn until_prepared(&self) {}

    /// Whether the program has yet to begin: another process may have stopped it, or let it go on, in between.
    pub(super) fn is_prepared(&self) -> bool {
        let line = std::fs::read(format!("/proc/{}/cmdline", self.pid.as_raw_nonzero())).unwrap_or_default();
        cfg!(target_os = "linux") && line.split(|byte| *byte == 0).nth(1) == Some(exec::MARK.as_bytes())
    }

    /// Lets the program begin.
    pub(super) fn go(&self) {
        if cfg!(target_os = "linux") {
            let _ = kill_process(self.pid, Signal::CONT);
        }
    }

    /// The program's process group.
    pub(super) fn group(&self) -> Pid {
        self.pid
    }

    /// The program's control group, if it has one of its own.
    pub(super) fn cgroup(&self) -> Option<&Cgroup> {
        self.cgroup.as_ref()
    }

    /// Sends a signal to all of the group that may be signalled, and to a program that has left it.
    pub(super) fn signal(&self, signal: Signal) {
        // Whom that does not reach is told of by the other questions.
        let _ = kill_process_group(self.pid, signal);
        if has_left(self.pid) {
            let _ = kill_process(self.pid, signal);
        }
    }

    /// Kills the program and all of its control group. False if the program is out of reach.
    pub(super) fn kill(&self) -> bool {
        self.signal(Signal::KILL);
        // After the signals: who gets none has joined its control group before.
        let killed = self.cgroup.as_ref().is_none_or(|cgroup| cgroup.kill().is_ok());
        !self.is_another_user() || (killed && !self.is_out_of_reach())
    }

    /// Whether the program runs as a user whose processes we may not signal, and not in a control group of ours.
    pub(super) fn is_out_of_reach(&self) -> bool {
        self.is_another_user() && self.cgroup.as_ref().is_none_or(|cgroup| !cgroup.holds(self.pid))
    }

    fn is_another_user(&self) -> bool {
        test_kill_process(self.pid) == Err(Errno::PERM)
    }

    /// News of the program and of all other children, which are reaped: the first process of a container has every orphan as a
    /// child. Does not wait.
    pub(super) fn news(&self) -> Option<Change> {
        loop {
            return match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
                Ok(Some((pid, status))) if pid != self.pid && status.stopped() => Some(Change::OtherStopped(pid)),
                Ok(Some((pid, _))) if pid != self.pid => Some(Change::OtherEnded(pid)),
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
                // There are no children: somebody else has taken the status, or it has been taken here before.
                Err(_) => Some(Change::Ended(u8::MAX)),
            };
        }
    }

    /// Kills what is left after the program has ended.
    pub(super) fn kill_rest(&self) {
        let _ = kill_process_group(self.pid, Signal::KILL);
        drop(self.cgroup.as_ref().map(Cgroup::kill));
    }

    /// What is left of the group and of the control group after the program has ended.
    pub(super) fn rest(&self) -> Rest {
        if self.cgroup.as_ref().is_some_and(Cgroup::is_populated) {
            return Rest::Alive;
        }
        if own_group() == Some(self.pid) {
            return Rest::None;
        }
        match test_kill_process_group(self.pid) {
            Ok(()) => Rest::Alive,
            // Nobody may have buried what was killed with its control group.
            Err(Errno::PERM) if self.cgroup.is_some() && !cgroup::has_living(self.pid) => Rest::None,
            Err(Errno::PERM) => Rest::OutOfReach,
            Err(_) => Rest::None,
        }
    }

    /// To be called at the end.
    pub(super) async fn remove_cgroup(&mut self) {
        if let Some(cgroup) = self.cgroup.take() {
            cgroup.remove().await;
        }
    }
}

/// Whether a program is in another group than the one that it was started in, which may go on without it.
pub(super) fn has_left(program: Pid) -> bool {
    getpgid(Some(program)).is_ok_and(|group| group != program)
}

/// The process group of tenure; `None` if it is outside of our process namespace, as that of a container's first process
/// may be.
pub(super) fn own_group() -> Option<Pid> {
    Pid::from_raw(nix::unistd::getpgrp().as_raw())
}

/// Takes note of all children that have ended. To be called when the program is not among them.
pub(super) fn bury() {
    while let Ok(Some(_)) | Err(Errno::INTR) = wait(WaitOptions::NOHANG) {}
}
