//! In a control group of its own a program can be stopped, whatever its user, process group or session.
#![cfg(target_os = "linux")]

use std::io::Write;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tenure_testkit::command::{Running, Store, is_dead, text};
use tenure_testkit::eventually;
use tenure_testkit::nobody::{NOBODY, as_nobody, break_as_nobody, unprivileged};

/// Leaves session and process group for good, as daemons do, and is given to init.
const DAEMON: &str = "setsid sh -c 'sleep 1000 2> /dev/null & echo $! > daemon'";

/// What the next holder does: it looks what has become of the program of the one before.
const LOOK: &str = "cat /proc/$(cat pid)/stat > seen 2>&1; echo >> seen";

fn assert_seen_dead(store: &Store) {
    let seen = store.written("seen");
    assert!(["No such", ") Z ", ") X "].iter().any(|dead| seen.contains(dead)), "{seen}");
}

/// A group for tenure and below, given to a user. Nothing in it outlives the test.
struct Delegated(PathBuf);

impl Delegated {
    /// `None` where there is no cgroup v2 to make groups in, which the kernel or a container may not have.
    fn to(user: u32) -> Option<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let skip = |why: &str| {
            // Not kept back from the output of a test that passes.
            drop(writeln!(std::io::stderr(), "SKIPPED: {why}"));
            None
        };
        let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
        let mount = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>()).find(|words| words.get(2) == Some(&"cgroup2"));
        let Some(mount) = mount else { return skip("cgroup v2 is not mounted") };
        let name = format!("tenure-test-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let group = Path::new(mount[1]).join(name);
        if let Err(e) = std::fs::create_dir(&group) {
            return skip(&format!("no control group can be made here: {e}"));
        }
        let group = Self(group);
        if !group.0.join("cgroup.kill").exists() {
            return skip("the kernel is older than cgroup.kill");
        }
        for file in ["", "cgroup.procs"] {
            chown(group.0.join(file), Some(user), Some(user)).expect("it is ours");
        }
        Some(group)
    }

    fn dir(&self) -> &str {
        self.0.to_str().expect("an ordinary name")
    }

    /// The groups that tenure has made.
    fn groups(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.0).expect("it is there").map(|entry| entry.expect("it is there").path());
        entries.filter(|path| path.is_dir()).collect()
    }

    /// Starts a command inside.
    fn start(&self, store: &Store, command: &Command) -> Running {
        let mut inside = Command::new("sh");
        inside.args(["-c", "echo 0 > \"$0/cgroup.procs\" && exec \"$@\"", self.dir()]);
        inside.arg(command.get_program()).args(command.get_args());
        inside.current_dir(store.path("")).env("TENURE_URL", store.url()).stdin(Stdio::null()).stdout(Stdio::null());
        Running::new(inside.stderr(Stdio::piped()))
    }

    fn tenure<const N: usize>(&self, store: &Store, args: [&str; N]) -> Running {
        self.start(store, &store.tenure(args))
    }

    fn tenure_as_nobody(&self, store: &Store, args: &[&str]) -> Running {
        self.start(store, &as_nobody(Path::new(env!("CARGO_BIN_EXE_tenure")), args))
    }
}

