//! Each trouble that a server can report is a typed error, and none of them is "busy".

use std::error::Error as _;
use std::time::Duration;

use redis::cmd;
use tenure::{Error, Fault, Locker, RetryPolicy};

use tenure_testkit::locker::{block_on, connect};
use tenure_testkit::{RedisServer, eventually};

const CANARY: &str = "s3cr3t-canary";

async fn fault_of(locker: &Locker, name: &str) -> (Option<Fault>, bool) {
    let error = locker.mutex(name).try_lock().await.expect_err("an error, not busy");
    let text = format!("{error} {error:?}");
    assert!(text.contains("redis"), "says which store: {text}");
    (error.fault(), error.is_transient())
}

/// Writes a text, a list and a hash that are no locks.
fn with_foreign_keys(server: &RedisServer) -> redis::Connection {
    let mut raw = server.raw();
    cmd("SET").arg("text").arg("x").query::<()>(&mut raw).expect("written");
    cmd("RPUSH").arg("list").arg("x").query::<()>(&mut raw).expect("written");
    cmd("HSET").arg("hash").arg("a").arg("b").query::<()>(&mut raw).expect("written");
    raw
}

pub(crate) fn a_key_of_another_type_is_named() {
    let server = RedisServer::start();
    let mut raw = with_foreign_keys(&server);
    block_on(async {
        let locker = connect(&server.url()).await;
        for name in ["text", "list"] {
            assert_eq!(fault_of(&locker, name).await, (Some(Fault::WrongType), false));
            let error = locker.mutex(name).lock().await.expect_err("does not wait for ever");
            assert_eq!(error.fault(), Some(Fault::WrongType));
            locker.mutex(name).break_hold().await.expect_err("not ours to break");
        }
        let plain = connect(&format!("{}?layout=plain", server.url())).await;
        for name in ["hash", "list"] {
            assert_eq!(fault_of(&plain, name).await, (Some(Fault::WrongType), false));
        }
        assert!(locker.list("").await.expect("listed").is_empty());
    });
    assert!(cmd("EXISTS").arg("text").arg("list").arg("hash").query::<u32>(&mut raw).expect("asked") == 3, "left alone");
}

pub(crate) fn the_family_leaves_keys_of_others_alone() {
    let server = RedisServer::start();
    let mut raw = with_foreign_keys(&server);
    block_on(async {
        let locker = connect(&server.url()).await;
        for (name, fault) in [("text", Fault::ForeignFormat), ("list", Fault::WrongType), ("hash", Fault::WrongType)] {
            let semaphore = locker.semaphore(name, 3);
            let refused = [
                semaphore.acquire().await.map(drop),
                semaphore.resize(5).await,
                locker.latch(name).set(2).await.map(drop),
                locker.latch(name).count_down().await.map(drop),
                locker.latch(name).wait().await,
            ];
            for refused in refused {
                assert_eq!(refused.expect_err("not ours").fault(), Some(fault), "{name}");
            }
        }
        for (name, fault) in [("text", Fault::WrongType), ("list", Fault::WrongType), ("hash", Fault::ForeignFormat)] {
            let rwlock = locker.rwlock(name);
            for refused in [rwlock.read().await, rwlock.write().await, locker.mutex(name).fair().lock().await] {
                assert_eq!(refused.expect_err("not ours").fault(), Some(fault), "{name}");
            }
        }
        // A lock of another kind under the same name is busy, not free.
        let _held = locker.mutex("L").lock().await.expect("locked");
        assert!(locker.rwlock("L").try_read().await.expect("asked").is_none());
        assert!(locker.rwlock("L").try_write().await.expect("asked").is_none());
        let _read = locker.rwlock("R").read().await.expect("read");
        assert!(locker.mutex("R").try_lock().await.expect("asked").is_none());
        assert!(locker.mutex("R").fair().try_lock().await.expect("asked").is_none());
    });
    assert_eq!(cmd("GET").arg("text").query::<String>(&mut raw).expect("asked"), "x");
    assert_eq!(cmd("LLEN").arg("list").query::<u32>(&mut raw).expect("asked"), 1);
    assert_eq!(cmd("HLEN").arg("hash").query::<u32>(&mut raw).expect("asked"), 1);
}

