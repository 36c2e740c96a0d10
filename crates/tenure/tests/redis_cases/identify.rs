//! The identity of a server, asked below the library: of a replica, without rights, and what that leaves behind.

use redis::{Connection, ErrorKind, RedisResult, Script, ServerErrorKind, cmd};

use tenure_testkit::RedisServer;

const KEY: &str = "tenure:leases";

/// Id, seconds, whether it is a master, clock, leases with their ages.
fn identify(raw: &mut Connection, longest: u64) -> RedisResult<(String, i64, bool, u64, u64, Vec<u64>)> {
    let script = Script::new(include_str!("../../src/backends/redis/scripts/identify.lua"));
    script.key(KEY).arg(longest).invoke(raw)
}

pub(crate) fn an_identification_is_forgotten_after_twice_the_longest_lease() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    for (given, longest) in [(30_000, 30_000), (90_000, 90_000), (10, 90_000)] {
        let (id, _, master, .., said) = identify(&mut raw, given).expect("told");
        assert_eq!((id.len(), master, said.chunks(2).map(|pair| pair[0]).max()), (40, true, Some(longest)));
        let left: u64 = cmd("PTTL").arg(KEY).query(&mut raw).expect("asked");
        let whole = 2 * longest + 3_600_000;
        assert!((whole - 60_000..=whole).contains(&left), "{left}");
    }
}

pub(crate) fn a_lease_that_nobody_comes_with_any_more_is_forgotten() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    let now = |raw: &mut Connection| cmd("TIME").query::<(u64, u64)>(raw).expect("asked").0 * 1000;
    let at = now(&mut raw);
    // One that was last seen two hours ago, one an hour ago whose own length is in hours, and one of which no clock should tell.
    let (old, long, odd) = (at - 7_300_000, at - 3_700_000, at + 1_000_000);
    let stored = format!("1000:{old}:{old} 7200000:{old}:{long} 2000:{odd}:{at}");
    cmd("SET").arg(KEY).arg(stored).query::<()>(&mut raw).expect("set");
    let (.., said) = identify(&mut raw, 500).expect("told");
    let ages: Vec<(u64, u64)> = said.chunks(2).map(|pair| (pair[0], pair[1])).collect();
    let [(2000, as_old_as_can_be), (7_200_000, for_long), (500, 0..=60_000)] = ages[..] else { panic!("{ages:?}") };
    assert!((7_300_000..7_400_000).contains(&for_long) && as_old_as_can_be > 365 * 24 * 3_600_000, "{ages:?}");
}

pub(crate) fn very_many_leases_are_told_as_longer_ones() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    for lease in 1..=100_u64 {
        let (.., said) = identify(&mut raw, lease * 1000).expect("told");
        assert!(said.len() <= 64 && said.chunks(2).any(|pair| pair[0] >= lease * 1000), "{lease}: {said:?}");
    }
    let (.., said) = identify(&mut raw, 10).expect("told");
    assert!(said.len() <= 64 && said.chunks(2).any(|pair| pair[0] == 100_000), "{said:?}");
}

pub(crate) fn a_replica_says_so_and_writes_nothing() {
    let (master, copy) = (RedisServer::start(), RedisServer::start());
    let mut raw = copy.raw();
    let (own, ..) = identify(&mut raw, 1000).expect("told");
    cmd("DEL").arg(KEY).query::<()>(&mut raw).expect("removed");
    cmd("REPLICAOF").arg("127.0.0.1").arg(master.port).query::<()>(&mut raw).expect("a replica");
    let (id, _, is_master, .., longest) = identify(&mut raw, 1000).expect("told");
    assert_eq!((id, is_master, longest), (own, false, vec![1000, 0]));
    assert!(!cmd("EXISTS").arg(KEY).query::<bool>(&mut raw).expect("asked"));
}

pub(crate) fn who_may_not_ask_who_answers_is_told_which_right_is_missing() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    let words = ["SETUSER", "weak", "on", ">pw", "~*", "&*", "+@all", "-info"];
    cmd("ACL").arg(&words[..]).query::<()>(&mut raw).expect("a user");
    cmd("AUTH").arg("weak").arg("pw").query::<()>(&mut raw).expect("logged in");
    let refused = identify(&mut raw, 1000).expect_err("may not");
    assert_eq!(refused.kind(), ErrorKind::Server(ServerErrorKind::NoPerm), "{refused}");
    assert!(refused.to_string().contains("+info"), "{refused}");
}
