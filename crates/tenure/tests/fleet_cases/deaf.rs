//! Waiters in a cluster are woken, whatever happens to the connections of their channels.

use std::time::{Duration, Instant};

use redis::{Connection, cmd};

use tenure_testkit::cable::Cable;
use tenure_testkit::cluster::{Cluster, lone};
use tenure_testkit::locker::{block_on, connect, must};
use tenure_testkit::{RedisServer, Signal, eventually, signal, stop, until, within};

/// Soon enough: nobody has asked again by itself by then, as one who waits does so after five seconds.
const SOON: Duration = Duration::from_secs(3);

/// As a Java client holds it.
fn hold(raw: &mut Connection, name: &str) {
    cmd("HSET").arg(name).arg("11111111-1111-1111-1111-111111111111:1").arg(1).query::<()>(raw).expect("held");
    cmd("PEXPIRE").arg(name).arg(600_000).query::<()>(raw).expect("held");
}

/// How often a command was called.
fn calls(raw: &mut Connection, command: &str) -> u64 {
    let info: String = cmd("INFO").arg("commandstats").query(raw).expect("asked");
    let line = info.lines().find_map(|l| l.strip_prefix("cmdstat_")?.strip_prefix(command)?.strip_prefix(":calls="));
    line.and_then(|l| l.split(',').next()?.parse().ok()).unwrap_or(0)
}

/// Numbers of connections that satisfy something; they grow.
fn clients(raw: &mut Connection, which: impl Fn(&str) -> bool) -> Vec<u64> {
    let clients: String = cmd("CLIENT").arg("LIST").query(raw).expect("asked");
    let number = |line: &str| line.strip_prefix("id=")?.split(' ').next()?.parse().ok();
    clients.lines().filter(|line| which(line)).filter_map(number).collect()
}

/// The channel of the only waiter.
fn channel_of_the_first(raw: &mut Connection, name: &str) -> Option<String> {
    let head: Option<String> = cmd("LINDEX").arg(format!("redisson_lock_queue:{{{name}}}")).arg(0).query(raw).expect("asked");
    head.map(|head| format!("redisson_lock__channel:{{{name}}}:{head}"))
}

fn subscribers(raw: &mut Connection, channel: &str) -> u32 {
    cmd("PUBSUB").arg("SHARDNUMSUB").arg(channel).query::<(String, u32)>(raw).expect("asked").1
}

fn is_heard(raw: &mut Connection, name: &str) -> bool {
    channel_of_the_first(raw, name).is_some_and(|channel| subscribers(raw, &channel) == 1)
}

/// A cluster of one server behind a cable on which what is sent takes a while.
fn far_away(delay: Duration) -> (Cable, RedisServer) {
    let elsewhere = RedisServer::start();
    let cable = Cable::slow(elsewhere.port, delay);
    let server = lone(cable.port);
    cable.lead_to(server.port);
    (cable, server)
}

/// Both the one who was subscribed and the one who was about to be.
pub(crate) fn a_channel_connection_that_breaks_while_one_subscribes_deafens_nobody() {
    let (cable, server) = far_away(Duration::from_millis(100));
    let mut raw = server.raw();
    for name in ["A", "B"] {
        hold(&mut raw, name);
    }
    block_on(async {
        let waiter = connect(&format!("redis+cluster://127.0.0.1:{}", cable.port)).await;
        let first = tokio::spawn(waiter.mutex("A").fair().lock());
        eventually("the first is heard", || is_heard(&mut raw, "A"));
        let second = tokio::spawn(waiter.mutex("B").fair().lock());
        eventually("the second has asked", || channel_of_the_first(&mut raw, "B").is_some());
        cable.hold_requests();
        eventually("its subscription is on its way", || cable.has_held_request());
        cmd("CLIENT").arg("KILL").arg("TYPE").arg("pubsub").query::<()>(&mut raw).expect("killed");
        cable.hasten();
        cable.heal();
        for name in ["A", "B"] {
            within(SOON, || is_heard(&mut raw, name).then_some(())).unwrap_or_else(|| panic!("{name} is deaf"));
        }
        for (name, waiting) in [("A", first), ("B", second)] {
            let channel = channel_of_the_first(&mut raw, name).expect("in the queue");
            cmd("DEL").arg(name).query::<()>(&mut raw).expect("free");
            cmd("SPUBLISH").arg(channel).arg("0").query::<()>(&mut raw).expect("told");
            drop(must("woken", waiting).await.expect("no panic").expect("locked"));
        }
    });
}

