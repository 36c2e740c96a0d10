//! The fair lock under load: the order of service, and its cost.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::cmd;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::cost::{calls, reset};
use tenure_testkit::RedisServer;
use tenure_testkit::locker::{block_on, connect, must};

pub(crate) fn a_thousand_in_the_queue_are_served_in_order_for_three_commands_each() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    block_on(async {
        let mut lockers = Vec::new();
        for _ in 0..4 {
            lockers.push(connect(&server.url()).await);
        }
        let held = lockers[0].mutex("L").fair().lock().await.expect("locked");
        let served = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = JoinSet::new();
        for n in 0..1000 {
            let (lock, served) = (lockers[n % 4].mutex("L").fair().lock(), Arc::clone(&served));
            tasks.spawn(async move {
                let guard = lock.await.expect("locked");
                served.lock().expect("no panic").push(guard.owner_id().to_string());
                guard.release().await.expect("given back");
            });
        }
        let queue = must("all are in the queue", async {
            loop {
                let state = lockers[0].mutex("L").inspect().await.expect("inspected");
                // Subscribed too: each client listens for all its owners, and those who wait for long on a channel of their own.
                let channels: Vec<String> =
                    cmd("PUBSUB").arg("CHANNELS").arg("redisson_lock__channel:*").query(&mut raw).expect("asked");
                if state.queue.len() == 1000 && channels.len() == 1004 {
                    return state.queue;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
        // They ask once more when they listen.
        must("they only keep their places", async {
            loop {
                reset(&mut raw);
                tokio::time::sleep(Duration::from_millis(100)).await;
                if calls(&mut raw).get("evalsha").copied().unwrap_or(0) < 100 {
                    return;
                }
            }
        })
        .await;
        reset(&mut raw);
        let start = Instant::now();
        held.release().await.expect("given back");
        while let Some(done) = must("all are served", tasks.join_next()).await {
            done.expect("no panic");
        }
        let took = start.elapsed();
        let served = served.lock().expect("no panic");
        let inversions = served.iter().zip(&queue).filter(|(got, due)| got != due).count();
        assert_eq!((served.len(), inversions), (1000, 0));
        let counted = calls(&mut raw);
        // A release each, and a question of those who asked too long ago to count from then; waiters keep their queue positions alive
        // besides, every few seconds.
        let upkeep = 1000 * u64::try_from(took.as_millis()).expect("short") / 3000 + 100;
        let sent = counted.get("evalsha").copied().unwrap_or(0);
        println!("1000 hand-overs in {took:?}: {sent} scripts, {:?} unsubscriptions", counted.get("unsubscribe"));
        assert!(sent <= 2001 + upkeep, "{sent} scripts in {took:?}");
        assert!(counted.get("unsubscribe").copied().unwrap_or(0) <= 1005);
        // What remains are the token and records of clients, which end by themselves.
        let keys: Vec<String> = cmd("KEYS").arg("*L*").query(&mut raw).expect("listed");
        assert_eq!(keys, ["redisson_lock_token:{L}"]);
    });
}

pub(crate) fn a_head_that_is_dead_is_not_asked_about_all_the_time() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    block_on(async {
        let locker = connect(&format!("{}?lease=5s", server.url())).await;
        // One of Redisson's that died in the queue, a while before its time is over.
        let now: (u64, u64) = cmd("TIME").query(&mut raw).expect("asked");
        let dead = "11111111-1111-1111-1111-111111111111:1";
        cmd("RPUSH").arg("redisson_lock_queue:{L}").arg(dead).query::<()>(&mut raw).expect("set");
        let until = now.0 * 1000 + now.1 / 1000 + 3000;
        cmd("ZADD").arg("redisson_lock_timeout:{L}").arg(until).arg(dead).query::<()>(&mut raw).expect("set");
        let waiting = tokio::spawn(locker.mutex("L").fair().lock());
        must("in the queue", async {
            while locker.mutex("L").inspect().await.expect("inspected").queue.len() < 2 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        reset(&mut raw);
        let guard = must("the dead one's time is over", waiting).await.expect("no panic").expect("locked");
        let sent = calls(&mut raw).get("evalsha").copied().unwrap_or(0);
        assert!(sent <= 8, "{sent} scripts for one dead head");
        guard.release().await.expect("given back");
    });
}
