//! Processes: whether a program is installed, signals, and a stop that is complete.

use std::ffi::{OsStr, OsString};
use std::io;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub use rustix::process::Signal;
use rustix::process::{Pid, kill_process};

/// Makes the command that starts a program. A caller that ties programs to its own life supplies another one than [`plain`].
pub type MakeCommand = fn(&OsStr, &[OsString]) -> io::Result<Command>;

const STOP_LIMIT: Duration = Duration::from_secs(10);

/// The command of a program that is started directly.
///
/// # Errors
/// None: the signature is that of [`MakeCommand`].
pub fn plain(program: &OsStr, args: &[OsString]) -> io::Result<Command> {
    let mut command = Command::new(program);
    command.args(args);
    Ok(command)
}

/// Whether a program can be started.
pub fn is_installed(program: impl AsRef<OsStr>) -> bool {
    starts(program, "--version")
}

/// Whether a program can be started with an argument that makes it end at once.
pub fn starts(program: impl AsRef<OsStr>, arg: &str) -> bool {
    let mut command = Command::new(program);
    command.arg(arg).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok()
}

/// Sends a signal.
///
/// # Errors
/// There is no such process, or it belongs to another user.
pub fn signal(pid: u32, signal: Signal) -> io::Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or_else(|| io::Error::other("no such process"))?;
    kill_process(pid, signal).map_err(|error| io::Error::other(format!("sending a signal: {error}")))
}

/// Stops a process and waits until all of its threads have stopped: threads that the signal has not reached run on for a moment.
///
/// # Errors
/// There is no such process, or it does not stop.
pub fn stop(pid: u32) -> io::Result<()> {
    signal(pid, Signal::STOP)?;
    let give_up = Instant::now() + STOP_LIMIT;
    while Instant::now() < give_up {
        if is_stopped(pid)? {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err(io::Error::other(format!("process {pid} does not stop")))
}

fn is_stopped(pid: u32) -> io::Result<bool> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"))
        .map_err(|error| io::Error::other(format!("looking at a process: {error}")))?;
    let stopped = |thread: io::Result<std::fs::DirEntry>| {
        let stat = thread.and_then(|thread| std::fs::read_to_string(thread.path().join("stat"))).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" T "))
    };
    Ok(threads.into_iter().all(stopped))
}
