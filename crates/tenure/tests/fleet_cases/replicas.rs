//! `sync=k`, and what happens to a lock that a replica never got.

use std::time::{Duration, Instant};

use redis::{Connection, cmd};
use tenure::{Error, Fault, Locker, LostReason};

use tenure_testkit::cable::Cable;
use tenure_testkit::locker::{block_on, connect, must};
use tenure_testkit::server::RedisServer;
use tenure_testkit::{Signal, eventually, signal};

/// A replica that follows a server over a way of its own.
fn replica_of(port: u16) -> RedisServer {
    let replica = RedisServer::with(&["--replicaof", &format!("127.0.0.1 {port}"), "--repl-timeout", "600"]);
    let mut raw = replica.raw();
    eventually("the replica is in step", || info(&mut raw, "replication").contains("master_link_status:up"));
    replica
}

fn info(raw: &mut Connection, section: &str) -> String {
    cmd("INFO").arg(section).query(raw).expect("asked")
}

fn exists(raw: &mut Connection, key: &str) -> bool {
    cmd("EXISTS").arg(key).query(raw).expect("asked")
}

async fn fails_for_want_of_replicas(locker: &Locker, name: &str) {
    let error = locker.mutex(name).try_lock().await.expect_err("too few replicas");
    assert_eq!((error.fault(), error.is_transient()), (Some(Fault::Replicas), true), "{error}");
}

pub(crate) fn no_replica_is_no_success_and_no_lock() {
    for options in ["sync=1", "sync=1&layout=plain"] {
        let server = RedisServer::start();
        let mut raw = server.raw();
        block_on(async {
            let locker = connect(&format!("{}?{options}&sync_timeout=50ms", server.url())).await;
            fails_for_want_of_replicas(&locker, "L").await;
            assert!(!exists(&mut raw, "L"), "undone before anybody was told");
            // Who does not ask for replicas is not kept from its lock.
            let other = connect(&server.url()).await;
            other.mutex("L").lock().await.expect("locked").release().await.expect("given back");
        });
    }
}

pub(crate) fn a_grant_counts_once_enough_replicas_have_it() {
    let server = RedisServer::start();
    let replicas = [replica_of(server.port), replica_of(server.port)];
    let mut raw = server.raw();
    block_on(async {
        let locker = connect(&format!("{}?sync=2&sync_timeout=300ms", server.url())).await;
        let guard = locker.mutex("L").lock().await.expect("locked");
        for replica in &replicas {
            assert!(exists(&mut replica.raw(), "L"), "both have it by now");
        }
        guard.release().await.expect("given back");
        signal(replicas[1].pid(), Signal::STOP);
        fails_for_want_of_replicas(&locker, "M").await;
        eventually("nothing is left of it", || !exists(&mut raw, "M"));
        // One of two is enough for who asks for one.
        let modest = connect(&format!("{}?sync=1", server.url())).await;
        modest.mutex("M").lock().await.expect("locked").release().await.expect("given back");
        let waiter = tokio::spawn(locker.mutex("M").lock());
        signal(replicas[1].pid(), Signal::CONT);
        drop(must("a replica that is back counts again", waiter).await.expect("no panic").expect("locked"));
    });
}

/// What `WAIT` says of another connection's writes is nothing.
pub(crate) fn replicas_are_asked_over_the_connection_that_wrote() {
    let server = RedisServer::start();
    let cable = Cable::to(server.port);
    let _replica = replica_of(cable.port);
    let mut raw = server.raw();
    block_on(async {
        let locker = connect(&format!("{}?sync=1&sync_timeout=100ms", server.url())).await;
        locker.mutex("L").lock().await.expect("locked").release().await.expect("given back");
        cable.strand();
        // Still connected, for all that the server knows.
        assert!(info(&mut raw, "replication").contains("connected_slaves:1"));
        fails_for_want_of_replicas(&locker, "L").await;
        assert!(!exists(&mut raw, "L"));
    });
}

pub(crate) fn many_grants_wait_for_replicas_together() {
    let server = RedisServer::start();
    let replica = replica_of(server.port);
    let mut raw = server.raw();
    block_on(async {
        let locker = connect(&format!("{}?sync=1&sync_timeout=500ms&timeout=60s", server.url())).await;
        let held = locker.mutex("held").lock().await.expect("locked");
        signal(replica.pid(), Signal::STOP);
        cmd("CONFIG").arg("RESETSTAT").query::<()>(&mut raw).expect("reset");
        let mut calls = tokio::task::JoinSet::new();
        for i in 0..50 {
            let call = locker.mutex(format!("L{i}")).try_lock();
            calls.spawn(call);
        }
        while let Some(refused) = calls.join_next().await {
            let error = refused.expect("no panic").expect_err("too few replicas");
            assert_eq!(error.fault(), Some(Fault::Replicas), "{error}");
        }
        let stats = info(&mut raw, "commandstats");
        let waits = stats.lines().find_map(|l| l.strip_prefix("cmdstat_wait:calls=")).expect("counted");
        let waits: u64 = waits.split(',').next().expect("a number").parse().expect("a number");
        assert!(waits <= 10, "{waits} rounds for 100 attempts");
        signal(replica.pid(), Signal::CONT);
        held.release().await.expect("given back");
    });
}

