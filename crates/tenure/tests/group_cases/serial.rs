//! The work of one key in order.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::partitions::Outcome;
use tenure::{Locker, Serial};
use tokio::sync::RwLock;

use super::store::{Store, eventually, until_all_free};
use tenure_testkit::locker::must;

const COUNT: u32 = 4;

async fn serial(locker: &Locker) -> Serial {
    Serial::new(locker.partitions("s", COUNT).join().await.expect("joined"))
}

async fn until_owned(serial: &Serial, count: usize) {
    eventually("partitions", async || serial.member().owned().len() == count).await;
}

pub(crate) async fn the_work_of_a_key_runs_in_order(store: Store) {
    let locker = store.locker().await;
    let serial = serial(&locker).await;
    until_owned(&serial, 4).await;
    let log: Arc<Mutex<Vec<u32>>> = Arc::default();
    let submit = |number: u32| {
        let log = Arc::clone(&log);
        serial.submit("key", async move {
            log.lock().expect("not poisoned").push(number);
            // The ones before are the slower ones.
            for _ in 0..(100 - number) {
                tokio::task::yield_now().await;
            }
            log.lock().expect("not poisoned").push(number);
        })
    };
    // Polled in the wrong order, and some not at all.
    let mut submitted: Vec<_> = (0..50).map(|number| (number, submit(number))).collect();
    submitted.retain(|(number, _)| number % 5 != 3);
    submitted.reverse();
    let tasks: Vec<_> = submitted.into_iter().map(|(_, work)| tokio::spawn(work)).collect();
    for task in tasks {
        assert_eq!(must("done", task).await.expect("no panic").expect("asked"), Outcome::Done(()));
    }
    let expected: Vec<u32> = (0..50).filter(|number| number % 5 != 3).flat_map(|number| [number, number]).collect();
    assert_eq!(*log.lock().expect("not poisoned"), expected);
    let token = serial.submit_with("key", async |partition| partition.token()).await.expect("asked");
    assert!(matches!(token, Outcome::Done(token) if token.get() > 0));
    serial.leave().await.expect("left");
    until_all_free(&locker).await;
}

pub(crate) async fn keys_do_not_wait_for_each_other(store: Store) {
    let locker = store.locker().await;
    let serial = serial(&locker).await;
    until_owned(&serial, 4).await;
    let slow = tokio::spawn(serial.submit("slow", std::future::pending::<()>()));
    let behind = tokio::spawn(serial.submit("slow", async { 1 }));
    // Also of the same partition.
    for key in 0..20 {
        let done = must("the others", serial.submit(&format!("key {key}"), async { key })).await.expect("asked");
        assert_eq!(done, Outcome::Done(key));
    }
    assert!(!behind.is_finished());
    slow.abort();
    assert_eq!(must("its turn", behind).await.expect("no panic").expect("asked"), Outcome::Done(1));
}

pub(crate) async fn work_is_refused_elsewhere_and_stopped_when_its_partition_goes(store: Store) {
    let (ours, theirs) = (store.locker().await, store.locker().await);
    let here = serial(&ours).await;
    until_owned(&here, 4).await;
    let submit = |key: &str| tokio::spawn(here.submit(key, std::future::pending::<()>()));
    let (running, waiting): (Vec<_>, Vec<_>) =
        (0..16).map(|key| (submit(&format!("key {key}")), submit(&format!("key {key}")))).unzip();
    let there = serial(&theirs).await;
    until_owned(&here, 2).await;
    until_owned(&there, 2).await;
    let mut moved = 0;
    for (key, (running, waiting)) in running.into_iter().zip(waiting).enumerate() {
        let key = format!("key {key}");
        let never = || async { panic!("not one step") };
        if there.owns(&key) {
            moved += 1;
            assert!(!here.owns(&key));
            assert_eq!(must("told", running).await.expect("no panic").expect("asked"), Outcome::Stopped);
            assert_eq!(must("told", waiting).await.expect("no panic").expect("asked"), Outcome::Elsewhere);
            let refused: Outcome<()> = here.submit(&key, never()).await.expect("asked");
            assert_eq!(refused, Outcome::Elsewhere);
            assert_eq!(must("there", there.submit(&key, async { 1 })).await.expect("asked"), Outcome::Done(1));
        } else {
            assert!(here.owns(&key) && !running.is_finished() && !waiting.is_finished());
            running.abort();
            waiting.abort();
        }
    }
    assert!(moved > 0, "sixteen keys of one half");
    let last = here.submit("key 0", async { 1 });
    here.leave().await.expect("left");
    assert_ne!(must("told", last).await.expect("asked"), Outcome::Done(1));
}

/// Submits numbers of each key, one after the other, each until it is done somewhere; members come and go meanwhile.
pub(crate) async fn the_order_of_a_key_survives_a_rebalance(store: Store) {
    type Log = BTreeMap<u32, Vec<(u64, usize)>>;
    let log: Arc<Mutex<Log>> = Arc::default();
    let members: Arc<RwLock<BTreeMap<usize, Serial>>> = Arc::default();
    let enough = Arc::new(AtomicBool::new(false));
    members.write().await.insert(0, serial(&store.locker().await).await);
    let keys = (0..6_u32).map(|key| {
        let (log, members, enough) = (Arc::clone(&log), Arc::clone(&members), Arc::clone(&enough));
        tokio::spawn(async move {
            let mut number = 0;
            while !enough.load(Ordering::SeqCst) {
                let work = members.read().await.iter().find(|(_, member)| member.owns(key.to_string())).map(|(&who, member)| {
                    let log = Arc::clone(&log);
                    member.submit(&key.to_string(), async move {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                        log.lock().expect("not poisoned").entry(key).or_default().push((number, who));
                    })
                });
                let Some(work) = work else {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    continue;
                };
                if work.await.expect("asked") == Outcome::Done(()) {
                    number += 1;
                }
            }
            number
        })
    });
    let keys: Vec<_> = keys.collect();
    // Until every key has been served by one member, then some by another, then all by that.
    let served = async |who: usize, wanted: usize| {
        eventually("keys are served", async || {
            let log = log.lock().expect("not poisoned");
            log.values().filter(|works| works.last().is_some_and(|(_, last)| *last == who)).count() >= wanted
        })
        .await;
    };
    served(0, 6).await;
    let joined = serial(&store.locker().await).await;
    members.write().await.insert(1, joined);
    served(1, 1).await;
    let left = members.write().await.remove(&0).expect("a member");
    left.leave().await.expect("left");
    served(1, 6).await;
    enough.store(true, Ordering::SeqCst);
    for (key, task) in keys.into_iter().enumerate() {
        let done = must("the end", task).await.expect("no panic");
        let log = log.lock().expect("not poisoned");
        let mut numbers: Vec<u64> = log[&u32::try_from(key).expect("small")].iter().map(|(number, _)| *number).collect();
        // Work that was stopped in its last step is done twice, and not out of order.
        numbers.dedup();
        assert_eq!(numbers, (0..done).collect::<Vec<u64>>(), "key {key}");
    }
}
