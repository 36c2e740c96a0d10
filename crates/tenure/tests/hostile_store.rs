//! What the engine does when the store hangs, answers late or refuses at the wrong moment.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{self, Arc};
use std::time::Duration;

use tenure::backend::{Attempt, Backend, Capabilities, Claim, Client, Layer, Layered, Mode, Renewal, Scope};
use tenure::backends::memory::Memory;
use tenure::clock::Clock;
use tenure::signal::Signal;
use tenure::{ClientId, Error, Fault, Locker, LostReason, Mutex, Owner, Resource, Result};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

/// A memory store whose verbs hang or fail while they are told to.
#[derive(Debug, Default)]
struct Moody {
    asks_first: bool,
    watch_hangs: AtomicBool,
    acquire_fails: AtomicBool,
    acquire_hangs: AtomicBool,
    acquire_takes: Duration,
    renew_is_gone: AtomicBool,
    renew_answers: Notify,
    renew_takes: Duration,
    /// A hold that ends before the subscription stands.
    ends_in_watch: sync::Mutex<Option<(Arc<Memory>, Claim)>>,
    acquired: AtomicU64,
}

/// A moody store and its clock.
struct Store {
    moody: Arc<Moody>,
    over: Arc<Layered<Moody, Memory>>,
    clock: Clock,
}

impl Store {
    fn new(moody: Moody) -> Self {
        Self::on(Clock::for_tests(), moody)
    }

    fn on(clock: Clock, moody: Moody) -> Self {
        let client = Client { id: ClientId::random().expect("random bits"), about: "moody".into() };
        let over = Arc::new(Layered::new(moody, Arc::new(Memory::new(client, clock.clone()))));
        Self { moody: Arc::clone(over.layer()), over, clock }
    }

    fn locker(&self) -> Locker {
        let builder = Locker::builder().clock(self.clock.clone()).runtime(Handle::current());
        builder.backend(Arc::clone(&self.over)).expect("a locker")
    }
}

impl Layer for Moody {
    fn capabilities(&self, inner: &Capabilities) -> Capabilities {
        let mut own = inner.clone();
        own.watch_first = !self.asks_first;
        own
    }

    async fn acquire(&self, _: &Claim, inner: impl Future<Output = Result<Attempt>> + Send) -> Result<Attempt> {
        self.acquired.fetch_add(1, Ordering::SeqCst);
        if self.acquire_fails.load(Ordering::SeqCst) {
            return Err(Error::unavailable("moody", "acquiring", Fault::Connection, "on purpose"));
        }
        if self.acquire_hangs.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        let answer = inner.await;
        if !self.acquire_takes.is_zero() {
            tokio::time::sleep(self.acquire_takes).await;
        }
        answer
    }

    async fn renew(&self, claims: &[Claim], inner: impl Future<Output = Result<Vec<Renewal>>> + Send) -> Result<Vec<Renewal>> {
        if self.renew_is_gone.load(Ordering::SeqCst) {
            self.renew_answers.notified().await;
            return Ok(vec![Renewal::Gone; claims.len()]);
        }
        let answer = inner.await;
        tokio::time::sleep(self.renew_takes).await;
        answer
    }

    async fn watch(&self, _: &Claim, inner: impl Future<Output = Result<Signal>> + Send) -> Result<Signal> {
        if self.watch_hangs.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        let ends = self.ends_in_watch.lock().expect("not poisoned").take();
        if let Some((store, claim)) = ends {
            store.release(&claim).await?;
        }
        inner.await
    }
}

