//! How long after a failover a lock is granted again: on a master that is killed or hangs, behind Sentinel and in a
//! cluster. `cargo bench -p tenure --bench redis_failover`
//!
//! The clock starts when the promotion can be seen: the new master says so itself, and two sentinels name it, or the
//! cluster shows it as the slot's owner. *Asked before*: `lock()` was called while the master was down and has been asking
//! since. *Asked after*: it is called at that moment, by a client that has done nothing meanwhile.

use std::time::{Duration, Instant};

use tenure_testkit::cluster::Cluster;
use tenure_testkit::locker::connect;
use tenure_testkit::sentinel::SentinelSet;
use tenure_testkit::{Signal, signal};

const ROUNDS: usize = 5;

fn main() {
    if !tenure_testkit::server::is_installed() {
        println!("SKIPPED: no redis-server is installed");
        return;
    }
    println!("{:<28} {:>14} {:>24} {:>24}", "", "promotion", "asked before", "asked after");
    println!("{:<28} {:>14} {:>24} {:>24}", "", "median", "median        worst", "median        worst");
    for hang in [false, true] {
        let how = if hang { "hangs" } else { "is killed" };
        report(&format!("Sentinel, the master {how}"), || {
            let mut set = SentinelSet::start();
            let url = set.url();
            round(&url, || {
                let old = set.master();
                end(hang, set.servers[old].pid());
                let promoted = set.promoted(old);
                if !hang {
                    set.servers[old].kill();
                }
                promoted
            })
        });
        report(&format!("Cluster, the master {how}"), || {
            let mut cluster = Cluster::start();
            let url = cluster.url();
            round(&url, || {
                let slot = cluster.slot("{x}");
                let old = cluster.owner(slot);
                end(hang, cluster.nodes[old].pid());
                let promoted = cluster.promoted(slot, old);
                if !hang {
                    cluster.kill(old);
                }
                promoted
            })
        });
    }
}

fn end(hang: bool, pid: u32) {
    signal(pid, if hang { Signal::STOP } else { Signal::KILL });
}

/// Times of one failover: until the promotion, and from there to the two grants.
struct Round {
    promotion: Duration,
    before: Duration,
    after: Duration,
}

fn round(url: &str, fail_over: impl FnOnce() -> usize) -> Round {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (busy, idle) = runtime.block_on(async { (connect(url).await, connect(url).await) });
    runtime.block_on(async {
        for locker in [&busy, &idle] {
            locker.mutex("{x}warm").lock().await.expect("locked").release().await.expect("given back");
        }
    });
    let begun = Instant::now();
    let before = runtime.spawn(async move {
        // By then the master is down, and nobody has taken its place.
        tokio::time::sleep(Duration::from_millis(300)).await;
        drop(busy.mutex("{x}before").lock().await.expect("locked"));
        Instant::now()
    });
    fail_over();
    let visible = Instant::now();
    let after = runtime.block_on(async {
        drop(idle.mutex("{x}after").lock().await.expect("locked"));
        Instant::now()
    });
    let before = runtime.block_on(before).expect("no panic");
    Round { promotion: visible - begun, before: before.saturating_duration_since(visible), after: after - visible }
}

fn report(what: &str, mut one: impl FnMut() -> Round) {
    let rounds: Vec<Round> = (0..ROUNDS).map(|_| one()).collect();
    let times = |of: fn(&Round) -> Duration| {
        let mut times: Vec<Duration> = rounds.iter().map(of).collect();
        times.sort();
        (format!("{:.0?}", times[ROUNDS / 2]), format!("{:.0?}", times[ROUNDS - 1]))
    };
    let (promotion, before, after) = (times(|r| r.promotion), times(|r| r.before), times(|r| r.after));
    println!("{what:<28} {:>14} {:>12} {:>11} {:>12} {:>11}", promotion.0, before.0, before.1, after.0, after.1);
}
