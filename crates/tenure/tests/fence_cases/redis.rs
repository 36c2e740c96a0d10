//! Fences for keys in Redis, on one server.

use std::time::Duration;

use redis::aio::{ConnectionManager, MultiplexedConnection};
use redis::{Connection, FromRedisValue, cmd};
use tenure::fence::marks::Marks;
use tenure::fence::redis::{Decrement, Error, RedisFence, RedisMarks};
use tenure::fence::{Pass, Stale};
use tenure::{Fault, Token};

use tenure_testkit::acl::{PASSWORD, documented_user};
use tenure_testkit::locker::{block_on, connect};
use tenure_testkit::{RedisServer, eventually};

/// In order.
pub(super) const LARGE: [u64; 6] =
    [9_007_199_254_740_992, 9_007_199_254_740_993, 9_007_199_254_740_994, (1 << 62) + 1, i64::MAX as u64 - 1, i64::MAX as u64];

pub(super) fn token(n: u64) -> Token {
    Token::new(n)
}

pub(super) async fn link(url: &str) -> MultiplexedConnection {
    redis::Client::open(url).expect("a URL").get_multiplexed_async_connection().await.expect("connected")
}

pub(super) fn get<T: FromRedisValue>(raw: &mut Connection, words: &[&str]) -> T {
    cmd(words[0]).arg(&words[1..]).query(raw).expect("asked")
}

pub(super) fn stale(key: &str, token: u64, seen: u64) -> Stale {
    Stale { resource: key.to_owned(), token: Token::new(token), seen: Token::new(seen) }
}

/// The code of the server's own error.
fn code(error: &Error) -> &str {
    match error {
        Error::Store(error) => error.code().unwrap_or_default(),
        other => panic!("not the server's: {other}"),
    }
}

pub(crate) fn what_is_not_smaller_writes_and_what_is_smaller_is_stale() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    block_on(async {
        let client = redis::Client::open(server.url()).expect("a URL");
        let fence = RedisFence::new(ConnectionManager::new(client).await.expect("connected"));
        for n in [0, 0, 5, 5, 9, 10, 10] {
            fence.set("k", n, &token(n)).await.expect("written");
            assert_eq!(get::<u64>(&mut raw, &["GET", "k"]), n);
        }
        assert_eq!(get::<String>(&mut raw, &["GET", "tenure_fence:{k}"]), "10");
        let refused = [
            fence.set("k", "late", &token(9)).await.expect_err("too late"),
            fence.set_for("k", "late", Duration::from_secs(9), &token(9)).await.expect_err("too late"),
            fence.delete("k", &token(9)).await.expect_err("too late"),
            fence.decrement("k", 1, &token(9)).await.expect_err("too late"),
        ];
        for refused in &refused {
            assert_eq!(refused.stale(), Some(&stale("k", 9, 10)));
        }
        assert!(refused[0].to_string().contains("token 9") && refused[0].to_string().contains("token 10"), "{}", refused[0]);
        assert_eq!(get::<u64>(&mut raw, &["GET", "k"]), 10);
        assert_eq!(fence.decrement("k", 1, &token(10)).await.expect("taken"), Decrement::Left(9));
        fence.set("other", "x", &token(1)).await.expect("another key has a fence of its own");
        let stats = fence.stats();
        assert_eq!((stats.accepted, stats.stale, stats.overtaken), (9, 4, 0));
    });
}

pub(crate) fn a_stale_write_leaves_the_value_and_its_end_alone() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    block_on(async {
        let fence = RedisFence::new(link(&server.url()).await);
        fence.set_for("k", "kept", Duration::from_secs(1000), &token(7)).await.expect("written");
        let (before, ends): (String, u64) = (get(&mut raw, &["GET", "k"]), get(&mut raw, &["PEXPIRETIME", "k"]));
        fence.set("k", "late", &token(6)).await.expect_err("too late");
        fence.set_for("k", "late", Duration::from_secs(5), &token(6)).await.expect_err("too late");
        fence.delete("k", &token(6)).await.expect_err("too late");
        let (after, still): (String, u64) = (get(&mut raw, &["GET", "k"]), get(&mut raw, &["PEXPIRETIME", "k"]));
        assert_eq!((before, ends), (after, still));
        // A set without an end takes the end away, as Redis itself does.
        fence.set("k", "for ever", &token(7)).await.expect("written");
        assert_eq!(get::<i64>(&mut raw, &["PTTL", "k"]), -1);
    });
}

