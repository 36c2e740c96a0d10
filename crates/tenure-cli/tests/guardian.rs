//! The guardian of a program: it starts before the program, is replaced when it fails, and ends last.
#![cfg(target_os = "linux")]

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tenure_testkit::command::{Running, Store, is_dead};
use tenure_testkit::{eventually, nobody};

/// The guardian of a running `tenure`: its child that is not the program. Not one that is still being made: `tenure` waits
/// for its birth.
fn guardian_of(tenure: i32, program: i32) -> Option<i32> {
    let children = std::fs::read_to_string(format!("/proc/{tenure}/task/{tenure}/children")).ok()?;
    let guards = |pid: i32| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.contains("__guard"));
    children.split_whitespace().filter_map(|pid| pid.parse().ok()).find(|pid| *pid != program && guards(*pid))
}

#[test]
fn a_guardian_that_is_killed_or_stopped_is_replaced() {
    for signal in [Signal::KILL, Signal::STOP] {
        let store = Store::new();
        let script = "trap '' TERM; echo $$ > pid; while :; do sleep 0.05; done";
        let run = store.start(["run", "--lease", "3s", "x", "--", "sh", "-c", script]);
        let pid = store.pid("pid");
        let guardian = tenure_testkit::until("the guardian", || guardian_of(run.pid(), pid));
        tenure_testkit::command::kill(guardian, signal);
        tenure_testkit::until("another one", || guardian_of(run.pid(), pid).filter(|other| *other != guardian));
        assert!(is_dead(guardian), "{signal:?}");
        run.signal(Signal::STOP);
        eventually("the end of the program", || is_dead(pid));
        run.signal(Signal::CONT);
        assert_eq!(run.end().0, Some(76), "{signal:?}");
    }
}

#[test]
fn a_guardian_that_is_killed_is_replaced_before_there_is_a_renewal_to_tell_it() {
    let store = Store::new();
    let run = store.start(["run", "--lease", "24h", "x", "--", "sh", "-c", "echo $$ > pid; while :; do sleep 0.05; done"]);
    let pid = store.pid("pid");
    let mut guardian = tenure_testkit::until("the guardian", || guardian_of(run.pid(), pid));
    // Also one after the other.
    for _ in 0..3 {
        // Of an age at which it is missed at once.
        std::thread::sleep(std::time::Duration::from_millis(150));
        tenure_testkit::command::kill(guardian, Signal::KILL);
        guardian = tenure_testkit::until("another one", || guardian_of(run.pid(), pid).filter(|other| *other != guardian));
    }
    run.signal(Signal::TERM);
    run.end();
}

#[test]
fn a_guardian_that_is_killed_while_the_program_is_being_stopped_is_replaced() {
    let store = Store::new();
    let script = "trap 'echo > asked' TERM; echo $$ > pid; while :; do sleep 0.05; done";
    let run = store.start(["run", "--lease", "24h", "--max-hold", "300ms", "x", "--", "sh", "-c", script]);
    let pid = store.pid("pid");
    store.written("asked");
    let guardian = tenure_testkit::until("the guardian", || guardian_of(run.pid(), pid));
    tenure_testkit::command::kill(guardian, Signal::KILL);
    tenure_testkit::until("another one", || guardian_of(run.pid(), pid).filter(|other| *other != guardian));
    assert_eq!(run.end().0, Some(76));
}

#[test]
fn a_program_that_stops_its_tenure_at_once_has_a_guardian() {
    for _ in 0..10 {
        let store = Store::new();
        let run = store.start(["run", "--lease", "24h", "x", "--", "sh", "-c", "kill -STOP $PPID; echo $$ > pid; sleep 1000"]);
        let pid = store.pid("pid");
        tenure_testkit::until("the guardian", || guardian_of(run.pid(), pid));
        run.signal(Signal::KILL);
        eventually("the end of the program", || is_dead(pid));
    }
}

#[test]
fn a_program_that_others_stop_before_it_begins_begins_all_the_same() {
    for _ in 0..10 {
        let store = Store::new();
        let run = store.start(["run", "--lease", "24h", "x", "--", "sh", "-c", "echo > begun"]);
        let children = || std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", run.pid())).unwrap_or_default();
        let has_begun =
            |pid: i32| !std::fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.contains("__exec"));
        eventually("the program", || {
            for pid in children().split_whitespace().filter_map(|pid| pid.parse().ok()) {
                if !has_begun(pid) {
                    let _ = kill_process(Pid::from_raw(pid).expect("a number"), Signal::STOP);
                }
                // The stop may have met it behind its beginning.
                if has_begun(pid) {
                    let _ = kill_process(Pid::from_raw(pid).expect("a number"), Signal::CONT);
                }
            }
            store.path("begun").exists()
        });
        assert_eq!(run.end().0, Some(0));
    }
}

