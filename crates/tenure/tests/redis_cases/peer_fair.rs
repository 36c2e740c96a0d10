//! What Redisson's own tests ask of its fair lock, asked of ours.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::Owner;
use tokio::task::JoinSet;

use super::java::{B, DEADLINES, Ear, Java, LOCK_CHANNEL, QUEUE, message};
use tenure_testkit::locker::{block_on, connect, must};
use tenure_testkit::{RedisServer, eventually};

pub(crate) fn those_in_the_queue_come_to_their_turn_without_any_release() {
    let server = RedisServer::start();
    let mut java = Java::at(&server);
    block_on(async {
        let locker = connect(&server.url()).await;
        // As of one who died: nobody will give it back, and nobody tells of its end.
        assert_eq!(java.fair_lock(B, 2000, 5000), None);
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = JoinSet::new();
        for turn in 0..8 {
            let lock = locker.mutex("L").fair().lease_fixed(Duration::from_millis(100)).lock();
            let served = Arc::clone(&order);
            tasks.spawn(async move {
                let guard = lock.await.expect("locked");
                served.lock().expect("no panic").push((turn, guard.token()));
                guard
            });
            eventually("in the queue, unless the first have had their turn", || {
                java.queue().len() + order.lock().expect("no panic").len() > turn
            });
        }
        let mut kept = Vec::new();
        while let Some(guard) = must("a turn", tasks.join_next()).await {
            kept.push(guard.expect("no panic"));
        }
        let order = order.lock().expect("no panic");
        assert!(order.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1), "{order:?}");
    });
}

pub(crate) fn a_long_queue_is_served_in_order() {
    let server = RedisServer::start();
    let mut java = Java::at(&server);
    block_on(async {
        let held = connect(&server.url()).await.mutex("L").fair().lock().await.expect("locked");
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = JoinSet::new();
        let mut lockers = Vec::new();
        for _ in 0..4 {
            lockers.push(connect(&server.url()).await);
        }
        for turn in 0..60 {
            let (lock, order) = (lockers[turn % 4].mutex("L").fair().lock(), Arc::clone(&order));
            tasks.spawn(async move {
                let guard = lock.await.expect("locked");
                order.lock().expect("no panic").push(turn);
                guard.release().await.expect("given back");
            });
            eventually("in the queue", || java.queue().len() > turn);
        }
        held.release().await.expect("given back");
        while let Some(done) = must("a turn", tasks.join_next()).await {
            done.expect("no panic");
        }
        assert_eq!(*order.lock().expect("no panic"), (0..60).collect::<Vec<_>>());
    });
    assert!(!java.exists(QUEUE) && !java.exists(DEADLINES), "nothing is left of the queue");
}

pub(crate) fn short_waits_leave_the_queue_as_it_was() {
    let server = RedisServer::start();
    let mut java = Java::at(&server);
    block_on(async {
        let (one, other) = (connect(&server.url()).await, connect(&server.url()).await);
        let held = one.mutex("L").fair().lock().await.expect("locked");
        java.fair_lock(B, 600_000, 600_000).expect("busy");
        let deadline = java.deadline(B);
        for _ in 0..20 {
            assert!(other.mutex("L").fair().try_lock_for(Duration::from_millis(20)).await.expect("asked").is_none());
        }
        eventually("they have left", || java.queue() == [B]);
        assert_eq!(java.deadline(B), deadline);
        java.fair_give_up(B, 0);
        held.release().await.expect("given back");
        // Nothing of them is in the way of one who asks once.
        other.mutex("L").fair().try_lock().await.expect("asked").expect("free").release().await.expect("given back");
    });
}