/// Nothing is ever sent over it, so that only the other one tells that it is dead.
pub(crate) fn a_channel_connection_that_went_dead_goes_with_that_of_the_commands() {
    for (options, fair) in [("?timeout=500ms", true), ("?timeout=500ms&wake=pubsub", false)] {
        let (cable, server) = far_away(Duration::ZERO);
        let mut raw = server.raw();
        hold(&mut raw, "L");
        block_on(async {
            let waiter = connect(&format!("redis+cluster://127.0.0.1:{}{options}", cable.port)).await;
            let mutex = if fair { waiter.mutex("L").fair() } else { waiter.mutex("L") };
            let _waiting = tokio::spawn(mutex.lock());
            // In line behind one of Redisson's: on the channel of the client, and on one of its own.
            let listens = |line: &str| line.contains(if fair { " ssub=2 " } else { " ssub=1 " });
            eventually("it listens", || clients(&mut raw, listens).len() == 1);
            let before = clients(&mut raw, |_| true).into_iter().max().expect("at least this one");
            cable.strand();
            waiter.mutex("M").inspect().await.expect_err("no answer");
            let anew = || clients(&mut raw, listens).into_iter().any(|id| id > before).then_some(());
            within(SOON, anew).unwrap_or_else(|| panic!("{options}: it listens over the dead connection"));
        });
    }
}

/// It arrives when the one for whom it was made has gone.
pub(crate) fn a_subscription_that_comes_late_is_not_left_behind_in_a_cluster() {
    let (cable, server) = far_away(Duration::from_millis(100));
    let mut raw = server.raw();
    for name in ["K", "L"] {
        hold(&mut raw, name);
    }
    block_on(async {
        let waiter = connect(&format!("redis+cluster://127.0.0.1:{}?timeout=700ms", cable.port)).await;
        // While there is one who waits, there is a connection for channels.
        let _first = tokio::spawn(waiter.mutex("K").fair().lock());
        eventually("the first is subscribed", || is_heard(&mut raw, "K"));
        let subscribed = calls(&mut raw, "ssubscribe");
        let waiting = tokio::spawn(waiter.mutex("L").fair().try_lock_for(Duration::from_millis(900)));
        let channel = until("it has asked", || channel_of_the_first(&mut raw, "L"));
        cable.hold_requests();
        eventually("its subscription is on its way", || cable.has_held_request());
        drop(must("its time is over", waiting).await.expect("no panic"));
        cable.heal();
        eventually("it is not left behind", || {
            calls(&mut raw, "ssubscribe") > subscribed && subscribers(&mut raw, &channel) == 0
        });
    });
}

/// A name whose slot the first server has.
fn on_first(cluster: &Cluster, n: usize) -> Vec<String> {
    (0..).map(|i| format!("L{i}")).filter(|name| cluster.owner(cluster.slot(name)) == 0).take(n).collect()
}

fn set(cluster: &Cluster, options: &[(&str, &str)]) {
    for i in 0..cluster.nodes.len() {
        for (option, value) in options {
            cmd("CONFIG").arg("SET").arg(option).arg(value).query::<()>(&mut cluster.raw(i)).expect("set");
        }
    }
}

pub(crate) fn a_server_that_was_slow_once_is_soon_beyond_suspicion() {
    let cluster = Cluster::start();
    set(&cluster, &[("cluster-node-timeout", "30000")]);
    let name = &on_first(&cluster, 1)[0];
    let mut raw = cluster.raw(0);
    block_on(async {
        let locker = connect(&cluster.url()).await;
        locker.mutex(&**name).lock().await.expect("locked").release().await.expect("given back");
        let before = calls(&mut raw, "cluster|info");
        signal(cluster.nodes[0].pid(), Signal::STOP);
        let slow = tokio::spawn(locker.mutex(&**name).lock());
        tokio::time::sleep(Duration::from_millis(600)).await;
        signal(cluster.nodes[0].pid(), Signal::CONT);
        drop(must("locked", slow).await.expect("no panic").expect("locked"));
        eventually("it is asked how it is", || calls(&mut raw, "cluster|info") > before);
        let (mut last, mut since) = (0, Instant::now());
        let quiet = || {
            let now = calls(&mut raw, "cluster|info");
            if now != std::mem::replace(&mut last, now) {
                since = Instant::now();
            }
            (since.elapsed() > Duration::from_millis(1500)).then_some(())
        };
        within(Duration::from_secs(6), quiet).expect("it is asked no more: it has said that it serves");
    });
}

