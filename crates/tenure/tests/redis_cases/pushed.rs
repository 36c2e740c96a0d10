//! The server tells of a loss before the next renewal does.

use std::time::Duration;

use redis::cmd;
use tenure::{Guard, HoldState, LostReason};

use tenure_testkit::RedisServer;
use tenure_testkit::locker::{block_on, connect};

/// Renewed after twenty seconds.
const LEASE: Duration = Duration::from_secs(60);
/// Long before that.
const SOON: Duration = Duration::from_secs(10);

async fn is_told(guard: &Guard) {
    let told = tokio::time::timeout(SOON, guard.lost()).await.expect("told long before the next renewal");
    assert_eq!(told.reason, LostReason::Revoked);
}

/// Waits until the server watches so many keys: a hold is watched when it lasts longer than a moment.
async fn watched(server: &RedisServer, keys: u64) {
    let mut raw = server.raw();
    let waited = tokio::time::timeout(SOON, async {
        loop {
            let info: String = cmd("INFO").arg("stats").query(&mut raw).expect("asked");
            let told = info.lines().find_map(|line| line.strip_prefix("tracking_total_keys:")?.parse::<u64>().ok());
            if told >= Some(keys) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    waited.await.expect("watched");
}

pub(crate) fn an_operators_del_is_told_at_once() {
    let server = RedisServer::start();
    block_on(async {
        let locker = connect(&server.url()).await;
        for (layout, options) in [("redisson", ""), ("plain", "?layout=plain")] {
            let locker = connect(&format!("{}{options}", server.url())).await;
            let (soon, later) = (format!("{layout} soon"), format!("{layout} later"));
            // One that is not watched yet is told when the server is asked to, the other by a push.
            let guard = locker.mutex(&soon).lease(LEASE).lock().await.expect("locked");
            cmd("DEL").arg(&soon).exec(&mut server.raw()).expect("deleted");
            is_told(&guard).await;
            let guard = locker.mutex(&later).lease(LEASE).lock().await.expect("locked");
            watched(&server, 1).await;
            cmd("DEL").arg(&later).exec(&mut server.raw()).expect("deleted");
            is_told(&guard).await;
        }
        let reader = locker.rwlock("shared").lease(LEASE).read().await.expect("read");
        let (locks, other) = (locker.rwlock("shared"), connect(&server.url()).await.rwlock("shared").lease(LEASE));
        let second = other.read().await.expect("read");
        watched(&server, 2).await;
        locks.break_hold().await.expect("broken").expect("was held");
        is_told(&reader).await;
        is_told(&second).await;
    });
}

pub(crate) fn an_emptied_database_is_told_to_all_who_hold() {
    let server = RedisServer::start();
    block_on(async {
        for empty in ["FLUSHALL", "FLUSHDB"] {
            let locker = connect(&server.url()).await;
            let mut guards = Vec::new();
            for n in 0..300 {
                guards.push(locker.mutex(format!("{empty}{n}")).lease(LEASE).lock().await.expect("locked"));
            }
            watched(&server, 300).await;
            cmd(empty).exec(&mut server.raw()).expect("emptied");
            for guard in &guards {
                is_told(guard).await;
            }
        }
    });
}

pub(crate) fn what_was_deleted_while_the_connection_was_away_is_told_when_it_is_back() {
    let server = RedisServer::start();
    block_on(async {
        let locker = connect(&server.url()).await;
        let (guard, kept) = (locker.mutex("a").lease(LEASE), locker.mutex("b").lease(LEASE));
        let (guard, kept) = (guard.lock().await.expect("locked"), kept.lock().await.expect("locked"));
        watched(&server, 2).await;
        // In one step, so that the client cannot be told of the first.
        let script = "redis.call('DEL', 'a')";
        let mut raw = server.raw();
        let mut both = redis::pipe();
        both.atomic().cmd("CLIENT").arg("KILL").arg("TYPE").arg("normal").arg("SKIPME").arg("yes").cmd("EVAL").arg(script).arg(0);
        both.exec(&mut raw).expect("killed and deleted");
        is_told(&guard).await;
        assert!(kept.is_valid(), "the other one is there");
    });
}

pub(crate) fn a_hold_that_is_watched_is_not_renewed_all_the_time() {
    let server = RedisServer::start();
    block_on(async {
        let locker = connect(&server.url()).await;
        let lease = Duration::from_millis(1500);
        let guard = locker.mutex("a").lease(lease).lock().await.expect("locked");
        let fixed = locker.mutex("b").lease_fixed(LEASE).lock().await.expect("locked");
        // Each renewal is a write that the server tells of, to its own writer too.
        tokio::time::sleep(lease * 3).await;
        assert!(guard.is_valid() && fixed.is_valid());
        assert_eq!((guard.state(), fixed.state()), (HoldState::Held, HoldState::Held));
        let renewed = locker.stats().renewed;
        // One soon for each of them, and one per third of the lease; many more if it heard itself.
        assert!((8..40).contains(&renewed), "renewed {renewed} times");
        let left: i64 = cmd("PTTL").arg("b").query(&mut server.raw()).expect("asked");
        assert!(
            left < i64::try_from(LEASE.as_millis()).expect("short") - 2000,
            "a fixed lease was lengthened: {left} ms are left"
        );
        guard.release().await.expect("given back");
        let again = locker.mutex("a").lease(LEASE).lock().await.expect("locked again");
        watched(&server, 2).await;
        assert!(again.is_valid());
        again.release().await.expect("given back");
    });
}
