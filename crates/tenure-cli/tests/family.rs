//! Readers and writers, permits, the fair queue, latches and elections, on the embedded store and on a real Redis server.

use rustix::process::Signal;
use tenure_testkit::command::{Running, Store, kill, text};
use tenure_testkit::eventually;
use tenure_testkit::{Needs, RedisServer, Test};

type Case = fn(&Store);

const CASES: [(&str, Case); 6] = [
    ("readers_run_together_and_a_writer_waits_for_them", readers_run_together_and_a_writer_waits_for_them),
    ("a_run_without_a_permit_waits_for_one", a_run_without_a_permit_waits_for_one),
    ("another_number_of_permits_is_told_and_can_be_changed", another_number_of_permits_is_told_and_can_be_changed),
    ("a_fair_queue_is_served_in_order", a_fair_queue_is_served_in_order),
    ("the_count_of_a_latch_is_shown", the_count_of_a_latch_is_shown),
    ("a_lost_reader_is_stopped_like_any_other", a_lost_reader_is_stopped_like_any_other),
];

fn main() {
    let mut tests = Vec::new();
    for (name, case) in CASES {
        tests.push(Test::new(format!("sqlite::{name}"), Needs::Nothing, move || case(&Store::new())));
        tests.push(Test::new(format!("redis::{name}"), Needs::Redis, move || {
            let server = RedisServer::start();
            case(&on(&server));
        }));
    }
    let name = "redis::a_campaign_outlasts_a_store_that_is_away";
    tests.push(Test::new(name, Needs::Redis, a_campaign_outlasts_a_store_that_is_away));
    tenure_testkit::run(tests)
}

fn on(server: &RedisServer) -> Store {
    Store::at(format!("redis://127.0.0.1:{}", server.port))
}

/// A run that says in a file that its program runs, and holds until that is killed.
fn hold<const N: usize>(store: &Store, who: &str, options: [&str; N]) -> Running {
    let script = format!("echo $$ > pid-{who}; exec sleep 1000");
    let mut command = store.tenure(["run", "-v", "--lease", "3s", "--note", who]);
    command.args(options).args(["x", "--", "sh", "-c", &script]);
    Running::new(command.stderr(std::process::Stdio::piped()))
}

/// Waits until its program runs.
fn runs(store: &Store, who: &str) -> i32 {
    store.pid(&format!("pid-{who}"))
}

/// Ends its program, and waits for the end of its hold.
fn end(store: &Store, who: &str, run: Running) {
    kill(runs(store, who), Signal::TERM);
    assert_eq!(run.end().0, Some(143));
}

/// The holders' words, in the order of the words, each with what it is held as.
fn holders(store: &Store) -> Vec<(String, String)> {
    let who = store.who("x");
    let told = |holder: &serde_json::Value, field: &str| holder[field].as_str().expect("a text").to_owned();
    let holders = who["holders"].as_array().expect("a list");
    let mut all: Vec<_> = holders.iter().map(|holder| (told(holder, "note"), told(holder, "mode"))).collect();
    all.sort();
    all
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(who, mode)| ((*who).to_owned(), (*mode).to_owned())).collect()
}

