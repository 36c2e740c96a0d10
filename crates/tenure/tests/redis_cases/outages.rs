//! Restarts, hangs and broken connections under held and awaited locks.

use std::time::Duration;

use redis::cmd;
use tenure::{HoldState, Locker, LostReason};

use super::cost::calls;
use tenure_testkit::cable::Cable;
use tenure_testkit::locker::{block_on, connect, must};
use tenure_testkit::{RedisServer, Signal, eventually, signal, within};

pub(crate) fn a_restart_wakes_waiters_and_tells_holders() {
    for options in ["?lease=2s", "?lease=2s&wake=pubsub"] {
        let mut server = RedisServer::start();
        block_on(async {
            let (one, other) =
                (connect(&format!("{}{options}", server.url())).await, connect(&format!("{}{options}", server.url())).await);
            let guard = one.mutex("L").lock().await.expect("locked");
            // Each gives it back by itself: they come in any order.
            let waiter = |lock: tenure::Mutex| tokio::spawn(async move { lock.lock().await.map(|guard| guard.token()) });
            let waiters: Vec<_> = (0..5).map(|_| waiter(other.mutex("L"))).collect();
            while one.mutex("L").inspect().await.expect("inspected").waiting != Some(1) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            server.kill();
            tokio::time::sleep(Duration::from_millis(300)).await;
            server.restart();
            // Its data is gone, and with it the lock: the holder is told, the waiters get their turn.
            let lost = tokio::time::timeout(Duration::from_secs(20), guard.lost()).await.expect("told");
            assert!(matches!(lost.reason, LostReason::Revoked | LostReason::Expired));
            for waiter in waiters {
                let locked = tokio::time::timeout(Duration::from_secs(20), waiter).await.expect("not forgotten");
                assert!(locked.expect("no panic").expect("locked") > guard.token());
            }
        });
    }
}

