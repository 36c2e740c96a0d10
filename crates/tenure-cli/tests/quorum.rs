//! The command on a quorum of real Redis servers.

use std::process::Output;

use serde_json::Value;
use tenure_testkit::RedisServer;
use tenure_testkit::command::{Running, Store, text};
use tenure_testkit::eventually;
use tenure_testkit::server::{Setup, start_all};

const PASSWORD: &str = "canary-5ecret";
/// An owner as Redisson writes it.
const SOMEBODY: &str = "1b4e28ba-2fa1-4d2a-883f-0016d3cca427:1";

fn main() {
    tenure_testkit::run(tenure_testkit::tests! {
        Redis:
            who_shows_what_each_node_says
            a_vote_of_another_owner_can_be_told
            nodes_that_do_not_answer_are_named
            a_node_that_restarted_empty_is_quarantined
            the_same_server_twice_is_wrong_usage
            what_a_quorum_does_not_carry_says_why;
        Nothing:
            a_url_that_a_shell_has_cut_is_told;
    })
}

fn three() -> Vec<RedisServer> {
    let setup = Setup::default().args(&["--requirepass", PASSWORD]);
    start_all(&[&setup; 3])
}

/// A store on those servers. A busy machine may be slow to answer.
fn quorum(servers: &[RedisServer], options: &str) -> Store {
    let nodes: Vec<String> = servers.iter().map(|server| format!("redis://:{PASSWORD}@127.0.0.1:{}", server.port)).collect();
    Store::at(format!("quorum:{}?node_timeout=1s&{options}", nodes.join("|")))
}

/// Three servers that have nothing to forget.
fn fresh() -> (Vec<RedisServer>, Store) {
    let servers = three();
    let store = quorum(&servers, "quarantine=off");
    (servers, store)
}

fn output<const N: usize>(store: &Store, args: [&str; N]) -> Output {
    let output = store.output(args);
    let all = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert!(!all.contains(PASSWORD), "{all}");
    output
}

fn shown<const N: usize>(store: &Store, args: [&str; N]) -> String {
    let output = output(store, args);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    text(&output.stdout)
}

fn hold(store: &Store) -> Running {
    let run = store.start(["run", "--note", "the note", "x", "--", "sh", "-c", "echo $$ > pid; exec sleep 1000"]);
    store.pid("pid");
    run
}

/// The line that `who` has for a server.
fn line_of(shown: &str, server: &RedisServer) -> String {
    let name = server.url();
    let line = shown.lines().find_map(|line| line.strip_prefix(&*name));
    line.unwrap_or_else(|| panic!("no line for {name}: {shown}")).trim().to_owned()
}

