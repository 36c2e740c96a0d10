//! What a server remembers for waiters, and what happens to them when it refuses.

use std::time::Duration;

use redis::{Connection, cmd};
use tenure::conformance::{Subject, properties};
use tenure::{Fault, Locker};
use tokio::task::JoinSet;

use tenure_testkit::RedisServer;
use tenure_testkit::locker::{block_on, connect, must};

/// Keys in the table, and clients behind them in all.
fn table(raw: &mut Connection) -> (u64, u64) {
    let info: String = cmd("INFO").arg("stats").query(raw).expect("asked");
    let number = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.parse().ok()).expect("told");
    (number("tracking_total_keys:"), number("tracking_total_items:"))
}

pub(crate) fn who_gets_what_it_asks_for_leaves_nothing_in_the_tracking_table() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    block_on(async {
        let locker = connect(&server.url()).await;
        for n in 0..3 {
            let name = |kind: &str| format!("{kind}-{n}");
            drop(locker.mutex(name("mutex")).note("a note").lock().await.expect("locked"));
            let within = locker.mutex(name("mutex")).try_lock_for(Duration::from_secs(60)).await.expect("asked");
            within.expect("locked").release().await.expect("given back");
            let guard = locker.mutex(name("fair")).fair().lock().await.expect("locked");
            guard.release().await.expect("given back");
            let (one, two) = (locker.rwlock(name("read")).read().await, locker.rwlock(name("read")).read().await);
            assert!(locker.rwlock(name("read")).try_write().await.expect("asked").is_none());
            locker.rwlock(name("read")).inspect().await.expect("inspected");
            drop((one.expect("read"), two.expect("read")));
            let writer = locker.rwlock(name("write")).write().await.expect("written");
            drop(locker.rwlock(name("write")).downgrade(writer).await.expect("read"));
            let permit = locker.semaphore(name("permit"), 2).acquire().await.expect("acquired");
            assert!(locker.semaphore(name("permit"), 2).inspect().await.expect("inspected").permits.is_some());
            permit.release().await.expect("given back");
            locker.semaphore(name("permit"), 2).resize(5).await.expect("resized");
            locker.latch(name("latch")).set(1).await.expect("set");
            locker.latch(name("latch")).count_down().await.expect("counted");
            locker.latch(name("latch")).wait().await.expect("open");
            locker.list("").await.expect("listed");
            locker.mutex(name("mutex")).inspect().await.expect("inspected");
            locker.mutex(name("mutex")).break_hold().await.expect("broken");
        }
        must("everything is given back", async {
            while locker.stats().holding > 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        assert_eq!(table(&mut raw), (0, 0));
    });
}

/// So many names of one kind, each held by one client and awaited by another, which then has it and gives it back.
async fn contend<H, W, F, G>(one: &Locker, other: &Locker, hold: H, wait: W)
where
    H: Fn(&Locker, String) -> F,
    W: Fn(&Locker, String) -> G,
    F: Future<Output = tenure::Result<tenure::Guard>>,
    G: Future<Output = tenure::Result<tenure::Guard>> + Send + 'static,
{
    for n in 0..NAMES {
        let held = hold(one, n.to_string()).await.expect("held");
        let waiting = tokio::spawn(wait(other, n.to_string()));
        must("it waits", async {
            while other.stats().waiting == 0 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        })
        .await;
        // It has been told "busy" by now, or will be granted at once: either will do.
        tokio::time::sleep(Duration::from_millis(20)).await;
        held.release().await.expect("given back");
        let granted = must("the next one", waiting).await.expect("no panic").expect("granted");
        granted.release().await.expect("given back");
    }
}

const NAMES: u64 = 10;

pub(crate) fn who_waited_leaves_little_in_the_tracking_table() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    block_on(async {
        let (one, other) = (connect(&server.url()).await, connect(&server.url()).await);
        let mutex = |l: &Locker, n: String| l.mutex(format!("mutex-{n}")).lock();
        contend(&one, &other, mutex, mutex).await;
        assert_eq!(table(&mut raw), (0, 0), "mutex");
        let fair = |l: &Locker, n: String| l.mutex(format!("fair-{n}")).fair().lock();
        contend(&one, &other, fair, fair).await;
        assert_eq!(table(&mut raw), (0, 0), "fair");
        let read = |l: &Locker, n: String| l.rwlock(format!("rw-{n}")).read();
        let write = |l: &Locker, n: String| l.rwlock(format!("rw-{n}")).write();
        contend(&one, &other, read, write).await;
        assert_eq!(table(&mut raw), (0, 0), "writers");
        let permit = |l: &Locker, n: String| l.semaphore(format!("permit-{n}"), 1).acquire();
        contend(&one, &other, permit, permit).await;
        assert_eq!(table(&mut raw), (0, 0), "permits");
        // Waits that are given up: what was remembered goes with the hold that they waited for.
        // Never renewed: a renewal is a change, of which the server tells and then remembers nothing.
        let held = one.mutex("given-up").lease_fixed(Duration::from_secs(60)).lock().await.expect("locked");
        assert!(other.mutex("given-up").try_lock_for(Duration::from_millis(100)).await.expect("asked").is_none());
        assert_eq!(table(&mut raw), (1, 1), "what a waiter waits for");
        held.release().await.expect("given back");
        assert_eq!(table(&mut raw), (0, 0), "waits that were given up");
        one.latch("latch").set(1).await.expect("set");
        assert!(!other.latch("latch").wait_for(Duration::from_millis(100)).await.expect("asked"));
        one.latch("latch").count_down().await.expect("counted");
        assert_eq!(table(&mut raw), (0, 0), "latch");
        // Those who read wait for writers in the queue too, of whom there were none.
        contend(&one, &other, write, read).await;
        assert!(table(&mut raw).0 <= NAMES, "{:?} after {NAMES} names with readers that waited", table(&mut raw));
    });
}

