//! Whether the engine meets its limits: what a lock costs beside the bare calls of its store, and a hand-over beside tokio's mutex.
//! `cargo bench -p tenure --bench engine -- [--check] [--only memory|handover|redis]`; with `--check` a missed bar fails.
//!
//! Contenders take turns in short rounds, so that a busy machine is busy for all of them. A ratio is taken within a round, and the
//! median over the rounds is judged; that of the best rounds stands beside it, because noise mostly adds. Allocations are those of
//! all threads; counting them costs a few nanoseconds each.

#[path = "engine/heap.rs"]
mod heap;
#[path = "engine/measure.rs"]
mod measure;
#[path = "engine/raw.rs"]
mod raw;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use measure::{Bar, Contender, Report, Section, as_float, crowd, one_thread, threads};
use raw::Raw;
use tenure::backend::OwnerIds;
use tenure::backend::{Attempt, Backend, Claim, Client, Mode, Queue, Released};
use tenure::backends::memory::Memory;
use tenure::clock::Clock;
use tenure::{ClientId, Locker, Mutex, Resource};
use tenure_testkit::RedisServer;
use tokio::runtime::Runtime;

const CROWD: usize = 64;

fn main() -> ExitCode {
    let sections: [Section; 3] = [("memory", memory), ("handover", hand_over), ("redis", redis)];
    measure::run(&sections)
}

fn claim(client: ClientId) -> Claim {
    let (name, owner) = (Resource::new("a").expect("a name"), OwnerIds::new(client).next());
    Claim { queue: Queue::Allowed, ..Claim::new(name, owner, Mode::Exclusive, Duration::from_secs(30)) }
}

/// A contender that only locks and releases.
fn locks<'a>(name: &'static str, runtime: &'a Runtime, mutexes: Vec<Mutex>) -> Contender<'a> {
    Contender::new(name, move || {
        crowd(runtime, mutexes.len(), |n, mut laps| {
            let mutex = mutexes[n].clone();
            async move {
                while laps.go_on() {
                    mutex.lock().await.expect("locked").release().await.expect("given back");
                }
                laps.done()
            }
        })
    })
}

fn memory(report: &mut Report) {
    let runtime = one_thread();
    let id = ClientId::random().expect("random bits");
    let backend: Arc<dyn Backend> = Arc::new(Memory::new(Client { id, about: "bench".into() }, Clock::system()));
    let bare = Contender::new("bare calls", || {
        crowd(&runtime, 1, |_, mut laps| {
            let (backend, claim) = (Arc::clone(&backend), claim(id));
            async move {
                while laps.go_on() {
                    assert!(matches!(backend.acquire(&claim).await, Ok(Attempt::Granted { .. })), "granted");
                    assert!(matches!(backend.release(&claim).await, Ok(Released::Yes { .. })), "given back");
                }
                laps.done()
            }
        })
    });
    let locker = runtime.block_on(Locker::connect("memory:")).expect("connected");
    let ours = locks("tenure", &runtime, vec![locker.mutex("a")]);
    let [bare, ours] = report.rounds("memory: one task locks and releases", ["", ""], [bare, ours]);
    report.judge("its time beside the bare calls", &ours.times(&bare), Bar::AtMost(8.0));
    report.judge("its allocations", &ours.allocations(), Bar::AtMost(10.0));
    runtime.block_on(locker.close()).expect("closed");
}

/// Who had the lock last, and how often that was somebody else. Written only by whoever has the lock.
#[derive(Default)]
struct Turns {
    last: AtomicUsize,
    changes: AtomicU64,
}

impl Turns {
    fn take(&self, me: usize) {
        if self.last.load(Ordering::Relaxed) != me {
            self.last.store(me, Ordering::Relaxed);
            self.changes.store(self.changes.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    }

    fn changes(&self) -> f64 {
        as_float(self.changes.load(Ordering::Relaxed))
    }
}

fn hand_over(report: &mut Report) {
    hand_over_on(report, "hand-over between two tasks, memory:, one thread", &one_thread());
    hand_over_on(report, "hand-over between two tasks, memory:, two workers", &threads(2));
}

fn hand_over_on(report: &mut Report, title: &str, runtime: &Runtime) {
    let (mutex, turns) = (Arc::new(tokio::sync::Mutex::new(())), Arc::new(Turns::default()));
    let tokios = Contender::new("tokio::sync::Mutex", || {
        crowd(runtime, 2, |me, mut laps| {
            let (mutex, turns) = (Arc::clone(&mutex), Arc::clone(&turns));
            async move {
                while laps.go_on() {
                    let guard = mutex.lock().await;
                    turns.take(me);
                    // The other one comes to wait.
                    tokio::task::yield_now().await;
                    drop(guard);
                }
                laps.done()
            }
        })
    });
    let tokios = tokios.count(|| [turns.changes(), 0.0]);
    let locker = runtime.block_on(Locker::connect("memory:")).expect("connected");
    let our_turns = Arc::new(Turns::default());
    let ours = Contender::new("tenure", || {
        crowd(runtime, 2, |me, mut laps| {
            let (mutex, turns) = (locker.mutex("a"), Arc::clone(&our_turns));
            async move {
                while laps.go_on() {
                    let guard = mutex.lock().await.expect("locked");
                    turns.take(me);
                    tokio::task::yield_now().await;
                    guard.release().await.expect("given back");
                }
                laps.done()
            }
        })
    });
    let ours = ours.count(|| [our_turns.changes(), as_float(locker.stats().handed_over)]);
    let [tokios, ours] = report.rounds(title, ["turns", "handed over"], [tokios, ours]);
    report.judge("its time beside tokio's", &ours.times(&tokios), Bar::AtMost(4.0));
    // One who takes the lock again and again is fast, and of no use here.
    report.judge("its turns", &ours.counted(0), Bar::AtLeast(0.9));
    runtime.block_on(locker.close()).expect("closed");
}

fn redis(report: &mut Report) {
    if !tenure_testkit::server::is_installed() {
        println!("\nredis: SKIPPED: no redis-server is installed");
        return;
    }
    let server = RedisServer::start();
    // Two workers, so that what the tasks share must be shared between threads. The other is what the library has in the background.
    let (runtime, background) = (threads(2), threads(1));
    let locker = runtime.block_on(Locker::connect(&server.url())).expect("connected");
    runtime.block_on(async { locker.mutex("first").lock().await.expect("locked").release().await.expect("given back") });
    // The server has seen no other scripts so far.
    let same = raw::are_known(&server);
    let beside = background.block_on(Raw::connect(&server));
    let within = runtime.block_on(Raw::connect(&server));
    for tasks in [1, CROWD] {
        let title =
            if tasks == 1 { "redis: one task".to_owned() } else { format!("redis: {tasks} tasks, each on a name of its own") };
        let contenders = [
            within.contender("raw", &runtime, tasks),
            beside.contender("raw-bg", &runtime, tasks),
            locks("tenure", &runtime, (0..tasks).map(|n| locker.mutex(format!("tenure:{n:02}"))).collect()),
        ];
        let contenders = contenders.map(|contender| contender.count(|| raw::calls(&server)));
        let [_, raw, ours] = report.rounds(&title, ["commands", "scripts"], contenders);
        match tasks {
            1 => report.judge("its time beside raw-bg", &ours.times(&raw), Bar::AtMost(1.15)),
            _ => report.judge("its rate beside raw-bg", &raw.times(&ours), Bar::AtLeast(0.8)),
        }
    }
    report.verdict("raw sends the scripts that the library sends", same);
    runtime.block_on(locker.close()).expect("closed");
}