pub(crate) fn a_user_without_rights_ends_nobodys_read_lock() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    let words = ["SETUSER", "weak", "on", ">pw", "~*", "&*", "+@all", "-pexpire"];
    cmd("ACL").arg(&words[..]).query::<()>(&mut raw).expect("a user");
    block_on(async {
        let locker = connect(&server.url()).await;
        let reader = locker.rwlock("L").lease(std::time::Duration::from_secs(5)).read().await.expect("read");
        let weak = connect(&server.url().replace("://", "://weak:pw@")).await;
        let refused = weak.rwlock("L").read().await.expect_err("may not");
        assert_eq!(refused.fault(), Some(Fault::Denied));
        weak.rwlock("M").read().await.expect_err("may not");
        assert!(locker.rwlock("L").try_write().await.expect("asked").is_none(), "still read");
        reader.check().expect("held");
    });
    assert!(!cmd("EXISTS").arg("M").query::<bool>(&mut raw).expect("asked"), "and nothing is left that never ends");
}

pub(crate) fn a_key_of_another_format_is_named() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    cmd("HSET").arg("user:1").arg("email").arg("x").query::<()>(&mut raw).expect("written");
    cmd("HSET").arg("session").arg("email").arg("x").query::<()>(&mut raw).expect("written");
    cmd("PEXPIRE").arg("session").arg(60_000).query::<()>(&mut raw).expect("written");
    cmd("SET").arg("text").arg("x").query::<()>(&mut raw).expect("written");
    block_on(async {
        let locker = connect(&server.url()).await;
        for name in ["user:1", "session"] {
            assert_eq!(fault_of(&locker, name).await, (Some(Fault::ForeignFormat), false));
            let error = locker.mutex(name).break_hold().await.expect_err("not ours to break");
            assert_eq!(error.fault(), Some(Fault::ForeignFormat));
        }
        let plain = connect(&format!("{}?layout=plain", server.url())).await;
        assert_eq!(fault_of(&plain, "text").await, (Some(Fault::ForeignFormat), false));
        assert!(locker.list("").await.expect("listed").is_empty());
    });
    assert_eq!(cmd("EXISTS").arg("user:1").arg("session").arg("text").query::<u32>(&mut raw).expect("asked"), 3, "left alone");
}

pub(crate) fn a_lost_script_is_sent_again() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    block_on(async {
        let locker = connect(&server.url()).await;
        for _ in 0..3 {
            cmd("SCRIPT").arg("FLUSH").query::<()>(&mut raw).expect("flushed");
            let guard = locker.mutex("L").try_lock().await.expect("asked").expect("locked");
            cmd("SCRIPT").arg("FLUSH").query::<()>(&mut raw).expect("flushed");
            guard.release().await.expect("given back");
        }
    });
}

pub(crate) fn a_replica_is_read_only() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    block_on(async {
        let locker = connect(&server.url()).await;
        cmd("REPLICAOF").arg("127.0.0.1").arg(1).query::<()>(&mut raw).expect("a replica now");
        assert_eq!(fault_of(&locker, "L").await, (Some(Fault::ReadOnly), true));
        cmd("REPLICAOF").arg("NO").arg("ONE").query::<()>(&mut raw).expect("a master again");
        assert!(locker.mutex("L").try_lock().await.expect("asked").is_some());
    });
}

pub(crate) fn a_loading_server_is_loading() {
    let mut server = RedisServer::with(&["--loading-process-events-interval-bytes", "1024"]);
    let mut raw = server.raw();
    for i in 0..3000 {
        cmd("SET").arg(format!("filler:{i}")).arg("x".repeat(200)).query::<()>(&mut raw).expect("written");
    }
    block_on(async {
        let locker = connect(&server.url()).await;
        cmd("SAVE").query::<()>(&mut raw).expect("saved");
        server.kill();
        // A few seconds for all keys.
        server.restart_with(&["--key-load-delay", "1500"]);
        assert_eq!(fault_of(&locker, "L").await, (Some(Fault::Loading), true));
        let other = connect(&server.url()).await;
        assert_eq!(fault_of(&other, "L").await, (Some(Fault::Loading), true));
        // Who is patient gets it when the server is ready, however long that takes.
        let patient = Locker::builder().retry(RetryPolicy::for_ever()).connect(&server.url()).await.expect("connected");
        patient.mutex("L").lock().await.expect("locked in the end").release().await.expect("given back");
    });
}

