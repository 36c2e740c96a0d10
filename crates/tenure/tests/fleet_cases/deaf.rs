//! Those who wait in a cluster hear of what they wait for, whatever becomes of the connections that they hear it over.

use std::time::{Duration, Instant};

use redis::{Connection, cmd};

use crate::support::cluster::Cluster;
use crate::support::locker::{block_on, connect, must};
use crate::support::{eventually, signal, within};

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

fn subscribers(raw: &mut Connection, channel: &str) -> u32 {
    cmd("PUBSUB").arg("SHARDNUMSUB").arg(channel).query::<(String, u32)>(raw).expect("asked").1
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
        signal(cluster.nodes[0].pid(), "STOP");
        let slow = tokio::spawn(locker.mutex(&**name).lock());
        tokio::time::sleep(Duration::from_millis(600)).await;
        signal(cluster.nodes[0].pid(), "CONT");
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
        signal(cluster.nodes[0].pid(), "STOP");
        let error = locker.mutex(&*names[1]).inspect().await.expect_err("no answer");
        assert_eq!(error.fault(), Some(tenure::Fault::Timeout), "{error}");
        tokio::time::sleep(Duration::from_millis(100)).await;
        signal(cluster.nodes[0].pid(), "CONT");
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
        signal(cluster.nodes[1].pid(), "STOP");
        eventually("it is down", || !serves());
        let waiting = tokio::spawn(locker.mutex(&**name).lock());
        must("the pauses between attempts have grown", async {
            while locker.stats().errors < 6 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        signal(cluster.nodes[1].pid(), "CONT");
        eventually("it serves", &mut serves);
        let told = tokio::time::timeout(Duration::from_millis(1000), waiting).await.expect("told at once");
        drop(told.expect("no panic").expect("locked"));
    });
}
