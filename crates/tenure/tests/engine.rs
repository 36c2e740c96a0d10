//! What the engine promises on any store: time, executors, drops, limits, statistics.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tenure::backend::Client;
use tenure::backends::faulty::{Faulty, Plan};
use tenure::backends::memory::Memory;
use tenure::clock::Clock;
use tenure::{Error, Guard, HoldState, Locker, LostReason, Owner};
use tokio::runtime::Handle;

use tenure_testkit::bare::block_on;
use tenure_testkit::log::Events;

const LEASE: Duration = Duration::from_secs(30);

/// A locker on the paused clock of the test's own runtime.
async fn paused(clock: &Clock) -> Locker {
    Locker::builder().clock(clock.clone()).runtime(Handle::current()).connect("memory:").await.expect("connected")
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_slept_past_the_lease_knows_at_once() {
    let clock = Clock::for_tests();
    let locker = paused(&clock).await;
    let guard = locker.mutex("a").lock().await.expect("locked");
    clock.jump(LEASE - Duration::from_secs(1));
    assert!(guard.is_valid());
    clock.jump(Duration::from_secs(2));
    // No timer has fired and nobody has renewed: the clock alone says so.
    assert!(!guard.is_valid());
    assert_eq!(guard.state(), HoldState::Lost);
    assert_eq!(guard.lost().await.reason, LostReason::Expired);
    assert!(guard.run(async { panic!("not one step more") }).await.is_err());
    let next = locker.mutex("a").lock().await.expect("locked again");
    assert!(next.token() > guard.token());
}

#[tokio::test(start_paused = true)]
async fn a_deadline_is_earlier_than_the_stores() {
    let clock = Clock::for_tests();
    let locker = paused(&clock).await;
    let guard = locker.mutex("a").lease_fixed(LEASE).lock().await.expect("locked");
    assert!(guard.expires_in() <= LEASE * 99 / 100 - Duration::from_millis(2));
    clock.jump(guard.expires_in());
    assert!(!guard.is_valid());
    // The store still keeps others out.
    assert_eq!(locker.mutex("a").inspect().await.expect("inspected").holders.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_left_of_closed_lockers_and_dropped_futures() {
    let before = Handle::current().metrics().num_alive_tasks();
    {
        let locker = paused(&Clock::for_tests()).await;
        let guard = locker.mutex("a").lock().await.expect("locked");
        for _ in 0..10 {
            drop(tokio::time::timeout(Duration::from_millis(5), locker.mutex("a").lock()).await);
        }
        drop(guard);
        drop(locker.mutex("a").lock());
    }
    while Handle::current().metrics().num_alive_tasks() > before {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn a_guard_outlives_its_runtime_and_is_dropped_without_one() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let locker = runtime.block_on(Locker::connect("memory:?lease=3s")).expect("connected");
    let guard = runtime.block_on(locker.mutex("a").lock()).expect("locked");
    drop(runtime);
    // Renewals do not depend on the user's runtime.
    std::thread::sleep(Duration::from_secs(4));
    assert!(guard.is_valid());
    std::thread::spawn(move || drop(guard)).join().expect("no panic");
    let free = block_on(locker.mutex("a").try_lock_for(Duration::from_secs(10)));
    assert!(free.expect("asked").is_some());
}

#[test]
fn a_runtime_that_is_blocked_does_not_lose_its_locks() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let locker = Locker::connect("memory:?lease=3s").await.expect("connected");
        let guard = locker.mutex("a").lock().await.expect("locked");
        std::thread::sleep(Duration::from_secs(4));
        assert_eq!(guard.state(), HoldState::Held);
    });
}

#[test]
fn any_executor_will_do() {
    block_on(async {
        let locker = Locker::connect("memory:").await.expect("connected");
        let owner = tenure::Owner::new();
        let guard = locker.mutex("a").owner(&owner).lock().await.expect("locked");
        assert!(locker.mutex("a").try_lock_for(Duration::from_millis(20)).await.expect("asked").is_none());
        assert!(locker.mutex("a").owner(&owner).try_lock_for(Duration::from_millis(20)).await.expect("asked").is_some());
        assert_eq!(guard.run(async { 1 }).await.expect("held"), 1);
        assert!(locker.mutex("a").try_lock_for(Duration::ZERO).await.expect("asked once").is_none());
        guard.release().await.expect("given back");
        let fixed = locker.mutex("a").lease_fixed(Duration::from_millis(50)).lock().await.expect("locked");
        assert_eq!(fixed.lost().await.reason, LostReason::LeaseEnded);
        locker.close().await.expect("closed");
    });
}

#[tokio::test]
async fn an_owner_that_acquires_twice_at_once_waits_within_its_limit() {
    let locker = Locker::connect("memory:").await.expect("connected");
    let owner = tenure::Owner::new();
    let held = locker.mutex("a").lock().await.expect("locked by somebody else");
    let mutex = locker.mutex("a").owner(&owner);
    let first = tokio::spawn(mutex.lock());
    while locker.stats().waiting == 0 {
        tokio::task::yield_now().await;
    }
    assert!(mutex.try_lock().await.expect("asked").is_none());
    assert!(mutex.try_lock_for(Duration::from_millis(20)).await.expect("asked").is_none());
    drop(held);
    let outer = first.await.expect("no panic").expect("locked");
    assert_eq!(mutex.lock().await.expect("re-entered").token(), outer.token());
}

#[tokio::test]
async fn a_lost_hold_is_not_reentered() {
    let locker = Locker::connect("memory:").await.expect("connected");
    let owner = tenure::Owner::new();
    let mutex = locker.mutex("a").owner(&owner);
    let outer = mutex.clone().lease_fixed(Duration::from_millis(20)).lock().await.expect("locked");
    outer.lost().await;
    assert!(matches!(mutex.lock().await, Err(Error::Lost(_))), "a nested call must not think that it is protected");
    drop(outer);
    assert!(mutex.lock().await.is_ok());
}

#[tokio::test]
async fn wrong_requests_are_refused_with_a_reason() {
    let locker = Locker::connect("memory:").await.expect("connected");
    let refused = async |lock: tenure::Mutex, words: &str| match lock.try_lock().await {
        Err(error @ Error::Config { .. }) => assert!(error.to_string().contains(words), "{error}"),
        other => panic!("{other:?}"),
    };
    refused(locker.mutex(""), "1 to 512 bytes").await;
    refused(locker.mutex("x".repeat(513)), "513 bytes long").await;
    refused(locker.mutex("a").lease(Duration::from_millis(9)), "10ms to 24h").await;
    refused(locker.mutex("a").lease_fixed(Duration::from_secs(86_401)), "10ms to 24h").await;
    refused(locker.mutex("a").note("x".repeat(4097)), "4096 bytes").await;
    let drift = tenure::clock::Drift { fixed: Duration::from_secs(60), ..tenure::clock::Drift::DEFAULT };
    let drifting = Locker::builder().drift(drift).connect("memory:").await.expect("connected");
    refused(drifting.mutex("a"), "drift").await;
    assert!(locker.mutex("x".repeat(512)).lease(Duration::from_millis(10)).try_lock().await.expect("asked").is_some());
}

#[tokio::test(start_paused = true)]
async fn counters_and_histograms_tell_what_happened() {
    let locker = paused(&Clock::for_tests()).await;
    let guard = locker.mutex("a").lock().await.expect("locked");
    assert!(locker.mutex("a").try_lock().await.expect("asked").is_none());
    let waiter = tokio::spawn(locker.mutex("a").lock());
    tokio::time::sleep(Duration::from_secs(40)).await;
    let stats = locker.stats();
    assert_eq!((stats.granted, stats.holding, stats.waiting, stats.not_granted), (1, 1, 1, 1));
    assert!(stats.renewed >= 3);
    guard.release().await.expect("given back");
    let next: Guard = waiter.await.expect("no panic").expect("locked");
    drop(next);
    locker.close().await.expect("closed");
    let stats = locker.stats();
    assert_eq!((stats.granted + stats.handed_over, stats.released, stats.holding, stats.waiting), (2, 2, 0, 0));
    assert_eq!((stats.wait.count(), stats.hold.count()), (2, 2));
    assert!(stats.wait.quantile(1.0).expect("counted") >= Duration::from_secs(40));
    assert!(stats.wait.quantile(0.5).expect("counted") < Duration::from_secs(1));
    assert_eq!(stats.lost, 0);
}

#[tokio::test(start_paused = true)]
async fn a_listing_may_take_longer_than_one_call() {
    let clock = Clock::for_tests();
    let store = Memory::new(Client { id: tenure::ClientId::random().expect("random bits"), about: "".into() }, clock.clone());
    let slow = Faulty::over(Arc::new(store), Plan { delay_every: 1, delay: Duration::from_secs(10), ..Plan::default() });
    let builder = Locker::builder().clock(clock).runtime(Handle::current()).timeout(Duration::from_secs(3));
    let locker = builder.backend(Arc::new(slow)).expect("a locker");
    assert!(locker.list("").await.expect("listed").is_empty());
    assert!(locker.mutex("a").inspect().await.expect_err("one call is bounded").is_transient());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_owner_that_holds_a_lock_is_never_told_that_it_is_busy() {
    let locker = Locker::connect("memory:").await.expect("connected");
    let owner = Owner::new();
    let held = locker.mutex("a").owner(&owner).lock().await.expect("locked");
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let again = locker.mutex("a").owner(&owner);
        tasks.spawn(async move {
            for _ in 0..20_000 {
                drop(again.try_lock().await.expect("asked").expect("its owner holds it"));
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("no panic");
    }
    held.release().await.expect("given back");
}

#[test]
fn events_carry_name_and_token() {
    let events = Events::up_to(tracing::Level::TRACE);
    tracing::subscriber::with_default(events.clone(), || {
        have_events();
        // An event that another test's thread met for the first time in the moment that this one began to listen may be thought to
        // interest nobody. By now all are known.
        tracing::callsite::rebuild_interest_cache();
        events.kept().clear();
        have_events();
    });
    let seen = events.kept();
    let names: BTreeSet<&str> = seen.iter().map(|(event, _)| event.as_str()).collect();
    assert!(
        ["granted", "waited", "renewed", "renewal failed", "released", "lost"].iter().all(|name| names.contains(name)),
        "{names:?}"
    );
    for (event, fields) in seen.iter() {
        // A question that failed has no token yet.
        assert!(fields.contains("the name") && (fields.contains("token") || event.ends_with("failed")), "{event}: {fields}");
    }
    assert!(seen.iter().any(|(event, fields)| event == "granted" && fields.contains("waited")));
    assert!(seen.iter().any(|(event, fields)| event == "released" && fields.contains("held_for")));
}

#[tokio::test]
async fn lockers_share_a_memory_that_has_a_name() {
    let connect = |url: &'static str| async move { Locker::connect(url).await.expect("connected") };
    let (one, other, apart) = (connect("memory:shared").await, connect("memory:shared").await, connect("memory:other").await);
    let guard = one.mutex("a").lock().await.expect("locked");
    assert!(other.mutex("a").try_lock().await.expect("asked").is_none(), "as another process would find it");
    assert!(apart.mutex("a").try_lock().await.expect("asked").is_some());
    let waits = tokio::spawn(other.mutex("a").lock());
    let first = guard.token();
    guard.release().await.expect("given back");
    let next = waits.await.expect("no panic").expect("locked");
    assert!(next.token() > first);
    // Asked for by both: it would wait for itself.
    tenure::Multi::of([one.mutex("b"), other.mutex("b")]).lock().await.expect_err("one store");
    drop((next, one, other, apart));
    for wrong in ["memory://host", "memory:/path", "memory:a b", "memory:a@b"] {
        let error = Locker::connect(wrong).await.expect_err("no such store").to_string();
        assert!(error.contains("memory:"), "{error}");
    }
}

/// Everything happens to a lock that is told in an event.
fn have_events() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime");
    runtime.block_on(async {
        let clock = Clock::for_tests();
        let locker = paused(&clock).await;
        let guard = locker.mutex("the name").lock().await.expect("locked");
        let waiter = tokio::spawn(locker.mutex("the name").lock());
        tokio::time::sleep(LEASE).await;
        guard.release().await.expect("given back");
        let next = waiter.await.expect("no panic").expect("locked");
        locker.mutex("the name").break_hold().await.expect("broken");
        next.lost().await;

        // Every second answer is lost: a renewal's too.
        let store = Memory::new(Client { id: locker.client_id(), about: "".into() }, clock.clone());
        let faulty = Faulty::over(Arc::new(store), Plan { lose_reply: 2, ..Plan::default() });
        let builder = Locker::builder().clock(clock).runtime(Handle::current());
        let locker = builder.backend(Arc::new(faulty)).expect("a locker");
        let guard = locker.mutex("the name").lock().await.expect("locked");
        tokio::time::sleep(LEASE * 2).await;
        assert!(guard.is_valid() && locker.stats().renewal_failures > 0);
    });
}
