//! The command on a real Redis server.

#[path = "../../tenure/tests/support/mod.rs"]
mod servers;
mod support;

use std::process::{Command, Output};

use servers::{Needs, RedisServer, Test, signal};
use support::{Running, Store, text};

const PASSWORD: &str = "canary-5ecret";

fn main() {
    servers::run(vec![
        Test::new("a_program_runs_under_a_lock_on_redis", Needs::Redis, a_program_runs_under_a_lock_on_redis),
        Test::new("a_hung_server_stops_the_program_in_time", Needs::Redis, a_hung_server_stops_the_program_in_time),
        Test::new("a_killed_server_is_unreachable", Needs::Redis, a_killed_server_is_unreachable),
    ])
}

/// `tenure` on a server with a password, in the directory of a store.
fn tenure(server: &RedisServer, store: &Store, args: &[&str]) -> Command {
    let mut command = store.tenure([]);
    command.args(args).env("TENURE_URL", format!("redis://:{PASSWORD}@127.0.0.1:{}", server.port));
    command
}

fn output(server: &RedisServer, store: &Store, args: &[&str]) -> Output {
    let output = tenure(server, store, args).output().expect("tenure starts");
    let all = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert!(!all.contains(PASSWORD), "{all}");
    output
}

fn start(server: &RedisServer, store: &Store, args: &[&str]) -> Running {
    Running::new(tenure(server, store, args).stderr(std::process::Stdio::piped()))
}

fn with_password() -> RedisServer {
    RedisServer::with(&["--requirepass", PASSWORD])
}

fn a_program_runs_under_a_lock_on_redis() {
    let (server, store) = (with_password(), Store::new());
    let script = "echo $TENURE_TOKEN > token; cat go > /dev/null; exit 3";
    rustix::fs::mknodat(rustix::fs::CWD, store.path("go"), rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)
        .expect("a pipe");
    let run = start(&server, &store, &["run", "x", "--note", "the note", "--", "sh", "-c", script]);
    let token = store.written("token");
    assert_eq!(output(&server, &store, &["run", "-n", "x", "--", "true"]).status.code(), Some(75));
    let who = output(&server, &store, &["who", "x", "--json"]);
    let who: serde_json::Value = serde_json::from_slice(&who.stdout).expect("json");
    assert_eq!((who["holders"][0]["token"].as_str(), who["holders"][0]["note"].as_str()), (Some(&*token), Some("the note")));
    assert!(text(&output(&server, &store, &["ls"]).stdout).contains("the note"));
    std::fs::write(store.path("go"), "go").expect("written");
    assert_eq!(run.end().0, Some(3));
    assert!(text(&output(&server, &store, &["who", "x"]).stdout).contains("free"));
}

fn a_hung_server_stops_the_program_in_time() {
    let (server, store) = (with_password(), Store::new());
    let script = "trap 'echo bye > got; exit 0' TERM; echo > ready; while :; do sleep 0.05; done";
    let run = start(&server, &store, &["run", "--lease", "3s", "x", "--", "sh", "-c", script]);
    store.written("ready");
    signal(server.pid(), "STOP");
    assert_eq!(store.written("got"), "bye");
    let (code, stderr) = run.end();
    assert_eq!(code, Some(76), "{stderr}");
    assert!(stderr.contains("confirmed no renewal") && !stderr.contains(PASSWORD), "{stderr}");
}

fn a_killed_server_is_unreachable() {
    let (mut server, store) = (with_password(), Store::new());
    assert_eq!(output(&server, &store, &["run", "x", "--", "true"]).status.code(), Some(0));
    server.kill();
    for args in [&["run", "x", "--", "true"][..], &["who", "x"], &["ls"], &["break", "x"]] {
        assert_eq!(output(&server, &store, args).status.code(), Some(69), "{args:?}");
    }
}
