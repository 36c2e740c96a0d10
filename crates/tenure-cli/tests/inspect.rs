//! `who`, `ls`, `break`, usage errors, generated documentation, and what is never printed.

use std::process::Stdio;

use tenure_testkit::command::{Running, Store, text};
use tenure_testkit::eventually;

fn hold(store: &Store, name: &str, note: &str) -> Running {
    let file = format!("pid-{name}");
    let script = format!("echo $$ > '{file}'; exec sleep 1000");
    let run = store.start(["run", "--lease", "3s", "--note", note, name, "--", "sh", "-c", &script]);
    store.pid(&file);
    run
}

#[test]
fn who_tells_the_holder_of_a_lock() {
    let store = Store::new();
    assert_eq!(text(&store.output(["who", "x"]).stdout), "x is free\n");
    let run = hold(&store, "x", "the nightly backup");
    let shown = text(&store.output(["who", "x"]).stdout);
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[0].starts_with("NAME") && lines[0].ends_with("HOLDER"), "{shown}");
    assert!(lines[1].starts_with("x ") && lines[1].ends_with("the nightly backup"), "{shown}");

    let who = store.json(["who", "x", "--json"]);
    assert_eq!(who["name"], "x");
    assert_eq!(who["held"], true);
    let holder = &who["holders"][0];
    assert_eq!(holder["note"], "the nightly backup");
    assert_eq!(holder["mode"], "exclusive");
    assert!(who["permits"].is_null() && who["count"].is_null() && who["line"] == serde_json::json!([]), "{who}");
    assert!(holder["owner"].is_string() && holder["token"].is_string(), "{who}");
    assert!(holder["since_unix_ms"].is_u64() && holder["held_ms"].is_u64() && holder["expires_in_ms"].is_u64(), "{who}");
    drop(run);
}

#[test]
fn without_a_note_the_holder_is_host_process_and_program() {
    let store = Store::new();
    let run = store.start(["run", "x", "--", "sh", "-c", "echo > ready; exec sleep 1000"]);
    store.written("ready");
    let who = store.json(["who", "x", "--json"]);
    let note = who["holders"][0]["note"].as_str().expect("a note");
    assert!(note.ends_with(&format!(" {} sh", run.pid())), "{note}");
}

#[test]
fn ls_lists_what_is_held_under_a_prefix() {
    let store = Store::new();
    let none = store.output(["ls"]);
    assert_eq!((none.status.code(), text(&none.stdout)), (Some(0), String::new()));
    assert_eq!(text(&none.stderr), "tenure: no locks are held\n");
    assert_eq!(store.json(["ls", "--json"]), serde_json::json!([]));

    let runs = ["job.b", "job.a", "other"].map(|name| hold(&store, name, "me"));
    let names = |list: serde_json::Value| -> Vec<String> {
        list.as_array().expect("a list").iter().filter_map(|s| Some(s["name"].as_str()?.to_owned())).collect()
    };
    assert_eq!(names(store.json(["ls", "--json"])), ["job.a", "job.b", "other"]);
    assert_eq!(names(store.json(["ls", "job.", "--json"])), ["job.a", "job.b"]);
    let shown = text(&store.output(["ls", "job."]).stdout);
    assert_eq!(shown.lines().count(), 3, "{shown}");
    drop(runs);
}

#[test]
fn break_says_what_it_broke_or_that_there_was_nothing() {
    let store = Store::new();
    let free = store.output(["break", "x"]);
    assert_eq!((free.status.code(), text(&free.stderr)), (Some(1), "tenure: x is free\n".to_owned()));
    assert_eq!(store.json(["break", "x", "--json"])["broken"], false);

    let run = hold(&store, "x", "me");
    let token = store.json(["who", "x", "--json"])["holders"][0]["token"].as_str().expect("a token").to_owned();
    let broken = store.json(["break", "x", "--json"]);
    assert_eq!((&broken["broken"], &broken["holders"][0]["token"]), (&true.into(), &token.as_str().into()));
    let number = |s: &str| s.parse::<u64>().expect("a number");
    assert!(number(broken["fence"].as_str().expect("a fence")) > number(&token), "{broken}");
    // For those who keep a record: who did it.
    let by = broken["by"]["about"].as_str().expect("words");
    assert!(by.contains(" tenure break, user ") && broken["by"]["client"].as_str().is_some_and(|id| id.len() == 36), "{broken}");
    assert!(!store.is_held("x"));
    assert_eq!(run.end().0, Some(76));
}

