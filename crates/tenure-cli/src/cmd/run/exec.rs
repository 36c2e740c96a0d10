//! The first half of a program's life: ties it to tenure, then becomes it.
//!
//! tenure starts itself again under the hidden name [`MARK`]; that process asks the kernel to be killed when its parent
//! dies, stops until it is told to go on, and only then executes the program. Process id and group stay the same.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Pid, Signal, getpid, getppid};

use super::{again, cgroup};
use crate::exit::{self, Failure};

/// The hidden name under which tenure starts itself to become a program.
pub(super) const MARK: &str = "__exec";

/// Whose rights a program may get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cmd) enum Privileges {
    Any,
    /// Those that it has: it cannot become another user, and so can always be stopped.
    Kept,
}

impl Privileges {
    const WORDS: [(&str, Self); 2] = [("any", Self::Any), ("kept", Self::Kept)];
}

/// When a program begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cmd) enum Begins {
    AtOnce,
    /// After SIGCONT: it stops before. Only on Linux.
    WhenTold,
}

impl Begins {
    const WORDS: [(&str, Self); 2] = [("at-once", Self::AtOnce), ("when-told", Self::WhenTold)];
}

/// Starts `program` tied to this process.
///
/// The tie is to the calling *thread*: it must live as long as the process.
pub(in crate::cmd) fn command(
    program: &OsStr,
    args: &[OsString],
    (privileges, begins): (Privileges, Begins),
    cgroup: Option<&Path>,
) -> io::Result<Command> {
    if !cfg!(target_os = "linux") {
        if privileges == Privileges::Kept {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "--no-new-privs needs Linux"));
        }
        let mut direct = Command::new(program);
        direct.args(args);
        return Ok(direct);
    }
    let mut command = again(MARK)?;
    let privileges = Privileges::WORDS.iter().find(|(_, known)| *known == privileges).map_or("any", |(word, _)| word);
    let begins = Begins::WORDS.iter().find(|(_, known)| *known == begins).map_or("at-once", |(word, _)| word);
    let parent = getpid().as_raw_nonzero().to_string();
    command.arg(parent).args([privileges, begins]).args(cgroup).arg("--").arg(program).args(args);
    Ok(command)
}

/// A command line that [`command`] made, after [`MARK`].
pub(super) struct Request {
    parent: Option<i32>,
    privileges: Privileges,
    begins: Begins,
    cgroup: Option<PathBuf>,
    program: OsString,
    args: Vec<OsString>,
}

impl Request {
    pub(super) fn read(mut words: impl Iterator<Item = OsString>) -> Option<Self> {
        let parent = words.next()?.to_str()?.parse().ok();
        let word = words.next()?;
        let (_, privileges) = Privileges::WORDS.into_iter().find(|(known, _)| word == *known)?;
        let word = words.next()?;
        let (_, begins) = Begins::WORDS.into_iter().find(|(known, _)| word == *known)?;
        let cgroup = words.next().map(|word| (word != "--").then(|| PathBuf::from(word)))?;
        if cgroup.is_some() {
            words.next().filter(|word| word == "--")?;
        }
        Some(Self { parent, privileges, begins, cgroup, program: words.next()?, args: words.collect() })
    }

    /// Becomes the program. Returns only if it cannot.
    pub(super) fn become_program(self) -> Failure {
        if let Some(Err(failure)) = self.cgroup.as_deref().map(cgroup::join) {
            return failure;
        }
        if self.privileges == Privileges::Kept
            && let Err(e) = keep_privileges()
        {
            return Failure::new(exit::NOT_EXECUTABLE, format!("cannot keep the program from becoming another user: {e}"));
        }
        if let Err(e) = tie_to_parent() {
            return Failure::new(exit::NOT_EXECUTABLE, format!("cannot tie the program to tenure: {e}"));
        }
        // The parent may have died before the tie was made.
        if getppid().map(Pid::as_raw_nonzero).map(i32::from) != self.parent {
            return Failure::silent(exit::NOT_EXECUTABLE);
        }
        // Nothing runs that has no guardian.
        if self.begins == Begins::WhenTold
            && let Err(e) = rustix::process::kill_process(getpid(), Signal::STOP)
        {
            return Failure::new(exit::NOT_EXECUTABLE, format!("cannot wait for tenure: {e}"));
        }
        not_started(&self.program, &Command::new(&self.program).args(&self.args).exec())
    }
}

/// Says why [`command`] could not be started.
pub(super) fn not_spawned(program: &OsStr, error: &io::Error) -> Failure {
    // It is ourselves that was not found.
    if cfg!(target_os = "linux") && error.kind() == io::ErrorKind::NotFound {
        return Failure::new(exit::NOT_EXECUTABLE, format!("cannot run {}: /proc is not mounted", program.display()));
    }
    not_started(program, error)
}

/// Says as a shell does why a program did not start.
pub(super) fn not_started(program: &OsStr, error: &io::Error) -> Failure {
    let code = if error.kind() == io::ErrorKind::NotFound { exit::NOT_FOUND } else { exit::NOT_EXECUTABLE };
    Failure::new(code, format!("cannot run {}: {error}", program.display()))
}

#[cfg(target_os = "linux")]
fn tie_to_parent() -> io::Result<()> {
    Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?)
}

#[cfg(target_os = "linux")]
fn keep_privileges() -> io::Result<()> {
    Ok(rustix::thread::set_no_new_privs(true)?)
}

#[cfg(not(target_os = "linux"))]
fn keep_privileges() -> io::Result<()> {
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn tie_to_parent() -> io::Result<()> {
    Ok(())
}
