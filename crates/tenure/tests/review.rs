//! What the engine does when the store hangs, answers late or says no in the wrong moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tenure::backend::{Attempt, Backend, Broken, Capabilities, Claim, Client, Released, Renewal, Scope, State};
use tenure::backends::memory::Memory;
use tenure::clock::Clock;
use tenure::signal::Signal;
use tenure::{ClientId, Error, Fault, Locker, LostReason, Owner, Resource, Result};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

/// A memory store whose verbs hang or fail while they are told to.
#[derive(Debug)]
struct Moody {
    inner: Memory,
    watch_first: bool,
    watch_hangs: AtomicBool,
    acquire_fails: AtomicBool,
    renew_is_gone: AtomicBool,
    renew_answers: Notify,
    acquired: AtomicU64,
}

impl Moody {
    fn new(clock: &Clock) -> Self {
        let client = Client { id: ClientId::random().expect("random bits"), about: "moody".into() };
        Self {
            inner: Memory::new(client, clock.clone()),
            watch_first: true,
            watch_hangs: AtomicBool::new(false),
            acquire_fails: AtomicBool::new(false),
            renew_is_gone: AtomicBool::new(false),
            renew_answers: Notify::new(),
            acquired: AtomicU64::new(0),
        }
    }

    fn locker(self: &Arc<Self>, clock: &Clock) -> Locker {
        let store = Arc::clone(self) as Arc<dyn Backend>;
        Locker::builder().clock(clock.clone()).runtime(Handle::current()).over(store).expect("a locker")
    }
}

#[async_trait]
impl Backend for Moody {
    fn capabilities(&self) -> Capabilities {
        Capabilities { watch_first: self.watch_first, ..self.inner.capabilities() }
    }

