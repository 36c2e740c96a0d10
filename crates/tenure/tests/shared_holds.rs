//! What the engine does with holds that are shared, changed or waited for in a queue, on a paused clock.

use std::sync::Arc;
use std::time::Duration;

use tenure::backend::{Client, Mode, Opened};
use tenure::backends::faulty::{Faulty, Plan};
use tenure::backends::memory::Memory;
use tenure::clock::Clock;
use tenure::{ClientId, Error, Locker, LostReason, Owner};
use tokio::runtime::Handle;

const LEASE: Duration = Duration::from_secs(30);

async fn paused() -> Locker {
    let clock = Clock::for_tests();
    Locker::builder().clock(clock).runtime(Handle::current()).connect("memory:").await.expect("connected")
}

/// Two lockers of one store. All answers to the first one take a while.
fn two(clock: &Clock, delay: Duration) -> (Locker, Locker) {
    let client = || Client { id: ClientId::random().expect("random bits"), about: "two".into() };
    let store = Memory::new(client(), clock.clone());
    let other = store.client(client());
    let late = Faulty::over(Arc::new(store), Plan { delay_every: 1, delay, ..Plan::default() });
    let over =
        |store: Opened| Locker::builder().clock(clock.clone()).runtime(Handle::current()).backend(store).expect("a locker");
    (over(Arc::new(late).into()), over(Arc::new(other).into()))
}