pub(crate) fn a_pause_of_the_server_leaves_no_queue_position() {
    let server = RedisServer::start();
    let mut java = Java::at(&server);
    block_on(async {
        let locker = connect(&server.url()).await;
        assert_eq!(java.fair_lock(B, 600_000, 5000), None);
        let waiting = tokio::spawn(locker.mutex("L").fair().try_lock_for(Duration::from_secs(2)));
        eventually("in the queue", || java.queue().len() == 1);
        java.run(&["CLIENT", "PAUSE", "4000", "WRITE"]);
        let given_up = must("an answer", waiting).await.expect("no panic");
        assert!(given_up.expect("it was busy when last asked").is_none());
        eventually("out of the queue", || java.queue().is_empty());
        assert!(!java.exists(DEADLINES));
    });
}

pub(crate) fn a_break_calls_the_first_in_the_queue() {
    let server = RedisServer::start();
    let (mut java, mut ear) = (Java::at(&server), Ear::at(&server));
    block_on(async {
        let (one, other) = (connect(&server.url()).await, connect(&server.url()).await);
        let held = one.mutex("L").fair().lock().await.expect("locked");
        let waiting = tokio::spawn(other.mutex("L").fair().lock());
        eventually("in the queue", || java.queue().len() == 1);
        java.fair_lock(B, 600_000, 600_000).expect("busy");
        let broken = one.mutex("L").break_hold().await.expect("asked").expect("it was held");
        let next = must("its turn", waiting).await.expect("no panic").expect("locked");
        assert!(next.token() > broken.fence && broken.fence > held.token());
        // Redisson tells the first in the queue alone; those who wait for a plain lock would sleep on.
        let owner = next.owner_id();
        let called = message(&format!("{LOCK_CHANNEL}:{}", owner.client), &format!("call {}", owner.number));
        assert_eq!(ear.heard(), [message(LOCK_CHANNEL, "0"), called]);
        assert!(one.mutex("L").break_hold().await.expect("asked").is_some());
        assert_eq!(ear.heard(), [message(LOCK_CHANNEL, "0"), message(&format!("{LOCK_CHANNEL}:{B}"), "0")]);
        assert_eq!(java.fair_lock(B, 600_000, 600_000), None);
    });
}

pub(crate) fn a_fair_hold_is_nested_shown_and_taken_again() {
    let server = RedisServer::start();
    block_on(async {
        let (one, other) = (connect(&server.url()).await, connect(&server.url()).await);
        let owner = Owner::new();
        let (mutex, others) = (one.mutex("L").fair().owner(&owner), other.mutex("L").fair());
        for _ in 0..3 {
            let outer = mutex.lock().await.expect("locked");
            let inner = mutex.try_lock().await.expect("asked").expect("re-entered");
            assert_eq!((outer.hold_count(), outer.token()), (2, inner.token()));
            let holders = others.inspect().await.expect("inspected").holders;
            assert_eq!(holders.iter().map(|h| &*h.owner).collect::<Vec<_>>(), [outer.owner_id().to_string()]);
            outer.release().await.expect("one of two");
            assert_eq!(inner.hold_count(), 1);
            assert!(others.try_lock().await.expect("asked").is_none());
            inner.release().await.expect("the last one");
            others.try_lock().await.expect("asked").expect("free").release().await.expect("given back");
        }
    });
}

pub(crate) fn a_prefix_is_part_of_the_names_of_a_queue() {
    let server = RedisServer::start();
    let mut java = Java::at(&server);
    block_on(async {
        let locker = connect(&format!("{}?prefix=app:", server.url())).await;
        let held = locker.mutex("L").fair().lock().await.expect("locked");
        let waiting = tokio::spawn(locker.mutex("L").fair().lock());
        eventually("in the queue", || java.exists("redisson_lock_queue:{app:L}"));
        let keys = ["app:L", "redisson_lock_queue:{app:L}", "redisson_lock_timeout:{app:L}", "redisson_lock_token:{app:L}"];
        assert_eq!(java.keys(), keys);
        held.release().await.expect("given back");
        drop(must("its turn", waiting).await.expect("no panic").expect("locked"));
    });
}