    async fn acquire(&self, claim: &Claim) -> Result<Attempt> {
        self.acquired.fetch_add(1, Ordering::SeqCst);
        if self.acquire_fails.load(Ordering::SeqCst) {
            return Err(Error::unavailable("moody", "acquiring", Fault::Connection, "on purpose"));
        }
        self.inner.acquire(claim).await
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Renewal>> {
        if self.renew_is_gone.load(Ordering::SeqCst) {
            self.renew_answers.notified().await;
            return Ok(vec![Renewal::Gone; claims.len()]);
        }
        self.inner.renew(claims).await
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        self.inner.release(claim).await
    }

    async fn watch(&self, claim: &Claim) -> Result<Signal> {
        if self.watch_hangs.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        self.inner.watch(claim).await
    }

    async fn inspect(&self, scope: Scope<'_>) -> Result<Vec<State>> {
        self.inner.inspect(scope).await
    }

    async fn break_hold(&self, resource: &Resource) -> Result<Option<Broken>> {
        self.inner.break_hold(resource).await
    }

    async fn close(&self) -> Result<()> {
        self.inner.close().await
    }
}

#[tokio::test(start_paused = true)]
async fn a_subscription_that_hangs_does_not_outlast_the_callers_patience() {
    for watch_first in [true, false] {
        let clock = Clock::for_tests();
        let store = Arc::new(Moody { watch_first, ..Moody::new(&clock) });
        let locker = store.locker(&clock);
        let other = store.locker(&clock);
        let held = other.mutex("a").lock().await.expect("locked");
        store.watch_hangs.store(true, Ordering::SeqCst);
        let before = Instant::now();
        let answer = locker.mutex("a").lock_within(Duration::from_millis(100)).await;
        assert!(before.elapsed() < Duration::from_millis(200), "answered after {:?}", before.elapsed());
        // Without an answer of the store nobody knows whether it is busy.
        assert_eq!(answer.is_err(), watch_first, "{answer:?}");
        drop(held);
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_left_while_subscribing_asks_for_nothing() {
    let clock = Clock::for_tests();
    let store = Arc::new(Moody::new(&clock));
    let locker = store.locker(&clock);
    store.watch_hangs.store(true, Ordering::SeqCst);
    drop(timeout(Duration::from_millis(100), locker.mutex("a").lock()).await);
    while locker.stats().waiting > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(store.acquired.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn an_acquisition_that_starts_while_the_locker_closes_leaves_nothing() {
    // On a runtime of its own that is blocked, so that closing and asking start in an order that is known.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let clock = Clock::system();
    let store = Arc::new(Moody::new(&clock));
    let ran = runtime.spawn({
        let store = Arc::clone(&store);
        async move {
            let locker = store.locker(&Clock::system());
            let mut lock = Box::pin(locker.mutex("a").lock());
            // The last task that a worker spawns is the first that it runs: closing overtakes.
            let spawned = std::future::poll_fn(|cx| std::task::Poll::Ready(lock.as_mut().poll(cx).is_pending())).await;
            assert!(spawned);
            let (closed, locked) = tokio::join!(locker.close(), lock);
            closed.expect("closed");
            assert!(matches!(locked, Err(Error::Closed)));
        }
    });
    let ran = timeout(Duration::from_secs(20), ran).await;
    runtime.shutdown_background();
    ran.expect("ended").expect("no panic");
    let name = Resource::new("a").expect("a name");
    let state = store.inspect(Scope::One(&name)).await.expect("inspected").remove(0);
    assert!(state.holders.is_empty(), "{state:?}");
}

#[tokio::test(start_paused = true)]
async fn a_release_in_the_moment_of_a_loss_is_answered() {
    let clock = Clock::for_tests();
    let store = Arc::new(Moody::new(&clock));
    let locker = store.locker(&clock);
    store.renew_is_gone.store(true, Ordering::SeqCst);
    // Many tries: which of the two the keeper sees first is chance.
    for i in 0..80 {
        let guard = locker.mutex(format!("{i}")).lock().await.expect("locked");
        // Longer than a third of the lease: a renewal is under way.
        tokio::time::sleep(Duration::from_millis(10_500)).await;
        store.renew_answers.notify_one();
        for _ in 0..i % 4 {
            tokio::task::yield_now().await;
        }
        match guard.release().await {
            Ok(()) => {}
            Err(Error::Lost(lost)) => assert_eq!(lost.reason, LostReason::Revoked),
            Err(other) => panic!("{other}"),
        }
    }
}

#[tokio::test]
async fn guards_are_told_when_the_runtime_of_their_locker_ends() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let locker = Locker::builder().runtime(runtime.handle().clone()).connect("memory:").await.expect("connected");
    let guard = locker.mutex("a").lock().await.expect("locked");
    runtime.shutdown_background();
    let lost = timeout(Duration::from_secs(20), guard.lost()).await.expect("told");
    assert_eq!(lost.reason, LostReason::Closed);
    assert!(!guard.is_valid());
}

#[tokio::test]
async fn an_owner_does_not_enter_the_hold_of_a_locker_that_is_no_more() {
    let owner = Owner::new();
    let mut old = Vec::new();
    // The memory of a locker that was dropped is where the next one is likely to be put.
    for _ in 0..20 {
        let locker = Locker::connect("memory:").await.expect("connected");
        let guard = locker.mutex("a").owner(&owner).lock().await.expect("locked");
        assert_eq!(locker.stats().reentered, 0, "entered the hold of another store");
        old.push(guard);
    }
}

#[tokio::test(start_paused = true)]
async fn an_unavailable_store_is_not_busy_for_those_behind() {
    let clock = Clock::for_tests();
    let store = Arc::new(Moody::new(&clock));
    let locker = store.locker(&clock);
    store.acquire_fails.store(true, Ordering::SeqCst);
    let first = tokio::spawn(locker.mutex("a").lock());
    while store.acquired.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    tokio::time::sleep(Duration::from_millis(1)).await;
    let error = locker.mutex("a").try_lock().await.expect_err("nobody knows that it is busy");
    assert!(error.is_transient(), "{error}");
    let error = locker.mutex("a").lock_within(Duration::from_millis(10)).await.expect_err("nobody knows that it is busy");
    assert!(error.is_transient(), "{error}");
    store.acquire_fails.store(false, Ordering::SeqCst);
    let held = first.await.expect("no panic").expect("locked in the end");
    assert!(locker.mutex("a").try_lock().await.expect("known").is_none());
    drop(held);
}