#[tokio::test(start_paused = true)]
async fn a_subscription_that_hangs_does_not_outlast_the_callers_patience() {
    for watch_first in [true, false] {
        let store = Store::new(Moody { asks_first: !watch_first, ..Moody::default() });
        let (locker, other) = (store.locker(), store.locker());
        let held = other.mutex("a").lock().await.expect("locked");
        store.moody.watch_hangs.store(true, Ordering::SeqCst);
        // One in the queue subscribes before it asks, where that costs no round trip.
        let mutex = if watch_first { locker.mutex("a").fair() } else { locker.mutex("a") };
        let before = Instant::now();
        let answer = mutex.try_lock_for(Duration::from_millis(100)).await;
        assert!(before.elapsed() < Duration::from_millis(200), "answered after {:?}", before.elapsed());
        // Without an answer of the store nobody knows whether it is busy.
        assert_eq!(answer.is_err(), watch_first, "{answer:?}");
        drop(held);
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_left_while_subscribing_asks_for_nothing() {
    let store = Store::new(Moody::default());
    let locker = store.locker();
    store.moody.watch_hangs.store(true, Ordering::SeqCst);
    drop(timeout(Duration::from_millis(100), locker.mutex("a").fair().lock()).await);
    // Longer than the call timeout, on the paused clock.
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(store.moody.acquired.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn an_acquisition_that_starts_while_the_locker_closes_leaves_nothing() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    // Granted, but nobody has been told so when closing begins.
    let slow = Moody { acquire_takes: Duration::from_millis(50), ..Moody::default() };
    let store = Arc::new(Store::on(Clock::system(), slow));
    let ran = runtime.spawn({
        let store = Arc::clone(&store);
        async move {
            let locker = store.locker();
            let mut lock = Box::pin(locker.mutex("a").lock());
            let begun = std::future::poll_fn(|cx| std::task::Poll::Ready(lock.as_mut().poll(cx).is_pending())).await;
            assert!(begun);
            let (closed, locked) = tokio::join!(locker.close(), lock);
            closed.expect("closed");
            assert!(matches!(locked, Err(Error::Closed)));
        }
    });
    let ran = timeout(Duration::from_secs(20), ran).await;
    runtime.shutdown_background();
    ran.expect("ended").expect("no panic");
    let name = Resource::new("a").expect("a name");
    let state = store.over.inspect(Scope::One(&name)).await.expect("inspected").remove(0);
    assert!(state.holders.is_empty(), "{state:?}");
}

#[tokio::test(start_paused = true)]
async fn a_release_in_the_moment_of_a_loss_is_answered() {
    let store = Store::new(Moody::default());
    let locker = store.locker();
    store.moody.renew_is_gone.store(true, Ordering::SeqCst);
    // Many tries: which of the two the keeper sees first is chance.
    for i in 0..80 {
        let guard = locker.mutex(format!("{i}")).lock().await.expect("locked");
        // Longer than a third of the lease: a renewal is under way.
        tokio::time::sleep(Duration::from_millis(10_500)).await;
        store.moody.renew_answers.notify_one();
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
    let store = Store::new(Moody::default());
    let locker = store.locker();
    store.moody.acquire_fails.store(true, Ordering::SeqCst);
    let first = tokio::spawn(locker.mutex("a").lock());
    while store.moody.acquired.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    tokio::time::sleep(Duration::from_millis(1)).await;
    let error = locker.mutex("a").try_lock().await.expect_err("nobody knows that it is busy");
    assert!(error.is_transient(), "{error}");
    let error = locker.mutex("a").try_lock_for(Duration::from_millis(10)).await.expect_err("nobody knows that it is busy");
    assert!(error.is_transient(), "{error}");
    store.moody.acquire_fails.store(false, Ordering::SeqCst);
    let held = first.await.expect("no panic").expect("locked in the end");
    assert!(locker.mutex("a").try_lock().await.expect("known").is_none());
    drop(held);
}

const LEASE: Duration = Duration::from_secs(30);

#[tokio::test(start_paused = true)]
async fn a_renewed_deadline_counts_from_before_the_request_was_sent() {
    let store = Store::new(Moody { renew_takes: Duration::from_secs(2), ..Moody::default() });
    let locker = store.locker();
    let guard = locker.mutex("a").lock().await.expect("locked");
    while locker.stats().renewed == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(guard.expires_in() <= LEASE * 99 / 100 - Duration::from_secs(2), "{:?}", guard.expires_in());
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_is_confirmed_after_the_loss_changes_nothing() {
    let store = Store::new(Moody { renew_takes: Duration::from_secs(1), ..Moody::default() });
    let locker = store.locker();
    let guard = locker.mutex("a").lock().await.expect("locked");
    // A renewal is under way while the machine sleeps past the old deadline, but not past the new one.
    tokio::time::sleep(Duration::from_millis(10_200)).await;
    store.clock.jump(Duration::from_secs(20));
    assert!(!guard.is_valid());
    for _ in 0..200 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert!(!guard.is_valid(), "what was lost was taken back");
    }
    assert_eq!(guard.lost().await.reason, LostReason::Expired);
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_ends_before_the_subscription_stands_is_not_missed() {
    let store = Store::new(Moody { asks_first: true, ..Moody::default() });
    let locker = store.locker();
    let owner = tenure::backend::OwnerIds::new(ClientId::random().expect("random bits")).next();
    let claim = Claim::new(Resource::new("a").expect("a name"), owner, Mode::Exclusive, LEASE);
    assert!(matches!(store.over.acquire(&claim).await, Ok(Attempt::Granted { .. })));
    *store.moody.ends_in_watch.lock().expect("not poisoned") = Some((Arc::clone(store.over.inner()), claim));
    let locked = timeout(Duration::from_secs(1), locker.mutex("a").lock()).await;
    drop(locked.expect("long before a poll").expect("locked"));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_says_gone_ends_the_hold_at_once() {
    let store = Store::new(Moody::default());
    let locker = store.locker();
    let guard = locker.mutex("a").lock().await.expect("locked");
    locker.mutex("a").break_hold().await.expect("asked").expect("it was held");
    let lost = timeout(LEASE / 2, guard.lost()).await.expect("told by the next renewal, long before the deadline");
    assert_eq!(lost.reason, LostReason::Revoked);
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_is_gone_is_not_handed_over() {
    let store = Store::new(Moody::default());
    let locker = store.locker();
    // Many tries: whether the keeper hears of the release or of the loss first is chance.
    for i in 0..40 {
        let name = format!("{i}");
        store.moody.renew_is_gone.store(true, Ordering::SeqCst);
        let first = locker.mutex(&name).lock().await.expect("locked");
        let second = tokio::spawn(locker.mutex(&name).lock());
        tokio::time::sleep(Duration::from_millis(1)).await;
        let third = tokio::spawn(locker.mutex(&name).lock());
        tokio::time::sleep(Duration::from_millis(1)).await;
        // The second asks the store, with tokens for the third.
        first.release().await.expect("given back");
        let second = second.await.expect("no panic").expect("locked");
        tokio::time::sleep(Duration::from_millis(10_500)).await;
        locker.mutex(&name).break_hold().await.expect("asked").expect("it was held");
        let handed_over = locker.stats().handed_over;
        store.moody.renew_answers.notify_one();
        for _ in 0..i % 4 {
            tokio::task::yield_now().await;
        }
        let heard = second.watcher();
        drop(second);
        let third = third.await.expect("no panic").expect("locked");
        store.moody.renew_is_gone.store(false, Ordering::SeqCst);
        // Handed over before the answer came, it is told by its own; otherwise it has asked the store itself.
        tokio::time::sleep(Duration::from_millis(100)).await;
        let held = locker.mutex(&name).inspect().await.expect("inspected").holders;
        let is_there = held.iter().any(|h| h.owner == third.owner_id().to_string());
        assert_eq!(third.is_valid(), is_there, "{i}: handed over {} {heard:?}", locker.stats().handed_over - handed_over);
    }
}

#[tokio::test(start_paused = true)]
async fn hand_overs_end_with_the_lease_so_that_others_are_not_starved() {
    let locker = Store::new(Moody::default()).locker();
    let first = locker.mutex("a").lock().await.expect("locked");
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let lock = locker.mutex("a").lock();
        tasks.spawn(async move {
            let guard = lock.await.expect("locked");
            tokio::time::sleep(LEASE / 2).await;
            guard.release().await.expect("given back");
        });
    }
    while locker.stats().waiting < 8 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    drop(first);
    while let Some(done) = tasks.join_next().await {
        done.expect("no panic");
    }
    let stats = locker.stats();
    // At most three of half a lease each under one grant.
    assert!(stats.granted > 3 && stats.handed_over > 0, "granted {}, handed over {}", stats.granted, stats.handed_over);
}

#[tokio::test(start_paused = true)]
async fn a_hold_is_not_handed_to_one_who_asked_for_other_terms() {
    let store = Store::new(Moody::default());
    let locker = store.locker();
    let others: [fn(Mutex) -> Mutex; 3] = [|m| m.lease(LEASE * 2), |m| m.lease_fixed(LEASE), |m| m.note("other")];
    for (i, other) in others.into_iter().enumerate() {
        let mutex = locker.mutex(format!("{i}"));
        let other = other(mutex.clone());
        let first = mutex.lock().await.expect("locked");
        let second = tokio::spawn(mutex.lock());
        tokio::time::sleep(Duration::from_millis(1)).await;
        let third = tokio::spawn(other.lock());
        tokio::time::sleep(Duration::from_millis(1)).await;
        drop(first);
        // The second has asked the store, with a token for the third.
        drop(second.await.expect("no panic").expect("locked"));
        drop(third.await.expect("no panic").expect("locked"));
        assert_eq!(locker.stats().handed_over, 0);
        while locker.stats().holding > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_failed_after_a_busy_answer_is_not_reported_as_busy() {
    let store = Store::new(Moody::default());
    let (one, other) = (store.locker(), store.locker());
    let held = other.mutex("a").lock().await.expect("locked");
    let waiter = tokio::spawn(one.mutex("a").try_lock_for(Duration::from_secs(2)));
    tokio::time::sleep(Duration::from_millis(10)).await;
    store.moody.acquire_fails.store(true, Ordering::SeqCst);
    drop(held);
    while one.stats().errors == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    store.moody.acquire_hangs.store(true, Ordering::SeqCst);
    store.moody.acquire_fails.store(false, Ordering::SeqCst);
    let error = waiter.await.expect("no panic").expect_err("nobody knows whether it is busy");
    assert!(error.is_transient(), "{error}");
}
