//! A master that dies, hangs or is replaced while locks on it are held and waited for.

use std::time::Instant;

use redis::cmd;
use tenure::{Fault, Locker};

use super::crowd::{Crowd, in_flight, offset};
use tenure_testkit::locker::{block_on, connect, must};
use tenure_testkit::sentinel::SentinelSet;
use tenure_testkit::server::{Setup, start};
use tenure_testkit::{Signal, eventually, signal};

/// All that was written is at both replicas.
fn replicated(set: &SentinelSet) {
    let master = set.master();
    eventually("both replicas have everything", || {
        let there = offset(&set.servers[master]);
        set.servers.iter().all(|server| offset(server) == there)
    });
}

pub(crate) fn a_killed_master_costs_no_hold_and_no_waiter() {
    let mut set = SentinelSet::start();
    block_on(async {
        let crowd = Crowd::gather(&set.url(), "awaited").await;
        replicated(&set);
        let down_since = Instant::now();
        let old = set.kill_master();
        set.promoted(old);
        crowd.goes_on(down_since).await;
    });
}

pub(crate) fn a_hung_master_is_left_as_soon_as_another_is_named() {
    let set = SentinelSet::start();
    block_on(async {
        // Longer than the test: only the news of a new master can end a call.
        let crowd = Crowd::gather(&format!("{}?timeout=120s", set.url()), "awaited").await;
        replicated(&set);
        let (down_since, old) = (Instant::now(), set.master());
        signal(set.servers[old].pid(), Signal::STOP);
        // It has been asked something by now, and will not answer.
        set.promoted(old);
        crowd.goes_on(down_since).await;
        signal(set.servers[old].pid(), Signal::CONT);
        // It comes back as a replica: nobody goes there by mistake.
        let locker = connect(&set.url()).await;
        let guard = locker.mutex("L").lock().await.expect("locked");
        eventually("the old master has become a replica", || !set.servers[old].is_master());
        assert!(guard.is_valid());
        guard.release().await.expect("given back");
    });
}

pub(crate) fn a_dial_to_a_hung_master_keeps_nobody_from_the_next() {
    let set = SentinelSet::start();
    block_on(async {
        // Calls may take longer than the test, but renewals of a short lease are cut off: then it is dialled again.
        let locker = connect(&format!("{}?timeout=120s&lease=600ms", set.url())).await;
        let guard = locker.mutex("L").lock().await.expect("locked");
        replicated(&set);
        let old = set.master();
        signal(set.servers[old].pid(), Signal::STOP);
        guard.lost().await;
        set.promoted(old);
        let next = tokio::time::timeout(std::time::Duration::from_secs(60), locker.mutex("other").lock()).await;
        next.expect("the dial was given up").expect("locked").release().await.expect("given back");
        signal(set.servers[old].pid(), Signal::CONT);
    });
}

pub(crate) fn a_relieved_master_costs_nothing() {
    let set = SentinelSet::start();
    block_on(async {
        let crowd = Crowd::gather(&set.url(), "awaited").await;
        replicated(&set);
        let down_since = Instant::now();
        set.failover();
        crowd.goes_on(down_since).await;
    });
}

pub(crate) fn an_acquire_in_flight_is_resolved_by_its_owner_on_the_new_master() {
    let mut set = SentinelSet::start();
    block_on(in_flight(&set.url(), || {
        let old = set.kill_master();
        set.promoted(old);
    }));
}

pub(crate) fn closing_gives_all_connections_back() {
    let set = SentinelSet::start();
    let list = |mut raw: redis::Connection| -> String { cmd("CLIENT").arg("LIST").query(&mut raw).expect("listed") };
    let listeners =
        || set.sentinels.iter().map(|s| list(s.raw()).lines().filter(|l| l.contains(" sub=1 ")).count()).sum::<usize>();
    let at_servers =
        || -> usize { set.servers.iter().map(|s| list(s.raw()).lines().filter(|l| l.contains("resp=3")).count()).sum() };
    block_on(async {
        let locker = connect(&set.url()).await;
        eventually("it listens to all", || listeners() == 3);
        locker.mutex("L").lock().await.expect("locked").release().await.expect("given back");
        assert!(at_servers() >= 1);
        locker.close().await.expect("closed");
        eventually("nothing is left", || listeners() + at_servers() == 0);
        set.failover();
        eventually("nor made again", || listeners() + at_servers() == 0);
        drop(locker);
    });
}