fn nodes(who: &Value) -> &[Value] {
    who["nodes"].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn who_shows_what_each_node_says() {
    let (servers, store) = fresh();
    let free = shown(&store, ["who", "x"]);
    assert!(free.starts_with("x is free\n\nNODE "), "{free}");
    for server in &servers {
        assert_eq!(line_of(&free, server), "free", "{free}");
    }

    let _run = hold(&store);
    // A grant is told as soon as a majority has said yes.
    eventually("the third vote", || shown(&store, ["who", "x"]).matches("held by").count() == 3);
    let held = shown(&store, ["who", "x"]);
    assert!(held.starts_with("NAME "), "{held}");
    for server in &servers {
        let line = line_of(&held, server);
        assert!(line.starts_with("held by the note for ") && line.contains(", token "), "{held}");
        assert!(line.ends_with(" of lease left"), "{held}");
    }

    let who = store.who("x");
    assert_eq!(nodes(&who).len(), 3, "{who}");
    for (node, server) in nodes(&who).iter().zip(&servers) {
        assert_eq!((&node["name"], &node["standing"]), (&server.url().into(), &"counts".into()), "{who}");
        assert_eq!(node["holders"][0]["owner"], who["holders"][0]["owner"], "{who}");
        assert!(node["clock_ahead_ms"].is_i64(), "{who}");
        assert!(node["why"].is_null() && node["quarantine_left_ms"].is_null() && node["error"].is_null(), "{who}");
    }
    let ls = shown(&store, ["ls"]);
    assert_eq!(ls.lines().count(), 2, "{ls}");
    assert!(Store::new().who("x")["nodes"].is_null(), "one store has no nodes");
}

fn a_vote_of_another_owner_can_be_told() {
    let (servers, store) = fresh();
    let mut raw = servers[2].raw();
    redis::cmd("AUTH").arg(PASSWORD).exec(&mut raw).expect("let in");
    redis::cmd("HSET").arg("x").arg(SOMEBODY).arg(1).exec(&mut raw).expect("set");
    redis::cmd("PEXPIRE").arg("x").arg(60_000).exec(&mut raw).expect("set");
    let _run = hold(&store);
    let held = shown(&store, ["who", "x"]);
    assert!(line_of(&held, &servers[2]).starts_with(&format!("held by {SOMEBODY}")), "{held}");
    assert!(line_of(&held, &servers[0]).starts_with("held by the note for "), "{held}");
    let who = store.who("x");
    let owner_at = |n: usize| &nodes(&who)[n]["holders"][0]["owner"];
    assert_eq!((owner_at(0), owner_at(1)), (&who["holders"][0]["owner"], &who["holders"][0]["owner"]), "{who}");
    assert_eq!(owner_at(2), SOMEBODY, "{who}");
    assert_eq!(who["holders"].as_array().map(Vec::len), Some(1), "{who}");
}

fn nodes_that_do_not_answer_are_named() {
    let (mut servers, store) = fresh();
    let _run = hold(&store);
    servers[1].kill();
    let held = shown(&store, ["who", "x"]);
    assert!(line_of(&held, &servers[1]).starts_with("did not answer: "), "{held}");
    assert!(line_of(&held, &servers[0]).starts_with("held by the note for "), "{held}");
    let who = store.who("x");
    let dead = &nodes(&who)[1];
    assert_eq!((&who["held"], &dead["standing"], &dead["holders"]), (&true.into(), &"away".into(), &Value::Null), "{who}");
    assert!(dead["why"].is_string() && dead["error"].is_string(), "{who}");

    servers[2].kill();
    for json in [false, true] {
        let few = if json { output(&store, ["who", "x", "--json"]) } else { output(&store, ["who", "x"]) };
        assert_eq!((few.status.code(), &*text(&few.stdout)), (Some(69), ""), "{few:?}");
        let told = text(&few.stderr);
        let lines: Vec<&str> = told.lines().collect();
        assert!(lines[0].contains("2 of 3 nodes have to agree") && lines.len() == 4, "{told}");
        for (line, server) in lines[1..].iter().zip(&servers) {
            assert!(line.starts_with(&format!("  {}: ", server.url())), "{told}");
        }
    }
}

fn a_node_that_restarted_empty_is_quarantined() {
    let mut servers = three();
    let store = quorum(&servers, "lease=4s");
    // Waits until enough nodes are old enough.
    let _run = hold(&store);
    // Whoever only looks tells nobody of a longer lease, though 30s is what others have by default.
    let onlooker = quorum(&servers, "");
    // A server tells its age in whole seconds: who has not seen it grow takes it for up to a second younger than the holder did.
    eventually("an onlooker counts the first node", || {
        !line_of(&shown(&onlooker, ["who", "x"]), &servers[0]).contains("quarantined")
    });
    servers[2].kill();
    servers[2].restart();
    let held = shown(&onlooker, ["who", "x"]);
    assert!(line_of(&held, &servers[2]).contains("quarantined for "), "{held}");
    assert!(!line_of(&held, &servers[0]).contains("quarantined"), "{held}");
    assert!(line_of(&held, &servers[0]).starts_with("held by the note for "), "{held}");
    let who = store.who("x");
    let restarted = &nodes(&who)[2];
    assert_eq!((&restarted["standing"], &nodes(&who)[0]["standing"]), (&"quarantined".into(), &"counts".into()), "{who}");
    assert!(restarted["quarantine_left_ms"].as_u64().is_some_and(|left| (1..=4000).contains(&left)), "{who}");
    eventually("its vote counts again", || nodes(&store.who("x"))[2]["standing"] == "counts");
}

fn the_same_server_twice_is_wrong_usage() {
    let mut servers = three();
    drop(servers.pop());
    let twice = |place: &str| format!("redis://:{PASSWORD}@{place}:{}", servers[1].port);
    let first = format!("redis://:{PASSWORD}@127.0.0.1:{}", servers[0].port);
    let url = format!("quorum:{first}|{}|{}?quarantine=off&node_timeout=1s", twice("127.0.0.1"), twice("localhost"));
    let store = Store::at(url);
    for refused in [output(&store, ["who", "x"]), output(&store, ["run", "x", "--", "true"])] {
        let told = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{told}");
        let expected = format!("the node redis://localhost:{} is the same server as node 2 of the list", servers[1].port);
        assert!(told.contains(&expected), "{told}");
    }
}

fn what_a_quorum_does_not_carry_says_why() {
    let (_servers, store) = fresh();
    for (refused, why) in [
        (output(&store, ["run", "--permits", "2", "x", "--", "true"]), "permits: three could win two permits"),
        (output(&store, ["resize", "x", "2"]), "permits: three could win two permits"),
        (output(&store, ["run", "--fair", "x", "--", "true"]), "fair locks: each node has a queue of its own"),
    ] {
        let told = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{told}");
        assert!(told.starts_with(&format!("tenure: quorum does not support {why}")), "{told}");
    }
    for kind in ["--shared", "--write"] {
        assert_eq!(output(&store, ["run", kind, "y", "--", "true"]).status.code(), Some(0), "{kind}");
    }
}

fn a_url_that_a_shell_has_cut_is_told() {
    let cut = output(&Store::at("quorum:redis://127.0.0.1:1".to_owned()), ["who", "x"]);
    let told = text(&cut.stderr);
    assert!(cut.status.code() == Some(2) && told.contains("quotes around the URL"), "{told}");
}
