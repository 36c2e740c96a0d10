//! Holds of every kind in a slot that moves for longer than a lease: renewed, and given back.

use std::time::{Duration, Instant};

use redis::cmd;
use tenure::{Guard, Locker};

use tenure_testkit::cluster::Cluster;
use tenure_testkit::locker::{block_on, connect, must};

const LEASE: Duration = Duration::from_secs(2);
const KINDS: [&str; 6] = ["mutex", "noted", "fair", "read", "write", "permit"];

fn name(kind: &str) -> String {
    format!("{{tag}}:{kind}")
}

/// One hold of each kind, all in one slot.
async fn hold_all(locker: &Locker) -> Vec<Guard> {
    let mut guards = Vec::new();
    for kind in KINDS {
        let guard = match kind {
            "noted" => locker.mutex(name(kind)).note("a note").lock().await,
            "fair" => locker.mutex(name(kind)).fair().lock().await,
            "read" => locker.rwlock(name(kind)).read().await,
            "write" => locker.rwlock(name(kind)).write().await,
            "permit" => locker.semaphore(name(kind), 1).acquire().await,
            _ => locker.mutex(name(kind)).lock().await,
        };
        guards.push(guard.unwrap_or_else(|e| panic!("{kind}: {e}")));
    }
    guards
}