impl Drop for Delegated {
    fn drop(&mut self) {
        drop(std::fs::write(self.0.join("cgroup.kill"), "1"));
        let end = Instant::now() + Duration::from_secs(10);
        // Those that were killed take a moment.
        while std::fs::remove_dir(&self.0).is_err() && Instant::now() < end {
            self.groups().iter().for_each(|group| drop(std::fs::remove_dir(group)));
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn root() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[test]
fn a_program_that_is_another_user_is_dead_before_the_next_holder_runs() {
    let programs: [&[&str]; 2] = [&["./helper"], &["sh", "-c", "./helper & wait"]];
    for program in programs {
        let Some(store) = unprivileged() else { return };
        let Some(group) = Delegated::to(NOBODY) else { return };
        let args = ["run", "--cgroup", group.dir(), "--max-hold", "3s", "--lease", "3s", "x", "--"];
        let run = group.tenure_as_nobody(&store, &[&args, program].concat());
        let helper = store.pid("pid");
        let status = std::fs::read_to_string(format!("/proc/{helper}/status")).expect("it runs");
        assert!(status.contains("Uid:\t0\t0\t0\t0"), "{status}");
        let next = group.tenure_as_nobody(&store, &["run", "x", "--", "sh", "-c", LOOK]);
        let (code, stderr) = run.end();
        assert_eq!(code, Some(76), "{stderr}");
        assert!(!stderr.contains("another user"), "{stderr}");
        assert_eq!(next.end().0, Some(0));
        assert!(is_dead(helper) && group.groups().is_empty());
        assert_seen_dead(&store);
    }
}

/// The guardian of a running `tenure`.
fn guardian_of(tenure: i32) -> Option<i32> {
    let children = std::fs::read_to_string(format!("/proc/{tenure}/task/{tenure}/children")).ok()?;
    let is_guardian =
        |pid: &i32| std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|words| text(&words).contains("__guard"));
    children.split_whitespace().filter_map(|pid| pid.parse().ok()).find(is_guardian)
}

#[test]
fn tenure_kills_the_group_by_itself_when_only_the_guardian_is_stopped() {
    for program in ["exec ./helper", "./helper & wait"] {
        let Some(store) = unprivileged() else { return };
        let Some(group) = Delegated::to(NOBODY) else { return };
        let args = ["run", "--cgroup", group.dir(), "--lease", "3s", "x", "--", "sh", "-c", program];
        let run = group.tenure_as_nobody(&store, &args);
        let helper = store.pid("pid");
        tenure_testkit::command::kill(tenure_testkit::until("the guardian", || guardian_of(run.pid())), Signal::STOP);
        break_as_nobody(&store);
        let (code, stderr) = run.end();
        assert_eq!(code, Some(76), "{stderr}");
        assert!(is_dead(helper) && group.groups().is_empty());
    }
}

#[test]
fn a_campaign_goes_on_when_a_program_that_is_another_user_was_killed_with_its_group() {
    let Some(store) = unprivileged() else { return };
    let Some(group) = Delegated::to(NOBODY) else { return };
    let elect = group.tenure_as_nobody(&store, &["elect", "--cgroup", group.dir(), "--lease", "3s", "x", "--", "./helper"]);
    let first = store.pid("pid");
    std::fs::remove_file(store.path("pid")).expect("it is there");
    break_as_nobody(&store);
    elect.says("the campaign goes on");
    assert!(is_dead(first));
    let second = store.pid("pid");
    assert!(!is_dead(second) && group.groups().len() == 1);
}

#[test]
fn a_program_that_has_left_its_group_as_another_user_is_told_of_and_nothing_is_started_beside_it() {
    let Some(store) = unprivileged() else { return };
    let Some(group) = Delegated::to(NOBODY) else { return };
    let outside = format!("{}/cgroup.procs", group.dir());
    for program in ["exec ./helper $0", "./helper $0 & wait"] {
        let args = ["elect", "--cgroup", group.dir(), "--lease", "3s", "x", "--", "sh", "-c", program, &outside];
        let elect = group.tenure_as_nobody(&store, &args);
        let helper = store.pid("pid");
        std::fs::remove_file(store.path("pid")).expect("it is there");
        if program.starts_with("exec") {
            elect.says("has left its control group");
        }
        break_as_nobody(&store);
        let (code, stderr) = elect.end();
        assert_eq!(code, Some(77), "{stderr}");
        assert!(stderr.contains("although its control group was killed"), "{stderr}");
        assert!(!is_dead(helper) && group.groups().is_empty());
    }
}

#[test]
fn a_daemon_is_dead_when_the_lock_was_lost() {
    let Some(group) = Delegated::to(root()) else { return };
    let store = Store::new();
    let program = format!("{DAEMON}; echo $$ > shell; exec sleep 1000");
    let args = ["run", "--cgroup", group.dir(), "--max-hold", "3s", "--lease", "3s", "x", "--", "sh", "-c", &program];
    let run = group.tenure(&store, args);
    let (daemon, shell) = (store.pid("daemon"), store.pid("shell"));
    assert!(!is_dead(daemon));
    let (code, stderr) = run.end();
    assert_eq!(code, Some(76), "{stderr}");
    assert!(is_dead(daemon) && is_dead(shell));
    assert_eq!(group.groups(), [""; 0].map(PathBuf::from), "{stderr}");
}

#[test]
fn a_daemon_that_a_program_leaves_behind_runs_on_and_is_told_of() {
    let Some(group) = Delegated::to(root()) else { return };
    let store = Store::new();
    let run = group.tenure(&store, ["run", "--cgroup", group.dir(), "x", "--", "sh", "-c", DAEMON]);
    let (code, stderr) = run.end();
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stderr.contains("left processes behind") && stderr.contains(group.dir()), "{stderr}");
    assert!(!is_dead(store.pid("daemon")));
}

#[test]
fn nothing_of_the_program_runs_outside_of_its_group_and_the_group_is_removed() {
    let Some(group) = Delegated::to(root()) else { return };
    let store = Store::new();
    let run = group.tenure(&store, ["run", "--cgroup", group.dir(), "x", "--", "sh", "-c", "cat /proc/self/cgroup > seen"]);
    let (code, stderr) = run.end();
    assert_eq!((code, &*stderr), (Some(0), ""));
    let seen = store.written("seen");
    assert!(seen.contains(&format!("{}/tenure-", group.0.file_name().expect("a name").display())), "{seen}");
    assert!(group.groups().is_empty());
}

#[test]
fn the_guardian_kills_the_group_when_only_tenure_is_stopped() {
    let Some(store) = unprivileged() else { return };
    let Some(group) = Delegated::to(NOBODY) else { return };
    let program = format!("{DAEMON}; exec ./helper");
    let args = ["run", "--cgroup", group.dir(), "--lease", "3s", "x", "--", "sh", "-c", &program];
    let run = group.tenure_as_nobody(&store, &args);
    let (daemon, helper) = (store.pid("daemon"), store.pid("pid"));
    run.signal(Signal::STOP);
    let next = group.tenure_as_nobody(&store, &["run", "x", "--", "sh", "-c", LOOK]);
    assert_eq!(next.end().0, Some(0));
    assert_seen_dead(&store);
    assert!(is_dead(daemon) && is_dead(helper));
    run.signal(Signal::CONT);
    let (code, stderr) = run.end();
    assert_eq!(code, Some(76), "{stderr}");
    assert!(group.groups().is_empty());
}

#[test]
fn the_guardian_kills_and_removes_the_group_when_tenure_was_killed() {
    let Some(store) = unprivileged() else { return };
    let Some(group) = Delegated::to(NOBODY) else { return };
    let program = format!("{DAEMON}; exec ./helper");
    let run = group.tenure_as_nobody(&store, &["run", "--cgroup", group.dir(), "x", "--", "sh", "-c", &program]);
    let (daemon, helper) = (store.pid("daemon"), store.pid("pid"));
    run.signal(Signal::KILL);
    eventually("their end", || is_dead(daemon) && is_dead(helper));
    eventually("the end of the group", || group.groups().is_empty());
}

#[test]
fn a_directory_in_which_no_group_can_be_made_is_refused_and_nothing_runs() {
    let store = Store::new();
    for command in ["run", "elect"] {
        for (dir, why) in [(".", "no control group of cgroup v2"), ("nowhere", "No such file"), ("/proc", "no control group")] {
            let output = store.output([command, "--cgroup", dir, "x", "--", "touch", "ran"]);
            let stderr = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{stderr}");
            assert!(stderr.contains(&format!("--cgroup {dir}")) || dir == ".", "{stderr}");
            assert!(stderr.contains(why) && stderr.contains("allowed is"), "{stderr}");
        }
    }
    assert!(!store.path("ran").exists() && !store.database().exists());
}

#[test]
fn a_group_that_this_user_may_not_make_or_join_is_refused_and_nothing_runs() {
    let Some(store) = unprivileged() else { return };
    let (Some(mine), Some(theirs)) = (Delegated::to(NOBODY), Delegated::to(root())) else { return };
    // The second one may be written to, but the way there leads through a group that may not.
    let Some(elsewhere) = Delegated::to(NOBODY) else { return };
    for (dir, why) in [(theirs.dir(), "no group can be made there"), (elsewhere.dir(), "cannot join a group there")] {
        let (code, stderr) = mine.tenure_as_nobody(&store, &["run", "--cgroup", dir, "x", "--", "touch", "ran"]).end();
        assert_eq!(code, Some(2), "{stderr}");
        assert!(stderr.contains(&format!("--cgroup {dir}")) && stderr.contains(why) && stderr.contains("allowed is"), "{stderr}");
    }
    assert!(!store.path("ran").exists() && elsewhere.groups().is_empty());
}