pub(crate) fn a_sentinel_that_names_a_replica_is_not_believed() {
    let set = SentinelSet::start();
    // A real one that was told wrong, as one that missed a failover was.
    let replica = (set.master() + 1) % 3;
    let monitor = format!("sentinel monitor mymaster 127.0.0.1 {} 1", set.servers[replica].port);
    let wrong = start(&Setup::default().lines(&[&monitor]).args(&["--sentinel"]));
    block_on(async {
        let url = format!("redis+sentinel://127.0.0.1:{}/mymaster", wrong.port);
        let error = Locker::connect(&url).await.expect_err("a replica");
        assert_eq!((error.fault(), error.is_transient()), (Some(Fault::ReadOnly), true), "{error}");
        // With two that know better it is outvoted.
        let hosts: Vec<String> = set.sentinels[..2].iter().map(|s| format!("127.0.0.1:{}", s.port)).collect();
        let url = format!("redis+sentinel://127.0.0.1:{},{}/mymaster", wrong.port, hosts.join(","));
        for _ in 0..10 {
            let locker = connect(&url).await;
            locker.mutex("L").lock().await.expect("locked").release().await.expect("given back");
            locker.close().await.expect("closed");
        }
    });
}

pub(crate) fn one_living_sentinel_is_enough() {
    let mut set = SentinelSet::start();
    set.sentinels[0].kill();
    signal(set.sentinels[1].pid(), Signal::STOP);
    block_on(async {
        let locker = must("connected", connect(&set.url())).await;
        locker.mutex("L").lock().await.expect("locked").release().await.expect("given back");
    });
    signal(set.sentinels[1].pid(), Signal::CONT);
}

pub(crate) fn wrong_words_to_sentinels_are_named() {
    let set = SentinelSet::start();
    block_on(async {
        let sentinel = set.sentinels[0].port;
        let server = set.servers[0].port;
        for (url, word) in [
            (format!("redis+sentinel://127.0.0.1:{sentinel}/other"), "SENTINEL MASTERS"),
            (format!("redis+sentinel://127.0.0.1:{server}/mymaster"), "no sentinel"),
            (format!("redis+sentinel://127.0.0.1:{sentinel}"), "master-name"),
            (format!("redis+sentinel://127.0.0.1:{sentinel}/mymaster/x"), "no number"),
            (format!("redis+sentinel://127.0.0.1:{sentinel}/mymaster/0/1"), "path"),
        ] {
            let error = Locker::connect(&url).await.expect_err(&url);
            assert!(matches!(error, tenure::Error::Config { .. }), "{url}: {error}");
            assert!(error.to_string().contains(word), "{url}: {error}");
        }
        let secret = format!("{}?sentinel_pass=canary-1", set.url()).replace("://", "://user:canary-2@");
        let refused = Locker::connect(&secret).await.expect_err("no such users");
        assert_eq!((refused.fault(), refused.is_transient()), (Some(Fault::Auth), false), "{refused}");
        assert!(!format!("{refused} {refused:?}").contains("canary"), "{refused}");
        let locker = connect(&set.url().replace("://", "://default:canary@")).await;
        assert!(!format!("{locker:?} {:?}", locker.mutex("L")).contains("canary"));
        let nobody = Locker::connect("redis+sentinel://127.0.0.1:1,127.0.0.1:2/mymaster").await.expect_err("nobody there");
        assert_eq!((nobody.fault(), nobody.is_transient()), (Some(Fault::Connection), true), "{nobody}");
        assert!(nobody.to_string().contains("127.0.0.1:1") && nobody.to_string().contains("127.0.0.1:2"), "{nobody}");
    });
}
