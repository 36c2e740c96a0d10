//! What a lock on Redis costs beside a bare round trip, and how fast a release wakes another process: tracking against
//! pub/sub, all in one run on one server. `cargo bench -p tenure --bench redis`

use std::time::{Duration, Instant};

use redis::{AsyncConnectionConfig, cmd};
use tenure::Locker;
use tenure_testkit::RedisServer;
use tenure_testkit::locker::hand_overs;

const ROUNDS: usize = 3000;
const HAND_OVERS: usize = 1000;

fn main() {
    if !tenure_testkit::server::is_installed() {
        println!("SKIPPED: no redis-server is installed");
        return;
    }
    let server = RedisServer::start();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        println!("{:<46} {:>9} {:>9} {:>9}   commands", "", "p50", "p90", "p99");
        uncontended(&server).await;
        family(&server).await;
        for (name, options) in [("tracking", "wake=tracking"), ("pub/sub", "wake=pubsub")] {
            hand_over(&server, name, options).await;
        }
        for tasks in [10, 1000] {
            in_process(&server, tasks).await;
        }
    });
}

fn row(what: &str, mut times: Vec<Duration>, commands: f64) {
    times.sort();
    let at = |q: usize| format!("{:.1}µs", times[times.len() * q / 100].as_secs_f64() * 1e6);
    println!("{what:<46} {:>9} {:>9} {:>9}   {commands:.2}", at(50), at(90), at(99));
}

fn sent(server: &RedisServer) -> u64 {
    let info: String = cmd("INFO").arg("commandstats").query(&mut server.raw()).expect("asked");
    // Each of the last has a read behind it.
    let ours = [("evalsha", 1), ("eval", 1), ("subscribe", 1), ("unsubscribe", 1), ("client|caching", 2)];
    let calls = |line: &str| line.split_once("calls=")?.1.split(',').next()?.parse::<u64>().ok();
    let ours = ours.iter().filter_map(|(name, each)| {
        let line = info.lines().find(|line| line.starts_with(&format!("cmdstat_{name}:")))?;
        Some(calls(line)? * each)
    });
    ours.sum()
}

fn per(server: &RedisServer, before: u64, n: usize) -> f64 {
    let sent = u32::try_from(sent(server) - before).expect("few");
    f64::from(sent) / f64::from(u32::try_from(n).expect("few"))
}

async fn uncontended(server: &RedisServer) {
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    let client = redis::Client::open(server.url()).expect("a client");
    let mut bare = client.get_multiplexed_async_connection_with_config(&config).await.expect("connected");
    let compare_and_delete = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
    let hash: String = cmd("SCRIPT").arg("LOAD").arg(compare_and_delete).query_async(&mut bare).await.expect("loaded");
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        cmd("SET").arg("bare").arg("me").arg("NX").arg("PX").arg(30_000).exec_async(&mut bare).await.expect("set");
        cmd("EVALSHA").arg(&hash).arg(1).arg("bare").arg("me").exec_async(&mut bare).await.expect("deleted");
        times.push(start.elapsed());
    }
    row("bare SET NX PX, compare and delete", times, 2.0);
    for (name, options) in [("tenure, Redisson's layout", ""), ("tenure, plain layout", "?layout=plain")] {
        let locker = Locker::connect(&format!("{}{options}", server.url())).await.expect("connected");
        locker.mutex("warm").lock().await.expect("locked").release().await.expect("given back");
        let (before, mut times) = (sent(server), Vec::new());
        for _ in 0..ROUNDS {
            let start = Instant::now();
            locker.mutex("L").lock().await.expect("locked").release().await.expect("given back");
            times.push(start.elapsed());
        }
        row(&format!("{name}: lock and release"), times, per(server, before, ROUNDS));
        let owner = tenure::Owner::new();
        let mutex = locker.mutex("L").owner(&owner);
        let _outer = mutex.lock().await.expect("locked");
        let (before, mut times) = (sent(server), Vec::new());
        for _ in 0..ROUNDS {
            let start = Instant::now();
            drop(mutex.lock().await.expect("re-entered"));
            times.push(start.elapsed());
        }
        row(&format!("{name}: re-entry"), times, per(server, before, ROUNDS));
    }
}

/// What the others of the family cost when nobody is in their way.
async fn family(server: &RedisServer) {
    let locker = Locker::connect(&server.url()).await.expect("connected");
    let (before, mut times) = (sent(server), Vec::new());
    for _ in 0..ROUNDS {
        let start = Instant::now();
        locker.mutex("F").fair().lock().await.expect("locked").release().await.expect("given back");
        times.push(start.elapsed());
    }
    row("fair: lock and release", times, per(server, before, ROUNDS));
    let rwlock = locker.rwlock("RW");
    let _reader = rwlock.read().await.expect("read");
    let (before, mut times) = (sent(server), Vec::new());
    for _ in 0..ROUNDS {
        let start = Instant::now();
        rwlock.read().await.expect("read").release().await.expect("given back");
        times.push(start.elapsed());
    }
    row("rwlock: read beside another, and release", times, per(server, before, ROUNDS));
    let semaphore = locker.semaphore("S", 3);
    let (before, mut times) = (sent(server), Vec::new());
    for _ in 0..ROUNDS {
        let start = Instant::now();
        semaphore.acquire().await.expect("acquired").release().await.expect("given back");
        times.push(start.elapsed());
    }
    row("semaphore: acquire and release", times, per(server, before, ROUNDS));
    let names: Vec<String> = (0..8).map(|n| format!("{{m}}:{n}")).collect();
    let multi = locker.multi(&names);
    let (before, mut times) = (sent(server), Vec::new());
    for _ in 0..ROUNDS / 4 {
        let start = Instant::now();
        multi.lock().await.expect("locked").release().await.expect("given back");
        times.push(start.elapsed());
    }
    row("multi: 8 names, lock and release", times, per(server, before, ROUNDS / 4));
}

/// From the call that releases to the grant in another client.
async fn hand_over(server: &RedisServer, name: &str, options: &str) {
    let url = format!("{}?{options}", server.url());
    let pair = [Locker::connect(&url).await.expect("connected"), Locker::connect(&url).await.expect("connected")];
    let before = sent(server);
    let times = hand_overs(pair, HAND_OVERS, Duration::from_millis(2)).await;
    row(&format!("hand-over to another client, {name}"), times, per(server, before, HAND_OVERS));
}

async fn in_process(server: &RedisServer, tasks: usize) {
    let locker = Locker::connect(&server.url()).await.expect("connected");
    let rounds = (20_000 / tasks).max(1);
    let (before, start) = (sent(server), Instant::now());
    let mut all = tokio::task::JoinSet::new();
    for _ in 0..tasks {
        let mutex = locker.mutex("P");
        all.spawn(async move {
            for _ in 0..rounds {
                drop(mutex.lock().await.expect("locked"));
            }
        });
    }
    while all.join_next().await.is_some() {}
    let holds = tasks * rounds;
    let each = start.elapsed() / u32::try_from(holds).expect("few");
    row(&format!("{tasks} tasks of one process, mean per hold"), vec![each], per(server, before, holds));
}
