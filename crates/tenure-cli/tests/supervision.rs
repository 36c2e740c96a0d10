//! Nothing that happens to tenure itself lets the program outlive its lock: a blocked stderr, a stop.
#![cfg(target_os = "linux")]

use std::fs::{File, OpenOptions};
use std::io::{PipeReader, PipeWriter, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use tenure_testkit::command::{Running, Store, is_dead, state};
use tenure_testkit::eventually;

/// A stderr that nobody reads.
struct Unread {
    _reader: PipeReader,
    writer: PipeWriter,
}

impl Unread {
    fn new() -> Self {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        Self { _reader: reader, writer }
    }

    fn stdio(&self) -> Stdio {
        self.writer.try_clone().expect("a pipe").into()
    }

    /// From now on whoever writes waits forever.
    fn fill(&self) {
        // A description of its own: the one that tenure has stays a blocking one.
        let nonblock = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).expect("a flag");
        let path = format!("/proc/self/fd/{}", self.writer.as_raw_fd());
        let mut own: File = OpenOptions::new().write(true).custom_flags(nonblock).open(path).expect("a pipe");
        for size in [4096, 1] {
            while own.write(&vec![b'x'; size]).is_ok() {}
        }
    }
}

fn run<const N: usize>(store: &Store, args: [&str; N], stderr: &Unread) -> Running {
    Running::new(store.tenure(args).stdout(Stdio::null()).stderr(stderr.stdio()))
}

#[test]
fn a_stderr_that_nobody_reads_does_not_keep_the_program_alive() {
    let (store, stderr) = (Store::new(), Unread::new());
    let script = "exec 2> /dev/null; trap 'echo bye > got; exit 0' TERM; echo > ready; while :; do sleep 0.05; done";
    let run = run(&store, ["run", "-v", "--lease", "3s", "x", "--", "sh", "-c", script], &stderr);
    store.written("ready");
    stderr.fill();
    assert!(store.output(["break", "x"]).status.success());
    assert_eq!(store.written("got"), "bye");
    assert_eq!(run.end().0, Some(76));
}

#[test]
fn a_stderr_that_nobody_reads_does_not_keep_the_program_from_running() {
    for (command, args) in [("run", ["--lease", "3s"]), ("elect", ["--value", "a"])] {
        let (store, stderr) = (Store::new(), Unread::new());
        stderr.fill();
        let run = run(&store, [command, "-v", args[0], args[1], "x", "--", "sh", "-c", "echo > ran; exit 7"], &stderr);
        store.written("ran");
        assert_eq!(run.end().0, Some(7), "{command}");
        assert!(!store.is_held("x"));
    }
}

#[test]
fn a_stderr_that_nobody_reads_does_not_keep_a_program_that_is_missing_from_being_reported() {
    let (store, stderr) = (Store::new(), Unread::new());
    stderr.fill();
    assert_eq!(run(&store, ["run", "x", "--", "/no/such/program"], &stderr).end().0, Some(127));
    assert!(!store.is_held("x"));
}

#[test]
fn a_warning_that_nobody_reads_does_not_keep_the_program_from_running() {
    let (store, stderr) = (Store::new(), Unread::new());
    stderr.fill();
    let file = store.path("url");
    std::fs::write(&file, store.url()).expect("written");
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o644)).expect("ours");
    let mut command = store.tenure(["run", "x", "--", "sh", "-c", "echo > ran; exit 7"]);
    command.env_remove("TENURE_URL").env("TENURE_URL_FILE", file).stdout(Stdio::null()).stderr(stderr.stdio());
    let run = Running::new(&mut command);
    store.written("ran");
    assert_eq!(run.end().0, Some(7));
}

/// Says of a process whether it lives: a zombie does not.
const LIVES: &str =
    "lives() { case $(sed 's/.*) //' /proc/$1/stat 2> /dev/null) in ''|Z*|X*) echo dead;; *) echo alive;; esac; }";

#[test]
fn when_only_tenure_is_stopped_its_program_is_dead_before_the_next_one_runs() {
    let store = Store::new();
    // Neither of them listens to SIGTERM.
    let script =
        "trap '' TERM; sh -c 'while :; do sleep 0.05; done' & echo $! > other; echo $$ > pid; while :; do sleep 0.05; done";
    let first = store.start(["run", "--lease", "3s", "x", "--", "sh", "-c", script]);
    let (pid, other) = (store.pid("pid"), store.pid("other"));
    let script = format!("{LIVES}; echo $(lives {pid}) $(lives {other}) > seen");
    let second = store.start(["run", "-v", "--lease", "3s", "x", "--", "sh", "-c", &script]);
    second.says("waiting for x");
    first.signal(Signal::STOP);
    eventually("it to stop", || state(first.pid()) == Some('T'));
    assert_eq!(store.written("seen"), "dead dead");
    assert_eq!(second.end().0, Some(0));
    first.signal(Signal::CONT);
    assert_eq!(first.end().0, Some(76));
}