#[test]
fn what_a_terminal_would_act_upon_is_escaped() {
    let store = Store::new();
    let (name, note) = ("x\u{202e}y\u{2066}", "\u{1b}]0;owned\u{7}\u{9b}2J\r日本\u{202e}\u{200f}\u{feff}\u{e0041}");
    // What turns the direction of text, has no width or is a tag, besides controls.
    let acts = |c: char| c.is_control() && c != '\n' || "\u{202e}\u{2066}\u{200f}\u{feff}\u{e0041}".contains(c);
    let commands: [&[&str]; 8] = [
        &["who", name],
        &["ls"],
        &["run", "-n", name, "--", "true"],
        &["who", name, "--json"],
        &["ls", "--json"],
        &["who", name, "--stripes", "1", "--json"],
        &["break", name],
        &["break", name, "--json"],
    ];
    for args in commands {
        let run = hold(&store, name, note);
        let output = store.tenure([]).args(args).output().expect("starts");
        let shown = text(&output.stdout) + &text(&output.stderr);
        assert!(!shown.contains(acts), "{args:?}: {shown:?}");
        assert!(shown.contains("日本") || args.contains(&"--stripes"), "{args:?}: {shown:?}");
        if let Ok(json) = serde_json::from_slice::<serde_json::Value>(&output.stdout) {
            let one = json.get(0).unwrap_or(&json);
            assert!(one["name"].as_str().expect("a name").starts_with(name), "{json}");
        }
        drop(run);
        eventually("the end of the hold", || !store.is_held(name));
        std::fs::remove_file(store.path(&format!("pid-{name}"))).expect("it was written");
    }
}

#[test]
fn wrong_usage_is_2() {
    let store = Store::new();
    let cases: [&[&str]; 29] = [
        &[],
        &["nonsense"],
        &["run"],
        &["run", "x"],
        &["run", "x", "--"],
        &["run", "x", "true"],
        &["run", "", "--", "true"],
        &["run", "--wait", "30", "x", "--", "true"],
        &["run", "--wait", "1s", "-n", "x", "--", "true"],
        &["run", "--lease", "1ms", "x", "--", "true"],
        &["run", "--busy-code", "256", "x", "--", "true"],
        &["run", "--min-hold", "2s", "--max-hold", "1s", "x", "--", "true"],
        &["run", "--shared", "--write", "x", "--", "true"],
        &["run", "--shared", "--fair", "x", "--", "true"],
        &["run", "--write", "--permits", "2", "x", "--", "true"],
        &["run", "--fair", "--permits", "2", "x", "--", "true"],
        &["run", "--permits", "0", "x", "--", "true"],
        &["elect", "x"],
        &["elect", "--no-wait", "x", "--", "true"],
        &["resize", "x"],
        &["resize", "x", "-1"],
        &["who", "x", "--stripes", "0"],
        &["who", "x", "--stripes", "100000"],
        &["bench", "--only", "P1,P7"],
        &["bench", "--seconds", "0"],
        &["bench", "--rounds", "0"],
        &["bench", "--holds", "0"],
        &["--url", "nosuch:", "ls"],
        &["--url", "sqlite:?nosuch=1", "ls"],
    ];
    for args in cases {
        let output = store.tenure([]).args(args).output().expect("starts");
        assert_eq!(output.status.code(), Some(2), "{args:?}: {output:?}");
        assert!(!output.stderr.is_empty(), "{args:?}");
    }
}

#[test]
fn kinds_of_locks_that_exclude_each_other_are_named() {
    let refused = Store::new().output(["run", "--shared", "--permits", "2", "x", "--", "true"]);
    let stderr = text(&refused.stderr);
    assert!(
        stderr.contains("'--shared'") && stderr.contains("cannot be used with") && stderr.contains("'--permits <N>'"),
        "{stderr}"
    );
}

#[test]
fn stripes_are_shown_in_one_table_also_those_that_are_free() {
    let store = Store::new();
    let run = hold(&store, "x#1", "the second");
    let shown = text(&store.output(["who", "x", "--stripes", "3"]).stdout);
    let rows: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!((rows.len(), &rows[0][..2]), (4, &["NAME", "MODE"][..]), "{shown}");
    assert_eq!([&rows[1][..3], &rows[3][..3]], [&["x#0", "free", "-"], &["x#2", "free", "-"]], "{shown}");
    assert!(rows[2].starts_with(&["x#1", "exclusive"]) && rows[2].ends_with(&["the", "second"]), "{shown}");
    let stripes = store.json(["who", "x", "--stripes", "3", "--json"]);
    let told: Vec<_> = stripes.as_array().expect("a list").iter().map(|s| (s["name"].as_str(), s["held"] == true)).collect();
    assert_eq!(told, [(Some("x#0"), false), (Some("x#1"), true), (Some("x#2"), false)]);
    assert_eq!(store.json(["who", "x", "--stripes", "100", "--json"]).as_array().map(Vec::len), Some(100));
    drop(run);
}