pub(crate) fn deleting_a_key_keeps_its_fence() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    block_on(async {
        let fence = RedisFence::new(link(&server.url()).await);
        fence.set("k", "x", &token(5)).await.expect("written");
        assert!(fence.delete("k", &token(6)).await.expect("deleted"));
        assert!(!fence.delete("k", &token(6)).await.expect("deleted already"));
        assert!(!get::<bool>(&mut raw, &["EXISTS", "k"]));
        let late = fence.set("k", "back again", &token(5)).await.expect_err("too late");
        assert_eq!(late.stale(), Some(&stale("k", 5, 6)));
        assert!(!get::<bool>(&mut raw, &["EXISTS", "k"]));
        // Deleting what is not there is a write too.
        assert!(!fence.delete("never", &token(3)).await.expect("nothing to delete"));
        fence.set("never", "x", &token(2)).await.expect_err("too late");
    });
}

pub(crate) fn a_value_that_ends_by_itself_keeps_its_fence() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    block_on(async {
        let fence = RedisFence::new(link(&server.url()).await);
        fence.set_for("k", "x", Duration::from_millis(20), &token(5)).await.expect("written");
        eventually("it ends", || !get::<bool>(&mut raw, &["EXISTS", "k"]));
        fence.set("k", "late", &token(4)).await.expect_err("too late");
    });
}

pub(crate) fn tokens_beyond_two_to_the_53_are_told_apart() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    block_on(async {
        let fence = RedisFence::new(link(&server.url()).await);
        for pair in LARGE.windows(2) {
            fence.set("k", pair[1], &token(pair[1])).await.expect("written");
            let late = fence.set("k", "late", &token(pair[0])).await.expect_err("too late");
            assert_eq!(late.stale(), Some(&stale("k", pair[0], pair[1])));
            assert_eq!(get::<u64>(&mut raw, &["GET", "k"]), pair[1]);
        }
        // Lengths are compared before digits.
        fence.set("short", 1, &token(10)).await.expect("written");
        fence.set("short", 1, &token(9)).await.expect_err("too late");
        let refused = fence.set("k", 1, &token(1 << 63)).await.expect_err("no such token");
        assert!(matches!(refused, Error::Request(_)) && refused.to_string().contains("9223372036854775807"), "{refused}");
    });
}

pub(crate) fn a_decrement_takes_all_or_nothing() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    block_on(async {
        let fence = RedisFence::new(link(&server.url()).await);
        let take = async |by, n| fence.decrement("k", by, &token(n)).await.expect("not refused");
        assert_eq!(take(1, 1).await, Decrement::Short { have: 0 });
        assert!(!get::<bool>(&mut raw, &["EXISTS", "k"]), "nothing is made of nothing");
        fence.set_for("k", 10, Duration::from_secs(1000), &token(1)).await.expect("written");
        assert_eq!(take(4, 2).await, Decrement::Left(6));
        assert_eq!(take(7, 3).await, Decrement::Short { have: 6 });
        // Who was told that there is too little was here all the same.
        let late = fence.decrement("k", 1, &token(2)).await.expect_err("too late");
        assert_eq!(late.stale(), Some(&stale("k", 2, 3)));
        assert_eq!(take(6, 3).await, Decrement::Left(0));
        assert_eq!(take(1, 3).await, Decrement::Short { have: 0 });
        assert_eq!(take(0, 3).await, Decrement::Left(0));
        assert!(get::<i64>(&mut raw, &["PTTL", "k"]) > 0, "its end stays");
        get::<()>(&mut raw, &["SET", "k", "-3"]);
        assert_eq!(take(0, 3).await, Decrement::Short { have: -3 });
        assert_eq!(take(u64::MAX, 3).await, Decrement::Short { have: -3 });
    });
}