#[test]
fn a_program_whose_tenure_is_stopped_is_first_asked_to_end() {
    let store = Store::new();
    let script = "trap 'echo bye >> got; exit 0' TERM; echo > ready; while :; do sleep 0.05; done";
    let run = store.start(["run", "--lease", "3s", "x", "--", "sh", "-c", script]);
    store.written("ready");
    run.signal(Signal::STOP);
    assert_eq!(store.written("got"), "bye");
    run.signal(Signal::CONT);
    assert_eq!(run.end().0, Some(76));
    assert_eq!(store.written("got"), "bye", "once");
}

/// A program that moves into the group of tenure; what it has started before stays.
const LEAVES: &str = "import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if sys.argv[1] == 'leaves one behind' and os.fork() == 0:
    time.sleep(1000)
os.setpgid(0, os.getpgid(os.getppid()))
open('pid', 'w').write(str(os.getpid()) + '\\n')
time.sleep(1000)";

#[test]
fn a_program_that_has_left_its_group_is_stopped_too() {
    if !Command::new("python3").arg("--version").output().is_ok_and(|output| output.status.success()) {
        return tenure_testkit::command::skipped("there is no python3, in which the program is written");
    }
    for stops in [false, true] {
        for what in ["leaves none behind", "leaves one behind"] {
            let store = Store::new();
            let run = store.start(["run", "--lease", "2s", "x", "--", "python3", "-c", LEAVES, what]);
            let pid = store.pid("pid");
            if stops {
                run.signal(Signal::STOP);
            } else {
                assert!(store.output(["break", "x"]).status.success());
            }
            eventually("the end of the program", || is_dead(pid));
            if stops {
                run.signal(Signal::CONT);
            }
            assert_eq!(run.end().0, Some(76), "{what}, tenure stops: {stops}");
        }
    }
}

#[test]
fn a_stop_that_ends_in_time_costs_nothing() {
    let store = Store::new();
    let script = "echo $$ > pid; read line; exit 4";
    let mut command = store.tenure(["run", "--lease", "6s", "x", "--", "sh", "-c", script]);
    let mut run = command.stdin(Stdio::piped()).spawn().expect("starts");
    let (pid, tenure) = (store.pid("pid"), i32::try_from(run.id()).expect("a process id"));
    for _ in 0..3 {
        tenure_testkit::command::kill(tenure, Signal::STOP);
        eventually("it to stop", || state(tenure) == Some('T'));
        tenure_testkit::command::kill(tenure, Signal::CONT);
        eventually("a renewal", || store.who("x")["holders"][0]["expires_in_ms"].as_u64().is_some_and(|ms| ms > 5000));
        assert!(!is_dead(pid));
    }
    drop(run.stdin.take());
    assert_eq!(run.wait().expect("ends").code(), Some(4));
}

/// `tenure` as the first process of a container. `None` where that cannot be made.
fn as_first_process<const N: usize>(store: &Store, args: [&str; N]) -> Option<Command> {
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--mount-proc", "--kill-child"]);
        command
    };
    if !unshare().arg("true").stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
        tenure_testkit::command::skipped("no process namespace can be made here");
        return None;
    }
    let mut command = unshare();
    command.arg(env!("CARGO_BIN_EXE_tenure")).args(args).current_dir(store.path(""));
    command.env("TENURE_URL", store.url()).stdin(Stdio::null());
    Some(command)
}

#[test]
fn as_the_first_process_tenure_buries_orphans() {
    let store = Store::new();
    let script = "(sleep 0.01 & sleep 0.01 &); sleep 0.2; \
                  while grep -q '^State:.Z' /proc/[0-9]*/status; do sleep 0.05; done 2> /dev/null; echo > clean";
    let Some(mut command) = as_first_process(&store, ["run", "x", "--", "sh", "-c", script]) else { return };
    let run = Running::new(&mut command);
    store.written("clean");
    assert_eq!(run.end().0, Some(0));
}

#[test]
fn as_the_first_process_tenure_does_not_wait_for_the_dead() {
    let store = Store::new();
    // All of them end at SIGTERM, the program first.
    let script = "sleep 1000 & sleep 1000 & wait";
    let args = ["run", "--lease", "30s", "--max-hold", "300ms", "x", "--", "sh", "-c", script];
    let Some(mut command) = as_first_process(&store, args) else { return };
    let since = std::time::Instant::now();
    assert_eq!(Running::new(&mut command).end().0, Some(76));
    // Who does not end at SIGTERM has five seconds.
    assert!(since.elapsed() < std::time::Duration::from_secs(5), "{:?}", since.elapsed());
}
