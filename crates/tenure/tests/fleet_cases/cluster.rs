//! Slots that change their servers while locks in them are held and waited for.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use redis::cmd;
use tenure::{Error, Fault, Locker};
use tokio::task::JoinSet;

use super::crowd::{Crowd, in_flight, offset};
use tenure_testkit::cluster::Cluster;
use tenure_testkit::locker::{block_on, connect, must};
use tenure_testkit::server::RedisServer;
use tenure_testkit::{Signal, eventually, signal};

/// All that was written is at the replicas.
fn replicated(cluster: &Cluster) {
    eventually("the replicas have everything", || {
        let masters: Vec<usize> = (0..cluster.nodes.len()).filter(|i| cluster.nodes[*i].is_master()).collect();
        masters.iter().all(|master| offset(&cluster.nodes[*master]) == offset(&cluster.nodes[cluster.replica_of(*master)]))
    });
}

pub(crate) fn a_killed_node_costs_no_hold_and_no_waiter() {
    let mut cluster = Cluster::start();
    block_on(async {
        let crowd = Crowd::gather(&cluster.url(), "awaited").await;
        replicated(&cluster);
        let slot = cluster.slot("awaited");
        let (down_since, old) = (Instant::now(), cluster.owner(slot));
        cluster.kill(old);
        cluster.promoted(slot, old);
        crowd.goes_on(down_since).await;
    });
}

pub(crate) fn a_hung_node_is_left_as_soon_as_another_takes_over() {
    let cluster = Cluster::start();
    block_on(async {
        // Longer than the test: only the news of another owner can end a call.
        let crowd = Crowd::gather(&format!("{}?timeout=120s", cluster.url()), "awaited").await;
        replicated(&cluster);
        let slot = cluster.slot("awaited");
        let (down_since, old) = (Instant::now(), cluster.owner(slot));
        signal(cluster.nodes[old].pid(), Signal::STOP);
        cluster.promoted(slot, old);
        crowd.goes_on(down_since).await;
        signal(cluster.nodes[old].pid(), Signal::CONT);
    });
}

/// However a call and the news that its server has been replaced cross each other.
pub(crate) fn calls_that_begin_while_a_hung_node_is_replaced_are_answered() {
    let cluster = Cluster::start();
    let slot = cluster.slot("{tag}");
    let old = cluster.owner(slot);
    block_on(async {
        // Longer than the test: no call ends by itself.
        let locker = connect(&format!("{}?timeout=300s", cluster.url())).await;
        locker.mutex("{tag}").lock().await.expect("locked").release().await.expect("given back");
        signal(cluster.nodes[old].pid(), Signal::STOP);
        let mut calls = JoinSet::new();
        for i in 0..4000 {
            let mutex = locker.mutex(format!("{{tag}}{i}"));
            calls.spawn(async move {
                tokio::time::sleep(Duration::from_millis(i)).await;
                drop(mutex.lock().await.expect("locked in the end"));
            });
        }
        must("every call is answered", async {
            while let Some(call) = calls.join_next().await {
                call.expect("no panic");
            }
        })
        .await;
        signal(cluster.nodes[old].pid(), Signal::CONT);
    });
}

pub(crate) fn an_acquire_in_flight_is_resolved_by_its_owner_on_the_new_master() {
    let mut cluster = Cluster::start();
    block_on(in_flight(&cluster.url(), || {
        let slot = cluster.slot("L0");
        let old = cluster.owner(slot);
        cluster.kill(old);
        cluster.promoted(slot, old);
    }));
}

pub(crate) fn a_relieved_node_costs_nothing() {
    for options in ["", "?wake=pubsub"] {
        let cluster = Cluster::start();
        block_on(async {
            let crowd = Crowd::gather(&format!("{}{options}", cluster.url()), "awaited").await;
            replicated(&cluster);
            let down_since = Instant::now();
            cluster.failover(cluster.slot("awaited"));
            crowd.goes_on(down_since).await;
        });
    }
}