/// The answer to how the server is may come over the connection that was given up, over which nobody hears anything any more.
pub(crate) fn a_call_that_is_cut_off_in_a_cluster_deafens_nobody() {
    let cluster = Cluster::start();
    let slow =
        [("cluster-node-timeout", "30000"), ("cluster-require-full-coverage", "no"), ("cluster-replica-no-failover", "yes")];
    set(&cluster, &slow);
    let names = on_first(&cluster, 2);
    let mut raw = cluster.raw(0);
    hold(&mut raw, &names[0]);
    block_on(async {
        let locker = connect(&format!("{}?timeout=1s", cluster.url())).await;
        let waiting = tokio::spawn(locker.mutex(&*names[0]).lock());
        // From then on it asks every five seconds only.
        let channel = format!("redisson_lock__channel:{{{}}}", names[0]);
        eventually("it is seen to wait", || subscribers(&mut raw, &channel) == 1);
        let before = clients(&mut raw, |_| true).into_iter().max().expect("at least this one");
        signal(cluster.nodes[0].pid(), Signal::STOP);
        let error = locker.mutex(&*names[1]).inspect().await.expect_err("no answer");
        assert_eq!(error.fault(), Some(tenure::Fault::Timeout), "{error}");
        tokio::time::sleep(Duration::from_millis(100)).await;
        signal(cluster.nodes[0].pid(), Signal::CONT);
        let anew = || clients(&mut raw, |line| line.contains(" resp=3")).into_iter().any(|id| id > before).then_some(());
        within(Duration::from_secs(2), anew).expect("a new connection");
        cmd("DEL").arg(&*names[0]).query::<()>(&mut raw).expect("free");
        let woken = tokio::time::timeout(SOON, waiting).await.expect("it hears of it");
        drop(woken.expect("no panic").expect("locked"));
    });
}

pub(crate) fn who_waits_is_told_when_a_cluster_serves_again() {
    let cluster = Cluster::start();
    set(&cluster, &[("cluster-replica-no-failover", "yes")]);
    let name = &on_first(&cluster, 1)[0];
    let mut raw = cluster.raw(0);
    let mut serves = || cmd("CLUSTER").arg("INFO").query::<String>(&mut raw).is_ok_and(|i| i.contains("cluster_state:ok"));
    block_on(async {
        let locker = connect(&cluster.url()).await;
        signal(cluster.nodes[1].pid(), Signal::STOP);
        eventually("it is down", || !serves());
        let waiting = tokio::spawn(locker.mutex(&**name).lock());
        must("the pauses between attempts have grown", async {
            while locker.stats().errors < 6 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        signal(cluster.nodes[1].pid(), Signal::CONT);
        eventually("it serves", &mut serves);
        let told = tokio::time::timeout(Duration::from_millis(1000), waiting).await.expect("told at once");
        drop(told.expect("no panic").expect("locked"));
    });
}

/// All servers have moved, and their old addresses hang: the URL's still leads to one.
pub(crate) fn a_cluster_that_has_moved_as_a_whole_is_found_by_its_url() {
    let old = Cluster::start();
    let (_cable, new) = far_away(Duration::ZERO);
    let entry = Cable::to(old.nodes[0].port);
    block_on(async {
        let locker = connect(&format!("redis+cluster://127.0.0.1:{}?timeout=500ms", entry.port)).await;
        locker.mutex("L").lock().await.expect("locked").release().await.expect("given back");
        old.nodes.iter().for_each(|node| stop(node.pid()));
        entry.lead_to(new.port);
        drop(must("a lock at the new place", locker.mutex("L").lock()).await.expect("locked"));
    });
}
