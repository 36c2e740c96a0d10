//! The faults are real: what the tests of quorums inject does what it says.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::time::Duration;

use redis::{Connection, RedisResult, cmd};

use tenure_testkit::cable::Cable;
use tenure_testkit::clock::Skew;
use tenure_testkit::fenced::{Fenced, Rejected, Write};
use tenure_testkit::quorum::QuorumSet;
use tenure_testkit::server::{Setup, start};
use tenure_testkit::{RedisServer, eventually};

/// Longer than anything that is to come takes, and not long to wait for what is not to come.
const MOMENT: Duration = Duration::from_millis(300);

fn over(cable: &Cable) -> RedisResult<Connection> {
    let client = redis::Client::open(format!("redis://127.0.0.1:{}", cable.port)).expect("a URL");
    let connection = client.get_connection_with_timeout(MOMENT)?;
    connection.set_read_timeout(Some(MOMENT))?;
    Ok(connection)
}

fn set(connection: &mut Connection, key: &str) -> RedisResult<()> {
    cmd("SET").arg(key).arg(1).query(connection)
}

fn seconds(raw: &mut Connection) -> i64 {
    cmd("TIME").query::<(i64, i64)>(raw).expect("told").0
}

fn pttl(raw: &mut Connection, key: &str) -> i64 {
    cmd("PTTL").arg(key).query(raw).expect("told")
}

fn exists(raw: &mut Connection, key: &str) -> bool {
    cmd("EXISTS").arg(key).query(raw).expect("told")
}

pub(crate) fn the_clock_of_a_server_can_be_moved() {
    let skew = Skew::none();
    let (server, right) = (start(&Setup::default().clock(skew.clock())), RedisServer::start());
    let (mut raw, mut right) = (server.raw(), right.raw());
    let mut difference = || seconds(&mut raw) - seconds(&mut right);
    assert!(difference().abs() <= 1);
    skew.ahead(Duration::from_secs(60));
    assert!((59..=61).contains(&difference()));
    skew.behind(Duration::from_secs(3600));
    assert!((-3601..=-3599).contains(&difference()));
    skew.ahead(Duration::ZERO);
    assert!(difference().abs() <= 1);

    let put = |raw: &mut Connection| cmd("SET").arg("k").arg(1).arg("PX").arg(30_000).query::<()>(raw).expect("set");
    put(&mut raw);
    skew.ahead(Duration::from_secs(60));
    assert_eq!(pttl(&mut raw, "k"), -2, "it has expired half a minute early");
    put(&mut raw);
    skew.ahead(Duration::ZERO);
    assert!((80_000..=90_000).contains(&pttl(&mut raw, "k")), "it lasts a minute longer");
    skew.behind(Duration::from_secs(3600));
    assert!((3_600_000..=3_690_000).contains(&pttl(&mut raw, "k")), "it lasts an hour longer");
}

pub(crate) fn a_clock_that_never_jumps_can_be_moved() {
    let skew = Skew::none();
    let server = start(&Setup::default().clock(skew.clock()));
    let mut raw = server.raw();
    skew.steady_ahead(Duration::from_secs(3600));
    // With the clock that is read here, the server times its own commands.
    eventually("the server's loop goes on", || exists(&mut raw, "k") || set(&mut raw, "k").is_ok());
    let before = seconds(&mut raw);
    skew.steady_ahead(Duration::from_secs(7200));
    assert!((seconds(&mut raw) - before).abs() < 60, "the wall clock is another one");
}

pub(crate) fn a_cut_cable_closes_and_refuses() {
    let server = RedisServer::start();
    let cable = Cable::to(server.port);
    let mut connection = over(&cable).expect("connected");
    set(&mut connection, "a").expect("set");
    for _ in 0..2 {
        cable.cut();
        assert!(set(&mut connection, "b").expect_err("closed").is_connection_dropped());
        let refused = TcpStream::connect(("127.0.0.1", cable.port)).expect_err("refused");
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        cable.heal();
        connection = over(&cable).expect("connected again");
        set(&mut connection, "c").expect("set");
    }
    assert!(!exists(&mut server.raw(), "b"));
}

