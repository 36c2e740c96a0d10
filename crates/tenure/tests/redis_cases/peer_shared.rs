//! What Redisson's own tests ask of its read/write lock, semaphores and latch, asked of ours.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tenure::backend::Mode;
use tenure::{Error, Guard, Owner};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::java::{A, Java};
use tenure_testkit::locker::{block_on, connect, must};
use tenure_testkit::{RedisServer, eventually};

pub(crate) fn a_writer_waits_for_the_longest_lease_of_the_readers() {
    let server = RedisServer::start();
    block_on(async {
        let (one, other) = (connect(&server.url()).await, connect(&server.url()).await);
        let read = |millis| one.rwlock("L").lease_fixed(Duration::from_millis(millis)).read();
        let (long, short) = (read(2000).await.expect("read"), read(300).await.expect("read"));
        let writer = must("its turn", other.rwlock("L").write()).await.expect("written");
        assert!(!long.is_valid() && !short.is_valid() && writer.is_valid());
    });
}

pub(crate) fn readers_come_in_when_a_writers_lease_ends() {
    let server = RedisServer::start();
    let mut java = Java::at(&server);
    block_on(async {
        let locker = connect(&server.url()).await;
        // A writer that died: nobody tells of its end.
        assert_eq!(java.write(A, 1500), None);
        let (one, two) = (tokio::spawn(locker.rwlock("L").read()), tokio::spawn(locker.rwlock("L").read()));
        let readers = must("both come in", async { [one.await, two.await] }).await;
        assert!(readers.into_iter().all(|reader| reader.expect("no panic").expect("read").is_valid()));
        eventually("given back", || !java.exists("L"));
        // And the next writer.
        assert_eq!(java.write(A, 1500), None);
        must("its turn", locker.rwlock("L").write()).await.expect("written").release().await.expect("given back");
    });
}

pub(crate) fn a_nested_read_release_keeps_the_write_lock() {
    let server = RedisServer::start();
    block_on(async {
        let (locker, other) = (connect(&server.url()).await, connect(&server.url()).await);
        let owner = Owner::new();
        let lock = locker.rwlock("L").owner(&owner);
        let (writer, reader) = (lock.write().await.expect("written"), lock.read().await.expect("read"));
        let nobody = async || {
            assert!(other.rwlock("L").try_read().await.expect("asked").is_none());
            assert!(other.rwlock("L").try_write().await.expect("asked").is_none());
        };
        nobody().await;
        // One hold, and a writer's.
        let holders = other.rwlock("L").inspect().await.expect("inspected").holders;
        assert_eq!(holders.iter().map(|holder| holder.mode).collect::<Vec<_>>(), [Mode::Write]);
        reader.release().await.expect("one of two");
        nobody().await;
        // The other way round, the one hold that they share stays a writer's.
        let reader = lock.read().await.expect("read again");
        writer.release().await.expect("one of two");
        nobody().await;
        reader.release().await.expect("the last one");
        other.rwlock("L").try_write().await.expect("asked").expect("free").release().await.expect("given back");
    });
}

pub(crate) fn all_waiting_readers_come_in_together() {
    let server = RedisServer::start();
    block_on(async {
        let (one, other) = (connect(&server.url()).await, connect(&server.url()).await);
        let writer = one.rwlock("L").write().await.expect("written");
        let inside = Arc::new(Barrier::new(20));
        let mut readers = JoinSet::new();
        for n in 0..20 {
            let (read, inside) = (if n % 2 == 0 { &one } else { &other }.rwlock("L").read(), Arc::clone(&inside));
            readers.spawn(async move {
                let guard = read.await.expect("read");
                // Nobody leaves before all are in.
                inside.wait().await;
                guard.check().expect("held together");
            });
        }
        eventually("all wait", || one.stats().waiting + other.stats().waiting == 20);
        writer.release().await.expect("given back");
        while let Some(done) = must("all are in", readers.join_next()).await {
            done.expect("no panic");
        }
        must("free", one.rwlock("L").write()).await.expect("written").release().await.expect("given back");
    });
}

pub(crate) fn readers_and_writers_lose_no_update() {
    let server = RedisServer::start();
    block_on(async {
        let number = Arc::new(AtomicU64::new(0));
        let mut tasks = JoinSet::new();
        for _ in 0..3 {
            let locker = connect(&server.url()).await;
            for task in 0..4 {
                let (lock, number) = (locker.rwlock("L"), Arc::clone(&number));
                tasks.spawn(async move {
                    for _ in 0..10 {
                        let guard = if task == 0 { lock.read().await } else { lock.write().await }.expect("held");
                        let seen = number.load(Ordering::SeqCst);
                        tokio::task::yield_now().await;
                        if task == 0 {
                            assert_eq!(number.load(Ordering::SeqCst), seen, "nobody writes while one reads");
                        } else {
                            number.store(seen + 1, Ordering::SeqCst);
                        }
                        guard.release().await.expect("held all the time");
                    }
                });
            }
        }
        while let Some(done) = must("all come to their turn", tasks.join_next()).await {
            done.expect("no panic");
        }
        assert_eq!(number.load(Ordering::SeqCst), 90);
    });
}

