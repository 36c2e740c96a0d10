//! A control group (cgroup v2) of the program's own. Every process in it can be killed, whatever its user, process
//! group or session, and the kernel says whether one is left.

use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Pid;

use crate::exit::{self, Failure};
use crate::output;

const PROCS: &str = "cgroup.procs";
const KILL: &str = "cgroup.kill";
const EVENTS: &str = "cgroup.events";

const ALLOWED: &str = "allowed is a directory of cgroup v2 in which this user may make groups (Linux 5.14 or later)";

/// How long those that have ended by themselves may take to be gone from a group.
const LEAVING: Duration = Duration::from_millis(100);
/// How long the killed may take.
const DYING: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(10);

/// One group. It is removed at the end, if nothing is left in it.
pub(super) struct Cgroup {
    path: PathBuf,
}

impl Cgroup {
    /// Finds out whether groups can be made in a directory.
    pub(super) fn check(parent: &Path) -> Result<(), Failure> {
        Self::make(parent).map(drop)
    }

    /// Makes a group in a directory. Its name is never used again.
    pub(super) fn make(parent: &Path) -> Result<Self, Failure> {
        let no_group = || refused(parent, "it is no control group of cgroup v2");
        // A guardian has another working directory.
        let parent = parent.canonicalize().map_err(|e| refused(parent, &e.to_string()))?;
        if !parent.join(PROCS).is_file() {
            return Err(no_group());
        }
        let random = RandomState::new().build_hasher().finish();
        let path = parent.join(format!("tenure-{}-{random:016x}", std::process::id()));
        fs::create_dir(&path).map_err(|e| refused(&parent, &format!("no group can be made there: {e}")))?;
        let group = Self { path };
        // The kernel puts them there, but for cgroup v1 and old kernels. The first of all groups has none.
        if [PROCS, KILL, EVENTS].iter().all(|file| group.path.join(file).is_file()) { Ok(group) } else { Err(no_group()) }
    }

    /// A group that another process has made.
    pub(super) fn at(path: PathBuf) -> Self {
        Self { path }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Kills all that is in it, and in groups below it.
    pub(super) fn kill(&self) -> io::Result<()> {
        write(&self.path, KILL, "1")
    }

    /// Whether something runs in it, or in groups below it.
    pub(super) fn is_populated(&self) -> bool {
        match fs::read_to_string(self.path.join(EVENTS)) {
            Ok(events) => !events.lines().any(|line| line == "populated 0"),
            // Only an empty group can be removed.
            Err(e) => e.kind() != ErrorKind::NotFound,
        }
    }

    /// Whether a process is in it, or was when it ended.
    pub(super) fn holds(&self, pid: Pid) -> bool {
        let Some(name) = self.path.file_name().and_then(|name| name.to_str()) else { return false };
        match fs::read_to_string(format!("/proc/{}/cgroup", pid.as_raw_nonzero())) {
            Ok(groups) => groups.lines().any(|line| line.split('/').any(|part| part == name)),
            // Processes of other users may be hidden.
            Err(_) => self.is_populated(),
        }
    }

    /// Removes it. What the program has left in it is left alone.
    pub(super) async fn remove(self) {
        let end = Instant::now() + LEAVING;
        while self.is_populated() && Instant::now() < end {
            tokio::time::sleep(POLL).await;
        }
        match fs::remove_dir(&self.path) {
            Ok(()) => {}
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(_) if self.is_populated() => {
                output::say(&format!("the program has left processes behind, which run on in {}", self.path.display()));
            }
            Err(e) => output::say(&format!("an empty control group is left, {}: {e}", self.path.display())),
        }
    }

    /// Waits until nothing is left of what was killed, and removes it.
    pub(super) fn remove_killed(self) {
        let end = Instant::now() + DYING;
        while self.is_populated() && Instant::now() < end {
            std::thread::sleep(POLL);
        }
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // The kernel removes no group in which something runs.
        drop(fs::remove_dir(&self.path));
    }
}

/// Puts this process into a group, and so all that it starts.
pub(super) fn join(group: &Path) -> Result<(), Failure> {
    write(group, PROCS, "0").map_err(|e| {
        let parent = group.parent().unwrap_or(group);
        let why =
            "tenure has to run in this directory or below it, or has to be allowed to write cgroup.procs of a group above both";
        refused(parent, &format!("the program cannot join a group there: {e}; {why}"))
    })
}

/// Whether something of a process group lives, and is not only unburied.
pub(super) fn has_living(group: Pid) -> bool {
    let group = group.as_raw_nonzero().to_string();
    let lives = |stat: &str| {
        // The name before may have any characters in it. Then come state, parent and process group.
        let mut fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields).split(' ');
        !matches!(fields.next(), None | Some("Z" | "X")) && fields.nth(1) == Some(&group)
    };
    // Who cannot look says yes.
    fs::read_dir("/proc").map_or(true, |processes| {
        processes.flatten().any(|process| fs::read_to_string(process.path().join("stat")).is_ok_and(|stat| lives(&stat)))
    })
}

fn write(group: &Path, file: &str, text: &str) -> io::Result<()> {
    fs::OpenOptions::new().write(true).open(group.join(file))?.write_all(text.as_bytes())
}

fn refused(parent: &Path, why: &str) -> Failure {
    Failure::new(exit::USAGE, format!("--cgroup {}: {why}; {ALLOWED}", parent.display()))
}