fn readers_run_together_and_a_writer_waits_for_them(store: &Store) {
    let readers = ["a", "b"].map(|who| hold(store, who, ["--shared"]));
    readers.iter().zip(["a", "b"]).for_each(|(run, who)| {
        runs(store, who);
        run.says("locked x to read, token ");
    });
    assert_eq!(holders(store), pairs(&[("a", "read"), ("b", "read")]));
    let listed = text(&store.output(["ls"]).stdout);
    assert!(listed.lines().skip(1).all(|line| line.starts_with("x     read ")) && listed.lines().count() == 3, "{listed}");

    let refused = store.output(["run", "-n", "--write", "x", "--", "true"]);
    let stderr = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(75), "{stderr}");
    assert!(stderr.contains("x is busy — held by 2 readers, the longest for "), "{stderr}");

    let writer = hold(store, "c", ["--write"]);
    writer.says("waiting for x — held by 2 readers, the longest for ");
    let late = || store.output(["run", "-n", "--shared", "--busy-code", "9", "x", "--", "true"]);
    eventually("the writer to be in the queue", || late().status.code() == Some(9));
    let stderr = text(&late().stderr);
    assert!(stderr.contains("a writer waits for x — held by 2 readers"), "{stderr}");

    let [a, b] = readers;
    end(store, "a", a);
    assert!(!store.path("pid-c").exists());
    assert_eq!(holders(store), pairs(&[("b", "read")]));
    end(store, "b", b);
    runs(store, "c");
    assert_eq!(holders(store), pairs(&[("c", "write")]));
    let refused = store.output(["run", "--wait", "50ms", "--shared", "x", "--", "true"]);
    assert_eq!(refused.status.code(), Some(75), "{refused:?}");
    assert!(text(&refused.stderr).contains("x is busy — held for "), "{refused:?}");
    end(store, "c", writer);
    assert_eq!(store.output(["run", "-n", "--shared", "x", "--", "true"]).status.code(), Some(0));
}

fn a_run_without_a_permit_waits_for_one(store: &Store) {
    let first = ["a", "b"].map(|who| hold(store, who, ["--permits", "2"]));
    first.iter().zip(["a", "b"]).for_each(|(run, who)| {
        runs(store, who);
        run.says("took a permit of x, token ");
    });
    let third = hold(store, "c", ["--permits", "2"]);
    third.says("waiting for x — all 2 permits are taken, the longest for ");
    assert!(!store.path("pid-c").exists());
    let refused = store.output(["run", "-n", "--permits", "2", "x", "--", "true"]);
    assert_eq!(refused.status.code(), Some(75));
    let stderr = text(&refused.stderr);
    assert!(stderr.starts_with("tenure: no permit of x is free — all 2 permits are taken"), "{stderr}");

    let who = store.who("x");
    assert_eq!(who["permits"], serde_json::json!({ "of": 2, "free": 0, "taken": 2 }), "{who}");
    assert_eq!(who["holders"][0]["permits"], 1, "{who}");
    assert_eq!(holders(store), pairs(&[("a", "permits"), ("b", "permits")]));
    for shown in [store.output(["who", "x"]), store.output(["ls"])].map(|output| text(&output.stdout)) {
        assert_eq!(shown.matches("1 permit (2 of 2 taken)").count(), 2, "{shown}");
    }
    let [a, b] = first;
    end(store, "a", a);
    runs(store, "c");
    assert_eq!(holders(store), pairs(&[("b", "permits"), ("c", "permits")]));
    end(store, "b", b);
    end(store, "c", third);
    let free = text(&store.output(["who", "x"]).stdout);
    assert!(free.starts_with("x is free: 0 of 2 taken; the last token was "), "{free}");
}

fn another_number_of_permits_is_told_and_can_be_changed(store: &Store) {
    assert_eq!(text(&store.output(["resize", "x", "1"]).stdout), "x: 0 of 1 permit is taken\n");
    let first = hold(store, "a", ["--permits", "1"]);
    runs(store, "a");
    let second = hold(store, "b", ["--permits", "2"]);
    // Told to one who waits, once.
    second.says("x has 1 permit, not 2; tenure resize x 2 changes it");
    let resized = store.json(["resize", "x", "2", "--json"]);
    assert_eq!((&resized["name"], &resized["permits"]["of"]), (&"x".into(), &2.into()), "{resized}");
    runs(store, "b");
    kill(runs(store, "b"), Signal::TERM);
    let (code, stderr) = second.end();
    assert_eq!((code, stderr.matches("tenure resize").count()), (Some(143), 1), "{stderr}");

    // And to one who need not wait.
    let granted = store.output(["run", "--permits", "5", "x", "--", "true"]);
    assert_eq!(granted.status.code(), Some(0));
    assert_eq!(text(&granted.stderr), "tenure: x has 2 permits, not 5; tenure resize x 5 changes it\n");
    assert_eq!(text(&store.output(["run", "--permits", "2", "x", "--", "true"]).stderr), "");

    // Fewer than are held: nobody is granted any.
    assert_eq!(text(&store.output(["resize", "x", "0"]).stdout), "x: 1 of 0 permits are taken\n");
    assert_eq!(store.output(["run", "-n", "--permits", "2", "x", "--", "true"]).status.code(), Some(75));
    end(store, "a", first);
    assert!(text(&store.output(["who", "x"]).stdout).starts_with("x has no permits"));
}

