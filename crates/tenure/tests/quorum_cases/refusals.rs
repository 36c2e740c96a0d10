//! Lists of nodes that make no quorum.

use redis::cmd;
use tenure::{Error, Locker};

use tenure_testkit::RedisServer;
use tenure_testkit::cable::Cable;
use tenure_testkit::eventually;
use tenure_testkit::locker::{block_on, connect};
use tenure_testkit::quorum::QuorumSet;

fn quorum_of(urls: &[String]) -> String {
    format!("quorum:{}", urls.join("|"))
}

/// Refused for a fault of the list, in words that name it.
fn refused(url: &str, words: &[&str]) {
    let error = block_on(Locker::connect(url)).expect_err(url);
    assert!(matches!(error, Error::Config { .. }), "{url}: {error:?}");
    let said = error.to_string();
    assert!(words.iter().all(|word| said.contains(word)), "{url}: {said}");
}

pub(crate) fn a_number_of_nodes_that_makes_no_sense_is_refused() {
    let set = QuorumSet::start(4);
    let urls: Vec<String> = set.nodes.iter().map(|node| node.url()).collect();
    refused(&quorum_of(&urls[..1]), &["a quorum of one node", "3, 5 or 7"]);
    for n in [2, 4] {
        refused(&quorum_of(&urls[..n]), &[&format!("a quorum of {n}"), "no more failures than one node less", "3, 5 or 7"]);
    }
    let nine: Vec<String> = (1..=9).map(|n| format!("redis://127.0.0.1:{n}")).collect();
    refused(&quorum_of(&nine), &["a quorum of 9", "3, 5 or 7"]);
}

/// Known by what it is called, also while nobody is there.
pub(crate) fn a_node_that_fails_over_is_refused_before_it_is_reached() {
    for url in ["redis+sentinel://127.0.0.1:1/master", "redis+cluster://127.0.0.1:1", "rediss+cluster://127.0.0.1:1"] {
        let urls = ["redis://127.0.0.1:2".to_owned(), url.to_owned(), "redis://127.0.0.1:3".to_owned()];
        refused(&quorum_of(&urls), &["node 2", "fails over"]);
    }
}

/// Also behind an address that looks like another one's.
pub(crate) fn the_same_server_twice_is_refused() {
    let set = QuorumSet::start(2);
    let [a, b] = [0, 1].map(|at| set.nodes[at].url());
    let cable = Cable::to(set.nodes[0].port);
    for again in [a.clone(), format!("redis://localhost:{}", set.nodes[0].port), format!("redis://127.0.0.1:{}", cable.port)] {
        refused(&quorum_of(&[a.clone(), b.clone(), again.clone()]), &[&again[8..], "same server"]);
    }
}

pub(crate) fn a_replica_in_the_list_is_refused() {
    let set = QuorumSet::start(3);
    let mut raw = set.nodes[2].raw();
    cmd("REPLICAOF").arg("127.0.0.1").arg(set.nodes[0].port).query::<()>(&mut raw).expect("told");
    eventually("it follows", || set.nodes[2].follows(&set.nodes[0]));
    refused(&set.url(""), &[&format!("127.0.0.1:{}", set.nodes[2].port), "replica"]);
}

pub(crate) fn what_is_a_quorum_itself_or_moves_is_no_node() {
    let set = QuorumSet::start(2);
    let [a, b] = [0, 1].map(|at| set.nodes[at].url());
    let nested = format!("quorum:{a}|{b}|quorum:{a}");
    assert!(matches!(block_on(Locker::connect(&nested)), Err(Error::Config { .. })));
    refused(&format!("quorum:{a}?lease=1s|{b}|{a}"), &["lease", "concerns all"]);
}

pub(crate) fn too_few_nodes_to_connect_to_are_named() {
    let set = QuorumSet::start(3);
    let ways = set.ways();
    ways.reach_only(&[1]);
    let error = block_on(Locker::connect(&ways.url("timeout=1s"))).expect_err("one of three");
    let said = error.to_string();
    assert!(error.is_transient(), "{said}");
    for cable in &ways.cables {
        assert!(said.contains(&format!("127.0.0.1:{}: ", cable.port)), "{said}");
    }
}

/// Passwords of nodes are shown nowhere.
pub(crate) fn passwords_of_nodes_are_kept_to_oneself() {
    let servers: Vec<RedisServer> = (0..3).map(|_| RedisServer::with(&["--requirepass", "canary-5ecret"])).collect();
    let urls: Vec<String> = servers.iter().map(|server| format!("redis://:canary-5ecret@127.0.0.1:{}", server.port)).collect();
    block_on(async {
        let locker = connect(&quorum_of(&urls)).await;
        let error = locker.mutex("L").try_lock().await.expect_err("too young");
        let shown = format!("{error} {error:?} {:?} {:?}", locker.stats(), locker);
        assert!(!shown.contains("canary"), "{shown}");
    });
    let wrong: Vec<String> = urls.iter().map(|url| url.replace("canary", "another-canary")).collect();
    let error = block_on(Locker::connect(&quorum_of(&wrong))).expect_err("the wrong password");
    assert!(!format!("{error} {error:?}").contains("canary"), "{error}");
    assert!(!error.is_transient(), "{error}");
}