/// Waits until so many acquisitions are under way.
async fn waiting(locker: &Locker, n: u64) {
    while locker.stats().waiting < n {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_was_handed_its_hold_downgrades_under_its_own_token() {
    let locker = paused().await;
    let lock = locker.rwlock("a");
    let first = lock.write().await.expect("written");
    let writers: Vec<_> = (0..3).map(|_| tokio::spawn(lock.write())).collect();
    waiting(&locker, 3).await;
    drop(first);
    let mut last = None;
    for writer in writers {
        let writer = writer.await.expect("no panic").expect("written");
        assert!(Some(writer.token()) > last);
        last = Some(writer.token());
        let token = writer.token();
        let reader = lock.downgrade(writer).await.expect("downgraded");
        assert_eq!((reader.token(), reader.mode()), (token, Mode::Read));
        reader.release().await.expect("given back");
    }
}

#[tokio::test(start_paused = true)]
async fn a_downgrade_that_is_dropped_gives_everything_back() {
    let locker = paused().await;
    let lock = locker.rwlock("a");
    for steps in 0..8 {
        let writer = lock.write().await.expect("written");
        let mut downgrade = Box::pin(lock.downgrade(writer));
        for _ in 0..steps {
            if tokio::time::timeout(Duration::ZERO, &mut downgrade).await.is_ok() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(downgrade);
        // Free because it was given back, not because it has run out.
        lock.try_write_for(LEASE / 3).await.expect("asked").expect("free").release().await.expect("given back");
    }
    while locker.stats().holding > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_an_owner_cannot_ask_for_is_misuse_and_no_wrong_value() {
    let (locker, owner) = (paused().await, Owner::new());
    let lock = locker.rwlock("a").owner(&owner);
    let misused = |refused: Result<(), Error>, words: &str| match refused {
        Err(Error::Misuse(why)) => assert!(why.to_string().contains(words), "{why}"),
        other => panic!("{other:?}"),
    };
    let reader = lock.read().await.expect("read");
    misused(lock.write().await.map(drop), "to write first and then downgrade");
    misused(lock.try_write().await.map(drop), "would wait for itself");
    drop(reader);
    let writer = lock.write().await.expect("written");
    misused(locker.mutex("a").owner(&owner).try_lock().await.map(drop), "one kind of lock per name");
    let again = lock.write().await.expect("written again");
    misused(lock.downgrade(writer).await.map(drop), "the only guard of its hold");
    drop(again);
}

#[tokio::test(start_paused = true)]
async fn only_the_guard_of_a_writer_of_this_name_is_downgraded() {
    let (locker, other) = (paused().await, paused().await);
    let lock = locker.rwlock("a");
    for wrong in [
        locker.rwlock("b").write().await.expect("written"),
        locker.rwlock("b2").read().await.expect("read"),
        locker.mutex("c").lock().await.expect("locked"),
        other.rwlock("a").write().await.expect("written"),
    ] {
        assert!(matches!(lock.downgrade(wrong).await, Err(Error::Misuse(_))));
    }
    let lost = lock.clone().lease_fixed(Duration::from_secs(1)).write().await.expect("written");
    lost.lost().await;
    assert!(matches!(lock.downgrade(lost).await, Err(Error::Lost(lost)) if lost.reason == LostReason::LeaseEnded));
}

#[tokio::test(start_paused = true)]
async fn readers_do_not_wait_for_each_other_nor_for_one_who_waits_to_write_elsewhere() {
    let locker = paused().await;
    let lock = locker.rwlock("a");
    let readers: Vec<_> = (0..100).map(|_| tokio::spawn(lock.read())).collect();
    let mut held = Vec::new();
    for reader in readers {
        held.push(reader.await.expect("no panic").expect("read"));
    }
    assert_eq!(locker.stats().holding, 100);
    let writer = tokio::spawn(lock.write());
    waiting(&locker, 1).await;
    assert!(lock.try_read().await.expect("asked").is_none(), "a writer is in the queue");
    writer.abort();
    while lock.try_read().await.expect("asked").is_none() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    drop(held);
    lock.write().await.expect("written").release().await.expect("given back");
}

#[tokio::test(start_paused = true)]
async fn many_permits_are_not_overtaken_by_few_inside_of_a_process() {
    let locker = paused().await;
    let semaphore = locker.semaphore("a", 3);
    let held = semaphore.acquire().await.expect("acquired");
    let all = tokio::spawn(semaphore.acquire_many(3));
    waiting(&locker, 1).await;
    let one = tokio::spawn(semaphore.acquire());
    waiting(&locker, 2).await;
    // Two are free, but it is not its turn.
    tokio::time::sleep(LEASE).await;
    assert!(!one.is_finished());
    drop(held);
    let all = all.await.expect("no panic").expect("acquired");
    assert!(!one.is_finished());
    drop(all);
    one.await.expect("no panic").expect("acquired").release().await.expect("given back");
}

#[tokio::test(start_paused = true)]
async fn a_permit_says_when_it_is_lost() {
    let locker = paused().await;
    let permit = locker.semaphore("a", 1).acquire().await.expect("acquired");
    let broken = locker.semaphore("a", 1).break_hold().await.expect("broken").expect("it was held");
    assert_eq!(broken.holders.len(), 1);
    assert_eq!(permit.lost().await.reason, LostReason::Revoked);
    drop(locker.semaphore("a", 1).try_acquire().await.expect("asked").expect("free"));
}

#[tokio::test(start_paused = true)]
async fn closing_ends_waits_of_all_kinds() {
    let locker = paused().await;
    let _writer = locker.rwlock("a").write().await.expect("written");
    let _permit = locker.semaphore("b", 1).acquire().await.expect("acquired");
    assert!(locker.latch("c").set(1).await.expect("set"));
    let _fair = locker.mutex("d").fair().lock().await.expect("locked");
    let waits = [
        tokio::spawn({
            let read = locker.rwlock("a").read();
            async { read.await.map(drop) }
        }),
        tokio::spawn({
            let acquire = locker.semaphore("b", 1).acquire();
            async { acquire.await.map(drop) }
        }),
        tokio::spawn(locker.latch("c").wait()),
        tokio::spawn({
            let lock = locker.mutex("d").fair().lock();
            async { lock.await.map(drop) }
        }),
    ];
    waiting(&locker, 4).await;
    locker.close().await.expect("closed");
    for wait in waits {
        assert!(matches!(wait.await.expect("no panic"), Err(Error::Closed)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_downgrade_fails_if_somebody_may_have_written_since() {
    let clock = Clock::for_tests();
    let (here, there) = two(&clock, Duration::ZERO);
    for still_writes in [false, true] {
        let writer = here.rwlock("a").write().await.expect("written");
        let old = writer.watcher();
        there.rwlock("a").break_hold().await.expect("broken").expect("it was held");
        let other = there.rwlock("a").write().await.expect("written");
        let other = if still_writes { Some(other) } else { None };
        let failed = here.rwlock("a").downgrade(writer).await;
        assert!(matches!(&failed, Err(Error::Lost(lost)) if lost.reason == LostReason::Revoked), "{failed:?}");
        assert_eq!(old.ended().await.expect("lost").reason, LostReason::Revoked);
        drop(other);
    }
}

#[tokio::test(start_paused = true)]
async fn a_downgrade_that_meets_the_end_of_its_hold_is_none() {
    let clock = Clock::for_tests();
    let (here, there) = two(&clock, Duration::from_secs(1));
    for fixed in [true, false] {
        let lock = here.rwlock("a");
        let lock = if fixed { lock.lease_fixed(Duration::from_secs(3)) } else { lock.max_hold(Duration::from_secs(3)) };
        let writer = lock.write().await.expect("written");
        tokio::time::sleep(Duration::from_millis(1700)).await;
        // It ends while the answer is on its way.
        let reader = here.rwlock("a").downgrade(writer).await;
        assert!(matches!(reader, Err(Error::Lost(_))), "{reader:?}");
        there.rwlock("a").try_write_for(LEASE / 3).await.expect("asked").expect("free").release().await.expect("given back");
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_of_the_writer_does_not_cut_short_what_the_reader_counts_on() {
    let clock = Clock::for_tests();
    // The store has made the change long before its answer comes; meanwhile the writer is renewed.
    let (here, there) = two(&clock, Duration::from_millis(250));
    let writer = here.rwlock("a").lease(Duration::from_millis(600)).write().await.expect("written");
    let reader = here.rwlock("a").lease(LEASE).downgrade(writer).await.expect("downgraded");
    let end = tokio::time::Instant::now() + Duration::from_secs(5);
    while tokio::time::Instant::now() < end {
        let second = there.rwlock("a").try_write().await.expect("asked");
        assert!(second.is_none() || !reader.is_valid(), "a reader and a writer hold it at once");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(reader.lease(), Duration::from_millis(600), "a downgrade does not lengthen the lease");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_downgrade_and_a_write_of_one_owner_do_not_wait_for_each_other() {
    let locker = Locker::connect("memory:").await.expect("connected");
    for _ in 0..300 {
        let owner = Owner::new();
        let lock = locker.rwlock("a").owner(&owner);
        let writer = lock.write().await.expect("written");
        let downgrade = tokio::spawn(lock.downgrade(writer));
        let write = tokio::spawn(lock.write());
        let limit = Duration::from_secs(20);
        // Either it came first and re-entered, and the downgrade is refused; or it is refused, because its owner reads by now.
        let read = tokio::time::timeout(limit, downgrade).await.expect("no deadlock").expect("no panic");
        drop(read);
        drop(tokio::time::timeout(limit, write).await.expect("no deadlock").expect("no panic"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_downgrade_in_the_scope_of_another_owner_waits_for_nobody() {
    let locker = paused().await;
    let lock = locker.rwlock("a");
    let writer = lock.write().await.expect("written");
    let owner = Owner::new();
    let (read, downgraded) = owner
        .scope(async {
            let reading = lock.read();
            tokio::join!(reading, async {
                waiting(&locker, 1).await;
                lock.downgrade(writer).await
            })
        })
        .await;
    assert!(read.expect("read").is_valid() && downgraded.expect("downgraded").is_valid());
}
