//! `tenure elect`: one leader at any time, and the next one after it.

use rustix::process::Signal;
use tenure_testkit::command::{Running, Store, is_dead, text};
use tenure_testkit::eventually;

/// A candidate whose program writes its term to `term-NAME` and ends at SIGTERM.
fn candidate(store: &Store, who: &str) -> Running {
    let script = format!(
        "trap 'echo bye > bye-{who}; exit 3' TERM; echo $$ > pid-{who}; echo $TENURE_TERM > term-{who}; \
         while :; do sleep 0.05; done"
    );
    store.start(["elect", "-v", "--lease", "3s", "--value", who, "x", "--", "sh", "-c", &script])
}

/// Waits until a candidate leads; its term.
fn leads(store: &Store, who: &str) -> u64 {
    let term = store.written(&format!("term-{who}")).parse().expect("a number");
    std::fs::remove_file(store.path(&format!("term-{who}"))).expect("it is there");
    term
}

#[test]
fn the_term_is_the_token_and_the_value_is_what_others_see() {
    let store = Store::new();
    let script = "echo \"$TENURE_TERM $TENURE_TOKEN $TENURE_NAME\" > env; exec sleep 1000";
    let leader = store.start(["elect", "--value", "10.0.0.7:8080", "x", "--", "sh", "-c", script]);
    let env = store.written("env");
    let words: Vec<&str> = env.split(' ').collect();
    let who = store.who("x");
    assert_eq!(words, [words[0], words[0], "x"]);
    assert_eq!((&who["holders"][0]["token"], &who["holders"][0]["note"]), (&words[0].into(), &"10.0.0.7:8080".into()));
    assert!(text(&store.output(["who", "x"]).stdout).contains("10.0.0.7:8080"));
    drop(leader);
    let other = store.start(["elect", "y", "--", "sh", "-c", "echo > ready; exec sleep 1000"]);
    store.written("ready");
    let who = store.who("y");
    let note = who["holders"][0]["note"].as_str().expect("a note");
    assert!(note.ends_with(&format!(" {} sh", other.pid())), "{note}");
    let plain = store.output(["run", "z", "--", "sh", "-c", "echo \"<$TENURE_TERM>\""]);
    assert_eq!(text(&plain.stdout), "<>\n");
}

#[test]
fn when_the_program_ends_leadership_is_resigned() {
    let store = Store::new();
    let loud = store.output(["elect", "-v", "x", "--", "sh", "-c", "exit 42"]);
    assert_eq!(loud.status.code(), Some(42));
    let stderr = text(&loud.stderr);
    assert!(stderr.starts_with("tenure: elected for x, term ") && stderr.contains("tenure: released x"), "{stderr}");
    assert!(!store.is_held("x"));
    assert_eq!(store.output(["elect", "x", "--", "no-such-program-anywhere"]).status.code(), Some(127));
    assert!(!store.is_held("x"));
}

#[test]
fn a_leader_that_is_killed_is_followed_by_one_with_a_larger_term() {
    let store = Store::new();
    let first = candidate(&store, "a");
    let (term, pid) = (leads(&store, "a"), store.pid("pid-a"));
    let second = candidate(&store, "b");
    second.says("waiting for x — held");
    assert_eq!(store.who("x")["holders"][0]["note"], "a");
    first.signal(Signal::KILL);
    assert!(leads(&store, "b") > term);
    assert_eq!(store.who("x")["holders"][0]["note"], "b");
    eventually("the end of the first program", || is_dead(pid));
    assert_eq!(first.end().0, None);
}

#[test]
fn who_loses_leadership_stops_its_program_and_campaigns_again() {
    let store = Store::new();
    let first = candidate(&store, "a");
    let mut term = leads(&store, "a");
    let second = candidate(&store, "b");
    second.says("waiting for x");
    for (from, to, other) in [("a", "b", &first), ("b", "a", &second)] {
        assert!(store.output(["break", "x"]).status.success());
        let next = leads(&store, to);
        assert!(next > term, "{next} after {term}");
        term = next;
        other.says("the campaign goes on");
        assert_eq!(store.written(&format!("bye-{from}")), "bye");
        eventually("the end of the program", || is_dead(store.pid(&format!("pid-{from}"))));
        assert_eq!(store.who("x")["holders"][0]["note"], to);
        eventually("its new campaign", || store.who("x")["waiting"] == 1);
    }
    // Who leads passes a signal on, who campaigns ends.
    first.signal(Signal::TERM);
    assert_eq!(first.end().0, Some(3));
    assert!(leads(&store, "b") > term);
}

#[test]
fn a_signal_ends_a_campaign_and_is_passed_on_by_a_leader() {
    let store = Store::new();
    let first = candidate(&store, "a");
    leads(&store, "a");
    let second = candidate(&store, "b");
    second.says("waiting for x");
    second.signal(Signal::INT);
    assert_eq!(second.end().0, Some(130));
    first.signal(Signal::TERM);
    assert_eq!(first.end().0, Some(3));
    assert!(!store.is_held("x"));
}

#[test]
fn who_was_asked_to_end_does_not_campaign_again() {
    let store = Store::new();
    let script = "trap 'echo > got' TERM; echo > ready; while :; do sleep 0.05; done";
    let leader = store.start(["elect", "--lease", "3s", "x", "--", "sh", "-c", script]);
    store.written("ready");
    assert!(store.output(["break", "x"]).status.success());
    store.written("got");
    leader.signal(Signal::TERM);
    let (code, stderr) = leader.end();
    assert_eq!(code, Some(143), "{stderr}");
    assert!(stderr.contains("lost x") && !stderr.contains("goes on"), "{stderr}");
    assert!(!store.is_held("x"));
}
