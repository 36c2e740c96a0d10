//! The golden vectors of Redisson's fair lock.

use std::time::Duration;

use tenure::{Guard, Locker, Result};
use tokio::task::JoinHandle;

use super::java::{A, B, C, DEADLINES, Ear, Java, LOCK_CHANNEL, QUEUE, message, now};
use tenure_testkit::locker::{block_on, connect, must};
use tenure_testkit::{RedisServer, eventually};

/// What Redisson's callers wait for if they do not say.
const JAVA_WAIT: i64 = 300_000;
/// No test takes as long, however busy the machine is.
const LONG: i64 = 600_000;

/// Stands in the queue as the n-th; tells under which owner.
fn queued(java: &mut Java, locker: &Locker, n: usize) -> (String, JoinHandle<Result<Guard>>) {
    let waiting = tokio::spawn(locker.mutex("L").fair().lock());
    eventually("it stands in the queue", || java.queue().len() >= n);
    (java.queue().remove(n - 1), waiting)
}

pub(crate) fn golden_vector_4_a_queue_of_owners_and_their_deadlines() {
    let server = RedisServer::start();
    let mut java = Java::at(&server);
    block_on(async {
        let (one, other) = (connect(&server.url()).await, connect(&server.url()).await);
        let lease = Duration::from_secs(600);
        let held = one.mutex("L").fair().lease_fixed(lease).lock().await.expect("locked");
        assert_eq!(java.fields(), [(held.owner_id().to_string(), "1".to_owned())]);
        // Java's arithmetic on a hold of ours: the first waits for it, the second for the first as well.
        let start = now();
        let first = java.fair_lock(B, 1000, 5000).expect("busy");
        let second = java.fair_lock(C, 1000, 5000).expect("busy");
        let again = java.fair_lock(C, 1000, 5000).expect("busy");
        assert!(first > LONG - 60_000 && first <= LONG, "{first}");
        assert!(second > first && second <= first + 5000, "{second} after {first}");
        assert!(again <= first, "{again}");
        assert_eq!(java.queue(), [B, C]);
        let (b, c) = (java.deadline(B).expect("one"), java.deadline(C).expect("one"));
        assert!(b >= start + first + 5000 && (c - b - 5000).abs() <= 1000, "{b} {c}");
        assert_eq!((java.pttl(QUEUE), java.pttl(DEADLINES)), (-1, -1));

        // Behind one of Java's, whose patience is taken off when it is served.
        let (ours, _waiting) = queued(&mut java, &other, 3);
        assert_eq!(java.queue(), [B, C, &*ours]);
        let above = |java: &mut Java, owner: &str| {
            let ends = java.ask::<f64>(&["ZSCORE", "tenure_lock_line:{L}", owner]) as i64;
            assert!((start..=now() + 30_000).contains(&ends), "{ends}");
            java.deadline(owner).expect("one") - ends
        };
        assert_eq!(above(&mut java, &ours), 2 * JAVA_WAIT);
        // Redisson's deadlines add up along the queue; ours behind ours does not, and ends with the waiter's lease.
        let (next, _waiting) = queued(&mut java, &other, 4);
        assert_eq!(above(&mut java, &next), 2 * JAVA_WAIT);
        // Redisson's keys stay forever; nothing of ours does.
        for key in [QUEUE, DEADLINES] {
            assert!((1..=3_600_000).contains(&java.pttl(key)));
        }
        // Java behind us counts from our deadline, and so is not evicted before us.
        let third = java.fair_lock(A, 1000, 5000).expect("busy");
        assert!(third > again && java.deadline(A) > java.deadline(&next), "{third}");
    });
}

pub(crate) fn golden_vector_5_an_expired_lock_belongs_to_the_first_in_the_queue() {
    let server = RedisServer::start();
    let (mut java, mut ear) = (Java::at(&server), Ear::at(&server));
    block_on(async {
        let locker = connect(&format!("{}?lease=6s", server.url())).await;
        assert_eq!(java.fair_lock(A, 300, 5000), None);
        java.fair_lock(B, 60_000, LONG).expect("busy");
        let (ours, waiting) = queued(&mut java, &locker, 2);
        eventually("expired", || !java.exists("L"));
        assert_eq!(ear.heard(), [], "nobody tells of it");
        // Asking once gives no queue position, and nobody comes in between.
        assert!(locker.mutex("L").fair().try_lock().await.expect("asked").is_none());
        assert_eq!(java.queue(), [B, &*ours]);
        // Redisson's waiters ask without a pause while the head is dead; ours sleep.
        let (before, start) = (java.scripts(), std::time::Instant::now());
        tokio::time::sleep(Duration::from_secs(1)).await;
        let (asked, seconds) = (java.scripts() - before, start.elapsed().as_secs());
        assert!(asked <= 4 + 4 * seconds, "{asked} questions in {seconds} s");
        // The head was alive after all. It takes its patience off the deadlines of the others.
        let deadline = java.deadline(&ours).expect("one");
        assert_eq!(java.fair_lock(B, 60_000, LONG), None);
        assert_eq!(java.queue(), [&*ours]);
        let lowered = java.deadline(&ours).expect("one");
        assert!(lowered >= deadline - LONG && lowered > now(), "{lowered}");
        assert_eq!(java.fair_unlock(B), Some(1));
        must("served", waiting).await.expect("no panic").expect("locked").release().await.expect("given back");

        // A head that is dead indeed costs no more than its deadline.
        assert_eq!(java.fair_lock(A, 50, 5000), None);
        java.fair_lock(B, 1000, 1000).expect("busy");
        drop(must("after the deadline", locker.mutex("L").fair().lock()).await.expect("locked"));
    });
}