pub(crate) fn numbers_beyond_two_to_the_53_are_decremented_exactly() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    block_on(async {
        let fence = RedisFence::new(link(&server.url()).await);
        for n in LARGE {
            fence.set("k", n, &token(1)).await.expect("written");
            let one_more = fence.decrement("k", n + 1, &token(1)).await.expect("not refused");
            assert_eq!(one_more, Decrement::Short { have: i64::try_from(n).expect("small") });
            assert_eq!(fence.decrement("k", 1, &token(1)).await.expect("taken"), Decrement::Left(n - 1));
            assert_eq!(fence.decrement("k", n - 1, &token(1)).await.expect("taken"), Decrement::Left(0));
        }
        get::<()>(&mut raw, &["SET", "k", &i64::MIN.to_string()]);
        assert_eq!(fence.decrement("k", 1, &token(1)).await.expect("read"), Decrement::Short { have: i64::MIN });
    });
}

pub(crate) fn what_is_no_number_is_not_decremented() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    block_on(async {
        let fence = RedisFence::new(link(&server.url()).await);
        for odd in ["", "many", "1.5", "007", "+5", " 5", "-0", "5\n", "9223372036854775808", "-9223372036854775809", "1e3"] {
            get::<()>(&mut raw, &["SET", "k", odd]);
            let refused = fence.decrement("k", 1, &token(5)).await.expect_err(odd);
            assert_eq!(code(&refused), "FOREIGN", "{odd}: {refused}");
            assert_eq!(get::<String>(&mut raw, &["GET", "k"]), odd);
        }
        assert!(!get::<bool>(&mut raw, &["EXISTS", "tenure_fence:{k}"]), "an error raises nothing");
        assert_eq!(fence.stats().accepted, 0);
    });
}

pub(crate) fn a_key_of_another_type_is_refused_and_left_alone() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    get::<()>(&mut raw, &["RPUSH", "k", "a", "b"]);
    block_on(async {
        let fence = RedisFence::new(link(&server.url()).await);
        let refused = [
            fence.set("k", "x", &token(5)).await.expect_err("a list"),
            fence.set_for("k", "x", Duration::from_secs(5), &token(5)).await.expect_err("a list"),
            fence.delete("k", &token(5)).await.map(drop).expect_err("a list"),
            fence.decrement("k", 1, &token(5)).await.map(drop).expect_err("a list"),
        ];
        for refused in refused {
            assert_eq!(code(&refused), "WRONGTYPE", "{refused}");
        }
    });
    assert_eq!(get::<u32>(&mut raw, &["LLEN", "k"]), 2);
    assert!(!get::<bool>(&mut raw, &["EXISTS", "tenure_fence:{k}"]), "an error raises nothing");
}

pub(crate) fn a_fence_that_holds_no_token_lets_nobody_through() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    block_on(async {
        let fence = RedisFence::new(link(&server.url()).await);
        let largest = token(i64::MAX as u64);
        for odd in ["", "x", "-1", "1.0", "007", " 7", "7 ", "9223372036854775808", "00000000000000000000"] {
            get::<()>(&mut raw, &["SET", "tenure_fence:{k}", odd]);
            let refused = fence.set("k", "x", &largest).await.expect_err(odd);
            assert_eq!(code(&refused), "FOREIGN", "{odd}: {refused}");
        }
        get::<()>(&mut raw, &["DEL", "tenure_fence:{k}"]);
        get::<()>(&mut raw, &["RPUSH", "tenure_fence:{k}", "1"]);
        let refused = fence.delete("k", &largest).await.expect_err("a list");
        assert_eq!(code(&refused), "WRONGTYPE", "{refused}");
        assert!(!get::<bool>(&mut raw, &["EXISTS", "k"]));
    });
}

