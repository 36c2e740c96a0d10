//! The command on a real Redis server.

use std::process::{Command, Output};

use tenure_testkit::command::{Running, Store, text};
use tenure_testkit::{RedisServer, Signal, signal};

const PASSWORD: &str = "canary-5ecret";

fn main() {
    tenure_testkit::run(tenure_testkit::tests! {
        Redis:
            a_program_runs_under_a_lock_on_redis
            a_hung_server_stops_the_program_in_time
            a_killed_server_is_unreachable
            who_waits_for_a_lock_waits_for_its_store_too
            a_wait_without_a_store_ends_as_unreachable
            a_wait_outlasts_a_store_that_goes_away
            a_password_can_stand_in_a_file;
    })
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
    signal(server.pid(), Signal::STOP);
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

fn who_waits_for_a_lock_waits_for_its_store_too() {
    for args in [&["run", "-v", "--wait", "15s"][..], &["elect", "-v", "--wait", "15s"]] {
        let (mut server, store) = (with_password(), Store::new());
        server.kill();
        let run = start(&server, &store, &[args, &["x", "--", "sh", "-c", "echo > ran; exit 3"]].concat());
        run.says("trying again");
        // Others are told at once.
        for args in [&["run", "-n"][..], &["run"], &["elect"]] {
            let args = [args, &["x", "--", "true"]].concat();
            assert_eq!(output(&server, &store, &args).status.code(), Some(69), "{args:?}");
        }
        assert!(!store.path("ran").exists());
        server.restart();
        let (code, stderr) = run.end();
        assert_eq!(code, Some(3), "{stderr}");
        assert!(!stderr.contains(PASSWORD), "{stderr}");
    }
}

fn a_wait_without_a_store_ends_as_unreachable() {
    let (mut server, store) = (with_password(), Store::new());
    server.kill();
    let run = output(&server, &store, &["run", "--wait", "500ms", "x", "--", "true"]);
    assert_eq!(run.status.code(), Some(69), "{run:?}");
    // What will not change by itself is not waited for.
    server.restart();
    let mut wrong = store.tenure(["run", "--wait", "1h", "x", "--", "true"]);
    let wrong = wrong.env("TENURE_URL", format!("redis://:wrong@127.0.0.1:{}", server.port)).output().expect("starts");
    assert_eq!(wrong.status.code(), Some(69), "{wrong:?}");
}

fn a_wait_outlasts_a_store_that_goes_away() {
    let (mut server, store) = (with_password(), Store::new());
    let holder = start(&server, &store, &["run", "--lease", "2s", "x", "--", "sh", "-c", "echo > ready; exec sleep 1000"]);
    store.written("ready");
    let waiter = start(&server, &store, &["run", "-v", "--wait", "1h", "x", "--", "sh", "-c", "echo > ran; exit 3"]);
    waiter.says("waiting for x");
    server.kill();
    // Without the store its program is stopped.
    assert_eq!(holder.end().0, Some(76));
    server.restart();
    store.written("ran");
    assert_eq!(waiter.end().0, Some(3));
}

fn a_password_can_stand_in_a_file() {
    use std::os::unix::fs::PermissionsExt;
    let (server, store) = (with_password(), Store::new());
    let file = store.path("password");
    std::fs::write(&file, format!("{PASSWORD}\n")).expect("written");
    let with = |mode, more: &str| {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).expect("ours");
        let url = format!("redis://{more}127.0.0.1:{}?pass_file={}", server.port, file.display());
        let output = store.tenure(["ls"]).env("TENURE_URL", url).output().expect("starts");
        (output.status.code(), text(&output.stderr))
    };
    assert_eq!(with(0o600, ""), (Some(0), "tenure: no locks are held\n".to_owned()));
    assert_eq!(with(0o600, "default@").0, Some(0));
    for (mode, more, why) in [(0o622, "", "written to by others"), (0o600, ":x@", "beside a password")] {
        let (code, said) = with(mode, more);
        assert!(code == Some(2) && said.contains(why) && said.contains("pass_file"), "{said}");
    }
}