pub(crate) fn golden_vector_6_a_release_tells_the_first_in_the_queue_alone() {
    let server = RedisServer::start();
    let (mut java, mut ear) = (Java::at(&server), Ear::at(&server));
    let told = |owner: &str| [message(&format!("{LOCK_CHANNEL}:{owner}"), "0")];
    block_on(async {
        let locker = connect(&server.url()).await;
        assert_eq!(java.fair_lock(B, LONG, 5000), None);
        let (ours, waiting) = queued(&mut java, &locker, 1);
        java.fair_lock(C, LONG, 5000).expect("busy");
        // Java's release wakes us on the channel of our own, and ours wakes Java on its own.
        assert_eq!(java.fair_unlock(B), Some(1));
        let guard = must("woken", waiting).await.expect("no panic").expect("locked");
        assert_eq!(guard.owner_id().to_string(), ours);
        assert_eq!(java.queue(), [C]);
        assert_eq!(ear.heard(), told(&ours));
        guard.release().await.expect("given back");
        assert_eq!(ear.heard(), told(C));
        assert_eq!(java.queue(), [C], "it takes itself out when it is served");
        assert_eq!(java.fair_lock(C, LONG, 5000), None);
        assert_eq!(java.keys(), ["L", "redisson_lock_token:{L}"]);
        java.fair_unlock(C);
        assert_eq!(ear.heard(), []);

        // Redisson's release of a lock that is free is a success for whoever asks, and tells the head again. Ours says that it was
        // lost, and nothing to others.
        let lost = locker.mutex("L").fair().lock().await.expect("locked");
        java.fair_lock(C, LONG, 5000).expect("busy");
        java.run(&["DEL", "L"]);
        assert!(matches!(lost.release().await, Err(tenure::Error::Lost(_))));
        assert_eq!(ear.heard(), []);
        assert_eq!(java.queue(), [C]);
    });
}

pub(crate) fn golden_vector_7_who_gives_up_costs_nobody_a_position() {
    let server = RedisServer::start();
    let mut java = Java::at(&server);
    block_on(async {
        let locker = connect(&server.url()).await;
        assert_eq!(java.fair_lock(A, 30_000, 5000), None);
        java.fair_lock(B, 30_000, 5000).expect("busy");
        let (ours, waiting) = queued(&mut java, &locker, 2);
        let deadline = java.deadline(&ours).expect("one");
        // Redisson's asynchronous call takes its default off those behind instead of its own patience, which puts its own kind minutes
        // into the past. We stand far enough behind for that.
        java.fair_give_up(B, JAVA_WAIT);
        let lowered = java.deadline(&ours).expect("one");
        assert!(lowered >= deadline - JAVA_WAIT && lowered > now(), "{lowered}");
        // Ours gives up and leaves the deadlines of others alone.
        java.fair_lock(C, 30_000, LONG).expect("busy");
        assert_eq!(java.queue(), [&*ours, C]);
        let behind = java.deadline(C).expect("one");
        waiting.abort();
        eventually("out of the queue", || java.queue() == [C]);
        assert_eq!((java.deadline(C), java.deadline(&ours)), (Some(behind), None));
    });
}

pub(crate) fn golden_vector_8_a_lost_list_or_set_repairs_itself() {
    let server = RedisServer::start();
    let mut java = Java::at(&server);
    block_on(async {
        let locker = connect(&format!("{}?lease=1s", server.url())).await;
        assert_eq!(java.fair_lock(A, 100, 5000), None);
        java.fair_lock(B, 1000, LONG).expect("busy");
        java.run(&["DEL", DEADLINES]);
        eventually("expired", || !java.exists("L"));
        // Redisson evicts nobody who has no deadline: a dead head would block all others forever. Here it gets a new one.
        let guard = must("served", locker.mutex("L").fair().lock()).await.expect("locked");
        assert_eq!(java.fields(), [(guard.owner_id().to_string(), "1".to_owned())]);
        assert!(!java.exists(QUEUE) && !java.exists(DEADLINES));
        guard.release().await.expect("given back");

        // The other way round, one that lives comes back into the queue.
        assert_eq!(java.fair_lock(A, LONG, 5000), None);
        let (ours, waiting) = queued(&mut java, &locker, 1);
        java.run(&["DEL", QUEUE]);
        eventually("in the queue again", || java.queue() == [&*ours]);
        assert!(java.deadline(&ours).is_some());
        java.fair_unlock(A);
        drop(must("served", waiting).await.expect("no panic").expect("locked"));
    });
}
