//! `tenure bench` on stores of each reach: what it prints, that it touches no other lock, and that it leaves none behind.

use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tenure_testkit::command::{Running, Store, text};
use tenure_testkit::{RedisServer, Signal, eventually, until};

const PASSWORD: &str = "canary-5ecret";

fn main() {
    tenure_testkit::run(tenure_testkit::tests! {
        Nothing:
            all_cases_are_measured_on_sqlite
            a_store_of_one_process_skips_what_needs_several
            the_table_says_what_was_checked_and_that_runs_do_not_compare
            rounds_are_shown_one_by_one
            a_histogram_is_drawn_for_each_case
            a_file_that_cannot_be_written_is_1
            an_interrupted_run_leaves_nothing_behind
            an_interrupted_run_of_processes_leaves_nothing_behind
            the_processes_end_with_their_parent;
        Redis:
            all_cases_are_measured_on_redis
            no_process_shows_the_url;
    })
}

/// `tenure bench`, as short as it can be.
fn bench(store: &Store, args: &[&str]) -> Command {
    let mut command = store.tenure(["bench", "--seconds", "0.1", "--holds", "50"]);
    command.args(args);
    command
}

fn run(store: &Store, args: &[&str]) -> Output {
    bench(store, args).output().expect("tenure starts")
}

fn json(store: &Store, args: &[&str]) -> Value {
    let output = bench(store, args).arg("--json").output().expect("tenure starts");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("json")
}

fn cases(report: &Value) -> &[Value] {
    report["cases"].as_array().expect("a list")
}

/// What every case that was measured has.
fn is_measured(case: &Value) {
    let none = serde_json::json!({ "intruders": 0, "stale_tokens": 0, "lost": 0, "stuck": 0 });
    assert_eq!(case["faults"], none, "{case}");
    assert!(case["skipped"].is_null() && case["cycles"].as_u64() > Some(0), "{case}");
    for number in ["cycles_per_s", "longest_wait_us", "cpu_us_per_cycle"] {
        assert!(case[number].as_f64() > Some(0.0), "{number}: {case}");
    }
    let [p50, p99, max] = ["p50_us", "p99_us", "max_us"].map(|time| case["cycle"][time].as_f64().expect("a time"));
    assert!(0.0 < p50 && p50 <= p99 && p99 <= max, "{case}");
    assert!(case["least_served"].as_u64() <= case["most_served"].as_u64(), "{case}");
    let counted: u64 = case["histogram"].as_array().expect("bins").iter().filter_map(|bin| bin["count"].as_u64()).sum();
    assert_eq!(Some(counted), case["cycle"]["count"].as_u64(), "{case}");
}

fn all_are_measured(store: &Store) {
    let report = json(store, &[]);
    assert_eq!(report["held"], true, "{report}");
    let ids: Vec<_> = cases(&report).iter().filter_map(|case| case["id"].as_str()).collect();
    assert_eq!(ids, ["P1", "P2", "P3", "P3-100us", "P4", "P5", "P6"]);
    cases(&report).iter().for_each(is_measured);
    assert!(cases(&report)[4]["handed_between_processes"]["count"].as_u64() > Some(0), "{report}");
    let [drained, held] = [&cases(&report)[5], &cases(&report)[6]];
    assert_eq!((&drained["cycles"], &drained["least_served"], &drained["most_served"]), (&1000.into(), &1.into(), &1.into()));
    assert_eq!((&held["holds"]["count"], &held["cycles"]), (&50.into(), &50.into()), "{held}");
    assert_eq!(store.json(["ls", "--json"]), serde_json::json!([]));
}

fn all_cases_are_measured_on_sqlite() {
    let store = Store::new();
    all_are_measured(&store);
}

fn with_password() -> (RedisServer, Store) {
    let server = RedisServer::with(&["--requirepass", PASSWORD]);
    let url = format!("redis://:{PASSWORD}@127.0.0.1:{}", server.port);
    (server, Store::at(url))
}

fn all_cases_are_measured_on_redis() {
    let (_server, store) = with_password();
    all_are_measured(&store);
}

fn a_store_of_one_process_skips_what_needs_several() {
    let store = Store::at("memory:".to_owned());
    let report = json(&store, &["--only", "p4,P1"]);
    let [measured, skipped] = cases(&report) else { panic!("two cases: {report}") };
    is_measured(measured);
    assert!(skipped["skipped"].as_str().is_some_and(|why| why.contains("one process")), "{skipped}");
    assert!(skipped["cycles"].is_null(), "{skipped}");
    let shown = run(&store, &["--only", "P4"]);
    assert_eq!(shown.status.code(), Some(0), "{shown:?}");
    assert!(
        text(&shown.stdout).contains("SKIPPED: only one process can use this store")
            && text(&shown.stdout).contains("Nothing was measured"),
        "{shown:?}"
    );
}