/// The server becomes a replica itself while it waits for its own.
pub(crate) fn a_wait_that_ends_with_the_masters_office_may_be_asked_again() {
    let (server, other) = (RedisServer::start(), RedisServer::start());
    let replica = replica_of(server.port);
    let mut raw = server.raw();
    block_on(async {
        let locker = connect(&format!("{}?sync=1&sync_timeout=20s&timeout=60s", server.url())).await;
        signal(replica.pid(), Signal::STOP);
        let call = tokio::spawn(locker.mutex("L").try_lock());
        let blocked = || info(&mut raw, "clients").contains("blocked_clients:1");
        eventually("it waits for the replica", blocked);
        cmd("REPLICAOF").arg("127.0.0.1").arg(other.port).query::<()>(&mut raw).expect("relieved");
        let error = must("answered", call).await.expect("no panic").expect_err("no master any more");
        assert!(error.is_transient(), "{error}");
        signal(replica.pid(), Signal::CONT);
    });
}

/// Neither the undoing of a grant nor a connection to a server without locks is a reason to ask again at once.
pub(crate) fn attempts_are_not_made_in_a_burst() {
    let (server, replica) = (RedisServer::start(), RedisServer::start());
    cmd("REPLICAOF").arg("127.0.0.1").arg(server.port).query::<()>(&mut replica.raw()).expect("a replica");
    let connections = || -> u64 {
        let stats = info(&mut replica.raw(), "stats");
        let line = stats.lines().find_map(|l| l.strip_prefix("total_connections_received:")).expect("counted");
        line.trim().parse().expect("a number")
    };
    block_on(async {
        let read_only = connect(&replica.url()).await;
        let lonely = connect(&format!("{}?sync=5&sync_timeout=10ms", server.url())).await;
        let (made, begun) = (connections(), Instant::now());
        read_only.mutex("L").lock().await.expect_err("a replica");
        // Ten attempts, with growing pauses in between.
        assert!(begun.elapsed() > Duration::from_secs(2), "after {:?}", begun.elapsed());
        assert!(connections() - made < 40, "{} connections", connections() - made);
        let begun = Instant::now();
        let error = lonely.mutex("L").lock().await.expect_err("too few replicas");
        assert_eq!(error.fault(), Some(Fault::Replicas));
        assert!(begun.elapsed() > Duration::from_secs(2), "after {:?}", begun.elapsed());
    });
}

/// A hold that no replica knows to go on would end there with its first lease.
pub(crate) fn a_hold_that_replicas_do_not_confirm_is_told_by_the_deadline() {
    let server = RedisServer::start();
    let mut replica = replica_of(server.port);
    block_on(async {
        let locker = connect(&format!("{}?sync=1&sync_timeout=100ms&lease=3s", server.url())).await;
        let guard = locker.mutex("L").lock().await.expect("locked");
        replica.kill();
        let lost = must("told", guard.lost()).await;
        assert_eq!(lost.reason, LostReason::Expired);
    });
}

/// The classic: the master dies before the lock was replicated, and the replica grants it to another.
pub(crate) fn an_unreplicated_lock_is_granted_again_with_a_larger_token_and_the_first_is_told() {
    let mut server = RedisServer::start();
    let to_replica = Cable::to(server.port);
    let replica = replica_of(to_replica.port);
    // What clients know the server by.
    let address = Cable::to(server.port);
    block_on(async {
        let url = format!("redis://127.0.0.1:{}?lease=6s", address.port);
        let (one, other) = (connect(&url).await, connect(&url).await);
        one.mutex("L").lock().await.expect("locked").release().await.expect("given back");
        eventually("the first token is replicated", || exists(&mut replica.raw(), "redisson_lock_token:{L}"));
        to_replica.strand();
        let first = one.mutex("L").lock().await.expect("locked");
        server.kill();
        cmd("REPLICAOF").arg("NO").arg("ONE").query::<()>(&mut replica.raw()).expect("promoted");
        address.lead_to(replica.port);
        let second = must("the new master knows of no lock", other.mutex("L").lock()).await.expect("locked");
        assert!(second.token() > first.token(), "{} after {}", second.token(), first.token());
        must("told", first.lost()).await;
        assert!(second.is_valid());
    });
}

pub(crate) fn a_sync_that_says_nothing_is_refused() {
    block_on(async {
        for (options, word) in [
            ("sync=0", "1 or more"),
            ("sync=x", "1 or more"),
            ("sync_timeout=1s", "sync=1"),
            ("sync=1&sync_timeout=2s", "a third of the timeout"),
            ("sync=1&sync_timeout=0s", "1ms"),
        ] {
            let error = Locker::connect(&format!("redis://127.0.0.1?{options}")).await.expect_err(options);
            assert!(matches!(error, Error::Config { .. }) && error.to_string().contains(word), "{options}: {error}");
        }
    });
}

pub(crate) fn a_downgrade_that_replicas_do_not_confirm_gives_nothing_away() {
    let server = RedisServer::start();
    let replica = replica_of(server.port);
    block_on(async {
        let locker = connect(&format!("{}?sync=1&sync_timeout=100ms", server.url())).await;
        let other = connect(&server.url()).await;
        let lock = locker.rwlock("L");
        let writes = lock.write().await.expect("written");
        let token = writes.token();
        signal(replica.pid(), Signal::STOP);
        let reads = tokio::spawn(lock.downgrade(writes));
        eventually("it was not confirmed", || locker.stats().errors > 0);
        assert!(other.rwlock("L").try_write().await.expect("asked").is_none(), "it is still held");
        signal(replica.pid(), Signal::CONT);
        let reads = must("a replica that is back confirms it", reads).await.expect("no panic").expect("it was held all the time");
        assert_eq!(reads.token(), token);
    });
}