/// Nobody loses anything for longer than a lease.
async fn all_last(guards: &[Guard], when: &str) {
    let begun = Instant::now();
    while begun.elapsed() < LEASE * 2 {
        for guard in guards {
            guard.check().unwrap_or_else(|e| panic!("{when}, {}: {e}", guard.resource()));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn give_back(guards: Vec<Guard>) {
    for guard in guards {
        let name = guard.resource().clone();
        // Soon, and not only when the slot has arrived.
        must("given back", guard.release()).await.unwrap_or_else(|e| panic!("{name}: {e}"));
    }
}

/// What was given back is free for others.
async fn all_are_free(url: &str) {
    let other = connect(url).await;
    for kind in KINDS {
        let free = match kind {
            "fair" => other.mutex(name(kind)).fair().try_lock().await,
            "read" | "write" => other.rwlock(name(kind)).try_write().await,
            "permit" => other.semaphore(name(kind), 1).try_acquire().await,
            _ => other.mutex(name(kind)).try_lock().await,
        };
        assert!(free.expect("asked").is_some(), "{kind} is free");
    }
}

/// With all keys first at the old and then at the new server.
pub(crate) fn a_slot_that_is_long_on_its_way_costs_no_hold_of_any_kind() {
    let cluster = Cluster::start();
    let slot = cluster.slot("{tag}");
    block_on(async {
        let url = format!("{}?lease=2s", cluster.url());
        let locker = connect(&url).await;
        let (home, away) = (cluster.owner(slot), cluster.other_master(slot));
        let guards = hold_all(&locker).await;
        cluster.begin_migration(slot, away);
        all_last(&guards, "at the old server").await;
        give_back(guards).await;
        cluster.migrate_keys(slot, home, away);
        cluster.end_migration(slot, away);
        let guards = hold_all(&locker).await;
        cluster.begin_migration(slot, home);
        cluster.migrate_keys(slot, away, home);
        all_last(&guards, "at the new server").await;
        give_back(guards).await;
        cluster.end_migration(slot, home);
        all_are_free(&url).await;
    });
}

/// Some keys of each lock are at the old server, some at the new one: first its own key, then the others.
pub(crate) fn a_hold_whose_keys_are_at_two_servers_is_renewed_and_given_back() {
    let cluster = Cluster::start();
    let slot = cluster.slot("{tag}");
    for first in [true, false] {
        block_on(async {
            let url = format!("{}?lease=2s", cluster.url());
            let (locker, other) = (connect(&url).await, connect(&url).await);
            let guards = hold_all(&locker).await;
            let next = tokio::spawn(other.mutex(name("fair")).fair().lock());
            must("it is in the queue", async {
                while other.mutex(name("fair")).inspect().await.expect("inspected").queue.is_empty() {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            })
            .await;
            let (home, away) = (cluster.owner(slot), cluster.other_master(slot));
            cluster.begin_migration(slot, away);
            let own: Vec<String> = KINDS.iter().map(|kind| name(kind)).collect();
            cluster.migrate_some(slot, home, away, |key| own.iter().any(|name| name == key) == first);
            all_last(&guards, "at both").await;
            give_back(guards).await;
            cluster.migrate_keys(slot, home, away);
            cluster.end_migration(slot, away);
            drop(must("the next in the queue", next).await.expect("no panic").expect("locked"));
            must("all is given back", async {
                while other.stats().holding > 0 {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            })
            .await;
            all_are_free(&url).await;
        });
    }
}

/// Who gives up a wait while the slot is on its way keeps nobody out for longer than its place would have lasted.
pub(crate) fn who_stops_waiting_in_a_slot_on_its_way_is_forgotten() {
    let cluster = Cluster::start();
    let slot = cluster.slot("{tag}");
    block_on(async {
        let url = format!("{}?lease=30s", cluster.url());
        let (holder, waiter, other) = (connect(&url).await, connect(&url).await, connect(&url).await);
        let held = holder.mutex(name("fair")).fair().lock().await.expect("locked");
        let reader = holder.rwlock(name("read")).read().await.expect("read");
        let queued = tokio::spawn(waiter.mutex(name("fair")).fair().lock());
        let writer = tokio::spawn(waiter.rwlock(name("read")).write());
        let (home, away) = (cluster.owner(slot), cluster.other_master(slot));
        let keys = || -> Vec<String> {
            cmd("CLUSTER").arg("GETKEYSINSLOT").arg(slot).arg(100).query(&mut cluster.raw(home)).expect("listed")
        };
        let stands = |key: &str| keys().iter().any(|other| other == key);
        must("both are in the queue", async {
            while !stands("redisson_lock_queue:{tag}:fair") || !stands("tenure_rwlock_writers:{tag}:read") {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        cluster.begin_migration(slot, away);
        cluster.migrate_some(slot, home, away, |key| [name("fair"), name("read")].iter().any(|name| name == key));
        queued.abort();
        writer.abort();
        must("they are forgotten", async {
            while stands("redisson_lock_queue:{tag}:fair") || stands("tenure_rwlock_writers:{tag}:read") {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        cluster.migrate_keys(slot, home, away);
        cluster.end_migration(slot, away);
        held.release().await.expect("given back");
        assert!(other.mutex(name("fair")).fair().try_lock().await.expect("asked").is_some(), "nobody stands before it");
        assert!(other.rwlock(name("read")).try_read().await.expect("asked").is_some(), "no writer is waited for");
        reader.release().await.expect("given back");
    });
}

/// The share of the other reader is at the old server, then at the new one: neither may take that reader for dead.
pub(crate) fn a_reader_of_a_slot_on_its_way_is_not_taken_for_dead_by_another() {
    let cluster = Cluster::start();
    let slot = cluster.slot("{tag}");
    for stays in [true, false] {
        block_on(async {
            let url = format!("{}?lease=10s", cluster.url());
            let (one, two, writer) = (connect(&url).await, connect(&url).await, connect(&url).await);
            let lock = |locker: &Locker| locker.rwlock(name("read"));
            let first = lock(&one).read().await.expect("read");
            let second = lock(&two).note("so that all keys are there").read().await.expect("read");
            let share = format!("{}:rwlock_timeout", second.owner_id());
            let waits = tokio::spawn(lock(&writer).write());
            must("a writer in the queue", async {
                while lock(&one).try_read().await.expect("asked").is_some() {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            })
            .await;
            let (home, away) = (cluster.owner(slot), cluster.other_master(slot));
            cluster.begin_migration(slot, away);
            cluster.migrate_some(slot, home, away, |key| key.contains(&share) != stays);
            must("given back", first.release()).await.expect("it was held");
            cluster.migrate_keys(slot, home, away);
            cluster.end_migration(slot, away);
            assert!(lock(&one).try_write().await.expect("asked").is_none(), "the other one still reads");
            assert!(!waits.is_finished());
            must("given back", second.release()).await.expect("it was held");
            must("the writer", waits).await.expect("no panic").expect("written").release().await.expect("given back");
        });
    }
}
