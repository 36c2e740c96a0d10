//! A second process that outlives tenure by a moment.
//!
//! The kernel kills the program itself when tenure is killed (see [`exec`](super::exec)), but not what the program has
//! started. The guardian reads from a pipe whose other end only tenure has; when the pipe ends, tenure has ended without
//! a farewell, and the guardian kills the whole group.

use std::io::Read;
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};

use super::again;

/// The hidden name under which tenure starts itself as the guardian.
pub(super) const MARK: &str = "__guard";

/// The guardian of one group, as tenure sees it.
pub(super) struct Guardian(Child);

impl Guardian {
    pub(super) fn start(group: Pid) -> std::io::Result<Self> {
        let mut command = again(MARK)?;
        command.arg(group.as_raw_nonzero().to_string()).current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // Out of the way of the terminal's signals.
        Ok(Self(std::os::unix::process::CommandExt::process_group(&mut command, 0).spawn()?))
    }

    /// Tells the guardian that all is well. What the program has left behind is left alone.
    pub(super) fn dismiss(mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// The life of a guardian.
pub(super) fn guard(group: Option<Pid>) {
    // Nothing is ever sent: this ends when tenure does.
    drop(std::io::stdin().read_to_end(&mut Vec::new()));
    if let Some(group) = group {
        let _ = kill_process_group(group, Signal::KILL);
    }
}