pub(crate) fn a_key_that_has_no_fence_is_refused_before_anything_is_written() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    block_on(async {
        let fence = RedisFence::new(link(&server.url()).await);
        for (key, allowed) in
            [("a}b", "{tag}"), ("", "{tag}"), ("tenure_fence:{a}", "do not begin"), ("tenure_mark:a", "do not begin")]
        {
            let refused = fence.set(key, "x", &token(5)).await.expect_err(key);
            assert!(matches!(refused, Error::Request(tenure::Error::Config { .. })), "{refused}");
            assert!(refused.to_string().contains(allowed), "{refused}");
        }
        for ttl in [Duration::ZERO, Duration::from_micros(999), Duration::MAX] {
            let refused = fence.set_for("k", "x", ttl, &token(5)).await.expect_err("no such time");
            assert!(matches!(refused, Error::Request(_)) && refused.to_string().contains("1ms"), "{refused}");
            fence.clone().forget_after(ttl).set("k", "x", &token(5)).await.expect_err("no such time");
        }
    });
    assert_eq!(get::<u32>(&mut raw, &["DBSIZE"]), 0);
}

pub(crate) fn a_fence_is_forgotten_only_where_that_was_asked_for() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    block_on(async {
        let fence = RedisFence::new(link(&server.url()).await);
        let forgetful = fence.clone().forget_after(Duration::from_secs(1000));
        fence.set("k", "x", &token(5)).await.expect("written");
        assert_eq!(get::<i64>(&mut raw, &["PTTL", "tenure_fence:{k}"]), -1);
        forgetful.set("k", "x", &token(5)).await.expect("written");
        assert!((1..=1_000_000).contains(&get::<i64>(&mut raw, &["PTTL", "tenure_fence:{k}"])));
        fence.set("k", "x", &token(4)).await.expect_err("not forgotten yet");
        fence.set("k", "x", &token(6)).await.expect("written");
        assert_eq!(get::<i64>(&mut raw, &["PTTL", "tenure_fence:{k}"]), -1, "the last word counts");
        let quick = fence.clone().forget_after(Duration::from_millis(1));
        quick.set("k", "x", &token(9)).await.expect("written");
        eventually("it is forgotten", || !get::<bool>(&mut raw, &["EXISTS", "tenure_fence:{k}"]));
        fence.set("k", "late", &token(1)).await.expect("what is forgotten is not refused, as documented");
    });
}

pub(crate) fn a_script_that_the_server_lost_is_sent_again() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    block_on(async {
        let fence = RedisFence::new(link(&server.url()).await);
        let marks = RedisMarks::new(link(&server.url()).await);
        for n in 1..=3 {
            get::<()>(&mut raw, &["SCRIPT", "FLUSH"]);
            fence.set("k", 10, &token(n)).await.expect("written");
            assert_eq!(fence.decrement("k", 3, &token(n)).await.expect("taken"), Decrement::Left(7), "taken once");
            assert!(fence.delete("k", &token(n)).await.expect("deleted"));
            assert_eq!(marks.raise("k", token(n)).await.expect("raised"), token(n));
        }
        let info: String = get(&mut raw, &["INFO", "commandstats"]);
        assert!(!info.contains("cmdstat_script|load"), "a right that nobody needs to have");
    });
}

pub(crate) fn a_stale_write_under_a_guard_is_counted_by_its_locker() {
    let server = RedisServer::start();
    block_on(async {
        let fence = RedisFence::new(link(&server.url()).await);
        let (one, other) = (connect(&server.url()).await, connect(&server.url()).await);
        let first = one.mutex("stock").lock().await.expect("locked");
        other.mutex("stock").break_hold().await.expect("broken");
        let second = other.mutex("stock").lock().await.expect("locked");
        fence.set("k", "second", &second).await.expect("written");
        let refused = fence.set("k", "first", &first).await.expect_err("too late");
        assert_eq!(refused.stale(), Some(&stale("k", first.token().get(), second.token().get())));
        let anybody: &dyn Pass = &first;
        fence.delete("k", anybody).await.expect_err("too late");
        assert_eq!((fence.stats().accepted, fence.stats().stale), (1, 2));
        assert_eq!((one.stats().stale, other.stats().stale), (2, 0));
    });
}

