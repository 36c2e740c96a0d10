//! The work of one key in order.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::{Locker, Outcome, Serial};

use super::store::{Store, eventually, until_all_free};
use crate::support::locker::must;

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

/// Submits numbers of one key, each until it is done somewhere; members come and go meanwhile.
pub(crate) async fn the_order_of_a_key_survives_a_rebalance(store: Store) {
    let log: Arc<Mutex<BTreeMap<u32, Vec<u64>>>> = Arc::default();
    let members: Arc<tokio::sync::RwLock<Vec<Serial>>> = Arc::default();
    members.write().await.push(serial(&store.locker().await).await);
    let keys = (0..6).map(|key| {
        let (log, members) = (Arc::clone(&log), Arc::clone(&members));
        tokio::spawn(async move {
            for number in 0..60 {
                loop {
                    let log = Arc::clone(&log);
                    let work = || async move {
                        tokio::task::yield_now().await;
                        log.lock().expect("not poisoned").entry(key).or_default().push(number);
                    };
                    let owner = members
                        .read()
                        .await
                        .iter()
                        .find(|member| member.owns(key.to_string()))
                        .map(|member| member.submit(&key.to_string(), work()));
                    let Some(work) = owner else {
                        tokio::time::sleep(Duration::from_millis(2)).await;
                        continue;
                    };
                    if matches!(work.await.expect("asked"), Outcome::Done(())) {
                        break;
                    }
                }
            }
        })
    });
    let keys: Vec<_> = keys.collect();
    let joined = serial(&store.locker().await).await;
    members.write().await.push(joined);
    until_owned(&members.read().await[1], 2).await;
    let left = members.write().await.remove(0);
    left.leave().await.expect("left");
    for key in keys {
        must("all numbers", key).await.expect("no panic");
    }
    for (key, numbers) in &*log.lock().expect("not poisoned") {
        let mut once = numbers.clone();
        // Work that was stopped after its last step is done twice, and not out of order.
        once.dedup();
        assert_eq!(once, (0..60).collect::<Vec<u64>>(), "key {key}: {numbers:?}");
    }
}