fn a_fair_queue_is_served_in_order(store: &Store) {
    let holder = hold(store, "a", ["--fair"]);
    runs(store, "a");
    let runs: Vec<Running> = (1..=5)
        .map(|n| {
            let run = store.start(["run", "--fair", "x", "--", "sh", "-c", &format!("echo {n} >> order")]);
            eventually("its queue position", || store.who("x")["line"].as_array().map(Vec::len) == Some(n));
            run
        })
        .collect();
    let line = store.who("x")["line"].clone();
    let shown = text(&store.output(["who", "x"]).stdout);
    let (_, positions) = shown.split_once("IN QUEUE  OWNER\n").expect("a queue");
    for (row, (n, owner)) in positions.lines().zip((1..).zip(line.as_array().expect("a list"))) {
        assert_eq!(row.split_whitespace().collect::<Vec<_>>(), [&n.to_string(), owner.as_str().expect("an owner")]);
    }
    assert_eq!(positions.lines().count(), 5, "{shown}");
    assert_eq!(store.output(["run", "-n", "--fair", "x", "--", "true"]).status.code(), Some(75));
    end(store, "a", holder);
    for run in runs {
        assert_eq!(run.end().0, Some(0));
    }
    assert_eq!(std::fs::read_to_string(store.path("order")).expect("written"), "1\n2\n3\n4\n5\n");
    assert_eq!(store.who("x")["line"], serde_json::json!([]));
}

fn the_count_of_a_latch_is_shown(store: &Store) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let locker = tenure::Locker::connect(&store.url()).await.expect("connected");
        assert!(locker.latch("x").set(3).await.expect("set"));
        assert_eq!(locker.latch("x").count_down().await.expect("counted"), 2);
        locker.close().await.expect("closed");
    });
    assert_eq!(store.who("x")["count"], 2);
    let shown = text(&store.output(["who", "x"]).stdout);
    assert!(shown.starts_with("x ") && shown.contains(" 2") && shown.contains("latch"), "{shown}");
}

fn a_lost_reader_is_stopped_like_any_other(store: &Store) {
    let readers = ["a", "b"].map(|who| hold(store, who, ["--shared"]));
    let programs = ["a", "b"].map(|who| runs(store, who));
    let broken = text(&store.output(["break", "x"]).stdout);
    assert_eq!(broken.matches("broke x: it was held by ").count(), 2, "{broken}");
    for (run, program) in readers.into_iter().zip(programs) {
        let (code, stderr) = run.end();
        assert_eq!(code, Some(76), "{stderr}");
        assert!(stderr.contains("lost x: ") && tenure_testkit::command::is_dead(program), "{stderr}");
    }
}

fn a_campaign_outlasts_a_store_that_is_away() {
    let mut server = RedisServer::start();
    let store = on(&server);
    let script = "trap 'echo > bye; exit 0' TERM; echo $TENURE_TERM > term; while :; do sleep 0.05; done";
    let leader = store.start(["elect", "--lease", "3s", "x", "--", "sh", "-c", script]);
    let term: u64 = store.written("term").parse().expect("a number");
    std::fs::remove_file(store.path("term")).expect("it is there");
    let run = store.start(["run", "-v", "x", "--", "true"]);
    run.says("waiting for x");
    server.kill();
    store.written("bye");
    leader.says("the campaign goes on");
    // Who only runs gives up after a while.
    assert_eq!(run.end().0, Some(69));
    server.restart();
    assert!(store.written("term").parse::<u64>().expect("a number") > term);
    leader.signal(Signal::TERM);
    assert_eq!(leader.end().0, Some(0));
}