pub(crate) fn a_busy_server_is_busy_and_not_the_lock() {
    let server = RedisServer::with(&["--busy-reply-threshold", "50"]);
    block_on(async {
        let locker = connect(&server.url()).await;
        let mut stuck = server.raw();
        let script = std::thread::spawn(move || cmd("EVAL").arg("while true do end").arg(0).query::<()>(&mut stuck));
        let mut raw = server.raw();
        eventually("the script runs", || cmd("GET").arg("x").query::<Option<String>>(&mut raw).is_err());
        assert_eq!(fault_of(&locker, "L").await, (Some(Fault::StoreBusy), true));
        cmd("SCRIPT").arg("KILL").query::<()>(&mut raw).expect("killed");
        script.join().expect("no panic").expect_err("killed");
        assert!(locker.mutex("L").try_lock().await.expect("asked").is_some());
    });
}

pub(crate) fn a_full_server_refuses_locks_but_not_releases() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    block_on(async {
        let locker = connect(&format!("{}?lease=3s", server.url())).await;
        let guard = locker.mutex("held").note("noted").lock().await.expect("locked");
        cmd("CONFIG").arg("SET").arg("maxmemory").arg(1).query::<()>(&mut raw).expect("full");
        assert_eq!(fault_of(&locker, "L").await, (Some(Fault::OutOfMemory), true));
        tokio::time::sleep(Duration::from_secs(4)).await;
        assert!(guard.is_valid(), "renewed on a full server");
        guard.release().await.expect("given back on a full server");
        cmd("CONFIG").arg("SET").arg("maxmemory").arg(0).query::<()>(&mut raw).expect("room again");
        assert!(locker.mutex("L").try_lock().await.expect("asked").is_some());
    });
}

pub(crate) fn missing_rights_are_named_also_inside_of_scripts() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    let user = |name: &str, rights: &[&str], raw: &mut redis::Connection| {
        let mut set = cmd("ACL");
        set.arg("SETUSER")
            .arg(name)
            .arg("on")
            .arg(format!(">{CANARY}"))
            .arg("resetchannels")
            .arg("-@all")
            .arg("+@connection")
            .arg(rights);
        set.query::<()>(raw).expect("a user");
    };
    user("noscript", &["~*", "&*"], &mut raw);
    user("nokeys", &["~other:*", "&*", "+@all"], &mut raw);
    user("inner", &["~*", "&*", "+evalsha", "+eval", "+pttl"], &mut raw);
    user("nochannel", &["~*", "&other", "+@all"], &mut raw);
    user("noexpire", &["~*", "&*", "+@all", "-pexpire"], &mut raw);
    block_on(async {
        let url = |user: &str| format!("redis://{user}:{CANARY}@127.0.0.1:{}", server.port);
        for name in ["noscript", "nokeys", "inner"] {
            let locker = connect(&url(name)).await;
            assert_eq!(fault_of(&locker, "L").await, (Some(Fault::Denied), false), "{name}");
        }
        // May take a lock but not set its end: nothing may stay behind.
        let locker = connect(&url("noexpire")).await;
        assert_eq!(fault_of(&locker, "L").await, (Some(Fault::Denied), false));
        assert!(!cmd("EXISTS").arg("L").query::<bool>(&mut raw).expect("asked"), "a lock that never ends");
        // May lock but not publish, which is what a new user of Redis 7 may by default: the lock is given back all the same.
        let locker = connect(&url("nochannel")).await;
        locker.mutex("L").lock().await.expect("locked").release().await.expect("given back");
        let guard = locker.mutex("L").lock().await.expect("locked again");
        // Who may not renew any more is not told that the lock is gone, but that it is not allowed to; the deadline decides.
        user("nochannel", &["resetkeys"], &mut raw);
        let error = guard.release().await.expect_err("no rights left");
        assert_eq!(error.fault(), Some(Fault::Denied), "{error}");
    });
}

