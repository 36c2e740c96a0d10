//! Who answers, asked below the library: of a replica, without rights, and what it leaves behind.

use redis::{Connection, ErrorKind, RedisResult, Script, ServerErrorKind, cmd};

use crate::support::RedisServer;

const KEY: &str = "tenure:leases";

/// Id, seconds, whether it is a master, clock, longest lease.
fn introduce(raw: &mut Connection, longest: u64) -> RedisResult<(String, i64, bool, u64, u64, u64)> {
    let script = Script::new(include_str!("../../src/backends/redis/scripts/introduce.lua"));
    script.key(KEY).arg(longest).invoke(raw)
}

pub(crate) fn an_introduction_is_forgotten_after_twice_the_longest_lease() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    for (given, longest) in [(30_000, 30_000), (90_000, 90_000), (10, 90_000)] {
        let (id, _, master, .., said) = introduce(&mut raw, given).expect("told");
        assert_eq!((id.len(), master, said), (40, true, longest));
        let left: u64 = cmd("PTTL").arg(KEY).query(&mut raw).expect("asked");
        let whole = 2 * longest + 3_600_000;
        assert!((whole - 60_000..=whole).contains(&left), "{left}");
    }
}

pub(crate) fn a_replica_says_so_and_writes_nothing() {
    let (master, copy) = (RedisServer::start(), RedisServer::start());
    let mut raw = copy.raw();
    let (own, ..) = introduce(&mut raw, 1000).expect("told");
    cmd("DEL").arg(KEY).query::<()>(&mut raw).expect("removed");
    cmd("REPLICAOF").arg("127.0.0.1").arg(master.port).query::<()>(&mut raw).expect("a replica");
    let (id, _, is_master, .., longest) = introduce(&mut raw, 1000).expect("told");
    assert_eq!((id, is_master, longest), (own, false, 1000));
    assert!(!cmd("EXISTS").arg(KEY).query::<bool>(&mut raw).expect("asked"));
}

pub(crate) fn who_may_not_ask_who_answers_is_told_which_right_is_missing() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    let words = ["SETUSER", "weak", "on", ">pw", "~*", "&*", "+@all", "-info"];
    cmd("ACL").arg(&words[..]).query::<()>(&mut raw).expect("a user");
    cmd("AUTH").arg("weak").arg("pw").query::<()>(&mut raw).expect("logged in");
    let refused = introduce(&mut raw, 1000).expect_err("may not");
    assert_eq!(refused.kind(), ErrorKind::Server(ServerErrorKind::NoPerm), "{refused}");
    assert!(refused.to_string().contains("+info"), "{refused}");
}
