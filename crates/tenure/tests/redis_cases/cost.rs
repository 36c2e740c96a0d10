//! What a lock costs, counted by the server.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use redis::{Connection, cmd};
use tokio::task::JoinSet;

use tenure_testkit::RedisServer;
use tenure_testkit::cable::Cable;
use tenure_testkit::locker::{block_on, connect};

/// Calls per command since the last reset. Commands inside of scripts are counted too.
pub(super) fn calls(raw: &mut Connection) -> BTreeMap<String, u64> {
    let info: String = cmd("INFO").arg("commandstats").query(raw).expect("asked");
    let row = |line: &str| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(':')?;
        Some((name.to_owned(), rest.strip_prefix("calls=")?.split(',').next()?.parse().ok()?))
    };
    info.lines().filter_map(row).collect()
}

pub(super) fn reset(raw: &mut Connection) {
    cmd("CONFIG").arg("RESETSTAT").query::<()>(raw).expect("reset");
}

/// Commands that a client sent, as opposed to those that its scripts ran.
fn sent(raw: &mut Connection) -> u64 {
    let ours = [
        "evalsha",
        "eval",
        "delex",
        "delifeq",
        "subscribe",
        "unsubscribe",
        "client|tracking",
        "client|caching",
        "hello",
        "script|load",
    ];
    calls(raw).iter().filter(|(name, _)| ours.contains(&name.as_str())).map(|(_, n)| n).sum()
}

pub(crate) fn a_free_lock_costs_two_commands_and_a_reentry_none() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    for options in ["", "?layout=plain", "?wake=pubsub"] {
        block_on(async {
            let locker = connect(&format!("{}{options}", server.url())).await;
            // The first lock of a client also sends the scripts and the client's record.
            locker.mutex("warm").lock().await.expect("locked").release().await.expect("given back");
            reset(&mut raw);
            let guard = locker.mutex("L").lock().await.expect("locked");
            let again = guard.reenter().expect("held");
            let owner = tenure::Owner::new();
            drop(again);
            guard.release().await.expect("given back");
            let counted = calls(&mut raw);
            // Some servers can give a plain lock back without a script.
            let verbs = ["evalsha", "delex", "delifeq"].iter().filter_map(|name| counted.get(*name)).sum::<u64>();
            assert_eq!(verbs, 2, "{counted:?}");
            let scripts =
                ["evalsha", "delex", "delifeq", "pttl", "time", "set", "hset", "pexpire", "hdel", "publish", "get", "del"];
            let others: Vec<_> =
                counted.keys().filter(|k| !scripts.contains(&k.as_str()) && !k.starts_with("config") && *k != "info").collect();
            assert!(others.is_empty(), "{others:?}");
            assert!(counted.values().sum::<u64>() <= 10, "the scripts are lean: {counted:?}");

            reset(&mut raw);
            let mutex = locker.mutex("L").owner(&owner);
            let outer = mutex.lock().await.expect("locked");
            for _ in 0..100 {
                drop(mutex.lock().await.expect("re-entered"));
            }
            outer.release().await.expect("given back");
            assert_eq!(sent(&mut raw), 2);
        });
    }
}

pub(crate) fn a_thousand_tasks_cost_at_most_three_commands_per_hand_over() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    block_on(async {
        let locker = connect(&server.url()).await;
        let first = locker.mutex("L").lock().await.expect("locked");
        let mut tasks = JoinSet::new();
        for _ in 0..1000 {
            let lock = locker.mutex("L").lock();
            tasks.spawn(async move { lock.await.expect("locked").token() });
        }
        while locker.stats().waiting < 1000 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        reset(&mut raw);
        drop(first);
        let mut tokens = std::collections::BTreeSet::new();
        while let Some(token) = tasks.join_next().await {
            tokens.insert(token.expect("no panic"));
        }
        assert_eq!(tokens.len(), 1000, "every hold has a token of its own");
        let sent = sent(&mut raw);
        assert!(sent <= 3000, "{sent} commands");
        // What it really is: sixteen holds per grant.
        assert!(sent <= 200, "{sent} commands for 1000 hand-overs");
    });
}

pub(crate) fn waiting_costs_a_command_per_poll_at_most() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    block_on(async {
        let (one, other) = (connect(&server.url()).await, connect(&server.url()).await);
        let guard = one.mutex("L").lock().await.expect("locked");
        let waiter = tokio::spawn(other.mutex("L").lock());
        // It has become visible, so it polls no more than every few seconds from now on.
        while one.mutex("L").inspect().await.expect("inspected").waiting != Some(1) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        reset(&mut raw);
        tokio::time::sleep(Duration::from_secs(2)).await;
        let sent = sent(&mut raw);
        assert!(sent <= 2, "{sent} commands in two seconds of waiting");
        guard.release().await.expect("given back");
        drop(waiter.await.expect("no panic").expect("locked"));
    });
}

pub(crate) fn several_names_are_locked_in_one_round_trip() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    let far = Cable::slow(server.port, Duration::from_millis(200));
    block_on(async {
        let locker = connect(&format!("redis://127.0.0.1:{}", far.port)).await;
        locker.mutex("warm").lock().await.expect("locked").release().await.expect("given back");
        let start = Instant::now();
        let one = locker.mutex("one").lock().await.expect("locked");
        let round_trip = start.elapsed();
        drop(one);
        let names: Vec<String> = (0..8).map(|n| format!("{{stock}}:{n}")).collect();
        reset(&mut raw);
        let start = Instant::now();
        let all = locker.multi(&names).lock().await.expect("locked");
        let took = start.elapsed();
        // One after the other it would be eight; the first may leave alone, before the others are written.
        assert!(took < round_trip * 3, "{took:?}, where one takes {round_trip:?}");
        assert_eq!(all.guards().len(), 8);
        assert!(calls(&mut raw)["evalsha"] <= 9, "each is asked for once");
        all.release().await.expect("given back");
    });
}

pub(crate) fn writers_that_wait_do_not_wake_each_other() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    // Over a fast wire two who ask in the same millisecond change nothing.
    let far = Cable::slow(server.port, Duration::from_millis(3));
    block_on(async {
        let url = format!("redis://127.0.0.1:{}", far.port);
        let holder = connect(&url).await;
        let _reader = holder.rwlock("L").lease(Duration::from_secs(600)).read().await.expect("read");
        let mut waiting = Vec::new();
        for _ in 0..3 {
            let locker = connect(&url).await;
            waiting.push((tokio::spawn(locker.rwlock("L").write()), locker));
        }
        while waiting.iter().any(|(_, locker)| locker.stats().waiting == 0) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        reset(&mut raw);
        tokio::time::sleep(Duration::from_secs(2)).await;
        let sent = sent(&mut raw);
        assert!(sent <= 40, "{sent} commands in two seconds of waiting");
        waiting.iter().for_each(|(task, _)| task.abort());
    });
}