pub(crate) fn after_a_restart_holders_are_known_again() {
    let mut server = RedisServer::start();
    block_on(async {
        let (one, other) = (connect(&server.url()).await, connect(&server.url()).await);
        one.mutex("L").lock().await.expect("locked").release().await.expect("given back");
        server.kill();
        server.restart();
        let guard = one.mutex("L").lock().await.expect("locked over a new connection");
        let told = tokio::time::timeout(Duration::from_secs(20), async {
            loop {
                let holder = other.mutex("L").inspect().await.map(|state| state.holders.into_iter().next());
                if let Ok(Some(tenure::backend::Holder { note: Some(note), token, .. })) = holder {
                    break (note, token);
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        let (note, token) = told.await.expect("the client has told the server anew who it is");
        assert!(note.contains(&std::process::id().to_string()), "{note}");
        assert_eq!(token, Some(guard.token()));
    });
}

pub(crate) fn an_outage_shorter_than_the_lease_loses_nothing() {
    let server = RedisServer::start();
    block_on(async {
        let locker = connect(&format!("{}?lease=6s", server.url())).await;
        let guard = locker.mutex("L").lock().await.expect("locked");
        for _ in 0..2 {
            signal(server.pid(), Signal::STOP);
            tokio::time::sleep(Duration::from_millis(2500)).await;
            signal(server.pid(), Signal::CONT);
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(guard.state(), HoldState::Held);
        guard.release().await.expect("given back");
    });
}

pub(crate) fn those_who_have_left_a_hung_server_dial_it_no_more() {
    let server = RedisServer::start();
    let theirs = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let (tasks, handle) = (theirs.metrics(), theirs.handle().clone());
    block_on(async {
        let url = format!("{}?timeout=500ms&lease=1s", server.url());
        let locker = Locker::builder().runtime(handle).connect(&url).await.expect("connected");
        locker.mutex("L").lock().await.expect("locked").release().await.expect("given back");
        signal(server.pid(), Signal::STOP);
        // Twice: the second ones find no connection.
        for round in ["first", "second"] {
            let asked = (0..400).map(|n| tokio::spawn(locker.mutex(format!("{round} {n}")).try_lock()));
            for asked in asked.collect::<Vec<_>>() {
                asked.await.expect("no panic").expect_err("nobody answers");
            }
        }
        // One after the other they would take minutes.
        let few = tokio::time::timeout(Duration::from_secs(20), async {
            while tasks.num_alive_tasks() > 40 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        assert!(few.await.is_ok(), "{} tasks are left", tasks.num_alive_tasks());
        signal(server.pid(), Signal::CONT);
    });
    theirs.shutdown_background();
}

pub(crate) fn a_hung_server_is_known_by_the_deadline() {
    let server = RedisServer::start();
    block_on(async {
        let locker = connect(&format!("{}?lease=2s", server.url())).await;
        let guard = locker.mutex("L").lock().await.expect("locked");
        signal(server.pid(), Signal::STOP);
        let left = guard.expires_in();
        let mut seen_unsure = false;
        let lost = tokio::time::timeout(Duration::from_secs(20), async {
            loop {
                tokio::select! {
                    lost = guard.lost() => break lost,
                    () = tokio::time::sleep(Duration::from_millis(10)) => seen_unsure |= guard.state() == HoldState::Unsure,
                }
            }
        });
        let lost = lost.await.expect("told");
        assert!(left <= Duration::from_secs(2) && seen_unsure);
        assert_eq!((lost.reason, guard.is_valid()), (LostReason::Expired, false));
        // Nothing that hangs keeps others from being answered.
        let error = locker.mutex("M").try_lock_for(Duration::from_millis(100)).await.expect_err("no answer");
        assert!(error.is_transient(), "{error}");
        signal(server.pid(), Signal::CONT);
        let next = locker.mutex("L").lock().await.expect("locked again");
        assert!(next.token() > guard.token());
    });
}

pub(crate) fn killed_connections_are_made_again() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    for options in ["", "?wake=pubsub"] {
        block_on(async {
            let (one, other) =
                (connect(&format!("{}{options}", server.url())).await, connect(&format!("{}{options}", server.url())).await);
            let guard = one.mutex("L").lock().await.expect("locked");
            let waiter = tokio::spawn(other.mutex("L").lock());
            while one.mutex("L").inspect().await.expect("inspected").waiting != Some(1) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            for kind in ["normal", "pubsub"] {
                cmd("CLIENT").arg("KILL").arg("TYPE").arg(kind).arg("SKIPME").arg("yes").query::<u32>(&mut raw).expect("killed");
            }
            assert!(guard.is_valid());
            guard.release().await.expect("given back over a new connection");
            let woken = tokio::time::timeout(Duration::from_secs(10), waiter).await.expect("woken over a new connection");
            drop(woken.expect("no panic").expect("locked"));
        });
    }
}

pub(crate) fn who_waits_is_subscribed_again_over_a_new_connection() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    for options in ["", "?wake=pubsub"] {
        block_on(async {
            let url = format!("{}{options}", server.url());
            let (one, other) = (connect(&url).await, connect(&url).await);
            let guard = one.mutex("L").lock().await.expect("locked");
            let waiter = tokio::spawn(other.mutex("L").lock());
            for _ in 0..2 {
                must("it is seen to wait", async {
                    while one.mutex("L").inspect().await.ok().and_then(|state| state.waiting) != Some(1) {
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                })
                .await;
                for kind in ["normal", "pubsub"] {
                    cmd("CLIENT")
                        .arg("KILL")
                        .arg("TYPE")
                        .arg(kind)
                        .arg("SKIPME")
                        .arg("yes")
                        .query::<u32>(&mut raw)
                        .expect("killed");
                }
            }
            drop(guard);
            drop(must("woken", waiter).await.expect("no panic").expect("locked"));
        });
    }
}

pub(crate) fn try_lock_survives_a_stale_connection() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    block_on(async {
        let locker = connect(&server.url()).await;
        for _ in 0..20 {
            cmd("CLIENT").arg("KILL").arg("TYPE").arg("normal").arg("SKIPME").arg("yes").query::<u32>(&mut raw).expect("killed");
            let guard = locker.mutex("L").try_lock().await.expect("the second question goes over a new connection");
            drop(guard);
        }
    });
}

pub(crate) fn a_connection_that_went_dead_without_a_word_is_replaced() {
    let server = RedisServer::start();
    let cable = Cable::to(server.port);
    block_on(async {
        let near = connect(&server.url()).await;
        let held = near.mutex("L").lock().await.expect("locked");
        let far = connect(&format!("redis://127.0.0.1:{}?timeout=1s", cable.port)).await;
        let waiter = tokio::spawn(far.mutex("L").lock());
        while near.mutex("L").inspect().await.expect("inspected").waiting != Some(1) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        cable.strand();
        // It leaves, and so has a subscription to end on a connection that will never answer.
        waiter.abort();
        while far.stats().waiting > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let locked = tokio::time::timeout(Duration::from_secs(20), far.mutex("M").lock()).await;
        locked.expect("over a new connection").expect("locked").release().await.expect("given back");
        drop(held);
    });
}

pub(crate) fn names_that_share_a_channel_are_all_woken() {
    let server = RedisServer::start();
    block_on(async {
        let url = format!("{}?wake=pubsub", server.url());
        let (one, other) = (connect(&url).await, connect(&url).await);
        for name in ["{a}", "a"] {
            let guard = one.mutex(name).lock().await.expect("locked");
            let waiter = tokio::spawn(other.mutex(name).lock());
            // It polls only every few seconds from here on.
            tokio::time::sleep(Duration::from_millis(2500)).await;
            guard.release().await.expect("given back");
            let woken = tokio::time::timeout(Duration::from_millis(1000), waiter).await.expect("woken by the message");
            drop(woken.expect("no panic").expect("locked"));
        }
    });
}

pub(crate) fn a_connection_that_is_given_up_is_made_anew_for_those_who_only_listen() {
    for options in ["", "&wake=pubsub"] {
        let server = RedisServer::start();
        let mut raw = server.raw();
        // The numbers of connections grow.
        let mut last = || {
            let clients: String = cmd("CLIENT").arg("LIST").query(&mut raw).expect("asked");
            let numbers = clients.lines().filter_map(|line| line.strip_prefix("id=")?.split(' ').next()?.parse::<u64>().ok());
            numbers.max().expect("at least this one")
        };
        block_on(async {
            let locker = connect(&format!("{}?timeout=700ms{options}", server.url())).await;
            let before = last();
            signal(server.pid(), Signal::STOP);
            let error = locker.mutex("L").inspect().await.expect_err("no answer");
            assert_eq!(error.fault(), Some(tenure::Fault::Timeout), "{error}");
            signal(server.pid(), Signal::CONT);
            // Nobody asks anything: who waits would do so only after seconds.
            must("a new connection", async {
                while last() <= before {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            })
            .await;
        });
    }
}

/// Has a waiter that is about to subscribe over a cable that lets nothing through.
async fn about_to_subscribe(cable: &Cable, raw: &mut redis::Connection, lock: impl FnOnce(tenure::Mutex)) {
    cmd("HSET").arg("L").arg("11111111-1111-1111-1111-111111111111:1").arg(1).query::<()>(raw).expect("held");
    cmd("PEXPIRE").arg("L").arg(600_000).query::<()>(raw).expect("held");
    let locker = connect(&format!("redis://127.0.0.1:{}?wake=pubsub&timeout=700ms", cable.port)).await;
    // The server knows the script from then on.
    assert!(locker.mutex("L").try_lock().await.expect("asked").is_none());
    let mut asked = || calls(raw).get("evalsha").copied();
    let before = asked();
    lock(locker.mutex("L"));
    eventually("it has asked", || asked() > before);
    cable.hold_requests();
    eventually("its subscription is on its way", || cable.has_held_request());
}

fn subscribers(raw: &mut redis::Connection) -> u32 {
    cmd("PUBSUB").arg("NUMSUB").arg("redisson_lock__channel:{L}").query::<(String, u32)>(raw).expect("asked").1
}

pub(crate) fn a_connection_that_breaks_while_one_subscribes_deafens_nobody() {
    // Whoever heard nothing of the new connection would ask again after a second, each time.
    let fast = (0..3).any(|_| {
        let server = RedisServer::start();
        let mut raw = server.raw();
        let cable = Cable::slow(server.port, Duration::from_millis(100));
        block_on(async {
            let mut waiting = None;
            about_to_subscribe(&cable, &mut raw, |mutex| waiting = Some(tokio::spawn(mutex.lock()))).await;
            let kill = ["KILL", "TYPE", "normal", "SKIPME", "yes"];
            cmd("CLIENT").arg(&kill).query::<()>(&mut raw).expect("killed");
            cable.hasten();
            cable.heal();
            let fast = within(Duration::from_millis(700), || (subscribers(&mut raw) == 1).then_some(())).is_some();
            eventually("it is subscribed", || subscribers(&mut raw) == 1);
            cmd("DEL").arg("L").query::<()>(&mut raw).expect("free");
            cmd("PUBLISH").arg("redisson_lock__channel:{L}").arg("0").query::<()>(&mut raw).expect("told");
            drop(must("woken", waiting.expect("it waits")).await.expect("no panic").expect("locked"));
            fast
        })
    });
    assert!(fast, "subscribed over the new one at once");
}

pub(crate) fn a_subscription_that_comes_late_is_not_left_behind() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    let cable = Cable::slow(server.port, Duration::from_millis(100));
    block_on(async {
        let mut waiting = None;
        let wait = Duration::from_millis(900);
        about_to_subscribe(&cable, &mut raw, |mutex| waiting = Some(tokio::spawn(mutex.try_lock_for(wait)))).await;
        drop(must("its time is over", waiting.expect("it waits")).await.expect("no panic"));
        cable.heal();
        eventually("it is not left behind", || calls(&mut raw).contains_key("subscribe") && subscribers(&mut raw) == 0);
    });
}