/// No replica takes over, and the rest is in service all the same.
fn without_failover(cluster: &Cluster) {
    for i in 0..cluster.nodes.len() {
        for (option, value) in [("cluster-require-full-coverage", "no"), ("cluster-replica-no-failover", "yes")] {
            cmd("CONFIG").arg("SET").arg(option).arg(value).query::<()>(&mut cluster.raw(i)).expect("set");
        }
    }
}

/// One part of the cluster is away for longer than a lease, dead or hung: only its own holds are lost.
pub(crate) fn a_dead_part_costs_no_hold_elsewhere() {
    for how in [Signal::KILL, Signal::STOP] {
        let cluster = Cluster::start();
        without_failover(&cluster);
        block_on(async {
            // Several clients: each has its record at a server of its own.
            let (mut lockers, mut guards) = (Vec::new(), Vec::new());
            for l in 0..6 {
                let locker = connect(&format!("{}?lease=6s", cluster.url())).await;
                for i in 0..15 {
                    guards.push(locker.mutex(format!("held:{l}:{i}")).lock().await.expect("locked"));
                }
                lockers.push(locker);
            }
            let dead = cluster.owner(cluster.slot("held:0:0"));
            let there = |name: &str| cluster.owner(cluster.slot(name)) == dead;
            let (doomed, safe): (Vec<_>, Vec<_>) = guards.into_iter().partition(|g| there(g.resource().as_str()));
            assert!(!doomed.is_empty() && !safe.is_empty());
            signal(cluster.nodes[dead].pid(), how);
            for guard in &doomed {
                must("told", guard.lost()).await;
            }
            let renewed = || lockers.iter().map(|locker| locker.stats().renewed).sum::<u64>();
            let before = renewed();
            must("the others are renewed", async {
                while renewed() < before + 2 * safe.len() as u64 {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            })
            .await;
            for guard in safe {
                guard.release().await.unwrap_or_else(|e| panic!("{how:?}: {e}"));
            }
        });
    }
}

/// Who we are is written down at any server of the cluster; that one must not matter to locks elsewhere.
pub(crate) fn a_hung_part_delays_no_lock_elsewhere() {
    let cluster = Cluster::start();
    without_failover(&cluster);
    block_on(async {
        let locker = connect(&cluster.url()).await;
        let owner = |name: &str| cluster.owner(cluster.slot(name));
        let on = |node: usize| (0..).map(|i| format!("L{i}")).find(|name| owner(name) == node).expect("a name");
        let names = [on(0), on(1), on(2)];
        let guard = locker.mutex("first").lock().await.expect("locked");
        let record = owner(&format!("tenure_client:{}", guard.owner_id().client));
        signal(cluster.nodes[record].pid(), Signal::STOP);
        for node in (0..3).filter(|node| *node != record) {
            let guard = locker.mutex(&*names[node]).try_lock().await.expect("answered").expect("free");
            assert!(guard.is_valid());
        }
        assert_eq!(locker.stats().errors, 0, "nobody waited for the one that hangs");
        // It does not keep a newcomer out either.
        let newcomer = must("connected", connect(&cluster.url())).await;
        drop(newcomer.mutex(&*names[(record + 1) % 3]).lock().await.expect("locked"));
        signal(cluster.nodes[record].pid(), Signal::CONT);
    });
}

/// A slot goes back and forth, and stays on its way for longer than a lease, while locks in it are held, waited for, taken
/// and given back.
pub(crate) fn a_slot_that_moves_under_load_loses_nothing() {
    for options in ["", "&wake=pubsub", "&layout=plain"] {
        let cluster = Cluster::start();
        let slot = cluster.slot("{tag}");
        block_on(async {
            let url = format!("{}?lease=6s{options}", cluster.url());
            let (one, other) = (connect(&url).await, connect(&url).await);
            let mut held = Vec::new();
            for i in 0..20 {
                let mutex = one.mutex(format!("{{tag}}held:{i}"));
                held.push(if i % 2 == 0 { mutex.lock().await } else { mutex.note("noted").lock().await }.expect("locked"));
            }
            // One waits so long that it subscribes, which the slot takes away from it.
            let awaited = one.mutex("{tag}awaited").lock().await.expect("locked");
            let waiter = tokio::spawn(other.mutex("{tag}awaited").lock());
            let (counter, ends) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
            let mut workers = JoinSet::new();
            for i in 0..8 {
                let mutex = if i % 2 == 0 { &one } else { &other }.mutex("{tag}contended");
                let (counter, ends) = (Arc::clone(&counter), Arc::clone(&ends));
                workers.spawn(async move {
                    let mut done = 0;
                    while !ends.load(Ordering::SeqCst) {
                        let guard = mutex.lock().await.expect("locked");
                        let seen = counter.load(Ordering::SeqCst);
                        tokio::task::yield_now().await;
                        counter.store(seen + 1, Ordering::SeqCst);
                        guard.check().expect("held all the time");
                        guard.release().await.expect("given back");
                        done += 1;
                    }
                    done
                });
            }
            let home = cluster.owner(slot);
            let away = (0..3).find(|i| *i != home && cluster.nodes[*i].is_master()).expect("another master");
            for round in 0..3 {
                for (from, to) in [(home, away), (away, home)] {
                    let before = counter.load(Ordering::SeqCst);
                    cluster.begin_migration(slot, to);
                    if round == 0 {
                        // Longer than a lease, with the keys first at the old and then at the new server.
                        tokio::time::sleep(Duration::from_millis(3500)).await;
                        cluster.migrate_keys(slot, from, to);
                        tokio::time::sleep(Duration::from_millis(3500)).await;
                    }
                    cluster.migrate_keys(slot, from, to);
                    cluster.end_migration(slot, to);
                    must("work goes on at the new place", async {
                        while counter.load(Ordering::SeqCst) < before + 20 {
                            tokio::time::sleep(Duration::from_millis(5)).await;
                        }
                    })
                    .await;
                }
            }
            ends.store(true, Ordering::SeqCst);
            let mut done = 0;
            while let Some(worker) = must("every worker ends", workers.join_next()).await {
                done += worker.expect("no worker failed");
            }
            assert_eq!(counter.load(Ordering::SeqCst), done, "no two were in at once");
            awaited.release().await.expect("held all the time");
            drop(must("woken", waiter).await.expect("no panic").expect("locked"));
            for guard in held {
                guard.release().await.expect("held all the time");
            }
            assert_eq!((one.stats().lost, other.stats().lost), (0, 0));
        });
    }
}

/// The server says unasked that a channel has moved away, and redis-rs takes that for the answer to a call.
pub(crate) fn a_channel_that_moves_away_is_not_taken_for_an_answer() {
    let cluster = Cluster::start();
    let slot = cluster.slot("{tag}");
    let home = cluster.owner(slot);
    let away = (0..3).find(|i| *i != home).expect("another master");
    block_on(async {
        let (holder, locker) = (connect(&cluster.url()).await, connect(&cluster.url()).await);
        let held = holder.mutex("{tag}").lock().await.expect("locked");
        let waiter = tokio::spawn(locker.mutex("{tag}").lock());
        let mut raw = cluster.raw(home);
        eventually("it has subscribed", || {
            let mut count = cmd("PUBSUB");
            count.arg("SHARDNUMSUB").arg("redisson_lock__channel:{tag}");
            count.query::<(String, u32)>(&mut raw).expect("asked").1 == 1
        });
        cluster.begin_migration(slot, away);
        cluster.migrate_keys(slot, home, away);
        // Calls that the server has heard and does not answer yet.
        cmd("CLIENT").arg("PAUSE").arg(60_000).arg("WRITE").query::<()>(&mut raw).expect("paused");
        let names = (0..).map(|i| format!("L{i}")).filter(|name| cluster.owner(cluster.slot(name)) == home);
        let calls: Vec<_> = names.take(5).map(|name| tokio::spawn(locker.mutex(name).lock())).collect();
        let blocked = || cmd("INFO").arg("clients").query::<String>(&mut raw).is_ok_and(|i| i.contains("blocked_clients:1"));
        eventually("they have asked", blocked);
        cluster.end_migration(slot, away);
        cmd("CLIENT").arg("UNPAUSE").query::<()>(&mut cluster.raw(home)).expect("goes on");
        for call in calls {
            let guard = must("answered", call).await.expect("no panic").expect("locked");
            let holders = locker.mutex(guard.resource().clone()).inspect().await.expect("inspected").holders;
            assert_eq!(holders.len(), 1);
            assert_eq!((&*holders[0].owner, holders[0].token), (&*guard.owner_id().to_string(), Some(guard.token())));
        }
        held.release().await.expect("given back");
        drop(must("woken", waiter).await.expect("no panic").expect("locked"));
    });
}

/// The same while we leave that channel: what was heard first is not known then.
pub(crate) fn a_channel_that_moves_away_while_we_leave_it_is_not_taken_for_an_answer() {
    let cluster = Cluster::start();
    let names: Vec<String> = (0..).map(|i| format!("L{i}")).filter(|n| cluster.owner(cluster.slot(n)) == 0).take(3).collect();
    let [left, free, held] = &*names else { panic!("three names") };
    let (node, slot) = (&cluster.nodes[0], cluster.slot(left));
    let to: String = cmd("CLUSTER").arg("MYID").query(&mut cluster.raw(1)).expect("an id");
    for name in [left, held] {
        let java = "11111111-1111-1111-1111-111111111111:1";
        cmd("HSET").arg(name).arg(java).arg(1).query::<()>(&mut node.raw()).expect("held");
        cmd("PEXPIRE").arg(name).arg(600_000).query::<()>(&mut node.raw()).expect("held");
    }
    block_on(async {
        let locker = connect(&cluster.url()).await;
        assert!(locker.mutex(&**held).try_lock().await.expect("asked").is_none());
        let waiter = tokio::spawn(locker.mutex(&**left).lock());
        must("it is seen to wait", async {
            while locker.mutex(&**left).inspect().await.expect("inspected").waiting != Some(1) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
        let mut admin = TcpStream::connect(("127.0.0.1", node.port)).expect("connected");
        cluster.begin_migration(slot, 1);
        cluster.migrate_keys(slot, 0, 1);
        // All of this is waiting for the server when it goes on, in this order.
        signal(node.pid(), Signal::STOP);
        admin.write_all(format!("CLUSTER SETSLOT {slot} NODE {to}\r\n").as_bytes()).expect("written");
        waiter.abort();
        tokio::time::sleep(Duration::from_millis(50)).await;
        let one = tokio::spawn(locker.mutex(&**free).lock());
        tokio::time::sleep(Duration::from_millis(20)).await;
        let other = tokio::spawn(locker.mutex(&**held).try_lock());
        tokio::time::sleep(Duration::from_millis(50)).await;
        signal(node.pid(), Signal::CONT);
        assert!(other.await.expect("no panic").expect("answered").is_none(), "another holds it");
        let guard = must("answered", one).await.expect("no panic").expect("locked");
        let holder = locker.mutex(&**free).inspect().await.expect("inspected").holders.remove(0);
        assert_eq!((&*holder.owner, holder.token), (&*guard.owner_id().to_string(), Some(guard.token())));
    });
}

pub(crate) fn a_server_that_has_not_joined_is_not_believed() {
    let cluster = Cluster::start();
    let alone = RedisServer::with(&["--cluster-enabled", "yes"]);
    let url = cluster.url().replace("://", &format!("://127.0.0.1:{},", alone.port));
    let owner = cluster.owner(cluster.slot("L"));
    block_on(async {
        for _ in 0..10 {
            let locker = connect(&url).await;
            let mut raw = cluster.raw(owner);
            cmd("SSUBSCRIBE").arg("redisson_lock__channel:{L}").query::<(String, String, i64)>(&mut raw).expect("subscribed");
            drop(locker.mutex("L").try_lock().await.expect("asked").expect("free"));
            // In the cluster's own way.
            raw.set_read_timeout(Some(Duration::from_secs(30))).expect("set");
            raw.recv_response().expect("told on the shard's channel");
            locker.close().await.expect("closed");
        }
        let error = Locker::connect(&format!("redis+cluster://127.0.0.1:{}", alone.port)).await.expect_err("no cluster");
        assert!(error.is_transient() && error.to_string().contains("not joined"), "{error}");
    });
}

pub(crate) fn closing_gives_all_connections_back() {
    let cluster = Cluster::start();
    let ours = || -> usize {
        let list = |i| cmd("CLIENT").arg("LIST").query::<String>(&mut cluster.raw(i)).expect("listed");
        (0..cluster.nodes.len()).map(|i| list(i).lines().filter(|line| line.contains("resp=3")).count()).sum()
    };
    block_on(async {
        // By another name than they call themselves.
        let locker = connect(&cluster.url().replace("127.0.0.1", "localhost")).await;
        for i in 0..20 {
            locker.mutex(format!("L{i}")).lock().await.expect("locked").release().await.expect("given back");
        }
        assert!(ours() >= 3);
        locker.close().await.expect("closed");
        eventually("nothing is left", || ours() == 0);
        drop(locker);
    });
}

pub(crate) fn names_that_would_be_in_several_slots_are_refused() {
    let cluster = Cluster::start();
    block_on(async {
        let locker = connect(&cluster.url()).await;
        for name in ["a}b", "a{b", "{}x"] {
            let error = locker.mutex(name).lock().await.expect_err(name);
            assert!(matches!(error, Error::Config { .. }) && error.to_string().contains("slots"), "{error}");
            locker.mutex(name).break_hold().await.expect_err(name);
            locker.mutex(name).inspect().await.expect_err(name);
        }
        for name in ["{a}b", "x{a}", "plain"] {
            locker.mutex(name).note("noted").lock().await.expect(name).release().await.expect("given back");
        }
        let login = cluster.url().replace("://", "://default:canary@");
        let secret = connect(&login).await;
        assert!(!format!("{secret:?} {:?}", secret.mutex("L")).contains("canary"));
        let refused = Locker::connect(&login.replace("default", "stranger")).await.expect_err("no such user");
        assert_eq!((refused.fault(), refused.is_transient()), (Some(Fault::Auth), false), "{refused}");
        assert!(!format!("{refused} {refused:?}").contains("canary"), "{refused}");
        // A cluster's server alone is not the cluster.
        let alone = connect(&cluster.nodes[0].url()).await;
        let elsewhere = (0..).map(|i| format!("L{i}")).find(|n| cluster.owner(cluster.slot(n)) != 0).expect("a name");
        let error = alone.mutex(elsewhere).try_lock().await.expect_err("another server has it");
        assert_eq!((error.fault(), error.is_transient()), (Some(Fault::Clustered), false), "{error}");
        assert!(error.to_string().contains("redis+cluster://"), "{error}");
    });
    let server = RedisServer::start();
    block_on(async {
        let url = format!("redis+cluster://127.0.0.1:{}", server.port);
        let error = Locker::connect(&url).await.expect_err("not a cluster");
        assert!(error.to_string().contains("not one of a cluster"), "{error}");
        for (url, word) in
            [("redis+cluster://127.0.0.1/1", "one database"), ("redis+cluster://127.0.0.1?sharded=x", "auto, on, off")]
        {
            let error = Locker::connect(url).await.expect_err(url);
            assert!(matches!(error, Error::Config { .. }) && error.to_string().contains(word), "{error}");
        }
    });
}

/// Redisson listens on sharded channels where there are any, and on plain ones where told to.
pub(crate) fn a_release_is_told_on_the_channel_that_java_listens_to() {
    let cluster = Cluster::start();
    let owner = cluster.owner(cluster.slot("L"));
    block_on(async {
        for (options, subscribe, message) in [("", "SSUBSCRIBE", "smessage"), ("?sharded=off", "SUBSCRIBE", "message")] {
            let mut raw = cluster.raw(owner);
            let subscribed: (String, String, i64) =
                cmd(subscribe).arg("redisson_lock__channel:{L}").query(&mut raw).expect("subscribed");
            assert_eq!(subscribed.0, subscribe.to_lowercase());
            let locker = connect(&format!("{}{options}", cluster.url())).await;
            locker.mutex("L").lock().await.expect("locked").release().await.expect("given back");
            let (kind, channel, text) = tokio::task::spawn_blocking(move || {
                raw.set_read_timeout(Some(Duration::from_secs(30))).expect("set");
                let told: (String, String, String) =
                    redis::from_redis_value(raw.recv_response().expect("told")).expect("a message");
                told
            })
            .await
            .expect("no panic");
            assert_eq!((&*kind, &*channel, &*text), (message, "redisson_lock__channel:{L}", "0"));
        }
    });
}

/// Java holds, we wait; its release reaches us over the sharded channel alone.
pub(crate) fn a_java_release_wakes_us_over_the_shards_channel() {
    let cluster = Cluster::start();
    let owner = cluster.owner(cluster.slot("L"));
    block_on(async {
        let mut raw = cluster.raw(owner);
        cmd("HSET").arg("L").arg("11111111-1111-1111-1111-111111111111:1").arg(1).query::<()>(&mut raw).expect("held");
        cmd("PEXPIRE").arg("L").arg(600_000).query::<()>(&mut raw).expect("held");
        let locker = connect(&format!("{}?wake=pubsub", cluster.url())).await;
        let waiter = tokio::spawn(locker.mutex("L").lock());
        must("it is seen to wait", async {
            while locker.mutex("L").inspect().await.expect("inspected").waiting != Some(1) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
        cmd("DEL").arg("L").query::<()>(&mut raw).expect("deleted");
        let told: u32 = cmd("SPUBLISH").arg("redisson_lock__channel:{L}").arg("0").query(&mut raw).expect("published");
        assert_eq!(told, 1);
        drop(must("woken", waiter).await.expect("no panic").expect("locked"));
    });
}

pub(crate) fn holds_of_one_slot_are_renewed_together() {
    let cluster = Cluster::start();
    let owner = cluster.owner(cluster.slot("{tag}"));
    block_on(async {
        let locker = connect(&format!("{}?lease=3s", cluster.url())).await;
        let mut guards = Vec::new();
        for i in 0..50 {
            guards.push(locker.mutex(format!("{{tag}}{i}")).lock().await.expect("locked"));
        }
        let mut raw = cluster.raw(owner);
        let calls = |raw: &mut redis::Connection| -> u64 {
            let info: String = cmd("INFO").arg("commandstats").query(raw).expect("asked");
            let line = info.lines().find_map(|l| l.strip_prefix("cmdstat_evalsha:calls=")).expect("counted");
            line.split(',').next().expect("a number").parse().expect("a number")
        };
        let (before, renewed) = (calls(&mut raw), locker.stats().renewed);
        must("renewed", async {
            while locker.stats().renewed < renewed + 200 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        let (sent, renewed) = (calls(&mut raw) - before, locker.stats().renewed - renewed);
        assert!(sent * 10 <= renewed, "{sent} calls for {renewed} renewals");
    });
}