pub(crate) fn a_wrong_password_is_named_and_not_shown() {
    let server = RedisServer::with(&["--requirepass", "right"]);
    block_on(async {
        for login in ["", &format!(":{CANARY}@"), &format!("user:{CANARY}@")] {
            let error = Locker::connect(&format!("redis://{login}127.0.0.1:{}", server.port)).await.expect_err("refused");
            assert_eq!((error.fault(), error.is_transient()), (Some(Fault::Auth), false), "{error}");
            assert!(!format!("{error} {error:?}").contains(CANARY));
        }
        // What has to be percent-encoded and is not lands elsewhere in the URL.
        for password in [format!("x/{CANARY}"), format!("x?{CANARY}"), format!("x#{CANARY}"), format!("x,{CANARY}")] {
            let error =
                Locker::connect(&format!("redis://user:{password}@127.0.0.1:{}", server.port)).await.expect_err("refused");
            assert!(!format!("{error} {error:?}").contains(CANARY), "{error}");
        }
        let locker = connect(&format!("redis://:right@127.0.0.1:{}", server.port)).await;
        assert!(!format!("{locker:?} {:?}", locker.mutex("L")).contains("right"));
    });
}

/// A server that does not know a command repeats what came with it: with the greeting, that is the password.
pub(crate) fn a_password_that_the_server_repeats_is_not_shown() {
    let server = RedisServer::with(&["--rename-command", "HELLO", ""]);
    block_on(async {
        let error = Locker::connect(&format!("redis://user:{CANARY}@127.0.0.1:{}", server.port)).await.expect_err("refused");
        assert_eq!((error.fault(), error.is_transient()), (Some(Fault::Protocol), false), "{error}");
        let source = error.source().map(|source| format!("{source} {source:?}"));
        assert!(!format!("{error} {error:?} {source:?}").contains(CANARY), "{error}");
        assert!(error.to_string().contains("HELLO"), "{error}");
    });
}

pub(crate) fn an_unreachable_server_is_unavailable() {
    block_on(async {
        let url = format!("redis://user:{CANARY}@127.0.0.1:1");
        let error = Locker::connect(&url).await.expect_err("nobody there");
        assert_eq!((error.fault(), error.is_transient()), (Some(Fault::Connection), true), "{error}");
        assert!(!format!("{error} {error:?}").contains(CANARY));
        let source = error.source().and_then(|source| source.downcast_ref::<redis::RedisError>());
        assert!(source.is_some_and(redis::RedisError::is_connection_refusal), "{source:?}");
    });
}

pub(crate) fn unknown_options_are_refused_with_the_known_ones() {
    block_on(async {
        for (url, words) in [
            ("redis://127.0.0.1?leese=3s", "layout"),
            ("redis://127.0.0.1?layout=other", "plain"),
            ("redis://127.0.0.1?wake=x", "tracking"),
            ("redis://127.0.0.1?token_ttl=1s", "24h"),
            ("redis://127.0.0.1?lease=1ms", "10ms"),
            ("redis://127.0.0.1?lease=1s&lease=2s", "once"),
            ("rediss://127.0.0.1#insecure", "verified"),
            ("redis://127.0.0.1/x", "redis://"),
            ("redis://127.0.0.1,127.0.0.2", "redis+cluster"),
            ("redis://127.0.0.1?sharded=on", "sync_timeout"),
            ("redis+sentinel://127.0.0.1/m?ca=/x", "sentinel_pass"),
            ("redis+unix:relative", "redis+unix:///path"),
            ("redix://127.0.0.1", "redis:"),
        ] {
            let error = Locker::connect(url).await.expect_err(url);
            assert!(matches!(error, Error::Config { .. }) && error.to_string().contains(words), "{url}: {error}");
        }
    });
}