pub(crate) fn a_blackholed_cable_swallows_until_it_is_healed() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    let cable = Cable::to(server.port);
    let mut connection = over(&cable).expect("connected");
    for key in ["a", "b"] {
        cable.blackhole();
        assert!(set(&mut connection, key).expect_err("no answer").is_timeout());
        let address = ([127, 0, 0, 1], cable.port).into();
        let silent = TcpStream::connect_timeout(&address, MOMENT).expect_err("not even connected");
        assert_eq!(silent.kind(), ErrorKind::TimedOut);
        eventually("it is on its way", || cable.has_held_request());
        assert!(!exists(&mut raw, key));
        cable.heal();
        eventually("it arrives after all", || exists(&mut raw, key));
        connection = over(&cable).expect("connected again");
        set(&mut connection, "c").expect("set");
    }
}

pub(crate) fn replies_can_be_held_back() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    let cable = Cable::to(server.port);
    let mut connection = over(&cable).expect("connected");
    connection.set_read_timeout(None).expect("set");
    cable.hold_replies();
    let asking = std::thread::spawn(move || set(&mut connection, "a"));
    eventually("the server has heard it", || exists(&mut raw, "a"));
    eventually("it has answered", || cable.has_held_reply());
    assert!(!asking.is_finished());
    cable.heal();
    asking.join().expect("no panic").expect("heard late");
    assert!(!cable.has_held_reply());
}

pub(crate) fn requests_can_be_held_back() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    let cable = Cable::to(server.port);
    let mut connection = over(&cable).expect("connected");
    connection.set_read_timeout(None).expect("set");
    cable.hold_requests();
    let asking = std::thread::spawn(move || set(&mut connection, "a"));
    eventually("it is on its way", || cable.has_held_request());
    assert!(!exists(&mut raw, "a"));
    cable.heal();
    asking.join().expect("no panic").expect("heard late");
}

pub(crate) fn a_stranded_connection_is_dead_and_a_new_one_is_not() {
    let server = RedisServer::start();
    let cable = Cable::to(server.port);
    let mut connection = over(&cable).expect("connected");
    set(&mut connection, "a").expect("set");
    cable.strand();
    assert!(set(&mut connection, "b").expect_err("no answer").is_timeout());
    set(&mut over(&cable).expect("connected"), "c").expect("set");
    assert!(!exists(&mut server.raw(), "b"));
}

pub(crate) fn a_node_can_be_paused_emptied_and_restarted() {
    let mut set_of = QuorumSet::start(3);
    let url = set_of.url("lease=2s");
    let [a, b, c] = [0, 1, 2].map(|at| set_of.nodes[at].port);
    assert_eq!(url, format!("quorum:redis://127.0.0.1:{a}|redis://127.0.0.1:{b}|redis://127.0.0.1:{c}?lease=2s"));
    for node in &set_of.nodes {
        set(&mut node.raw(), "k").expect("set");
    }
    set_of.nodes[0].pause();
    assert_eq!(set_of.with_key("k"), [1, 2]);
    set_of.nodes[0].resume();
    eventually("it is back", || set_of.with_key("k") == [0, 1, 2]);
    set_of.nodes[1].lose_nothing();
    assert_eq!(set_of.with_key("k"), [0, 1, 2]);
    set_of.nodes[1].lose_all();
    assert_eq!(set_of.with_key("k"), [0, 2]);
    assert_eq!(set_of.nodes[1].port, b, "on the same port");
    let ways = set_of.ways();
    ways.reach_only(&[0, 2]);
    let reached: Vec<bool> = ways.cables.iter().map(|cable| over(cable).is_ok()).collect();
    assert_eq!(reached, [true, false, true]);
    set_of.aged(Duration::from_secs(1));
    assert!(set_of.nodes.iter().all(|node| node.uptime() >= Some(Duration::from_secs(1))));
}

pub(crate) fn a_fenced_store_rejects_what_is_stale() {
    let store = Fenced::default();
    let [first, second] = [1, 2].map(tenure::Token::new);
    store.write("r", first, "a").expect("accepted");
    store.write("r", first, "a").expect("once more by the same");
    store.write("r", second, "b").expect("accepted");
    let of = |token, who: &str| Write { token, who: who.to_owned() };
    assert_eq!(store.write("r", first, "a"), Err(Rejected::Stale { largest: of(2, "b") }));
    assert_eq!(store.write("r", second, "c"), Err(Rejected::Clash { with: of(2, "b") }));
    store.write("other", first, "a").expect("another resource");
    let log = store.log("r");
    assert_eq!((log.accepted.len(), log.rejected.len()), (3, 2));
    assert_eq!(log.writers(), ["a", "b"]);
}
