//! The end of a program whose lock is lost.

use rustix::process::Signal;
use tenure_testkit::command::{Running, Store, is_dead, text};
use tenure_testkit::eventually;

/// A program that writes a file when it is asked to end, and ends.
fn polite_program(store: &Store) -> Running {
    let script = "trap 'echo bye > got; exit 0' TERM; echo > ready; while :; do sleep 0.05; done";
    let run = store.start(["run", "--lease", "3s", "x", "--", "sh", "-c", script]);
    store.written("ready");
    run
}

#[test]
fn breaking_the_lock_stops_the_program_in_good_order() {
    let store = Store::new();
    let run = polite_program(&store);
    let broken = store.output(["break", "x"]);
    assert!(broken.status.success() && text(&broken.stdout).contains("broke x"), "{broken:?}");
    let (code, stderr) = run.end();
    assert_eq!(code, Some(76), "{stderr}");
    assert!(stderr.contains("lost x"), "{stderr}");
    assert_eq!(store.written("got"), "bye");
}

/// Breaks the lock of a script that writes the process ids of itself and of a child. Both must end.
fn breaking_the_lock_ends_both(script: &str) {
    let store = Store::new();
    let run = store.start(["run", "--lease", "3s", "x", "--", "sh", "-c", script]);
    let (pid, other) = (store.pid("pid"), store.pid("other"));
    assert!(store.output(["break", "x"]).status.success());
    assert_eq!(run.end().0, Some(76));
    eventually("the end of both", || is_dead(pid) && is_dead(other));
}

#[test]
fn breaking_the_lock_kills_a_whole_group_that_does_not_listen() {
    breaking_the_lock_ends_both("trap '' TERM; sleep 1000 & echo $! > other; echo $$ > pid; wait; sleep 1000");
}

#[test]
fn what_the_program_leaves_behind_is_killed_too_when_the_lock_is_lost() {
    // The program itself ends at SIGTERM, its child does not.
    breaking_the_lock_ends_both("(trap '' TERM; exec sleep 1000) & echo $! > other; echo $$ > pid; wait");
}

#[test]
fn a_store_that_does_not_answer_stops_the_program_before_the_lease_ends() {
    let store = Store::new();
    let run = polite_program(&store);
    let stuck = rusqlite::Connection::open(store.database()).expect("the store's file");
    stuck.busy_timeout(std::time::Duration::from_secs(10)).expect("an option");
    stuck.execute_batch("BEGIN EXCLUSIVE").expect("nobody else writes for long");
    assert_eq!(store.written("got"), "bye");
    let (code, stderr) = run.end();
    assert_eq!(code, Some(76), "{stderr}");
    assert!(stderr.contains("confirmed no renewal"), "{stderr}");
    drop(stuck);
}

#[test]
fn a_program_whose_lock_ran_out_while_tenure_stood_still_is_killed() {
    let store = Store::new();
    let script = "trap '' TERM; echo $$ > pid; while :; do sleep 0.05; done";
    let run = store.start(["run", "--lease", "500ms", "x", "--", "sh", "-c", script]);
    let pid = store.pid("pid");
    run.signal(Signal::STOP);
    eventually("the end of the lease", || !store.is_held("x"));
    run.signal(Signal::CONT);
    let (code, stderr) = run.end();
    assert_eq!(code, Some(76), "{stderr}");
    eventually("the end of the program", || is_dead(pid));
}

#[test]
fn max_hold_stops_the_program() {
    let store = Store::new();
    let script = "trap '' TERM; echo $$ > pid; while :; do sleep 0.05; done";
    let run = store.start(["run", "--lease", "6s", "--max-hold", "300ms", "x", "--", "sh", "-c", script]);
    let pid = store.pid("pid");
    let (code, stderr) = run.end();
    assert_eq!(code, Some(76), "{stderr}");
    assert!(stderr.contains("--max-hold"), "{stderr}");
    assert!(is_dead(pid));
    assert!(!store.is_held("x"));
}

#[test]
fn a_program_that_outlives_many_leases_keeps_its_lock() {
    let store = Store::new();
    let script = "echo $TENURE_TOKEN > token; read line; exit 0";
    let mut command = store.tenure(["run", "--lease", "2s", "x", "--", "sh", "-c", script]);
    let mut run = command.stdin(std::process::Stdio::piped()).spawn().expect("starts");
    let token = store.written("token");
    let since = std::time::Instant::now();
    eventually("several leases", || {
        assert_eq!(store.json(["who", "x", "--json"])["holders"][0]["token"], token.as_str());
        since.elapsed() > std::time::Duration::from_secs(5)
    });
    drop(run.stdin.take());
    assert_eq!(run.wait().expect("ends").code(), Some(0));
}