fn the_table_says_what_was_checked_and_that_runs_do_not_compare() {
    let store = Store::new();
    let output = run(&store, &["--only", "P1,P6"]);
    let shown = text(&output.stdout);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()), "no bar without a terminal");
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[1].starts_with("CASE") && lines[1].ends_with("CHECKED"), "{shown}");
    assert!(
        lines[2].starts_with("P1 ")
            && lines[2].ends_with(" exclusion, tokens: ok")
            && lines[3].starts_with("P6 ")
            && lines[3].ends_with(" none lost: ok"),
        "{shown}"
    );
    for words in ["store: sqlite", "renewals", "All checks held", "not comparable"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
}

fn rounds_are_shown_one_by_one() {
    let report = json(&Store::at("memory:".to_owned()), &["--only", "P1,P6", "--rounds", "3"]);
    for case in cases(&report) {
        is_measured(case);
        let mut rates: Vec<f64> = case["rounds"].as_array().expect("rates").iter().filter_map(Value::as_f64).collect();
        rates.sort_by(f64::total_cmp);
        assert_eq!((rates.len(), case["cycles_per_s"].as_f64()), (3, Some(rates[1])), "{case}");
    }
}

fn a_histogram_is_drawn_for_each_case() {
    let store = Store::at("memory:".to_owned());
    let output = run(&store, &["--only", "P1,P3,P4", "--svg", "out.svg"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let svg = std::fs::read_to_string(store.path("out.svg")).expect("a picture");
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n") && !svg.contains("script"), "{svg}");
    for words in ["P1: ", "P3: ", "P3-100us: ", "p99 ", "prefers-color-scheme: dark"] {
        assert!(svg.contains(words), "{words}: {svg}");
    }
    assert!(!svg.contains("P4: ") && !svg.contains("NaN"), "{svg}");
}

fn a_file_that_cannot_be_written_is_1() {
    let store = Store::at("memory:".to_owned());
    let output = run(&store, &["--only", "P1", "--svg", "none/out.svg"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("none/out.svg") && text(&output.stdout).contains("P1 "), "{output:?}");
}

/// `tenure bench` that would run for long.
fn start(store: &Store, only: &str) -> Running {
    let mut command = store.tenure(["bench", "--seconds", "600", "--holds", "50", "--only"]);
    Running::new(command.arg(only).stdout(Stdio::null()).stderr(Stdio::piped()))
}

fn names(store: &Store) -> Vec<String> {
    let list = store.json(["ls", "--json"]);
    list.as_array().expect("a list").iter().filter_map(|lock| Some(lock["name"].as_str()?.to_owned())).collect()
}

fn an_interrupted_run_leaves_nothing_behind() {
    let store = Store::new();
    let other = store.start(["run", "mine", "--", "sh", "-c", "echo > ready; exec sleep 1000"]);
    store.written("ready");
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let run = start(&store, "P6");
        eventually("all locks are held", || names(&store).len() == 51);
        assert!(names(&store).iter().all(|name| name == "mine" || name.starts_with("tenure-bench:")));
        run.signal(signal);
        assert_eq!(run.end(), (Some(code), String::new()));
        assert_eq!(names(&store), ["mine"], "given back when it ends, not by the end of its leases");
    }
    drop(other);
}

/// The processes that a process has started.
fn children(pid: i32) -> Vec<i32> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

fn an_interrupted_run_of_processes_leaves_nothing_behind() {
    let store = Store::new();
    let run = start(&store, "P4");
    let members = members(&run, &store);
    run.signal(Signal::INT);
    assert_eq!(run.end().0, Some(130));
    assert!(members.into_iter().all(tenure_testkit::command::is_dead));
    assert_eq!(names(&store), [""; 0]);
}

/// The four processes of P4, when they have begun.
fn members(run: &Running, store: &Store) -> Vec<i32> {
    let members = until("four processes", || Some(children(run.pid())).filter(|members| members.len() == 4));
    eventually("a lock is held", || names(store).iter().any(|name| name.ends_with(":P4")));
    members
}

fn the_processes_end_with_their_parent() {
    let store = Store::new();
    let run = start(&store, "P4");
    let members = members(&run, &store);
    run.signal(Signal::KILL);
    eventually("their end", || members.iter().copied().all(tenure_testkit::command::is_dead));
    assert_eq!(names(&store), [""; 0], "they have given back what they held");
}

fn no_process_shows_the_url() {
    let (_server, store) = with_password();
    let run = start(&store, "P4");
    for pid in members(&run, &store) {
        for file in ["cmdline", "environ"] {
            let shown = std::fs::read(format!("/proc/{pid}/{file}")).expect("it is ours");
            assert!(!text(&shown).contains(PASSWORD) && !text(&shown).contains("TENURE_URL"), "{file}");
        }
    }
    run.signal(Signal::INT);
    let (code, said) = run.end();
    assert!(code == Some(130) && !said.contains(PASSWORD), "{said}");
}