#[test]
fn an_unreachable_store_is_69() {
    let store = Store::new();
    let commands: [&[&str]; 7] = [
        &["run", "--wait", "200ms", "x", "--", "true"],
        &["elect", "x", "--", "true"],
        &["who", "x"],
        &["who", "x", "--stripes", "2"],
        &["ls"],
        &["break", "x"],
        &["bench", "--only", "P4"],
    ];
    for args in commands {
        let output = store.tenure([]).env("TENURE_URL", "redis://127.0.0.1:1").args(args).output().expect("starts");
        assert_eq!(output.status.code(), Some(69), "{args:?}: {output:?}");
        assert!(text(&output.stderr).contains("unavailable"), "{output:?}");
    }
}

#[test]
fn a_password_is_never_printed() {
    let store = Store::new();
    let urls = [
        "redis://user:canary@127.0.0.1:1",
        "redis://user:canary@127.0.0.1:1?bogus=canary",
        "redis://user:canary@127.0.0.1:notaport",
        "redis://user:canary@[::1",
        "rediss://:canary@127.0.0.1:1/0",
        "redis+unix:///nonexistent?pass=canary",
        "redis+unix:///nonexistent?pass=canary&pass=canary",
        "canary",
        "postgres://user:canary@host/db",
        "sqlite:/nonexistent/x.db?pass=canary",
    ];
    let commands: [&[&str]; 11] = [
        &["bench", "--seconds", "0.05"],
        &["elect", "-v", "x", "--", "true"],
        &["resize", "x", "3"],
        &["who", "x", "--stripes", "2"],
        &["ls"],
        &["who", "x", "--json"],
        &["break", "x"],
        &["run", "-v", "--wait", "50ms", "x", "--", "true"],
        &["run", "-v", "-n", "x", "--", "true"],
        &["run", "--bogus"],
        &["--help"],
    ];
    for url in urls {
        for args in commands {
            let output = store.tenure([]).env("TENURE_URL", url).args(args).output().expect("starts");
            let all = text(&output.stdout) + &text(&output.stderr);
            assert!(!all.contains("canary"), "{url} {args:?}: {all}");
            assert!(!all.is_empty(), "{url} {args:?}");
        }
    }
}

#[test]
fn the_version_says_the_commit() {
    let said = text(&Store::new().output(["--version"]).stdout);
    let rest = said.trim_end().strip_prefix(concat!("tenure ", env!("CARGO_PKG_VERSION"))).expect("a version");
    let is_commit = |commit: &str| commit.len() == 12 && commit.bytes().all(|b| b.is_ascii_hexdigit());
    let commit = rest.strip_prefix(" (").and_then(|rest| rest.strip_suffix(")"));
    // Sources that are no clone have no commit.
    assert!(rest.is_empty() || commit.is_some_and(is_commit), "{said}");
}

#[test]
fn completions_and_manual_pages_are_made() {
    let store = Store::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = text(&store.output(["completions", shell]).stdout);
        assert!(script.contains("busy-code") && script.contains("permits") && script.contains("elect"), "{shell}: {script}");
        assert!(!script.contains("__exec"), "{shell}");
    }
    assert!(text(&store.output(["man"]).stdout).contains(".TH"));
    assert!(store.output(["man", "pages/man1"]).status.success());
    let page = std::fs::read_to_string(store.path("pages/man1/tenure-run.1")).expect("a page");
    for word in ["TENURE_TOKEN", "75", "76", "69", "126", "127"] {
        assert!(page.contains(word), "{word}: {page}");
    }
    let page = std::fs::read_to_string(store.path("pages/man1/tenure-elect.1")).expect("a page");
    assert!(page.contains("TENURE_TERM") && store.path("pages/man1/tenure-resize.1").exists(), "{page}");
    let help = text(&store.output(["run", "--help"]).stdout);
    assert!(help.contains("Exit status") && help.contains("TENURE_URL"), "{help}");
}

#[test]
fn a_reader_that_goes_away_is_no_panic() {
    let store = Store::new();
    let mut run = store.tenure(["completions", "zsh"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    drop(run.stdout.take());
    let output = run.wait_with_output().expect("ends");
    assert!(!text(&output.stderr).contains("panicked"), "{output:?}");
}