pub(crate) fn the_documented_rights_are_enough_and_no_more() {
    let server = RedisServer::start();
    documented_user("tenure-fences", &mut server.raw());
    block_on(async {
        let url = server.url().replace("://", &format!("://tenure-fences:{PASSWORD}@"));
        let (fence, marks) = (RedisFence::new(link(&url).await), RedisMarks::new(link(&url).await));
        for key in ["app:k", "app:{k}:units", "{app:k}:units"] {
            fence.set(key, 5, &token(5)).await.expect("may set");
            fence.set_for(key, 5, Duration::from_secs(9), &token(5)).await.expect("may set");
            assert_eq!(fence.decrement(key, 1, &token(5)).await.expect("may decrement"), Decrement::Left(4));
            assert!(fence.delete(key, &token(5)).await.expect("may delete"));
            fence.set(key, 5, &token(4)).await.expect_err("too late").stale().expect("stale");
        }
        assert_eq!(marks.raise("app:/stock/1", token(7)).await.expect("may raise"), token(7));
        let refused = fence.set("else:k", 5, &token(5)).await.expect_err("not its key");
        assert_eq!(code(&refused), "NOPERM", "{refused}");
        assert_eq!(marks.raise("else", token(7)).await.expect_err("not its mark").fault(), Some(Fault::Denied));
    });
}

pub(crate) fn marks_only_rise_and_are_no_fences_of_keys() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    block_on(async {
        let marks = RedisMarks::new(link(&server.url()).await);
        for (given, seen) in [(5, 5), (3, 5), (5, 5), (LARGE[0], LARGE[0]), (LARGE[1], LARGE[1]), (LARGE[0], LARGE[1])] {
            assert_eq!(marks.raise("a", token(given)).await.expect("raised"), token(seen));
        }
        // No other key has to be in its slot, so that any name will do.
        for odd in ["", "a}b", "{}", "/a b/ü", "line\nbreak"] {
            assert_eq!(marks.raise(odd, token(5)).await.expect(odd), token(5));
            assert_eq!(marks.raise(odd, token(4)).await.expect(odd), token(5));
        }
        RedisFence::new(link(&server.url()).await).set("a", "x", &token(1)).await.expect("a key is no resource");
        assert_eq!(get::<i64>(&mut raw, &["PTTL", "tenure_mark:a"]), -1);
        let forgetful = marks.clone().forget_after(Duration::from_secs(1000));
        forgetful.raise("b", token(5)).await.expect("raised");
        assert!(get::<i64>(&mut raw, &["PTTL", "tenure_mark:b"]) > 0);
    });
}

pub(crate) fn marks_say_what_is_wrong_with_their_store() {
    let mut server = RedisServer::start();
    let mut raw = server.raw();
    get::<()>(&mut raw, &["SET", "tenure_mark:a", "x"]);
    get::<()>(&mut raw, &["RPUSH", "tenure_mark:b", "x"]);
    block_on(async {
        let marks = RedisMarks::new(link(&server.url()).await);
        for (resource, fault) in [("a", Fault::ForeignFormat), ("b", Fault::WrongType)] {
            let error = marks.raise(resource, token(5)).await.expect_err("no mark");
            assert_eq!((error.fault(), error.is_transient()), (Some(fault), false), "{error}");
        }
        let error = marks.raise("c", token(1 << 63)).await.expect_err("no such token");
        assert!(matches!(error, tenure::Error::Config { .. }), "{error}");
        server.kill();
        let error = marks.raise("c", token(5)).await.expect_err("nobody there");
        assert!(error.is_transient() && error.to_string().contains("\"c\""), "{error}");
    });
}