#[test]
fn a_guardian_keeps_the_lifeline_that_others_see() {
    let store = Store::new();
    let run = store.start(["run", "--lease", "2s", "x", "--", "sh", "-c", "echo $$ > pid; sleep 1000"]);
    let pid = store.pid("pid");
    let guardian = tenure_testkit::until("the guardian", || guardian_of(run.pid(), pid));
    let pipes = store.path("locks.db.clients");
    let lifeline = |guardian| std::fs::read_link(format!("/proc/{guardian}/fd/1")).unwrap_or_default();
    assert!(lifeline(guardian).starts_with(&pipes), "{:?}", lifeline(guardian));
    std::fs::rename(&pipes, store.path("elsewhere")).expect("moved");
    tenure_testkit::until("another one", || guardian_of(run.pid(), pid).filter(|other| lifeline(*other).starts_with(&pipes)));
    run.signal(Signal::TERM);
    run.end();
}

/// As root there is no limit on processes that a test could set.
#[test]
fn a_guardian_that_could_not_be_started_is_started_when_that_is_possible() {
    let Some(store) = nobody::unprivileged() else { return };
    let script = "echo $$ > pid; while :; do sleep 1000; done";
    let run = nobody::run(&store, &["run", "--lease", "2s", "x", "--", "sh", "-c", script]);
    let pid = store.pid("pid");
    let guardian = tenure_testkit::until("the guardian", || guardian_of(run.pid(), pid));
    // Of an age at which it is missed at once.
    std::thread::sleep(Duration::from_millis(150));
    let limit = |processes: &str| {
        let args = ["--pid", &run.pid().to_string(), &format!("--nproc={processes}:")];
        let status = nobody::as_nobody(Path::new("prlimit"), &args).status();
        assert!(status.expect("prlimit").success());
    };
    limit("1");
    tenure_testkit::command::kill(guardian, Signal::KILL);
    run.says("no guardian");
    limit("1000");
    tenure_testkit::until("another one", || guardian_of(run.pid(), pid).filter(|other| *other != guardian));
    run.signal(Signal::TERM);
    run.end();
}

#[test]
fn nobody_has_the_lock_of_a_killed_tenure_before_what_its_program_started_is_dead() {
    let store = Store::new();
    let script = "(echo $$ > pid; sh -c 'echo $$ > child; exec sleep 1000') & wait";
    let run = store.start(["run", "--lease", "24h", "x", "--", "sh", "-c", script]);
    let (pid, child) = (store.pid("pid"), store.pid("child"));
    let guardian = tenure_testkit::until("the guardian", || guardian_of(run.pid(), pid));
    let look = format!("sed 's/.*) //' /proc/{child}/stat > state 2> /dev/null; echo > next");
    let next = store.start(["run", "--wait", "1h", "x", "--", "sh", "-c", &look]);
    eventually("the next one in the queue", || store.who("x")["waiting"].as_u64() == Some(1));
    // A guardian that is late: it is not replaced by a tenure that stands still. The kernel lets it go on when tenure is dead.
    run.signal(Signal::STOP);
    eventually("tenure stands still", || tenure_testkit::command::state(run.pid()) == Some('T'));
    tenure_testkit::command::kill(guardian, Signal::STOP);
    eventually("its guardian, too", || tenure_testkit::command::state(guardian) == Some('T'));
    run.signal(Signal::KILL);
    store.written("next");
    let state = std::fs::read_to_string(store.path("state")).expect("written");
    assert!(state.is_empty() || state.starts_with(['Z', 'X']), "the next one ran beside what the program started: {state}");
    assert!(is_dead(child));
    assert_eq!(next.end().0, Some(0));
}

#[test]
fn signals_that_were_blocked_by_who_started_tenure_are_heard() {
    let blocked = |store: &Store, signals: &str, args: &[&str]| {
        let mut command = Command::new("env");
        command.arg(format!("--block-signal={signals}")).arg(env!("CARGO_BIN_EXE_tenure")).args(args);
        command.current_dir(store.path("")).env("TENURE_URL", store.url()).stdin(Stdio::null());
        Running::new(&mut command)
    };
    let store = Store::new();
    let script = "trap '' TERM; while :; do sleep 0.05; done";
    let run = blocked(&store, "CHLD", &["run", "--lease", "3s", "--max-hold", "300ms", "x", "--", "sh", "-c", script]);
    assert_eq!(run.end().0, Some(76));
    assert_eq!(blocked(&store, "CHLD", &["run", "--lease", "24h", "x", "--", "true"]).end().0, Some(0));
    let run = blocked(&store, "TERM", &["run", "x", "--", "sh", "-c", "echo $$ > pid; exec sleep 1000"]);
    store.pid("pid");
    run.signal(Signal::TERM);
    assert_eq!(run.end().0, Some(143));
}