pub(crate) fn a_tracking_table_that_is_too_small_wakes_waiters_instead_of_losing_them() {
    let server = RedisServer::with(&["--tracking-table-max-keys", "1"]);
    let mut raw = server.raw();
    block_on(async {
        let (one, other) = (connect(&server.url()).await, connect(&server.url()).await);
        let names: Vec<String> = (0..20).map(|n| format!("L{n}")).collect();
        let mut held = Vec::new();
        let mut waiting = JoinSet::new();
        for name in &names {
            held.push(one.mutex(name).lock().await.expect("locked"));
            waiting.spawn(other.mutex(name).lock());
        }
        while other.stats().waiting < 20 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        // Beside them and below the engine, where nobody polls: whoever is told nothing waits forever.
        let subject = Subject::url(&server.url(), Duration::from_secs(2));
        let waking = || properties().into_iter().filter(|property| property.name.contains("_hears_of_"));
        let beside = tokio::task::spawn_blocking(move || waking().map(|property| property.run(&subject)).count());
        assert_eq!(beside.await.expect("all of them hold"), 8);
        assert!(table(&mut raw).0 < 20, "the server has dropped some");
        for guard in held {
            guard.release().await.expect("given back");
        }
        while let Some(granted) = must("a waiter", waiting.join_next()).await {
            granted.expect("no panic").expect("locked").release().await.expect("given back");
        }
    });
}

pub(crate) fn who_may_not_say_what_to_track_is_woken_by_messages() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    let rules = ["on", ">p", "~*", "&*", "+@all", "-client|caching"];
    cmd("ACL").arg("SETUSER").arg("u").arg(&rules).query::<()>(&mut raw).expect("a user");
    let url = format!("redis://u:p@127.0.0.1:{}", server.port);
    block_on(async {
        let (one, other) = (connect(&url).await, connect(&url).await);
        let held = one.mutex("L").lock().await.expect("locked");
        let waiter = tokio::spawn(other.mutex("L").lock());
        must("it listens to the channel", async {
            let channel = "redisson_lock__channel:{L}";
            let mut ask = || cmd("PUBSUB").arg("NUMSUB").arg(channel).query::<(String, u32)>(&mut raw).expect("asked").1;
            while ask() == 0 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        })
        .await;
        held.release().await.expect("given back");
        must("it is woken", waiter).await.expect("no panic").expect("locked").release().await.expect("given back");
        let error = Locker::connect(&format!("{url}?wake=tracking")).await.expect_err("refused");
        assert_eq!(error.fault(), Some(Fault::Denied), "{error}");
        assert!(error.to_string().contains("caching"), "{error}");
    });
}

pub(crate) fn a_right_that_is_taken_away_costs_a_waiter_nothing() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    let mut user = |rules: &[&str]| cmd("ACL").arg("SETUSER").arg("u").arg(rules).query::<()>(&mut raw).expect("a user");
    user(&["on", ">p", "~*", "&*", "+@all"]);
    let url = format!("redis://u:p@127.0.0.1:{}", server.port);
    block_on(async {
        let (one, other) = (connect(&url).await, connect(&url).await);
        let held = one.mutex("L").lock().await.expect("locked");
        user(&["-client|caching"]);
        let waiter = tokio::spawn(other.mutex("L").lock());
        while other.stats().waiting == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        held.release().await.expect("given back");
        must("it is woken", waiter).await.expect("no panic").expect("locked").release().await.expect("given back");
    });
}

pub(crate) fn names_that_share_a_channel_are_told_of_apart() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    block_on(async {
        let (one, other) = (connect(&server.url()).await, connect(&server.url()).await);
        let mut held = Vec::new();
        let mut waiting = JoinSet::new();
        for (n, name) in (1..).zip(["a", "{a}"]) {
            // A renewal would be a change, after which the server is asked again.
            held.push(one.mutex(name).lease(Duration::from_secs(600)).lock().await.expect("locked"));
            waiting.spawn(other.mutex(name).lock());
            must("the server remembers who waits for it", async {
                while table(&mut raw) != (n, n) {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            })
            .await;
        }
        drop(held);
        while let Some(granted) = must("a waiter", waiting.join_next()).await {
            granted.expect("no panic").expect("locked").release().await.expect("given back");
        }
    });
}

pub(crate) fn a_name_that_ends_like_an_owner_is_tracked_too() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    block_on(async {
        let (one, other) = (connect(&server.url()).await, connect(&server.url()).await);
        let name = "{tag}:11111111-1111-1111-1111-111111111111:7";
        let held = one.mutex(name).lease(Duration::from_secs(600)).lock().await.expect("locked");
        let waiter = tokio::spawn(other.mutex(name).lock());
        must("the server remembers who waits for it", async {
            while table(&mut raw) != (1, 1) {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        })
        .await;
        held.release().await.expect("given back");
        drop(must("woken", waiter).await.expect("no panic").expect("locked"));
    });
}
