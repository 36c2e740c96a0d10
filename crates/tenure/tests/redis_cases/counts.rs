//! What each script costs the server: the commands that it runs inside, and its time. A run prints the table:
//! `cargo test -p tenure --all-features --test redis -- inner_calls --nocapture`

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use redis::{Connection, cmd};

use tenure::{AnyLock, Mode};
use tokio::task::JoinSet;

use super::cost::calls;
use tenure_testkit::RedisServer;
use tenure_testkit::locker::{block_on, connect, must};

const ROUNDS: u32 = 50;
const PERMIT: Mode = Mode::Permits { take: 1, of: 3 };

/// Commands that a client sends itself. All others are inside of scripts.
const SENT: [&str; 7] = ["evalsha", "eval", "subscribe", "unsubscribe", "client|caching", "delex", "delifeq"];

/// What a server did between two looks.
#[derive(Debug, Clone, Default)]
struct Cost {
    calls: BTreeMap<String, u64>,
    /// The time of scripts, which has that of their commands in it.
    micros: u64,
}

impl Cost {
    fn now(raw: &mut Connection) -> Self {
        let info: String = cmd("INFO").arg("commandstats").query(raw).expect("asked");
        let script = info.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:"));
        let micros = script.and_then(|line| line.split(',').find_map(|part| part.strip_prefix("usec=")));
        let mut calls = calls(raw);
        calls.retain(|name, _| name != "info" && !name.starts_with("config"));
        Self { calls, micros: micros.and_then(|n| n.parse().ok()).unwrap_or(0) }
    }

    fn since(&self, before: &Self) -> Self {
        let less = |(name, n): (&String, &u64)| (name.clone(), n - before.calls.get(name).copied().unwrap_or(0));
        Self { calls: self.calls.iter().map(less).filter(|(_, n)| *n > 0).collect(), micros: self.micros - before.micros }
    }

    fn add(&mut self, other: &Self) {
        other.calls.iter().for_each(|(name, n)| *self.calls.entry(name.clone()).or_default() += n);
        self.micros += other.micros;
    }

    fn of(&self, name: &str) -> u64 {
        self.calls.get(name).copied().unwrap_or(0)
    }

    fn inner(&self) -> u64 {
        self.calls.iter().filter(|(name, _)| !SENT.contains(&name.as_str())).map(|(_, n)| n).sum()
    }
}

fn per(n: u64, rounds: u32) -> f64 {
    f64::from(u32::try_from(n).expect("few")) / f64::from(rounds)
}

fn row(what: &str, cost: &Cost, rounds: u32) {
    let (inner, micros) = (per(cost.inner(), rounds), per(cost.micros, rounds));
    println!("{what:<44} {inner:>6.1} inside {micros:>7.1} µs   {:?}", cost.calls);
}

/// The cost of taking a lock and of giving it back, when nobody is in the way.
async fn alone(raw: &mut Connection, what: &str, lock: &AnyLock) -> (u64, u64) {
    // The first of a client sends the scripts, its record and the number of permits.
    lock.acquire().await.expect("locked").release().await.expect("given back");
    let (mut takes, mut gives) = (Cost::default(), Cost::default());
    for _ in 0..ROUNDS {
        let before = Cost::now(raw);
        let guard = lock.acquire().await.expect("locked");
        let held = Cost::now(raw);
        guard.release().await.expect("given back");
        takes.add(&held.since(&before));
        gives.add(&Cost::now(raw).since(&held));
    }
    row(&format!("{what}: acquire"), &takes, ROUNDS);
    row(&format!("{what}: release"), &gives, ROUNDS);
    (takes.inner() / u64::from(ROUNDS), gives.inner() / u64::from(ROUNDS))
}

pub(crate) fn inner_calls_of_a_verb_stay_within_their_number() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    block_on(async {
        let ours = connect(&server.url()).await;
        let plain = connect(&format!("{}?layout=plain", server.url())).await;
        let rows: Vec<(&str, AnyLock, (u64, u64))> = vec![
            ("exclusive", ours.any_lock("L", Mode::Exclusive), (5, 2)),
            ("exclusive, plain", plain.any_lock("P", Mode::Exclusive), (3, 3)),
            ("fair", ours.any_lock("F", Mode::Fair), (6, 2)),
            ("read", ours.any_lock("R", Mode::Read), (9, 6)),
            ("write", ours.any_lock("W", Mode::Write), (8, 6)),
            ("permit", ours.any_lock("S", PERMIT), (11, 7)),
        ];
        for (what, lock, (take, give)) in rows {
            let (takes, gives) = alone(&mut raw, what, &lock).await;
            assert!(takes <= take && gives <= give, "{what}: {takes} and {gives} commands inside, not {take} and {give}");
        }
    });
}

/// Four clients with four tasks each, all after one name: the cost of a cycle, and how many there are in a second.
async fn crowd(server: &RedisServer, what: &str, options: &str, (name, mode): (&str, Mode)) -> (f64, f64) {
    let mut raw = server.raw();
    let mut tasks = JoinSet::new();
    let mut lockers = Vec::new();
    for _ in 0..4 {
        lockers.push(connect(&format!("{}{options}", server.url())).await);
    }
    let (before, start, length) = (Cost::now(&mut raw), Instant::now(), Duration::from_secs(3));
    for n in 0..16 {
        let lock = lockers[n % 4].any_lock(name, mode);
        tasks.spawn(async move {
            let mut cycles = 0_u32;
            while start.elapsed() < length {
                lock.acquire().await.expect("locked").release().await.expect("given back");
                cycles += 1;
            }
            cycles
        });
    }
    let cycles: u32 = must("the crowd is served", tasks.join_all()).await.into_iter().sum();
    let (took, cost) = (start.elapsed(), Cost::now(&mut raw).since(&before));
    let scripts = per(cost.of("evalsha"), cycles);
    row(&format!("{what}, a crowd of 16"), &cost, cycles);
    let subscriptions = per(cost.of("subscribe") + cost.of("unsubscribe"), cycles);
    let rate = f64::from(cycles) / took.as_secs_f64();
    println!("{:<44} {scripts:>6.2} scripts, {subscriptions:.2} (un)subscriptions, {rate:.0} cycles a second", "");
    (per(cost.inner(), cycles), scripts)
}

pub(crate) fn inner_calls_of_a_crowd_stay_within_their_number() {
    let server = RedisServer::start();
    block_on(async {
        crowd(&server, "exclusive", "", ("L", Mode::Exclusive)).await;
        crowd(&server, "exclusive, plain", "?layout=plain", ("P", Mode::Exclusive)).await;
        crowd(&server, "permit of 3", "", ("S", PERMIT)).await;
        crowd(&server, "write", "", ("W", Mode::Write)).await;
        let (inner, scripts) = crowd(&server, "fair", "", ("F", Mode::Fair)).await;
        assert!(inner <= 30.0 && scripts <= 2.6, "{inner} commands in {scripts} scripts a cycle");
    });
}
