//! `tenure run`: what the program gets, and what its end is reported as.

use std::io::Write;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use tenure_testkit::command::{Running, Store, text};
use tenure_testkit::eventually;

#[test]
fn the_program_finds_name_token_and_owner_in_its_environment() {
    let store = Store::new();
    let show = "echo \"$TENURE_NAME|$TENURE_TOKEN|$TENURE_OWNER\"";
    let tokens: Vec<u64> = (0..3)
        .map(|_| {
            let output = store.output(["run", "deploy: a b", "--", "sh", "-c", show]);
            assert!(output.status.success(), "{output:?}");
            let line = text(&output.stdout);
            let parts: Vec<&str> = line.trim().split('|').collect();
            assert_eq!(parts[0], "deploy: a b");
            assert!(parts[2].parse::<tenure::OwnerId>().is_ok(), "{line}");
            parts[1].parse().expect("a number")
        })
        .collect();
    assert!(tokens[0] < tokens[1] && tokens[1] < tokens[2], "{tokens:?}");
}

#[test]
fn the_token_is_the_one_that_others_see() {
    let store = Store::new();
    let run = store.start(["run", "x", "--", "sh", "-c", "echo $TENURE_TOKEN > token; exec sleep 1000"]);
    let token = store.written("token");
    let who = store.json(["who", "x", "--json"]);
    assert_eq!(who["holders"][0]["token"], token.as_str());
    drop(run);
}

#[test]
fn the_exit_code_is_the_program_s() {
    let store = Store::new();
    for (script, code) in [("exit 0", 0), ("exit 1", 1), ("exit 42", 42), ("kill -9 $$", 137), ("kill -15 $$", 143)] {
        assert_eq!(store.output(["run", "x", "--", "sh", "-c", script]).status.code(), Some(code), "{script}");
    }
    assert!(!store.is_held("x"));
}

#[test]
fn a_program_that_cannot_run_is_reported_as_a_shell_does() {
    let store = Store::new();
    let missing = store.output(["run", "x", "--", "no-such-program-anywhere"]);
    assert_eq!(missing.status.code(), Some(127));
    assert!(text(&missing.stderr).contains("no-such-program-anywhere"), "{missing:?}");
    std::fs::write(store.path("data"), "x").expect("written");
    assert_eq!(store.output(["run", "x", "--", "./data"]).status.code(), Some(126));
    assert!(!store.is_held("x"));
}

