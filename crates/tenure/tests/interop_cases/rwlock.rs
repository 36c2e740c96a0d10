//! What readers and writers on both sides see of each other's work.

use redis::Connection;
use tenure::Locker;

use super::java::{Case, name, url};
use super::kinds::Kind;
use super::place::Place;
use tenure_testkit::locker::{block_on, connect, must};

pub(crate) const CASES: &[Case] = &[
    ("no_reader_sees_half_a_write", no_reader_sees_half_a_write),
    ("a_writer_that_turns_reader_wakes_readers_of_java", a_writer_that_turns_reader_wakes_readers_of_java),
    ("a_writer_of_ours_in_the_queue_stops_only_us", a_writer_of_ours_in_the_queue_stops_only_us),
];

const EACH: u64 = 100;

/// Two writers and two readers of Java and as many of ours, and two keys that are always written together.
fn no_reader_sees_half_a_write(place: Place, kind: Kind) {
    let site = place.site();
    let java: Vec<_> = (0..4).map(|_| site.java.actor()).collect();
    let name = name(kind, "pair", &java[0]);
    let keys = ["one", "two"].map(|key| format!("{{{name}}}:{key}"));
    block_on(async {
        let url = url(site, kind, "10m");
        let lockers = [connect(&format!("{url}&wake=tracking")).await, connect(&format!("{url}&wake=pubsub")).await];
        for (i, actor) in java.iter().enumerate() {
            let how = if i % 2 == 0 { "write" } else { "read" };
            actor.tell(&format!("pair {how} {name} {} {} {EACH}", keys[0], keys[1]));
        }
        let mut ours = tokio::task::JoinSet::new();
        for i in 0..4 {
            ours.spawn(pair(lockers[i / 2].clone(), i % 2 == 0, name.clone(), keys.clone(), site.raw(&keys[0])));
        }
        while let Some(done) = must("all of ours are through", ours.join_next()).await {
            done.expect("no panic");
        }
    });
    for actor in &java {
        assert_eq!(actor.answer(), "0", "times that the keys differed");
    }
    let written: [u64; 2] = redis::cmd("MGET").arg(&keys).query(&mut site.raw(&keys[0])).expect("written");
    assert_eq!(written, [4 * EACH; 2]);
}

async fn pair(locker: Locker, writes: bool, name: String, keys: [String; 2], mut raw: Connection) {
    let get = |raw: &mut Connection, key: &str| -> Option<u64> { redis::cmd("GET").arg(key).query(raw).expect("read") };
    let set = |raw: &mut Connection, key: &str, n: u64| redis::cmd("SET").arg(key).arg(n).query::<()>(raw).expect("written");
    let lock = locker.rwlock(name);
    for _ in 0..EACH {
        let guard = if writes { lock.write().await } else { lock.read().await }.expect("taken");
        let seen = get(&mut raw, &keys[0]);
        tokio::task::yield_now().await;
        assert_eq!(seen, get(&mut raw, &keys[1]));
        if writes {
            let next = seen.unwrap_or(0) + 1;
            set(&mut raw, &keys[0], next);
            tokio::task::yield_now().await;
            set(&mut raw, &keys[1], next);
        }
        guard.check().expect("still held");
        guard.release().await.expect("given back");
    }
}

/// Redisson does not tell of its own downgrade; we tell of ours.
fn a_writer_that_turns_reader_wakes_readers_of_java(place: Place, kind: Kind) {
    let site = place.site();
    let (one, two) = (site.java.actor(), site.java.actor());
    let name = name(kind, "downgrade", &one);
    block_on(async {
        let locker = connect(&url(site, kind, "10m")).await;
        let lock = locker.rwlock(&name);
        let writer = lock.write().await.expect("taken");
        for java in [&one, &two] {
            java.tell(&format!("take read {name}"));
            java.falls_asleep();
            assert!(!java.has_answered(), "we write");
        }
        let reader = lock.downgrade(writer).await.expect("a reader");
        for java in [&one, &two] {
            java.answer();
            assert_eq!(java.ask(&format!("try write {name}")), "refused");
            java.ask(&format!("give read {name}"));
        }
        reader.release().await.expect("given back");
        assert_eq!(one.ask(&format!("try write {name}")), "taken");
        one.ask(&format!("give write {name}"));
    });
}

/// A writer of ours in the queue stops readers of ours, not those of Java, and stops nobody once it has gone.
fn a_writer_of_ours_in_the_queue_stops_only_us(place: Place, kind: Kind) {
    let site = place.site();
    let (one, two) = (site.java.actor(), site.java.actor());
    let name = name(kind, "gives_up", &one);
    block_on(async {
        let locker = connect(&url(site, kind, "10m")).await;
        let lock = locker.rwlock(&name);
        one.ask(&format!("take read {name} lease=600000"));
        let writer = tokio::spawn(lock.write());
        site.awaits(&name, 1);
        assert!(lock.try_read().await.expect("asked").is_none(), "a writer is in the queue");
        assert_eq!(two.ask(&format!("try read {name}")), "taken");
        writer.abort();
        let reader = must("the writer has left the queue", lock.read()).await.expect("taken");
        for java in [&one, &two] {
            java.ask(&format!("give read {name}"));
        }
        reader.release().await.expect("given back");
    });
}
