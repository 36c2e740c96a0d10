//! Processes that end with the lab, are stopped and go on.

use std::time::{Duration, Instant};

use std::ffi::{OsStr, OsString};
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};

use super::upset::{Played, Upset};
use crate::cmd::run::exec;

const LIMIT: Duration = Duration::from_secs(10);

/// A program that ends with the calling thread: the main one, then, unless it is to end sooner.
pub(crate) fn tied(program: &OsStr, args: &[OsString]) -> Played<Command> {
    // It starts this program again, which would be the tests, which would start themselves again.
    if cfg!(test) {
        return Err(Upset::new("the program's own tests start no processes"));
    }
    Ok(exec::command(program, args, (exec::Privileges::Any, exec::Begins::AtOnce), None)?)
}

pub(crate) fn signal(pid: u32, signal: Signal) -> Played<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or_else(|| Upset::new("no such process"))?;
    kill_process(pid, signal).map_err(Upset::while_doing("sending a signal"))
}

/// Stops a process, and waits until all of its threads stand still: those that the signal does not reach go on for a moment.
pub(crate) fn stop(pid: u32) -> Played<()> {
    signal(pid, Signal::STOP)?;
    let give_up = Instant::now() + LIMIT;
    while Instant::now() < give_up {
        if stands_still(pid)? {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err(Upset::new(format!("process {pid} does not stop")))
}

fn stands_still(pid: u32) -> Played<bool> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).map_err(Upset::while_doing("looking at a process"))?;
    let stands = |thread: std::io::Result<std::fs::DirEntry>| {
        let stat = thread.and_then(|thread| std::fs::read_to_string(thread.path().join("stat"))).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" T "))
    };
    Ok(threads.into_iter().all(stands))
}