#[test]
fn arguments_and_stdin_reach_the_program_unchanged() {
    let store = Store::new();
    let output = store.output(["run", "x", "--", "printf", "%s|", "--json", "a b", "", "--", "$HOME"]);
    assert_eq!(text(&output.stdout), "--json|a b||--|$HOME|");

    let mut run = store.tenure(["run", "x", "--", "cat"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("starts");
    run.stdin.take().expect("a pipe").write_all(b"hi\n").expect("written");
    assert_eq!(text(&run.wait_with_output().expect("ends").stdout), "hi\n");
}

#[test]
fn a_busy_lock_is_75_or_what_was_asked_for() {
    let store = Store::new();
    let holder = store.start(["run", "x", "--", "sh", "-c", "echo $$ > pid; exec sleep 1000"]);
    store.pid("pid");
    let busy = store.output(["run", "-n", "x", "--", "touch", "ran"]);
    assert_eq!(busy.status.code(), Some(75), "{busy:?}");
    assert!(text(&busy.stderr).contains("x is busy"), "{busy:?}");
    assert_eq!(store.output(["run", "--wait", "50ms", "x", "--", "touch", "ran"]).status.code(), Some(75));
    assert_eq!(store.output(["run", "--no-wait", "--busy-code", "0", "x", "--", "touch", "ran"]).status.code(), Some(0));
    assert!(!store.path("ran").exists());
    assert_eq!(store.output(["run", "-n", "y", "--", "true"]).status.code(), Some(0));
    drop(holder);
}

#[test]
fn a_waiter_gets_the_lock_when_the_holder_ends() {
    let store = Store::new();
    let holder = store.start(["run", "x", "--", "sh", "-c", "echo $$ > pid; exec sleep 1000"]);
    let pid = store.pid("pid");
    let waiter = store.start(["run", "-v", "x", "--", "touch", "ran"]);
    waiter.says("waiting for x");
    assert!(!store.path("ran").exists());
    rustix::process::kill_process(rustix::process::Pid::from_raw(pid).expect("a pid"), Signal::TERM).expect("it runs");
    assert_eq!(holder.end().0, Some(143));
    assert_eq!(waiter.end().0, Some(0));
    assert!(store.path("ran").exists());
}

#[test]
fn min_hold_keeps_the_lock_after_the_program() {
    let store = Store::new();
    let run = store.start(["run", "-v", "--min-hold", "1h", "x", "--", "sh", "-c", "exit 5"]);
    run.says("keeping x locked");
    assert_eq!(store.output(["run", "-n", "x", "--", "true"]).status.code(), Some(75));
    run.signal(Signal::TERM);
    assert_eq!(run.end().0, Some(5));
    assert!(!store.is_held("x"));

    let short = store.output(["run", "--min-hold", "10ms", "x", "--", "sh", "-c", "exit 6"]);
    assert_eq!(short.status.code(), Some(6));
}

#[test]
fn verbose_says_what_happens_to_the_lock_and_silence_is_the_default() {
    let store = Store::new();
    let loud = text(&store.output(["run", "-v", "x", "--", "true"]).stderr);
    assert!(loud.starts_with("tenure: locked x, token ") && loud.contains("tenure: released x"), "{loud}");
    assert_eq!(text(&store.output(["run", "x", "--", "true"]).stderr), "");
}

#[test]
fn a_signal_ends_the_wait_and_leaves_nothing_behind() {
    let store = Store::new();
    let holder = store.start(["run", "x", "--", "sh", "-c", "echo $$ > pid; exec sleep 1000"]);
    store.pid("pid");
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let waiter = store.start(["run", "-v", "x", "--", "touch", "ran"]);
        waiter.says("waiting for x");
        waiter.signal(signal);
        assert_eq!(waiter.end().0, Some(code));
    }
    let waiting = &store.json(["who", "x", "--json"])["waiting"];
    assert!(waiting.is_null() || waiting == 0, "{waiting}");
    assert!(!store.path("ran").exists());
    drop(holder);
}

#[test]
fn signals_are_passed_on_to_the_program() {
    let signals = [
        (Signal::INT, "INT"),
        (Signal::TERM, "TERM"),
        (Signal::HUP, "HUP"),
        (Signal::QUIT, "QUIT"),
        (Signal::USR1, "USR1"),
        (Signal::USR2, "USR2"),
        (Signal::WINCH, "WINCH"),
    ];
    for (signal, name) in signals {
        let store = Store::new();
        let script = format!("trap 'echo {name} > got; exit 33' {name}; echo > ready; while :; do sleep 0.05; done");
        let run = store.start(["run", "x", "--", "sh", "-c", &script]);
        store.written("ready");
        run.signal(signal);
        assert_eq!(run.end().0, Some(33), "{name}");
        assert_eq!(store.written("got"), name);
    }
}

#[test]
fn signals_reach_the_whole_group() {
    let store = Store::new();
    let script = "sleep 1000 & echo $! > other; echo $$ > pid; wait";
    let run = store.start(["run", "x", "--", "sh", "-c", script]);
    let (pid, other) = (store.pid("pid"), store.pid("other"));
    run.signal(Signal::TERM);
    assert_eq!(run.end().0, Some(143));
    eventually("the end of both", || tenure_testkit::command::is_dead(pid) && tenure_testkit::command::is_dead(other));
}

#[test]
fn an_ignored_signal_stays_ignored() {
    let store = Store::new();
    let tenure = "trap '' HUP; exec \"$0\" run x -- sh -c 'echo $$ > pid; exec sleep 1000'";
    let mut shell = Command::new("sh");
    shell.args(["-c", tenure, env!("CARGO_BIN_EXE_tenure")]).current_dir(store.path("")).stdin(Stdio::null());
    let run = Running::new(shell.env("TENURE_URL", store.url()));
    let status = std::fs::read_to_string(format!("/proc/{}/status", store.pid("pid"))).expect("it runs");
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("a mask").trim();
    assert_eq!(u64::from_str_radix(mask, 16).expect("hex") & 1, 1);
    // The first would win if it were acted upon.
    run.signal(Signal::HUP);
    run.signal(Signal::TERM);
    assert_eq!(run.end().0, Some(143));
}

#[test]
fn the_program_and_its_group_die_with_tenure() {
    let store = Store::new();
    let script = "trap '' TERM HUP INT; sleep 1000 & echo $! > other; echo $$ > pid; while :; do sleep 0.05; done";
    let run = store.start(["run", "x", "--", "sh", "-c", script]);
    let (pid, other) = (store.pid("pid"), store.pid("other"));
    run.signal(Signal::KILL);
    eventually("the end of both", || tenure_testkit::command::is_dead(pid) && tenure_testkit::command::is_dead(other));
    assert_eq!(run.end().0, None);
}

#[test]
fn what_the_program_leaves_behind_in_good_order_is_left_alone() {
    let store = Store::new();
    let script = "sleep 1000 > /dev/null 2>&1 & echo $! > other";
    assert_eq!(store.output(["run", "x", "--", "sh", "-c", script]).status.code(), Some(0));
    let other = store.pid("other");
    assert!(!tenure_testkit::command::is_dead(other) && !store.is_held("x"));
    rustix::process::kill_process(rustix::process::Pid::from_raw(other).expect("a pid"), Signal::KILL).expect("it runs");
}
