//! The lab is a test itself: every story is played, and its claims must hold.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tenure_testkit::command::text;
use tenure_testkit::{Needs, Test};

fn main() {
    let mut tests = vec![
        Test::new("stories_are_listed", Needs::Nothing, stories_are_listed),
        Test::new("an_unknown_story_is_wrong_usage", Needs::Nothing, an_unknown_story_is_wrong_usage),
        Test::new("without_a_server_the_lab_says_what_to_install", Needs::Nothing, without_a_server_the_lab_says_what_to_install),
        Test::new("a_page_is_one_document_with_a_picture_per_way", Needs::Redis, a_page_is_one_document_with_a_picture_per_way),
        Test::new("several_stories_are_told_in_a_table", Needs::Redis, several_stories_are_told_in_a_table),
        Test::new("servers_answer_nobody_else_on_the_machine", Needs::Redis, servers_answer_nobody_else_on_the_machine),
    ];
    let stories = ids().into_iter().map(|id| {
        let needs = if id == "F12" { Needs::Cc } else { Needs::Redis };
        Test::new(format!("story_{id}_is_as_it_claims"), needs, move || a_story_is_as_it_claims(&id))
    });
    tests.extend(stories);
    tenure_testkit::run(tests)
}

fn lab(args: &[&str]) -> Output {
    command(args).output().expect("tenure starts")
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
    command.arg("lab").args(args).stdin(Stdio::null());
    // A named server stays.
    if args.first() != Some(&"ls") && !args.contains(&"--server") {
        command.args(["--server", &tenure_testkit::server::program()]);
    }
    command
}

fn json(args: &[&str]) -> Value {
    let output = lab(args);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"))
}

fn ids() -> Vec<String> {
    let listed = json(&["ls", "--json"]);
    listed.as_array().expect("a list").iter().map(|story| story["id"].as_str().expect("an id").to_owned()).collect()
}

fn a_story_is_as_it_claims(id: &str) {
    let output = lab(&[id, "--json"]);
    let told: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    let rows = told["stories"][0]["rows"].as_array().expect("rows");
    for row in rows {
        assert_eq!(row["skipped"], false, "{row:#}");
        let broken: Vec<_> = row["claims"].as_array().expect("claims").iter().filter(|claim| claim["held"] != true).collect();
        assert!(broken.is_empty(), "{}: {broken:?}\n{row:#}", row["how"]);
        assert!(!row["timeline"]["lanes"].as_array().expect("lanes").is_empty(), "{row:#}");
        if row["way"] == "tenure" {
            assert_eq!((&row["oversold"], &row["stale_writes"]), (&Value::from(0), &Value::from(0)), "{row:#}");
        }
    }
    for way in ["naive", "usual", "tenure"] {
        assert!(rows.iter().any(|row| row["way"] == way), "no {way} way: {told:#}");
    }
    assert_eq!((output.status.code(), &told["held"]), (Some(0), &Value::from(true)), "{}", text(&output.stderr));
}

fn stories_are_listed() {
    let ids = ids();
    let table = text(&lab(&["ls"]).stdout);
    assert_eq!(table.lines().count(), ids.len() + 1, "{table}");
    assert!(ids.iter().all(|id| table.contains(&format!("{id} "))), "{table}");
}

fn an_unknown_story_is_wrong_usage() {
    let output = lab(&["F99"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(ids().iter().all(|id| said.contains(id)), "names those that there are: {said}");
}

fn without_a_server_the_lab_says_what_to_install() {
    let output = lab(&["F1", "--server", "/nowhere/redis-server"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(69), "{said}");
    assert!(said.contains("apt-get install redis-server"), "{said}");
}

fn a_page_is_one_document_with_a_picture_per_way() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("lab.html");
    let output = lab(&["f1", "--json", "--html", file.to_str().expect("a path")]);
    let told: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    let page = std::fs::read_to_string(&file).expect("written");
    let ways = told["stories"][0]["rows"].as_array().expect("rows").len();
    assert_eq!(page.matches("<svg class=\"picture\"").count(), ways, "a picture per way");
    assert!(page.starts_with("<!doctype html>") && page.contains("<meta name=\"viewport\""));
    assert!(page.contains("prefers-color-scheme: dark"));
    for outside in ["http://", "https://", "src=", "url(", "@import", "<link", "<script"] {
        assert!(!page.contains(outside), "the page fetches something: {outside}");
    }
}

fn several_stories_are_told_in_a_table() {
    let ids = ids();
    let some: Vec<String> = ids.iter().take(2).map(|id| id.to_lowercase()).collect();
    let args: Vec<&str> = some.iter().map(String::as_str).collect();
    let output = lab(&args);
    let table = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{table}{}", text(&output.stderr));
    for id in ids.iter().take(2) {
        assert!(table.contains(&format!("{id}  ")), "{table}");
    }
    for column in ["SOLD", "OVERSOLD", "STALE", "WAITED", "REQUESTS"] {
        assert!(table.contains(column), "{table}");
    }
}

/// What a file of a process says, if that is still there.
fn told_of(pid: u32, file: &str) -> String {
    text(&std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default())
}

/// All processes that come of one.
fn family(of: u32) -> Vec<u32> {
    let listed = std::fs::read_dir("/proc").expect("listed").flatten();
    let pids: Vec<u32> = listed.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    let parent = |pid: u32| told_of(pid, "stat").rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok();
    let descends = |pid: &u32| std::iter::successors(Some(*pid), |pid| parent(*pid)).any(|pid| pid == of);
    pids.into_iter().filter(descends).collect()
}

/// What a server says to somebody who sends these lines.
fn says(port: u16, lines: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connected");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("set");
    stream.write_all(format!("{lines}QUIT\r\n").as_bytes()).expect("sent");
    let mut said = String::new();
    stream.read_to_string(&mut said).expect("said");
    said
}

fn servers_answer_nobody_else_on_the_machine() {
    let mut playing = command(&["F1"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("tenure starts");
    let (server, port, secret) = tenure_testkit::until("a server of the lab is up", || {
        let server = family(playing.id()).into_iter().find(|pid| told_of(*pid, "cmdline").contains("127.0.0.1:"))?;
        let port =
            told_of(server, "cmdline").split("127.0.0.1:").nth(1)?.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()?;
        let setup = told_of(server, "cwd/conf");
        let secret = setup.lines().find_map(|line| line.strip_prefix("requirepass ")).unwrap_or_default().to_owned();
        Some((server, port, secret))
    });
    let refused = says(port, "SET a b\r\n");
    assert!(refused.starts_with("-NOAUTH"), "{refused}");
    assert!(secret.len() >= 32 && says(port, &format!("AUTH {secret}\r\nPING\r\n")).contains("+PONG"));
    let conf = std::fs::metadata(format!("/proc/{server}/cwd/conf")).expect("there");
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&conf.permissions()) & 0o777, 0o600);
    for _ in 0..20 {
        for pid in family(playing.id()) {
            let shown = told_of(pid, "cmdline") + &told_of(pid, "environ");
            assert!(!shown.contains(&secret), "process {pid} shows it");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(playing.wait().expect("ended").success());
}
