//! What a lock at a majority of several servers costs beside one at a single server, healthy and with two of five silent, all in
//! one run. `cargo bench -p tenure --bench quorum`

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tenure::Locker;
use tenure_testkit::cable::Cable;
use tenure_testkit::locker::hand_overs;
use tenure_testkit::quorum::QuorumSet;

const ROUNDS: usize = 3000;
const HAND_OVERS: usize = 500;
const OPTIONS: &str = "?quarantine=off";

fn main() {
    if !tenure_testkit::server::is_installed() {
        println!("SKIPPED: no redis-server is installed");
        return;
    }
    let set = QuorumSet::start(5);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        println!("{:<40} {:>10} {:>10} {:>10}", "time to lock", "p50", "p90", "p99");
        bare(&set).await;
        side_by_side(&set, "", Duration::ZERO).await;
        side_by_side(&set, ", wires of 1 ms", Duration::from_millis(1)).await;
        silent(&set).await;
        hand_over(&set).await;
    });
}

fn at(times: &mut [Duration], percent: usize) -> Duration {
    times.sort_unstable();
    times[times.len() * percent / 100]
}

fn row(what: &str, times: &mut [Duration]) {
    let shown = |percent| format!("{:.1}µs", at(&mut times.to_vec(), percent).as_secs_f64() * 1e6);
    println!("{what:<40} {:>10} {:>10} {:>10}", shown(50), shown(90), shown(99));
}

/// What the machine gives: the same with nothing but `SET NX PX`, to one server and to five at once, until three have answered.
async fn bare(set: &QuorumSet) {
    let mut connections = Vec::new();
    for node in &set.nodes {
        let client = redis::Client::open(format!("redis://127.0.0.1:{}", node.port)).expect("a client");
        connections.push(client.get_multiplexed_async_connection().await.expect("connected"));
    }
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for (times, n) in times.iter_mut().zip([1, 5]) {
            let start = Instant::now();
            let set = |mut connection: redis::aio::MultiplexedConnection| async move {
                let mut set = redis::cmd("SET");
                set.arg("bare").arg("me").arg("NX").arg("PX").arg(30_000);
                set.exec_async(&mut connection).await.expect("set");
            };
            let mut calls: FuturesUnordered<_> = connections[..n].iter().cloned().map(set).collect();
            for _ in 0..n / 2 + 1 {
                calls.next().await;
            }
            times.push(start.elapsed());
            while calls.next().await.is_some() {}
            for connection in &mut connections[..n] {
                redis::cmd("DEL").arg("bare").exec_async(connection).await.expect("deleted");
            }
        }
    }
    let [one, five] = &mut times;
    row("bare SET NX PX, 1 server", one);
    row("bare SET NX PX, 3 of 5 servers", five);
    println!("    median of three of five to one: {:.2}", at(five, 50).as_secs_f64() / at(one, 50).as_secs_f64());
}

/// A quorum of the first `n`, or one server alone; each over a wire of its own if that takes time.
async fn locker(set: &QuorumSet, n: usize, delay: Duration) -> (Locker, Vec<Cable>) {
    let ports: Vec<u16> = set.nodes[..n].iter().map(|node| node.port).collect();
    let cables: Vec<Cable> =
        if delay.is_zero() { Vec::new() } else { ports.iter().map(|port| Cable::slow(*port, delay)).collect() };
    let ports = if cables.is_empty() { ports } else { cables.iter().map(|cable| cable.port).collect() };
    (connect(&ports).await, cables)
}

async fn connect(ports: &[u16]) -> Locker {
    let urls: Vec<String> = ports.iter().map(|port| format!("redis://127.0.0.1:{port}")).collect();
    let url = if let [one] = &*urls { one.clone() } else { format!("quorum:{}{OPTIONS}", urls.join("|")) };
    Locker::connect(&url).await.expect("connected")
}

async fn time(locker: &Locker, times: &mut Vec<Duration>) {
    let start = Instant::now();
    let guard = locker.mutex("L").lock().await.expect("locked");
    times.push(start.elapsed());
    guard.release().await.expect("given back");
}

/// In turns, so that whatever else the machine does concerns all.
async fn side_by_side(set: &QuorumSet, how: &str, delay: Duration) {
    let mut lockers = Vec::new();
    for n in [1, 3, 5] {
        let (locker, cables) = locker(set, n, delay).await;
        time(&locker, &mut Vec::new()).await;
        lockers.push((n, locker, cables, Vec::new()));
    }
    let rounds = if delay.is_zero() { ROUNDS } else { ROUNDS / 6 };
    for _ in 0..rounds {
        for (_, locker, _, times) in &mut lockers {
            time(locker, times).await;
        }
    }
    let one = at(&mut lockers[0].3.clone(), 50);
    for (n, _, _, times) in &mut lockers {
        row(&format!("{n} node{}{how}", if *n == 1 { "" } else { "s" }), times);
    }
    let ratio = at(&mut lockers[2].3, 50).as_secs_f64() / one.as_secs_f64();
    println!("    median of five nodes to one: {ratio:.2}");
}

async fn silent(set: &QuorumSet) {
    let cables: Vec<Cable> = set.nodes.iter().map(|node| Cable::to(node.port)).collect();
    let ports: Vec<u16> = cables.iter().map(|cable| cable.port).collect();
    let locker = connect(&ports).await;
    let (mut healthy, mut ill) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS / 3 {
        time(&locker, &mut healthy).await;
    }
    cables[3..].iter().for_each(Cable::blackhole);
    for _ in 0..ROUNDS / 3 {
        time(&locker, &mut ill).await;
    }
    row("5 nodes over cables", &mut healthy);
    row("5 nodes over cables, two swallowed up", &mut ill);
    let (healthy, ill) = (at(&mut healthy, 99), at(&mut ill, 99));
    println!("    p99 with two swallowed up is over that without by: {:.1?}", ill.saturating_sub(healthy));
}

/// From the call that releases to the grant in another client.
async fn hand_over(set: &QuorumSet) {
    for n in [1, 5] {
        let pair = [locker(set, n, Duration::ZERO).await.0, locker(set, n, Duration::ZERO).await.0];
        let mut times = hand_overs(pair, HAND_OVERS, Duration::from_millis(5)).await;
        row(&format!("hand-over to another client, {n} node{}", if n == 1 { "" } else { "s" }), &mut times);
    }
}