pub(crate) fn fifty_readers_are_kept_alive() {
    let server = RedisServer::start();
    let mut java = Java::at(&server);
    block_on(async {
        let locker = connect(&format!("{}?lease=6s", server.url())).await;
        let mut readers = Vec::new();
        for _ in 0..50 {
            readers.push(locker.rwlock("L").read().await.expect("read"));
        }
        assert_eq!(java.fields().len(), 51);
        let renewed = locker.stats().renewed;
        must("renewed past a lease", async {
            while locker.stats().renewed < renewed + 4 * 50 && readers.iter().all(Guard::is_valid) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
        for reader in readers {
            reader.release().await.expect("still held");
        }
        assert!(!java.exists("L"));
    });
}

pub(crate) fn several_permits_are_waited_for_until_all_are_there() {
    let server = RedisServer::start();
    let mut java = Java::at(&server);
    block_on(async {
        let (one, other) = (connect(&server.url()).await, connect(&server.url()).await);
        let first = one.semaphore("L", 1).acquire().await.expect("acquired");
        let (start, wait) = (Instant::now(), Duration::from_millis(300));
        assert!(other.semaphore("L", 0).try_acquire_many_for(2, wait).await.expect("asked").is_none());
        assert!(start.elapsed() >= wait, "{:?}", start.elapsed());
        let waiting = tokio::spawn(other.semaphore("L", 0).acquire_many(2));
        eventually("it waits", || other.stats().waiting == 1);
        first.release().await.expect("given back");
        assert_eq!(java.get("L").as_deref(), Some("1"));
        assert!(!waiting.is_finished(), "one is not two");
        one.semaphore("L", 1).resize(2).await.expect("resized");
        let both = must("both", waiting).await.expect("no panic").expect("acquired");
        assert_eq!(java.get("L").as_deref(), Some("0"));
        both.release().await.expect("given back");
    });
}

pub(crate) fn two_who_want_two_permits_each_both_get_them() {
    let server = RedisServer::start();
    block_on(async {
        let (one, other) = (connect(&server.url()).await, connect(&server.url()).await);
        let all = one.semaphore("L", 4).acquire_many(4).await.expect("acquired");
        let waiting = [&one, &other].map(|locker| tokio::spawn(locker.semaphore("L", 4).acquire_many(2)));
        eventually("both wait", || one.stats().waiting + other.stats().waiting == 2);
        all.release().await.expect("given back");
        let mut guards = Vec::new();
        for wait in waiting {
            guards.push(must("two of four", wait).await.expect("no panic").expect("acquired"));
        }
        assert!(guards.iter().all(Guard::is_valid));
        assert!(one.semaphore("L", 4).try_acquire().await.expect("asked").is_none());
    });
}

pub(crate) fn the_edges_of_numbers_of_permits() {
    let server = RedisServer::start();
    block_on(async {
        let locker = connect(&server.url()).await;
        assert!(matches!(locker.semaphore("none", 1).acquire_many(0).await, Err(Error::Config { .. })));
        // Nobody has said how many there are.
        assert!(locker.semaphore("unset", 0).try_acquire().await.expect("asked").is_none());
        assert_eq!(locker.semaphore("unset", 0).inspect().await.expect("inspected").permits, None);
        let most = locker.semaphore("most", u32::MAX);
        let permit = most.acquire().await.expect("acquired");
        let permits = most.inspect().await.expect("inspected").permits.expect("a number");
        assert_eq!((permits.of, permits.free), (i64::from(u32::MAX), i64::from(u32::MAX) - 1));
        permit.release().await.expect("given back");
        // Fewer than are held: the number goes below zero, and nobody is thrown out.
        let lowered = locker.semaphore("lowered", 5);
        let held = lowered.acquire_many(5).await.expect("acquired");
        lowered.resize(2).await.expect("resized");
        let permits = lowered.inspect().await.expect("inspected").permits.expect("a number");
        assert_eq!((permits.of, permits.free), (2, -3));
        held.check().expect("still held");
        held.release().await.expect("given back");
        let permits = lowered.inspect().await.expect("inspected").permits.expect("a number");
        assert_eq!((permits.of, permits.free), (2, 2));
        // A number that somebody has removed is not made again by a release.
        let held = lowered.acquire().await.expect("acquired");
        Java::at(&server).run(&["DEL", "lowered"]);
        held.release().await.expect("it was held");
        assert!(!Java::at(&server).exists("lowered"));
    });
}

pub(crate) fn awaiters_of_a_latch_see_zero() {
    let server = RedisServer::start();
    block_on(async {
        let (one, other) = (connect(&server.url()).await, connect(&server.url()).await);
        assert!(one.latch("L").set(8).await.expect("asked"));
        let mut waiting = JoinSet::new();
        for n in 0..24 {
            let latch = if n % 2 == 0 { &one } else { &other }.latch("L");
            waiting.spawn(async move {
                latch.wait().await.expect("open");
                assert_eq!(latch.count().await.expect("asked"), 0);
            });
        }
        eventually("all wait", || one.stats().waiting + other.stats().waiting == 24);
        let mut counting = JoinSet::new();
        (0..8).for_each(|_| drop(counting.spawn(other.latch("L").count_down())));
        while let Some(left) = must("counted", counting.join_next()).await {
            assert!(left.expect("no panic").expect("counted") < 8);
        }
        while let Some(done) = must("all go on", waiting.join_next()).await {
            done.expect("no panic");
        }
        assert!(one.latch("L").wait_for(Duration::from_secs(60)).await.expect("asked"), "open in time");
        assert_eq!(one.latch("L").count_down().await.expect("counted"), 0, "once more changes nothing");
    });
}
