//! What lingering promises: a lock that was released stays with its process for a while, and is nobody's secret.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure::backend::{Attempt, Backend, Claim, Client, Layer, Layered};
use tenure::backends::memory::Memory;
use tenure::clock::Clock;
use tenure::{Builder, ClientId, Locker, LostReason, Result};
use tokio::runtime::Handle;
use tokio::time::Instant;

const LINGER: Duration = Duration::from_millis(50);

/// Counts what a store is asked.
#[derive(Debug, Default)]
struct Counted {
    acquires: AtomicU64,
}

impl Layer for Counted {
    async fn acquire(&self, _: &Claim, inner: impl Future<Output = Result<Attempt>> + Send) -> Result<Attempt> {
        self.acquires.fetch_add(1, Ordering::SeqCst);
        inner.await
    }
}

fn builder() -> Builder {
    Locker::builder().clock(Clock::for_tests()).runtime(Handle::current())
}

/// One that lingers, and another client of the same store.
async fn two(name: &str) -> (Locker, Locker) {
    let url = format!("memory:{name}");
    let one = builder().linger(LINGER).connect(&url).await.expect("connected");
    (one, builder().connect(&url).await.expect("connected"))
}

#[tokio::test(start_paused = true)]
async fn the_next_lock_of_the_process_asks_nobody_and_has_the_next_token() {
    let client = Client { id: ClientId::random().expect("random bits"), about: "counted".into() };
    let store = Arc::new(Layered::new(Counted::default(), Arc::new(Memory::new(client, Clock::for_tests()))));
    let counted = Arc::clone(store.layer());
    let locker = builder().linger(LINGER).backend(store as Arc<dyn Backend>).expect("a locker");
    let mut last = 0;
    for n in 0..60 {
        let guard = if n % 2 == 0 {
            locker.mutex("a").lock().await.expect("locked")
        } else {
            locker.mutex("a").try_lock().await.expect("asked").expect("nobody else has it")
        };
        assert!(guard.token().get() > last, "tokens grow");
        last = guard.token().get();
        guard.release().await.expect("given back");
    }
    assert_eq!(counted.acquires.load(Ordering::SeqCst), 1, "the store was asked once");
    assert_eq!((locker.stats().handed_over, locker.stats().holding), (59, 0));
}

#[tokio::test(start_paused = true)]
async fn another_client_waits_for_the_linger_time_at_most_although_the_lock_is_in_use() {
    let (busy, other) = two("bounded").await;
    let first = busy.mutex("a").lock().await.expect("locked");
    let waiting = tokio::spawn(async move { other.mutex("a").lock().await.expect("locked") });
    tokio::time::sleep(Duration::from_millis(5)).await;
    first.release().await.expect("given back");
    let (released, mut most) = (Instant::now(), 0);
    let work = async {
        loop {
            let guard = busy.mutex("a").lock().await.expect("locked");
            most = most.max(guard.token().get());
            tokio::time::sleep(Duration::from_millis(1)).await;
            guard.release().await.expect("given back");
        }
    };
    let next = tokio::select! {
        () = work => unreachable!("it has no end"),
        next = waiting => next.expect("no panic"),
    };
    assert!(released.elapsed() <= LINGER + Duration::from_millis(5), "{:?}", released.elapsed());
    assert!(next.token().get() > most, "its token is larger than all that were used");
}

#[tokio::test(start_paused = true)]
async fn what_nobody_asks_for_is_given_back_when_the_time_is_over() {
    let (one, other) = two("over").await;
    one.mutex("a").lock().await.expect("locked").release().await.expect("given back");
    assert_eq!(other.mutex("a").inspect().await.expect("inspected").holders.len(), 1, "the store still shows it");
    tokio::time::sleep(LINGER + Duration::from_millis(1)).await;
    assert!(other.mutex("a").try_lock().await.expect("asked").is_some());
    assert_eq!(one.stats().holding, 0);
}

#[tokio::test(start_paused = true)]
async fn a_locker_that_is_closed_or_dropped_leaves_nothing_behind() {
    let (one, other) = two("closed").await;
    one.mutex("a").lock().await.expect("locked").release().await.expect("given back");
    one.close().await.expect("closed");
    assert!(other.mutex("a").try_lock().await.expect("asked").is_some(), "closing gives it back");

    let (one, other) = two("dropped").await;
    one.mutex("a").lock().await.expect("locked").release().await.expect("given back");
    drop(one);
    tokio::time::sleep(LINGER + Duration::from_millis(1)).await;
    assert!(other.mutex("a").try_lock().await.expect("asked").is_some(), "and so does the end of its time");
}

#[tokio::test(start_paused = true)]
async fn other_terms_are_asked_for_at_the_store() {
    let (one, other) = two("terms").await;
    let first = one.mutex("a").lock().await.expect("locked");
    let token = first.token();
    first.release().await.expect("given back");
    let noted = one.mutex("a").note("another note").try_lock().await.expect("asked").expect("nobody else has it");
    assert!(noted.token() > token);
    let holders = other.mutex("a").inspect().await.expect("inspected").holders;
    assert_eq!(holders[0].note.as_deref(), Some("another note"));
    noted.release().await.expect("given back");
    let fixed = one.mutex("a").lease_fixed(Duration::from_secs(5)).lock().await.expect("locked");
    fixed.release().await.expect("given back");
    assert!(other.mutex("a").try_lock().await.expect("asked").is_some(), "a fixed lease does not linger");
}

#[tokio::test(start_paused = true)]
async fn one_lock_may_linger_and_another_not() {
    let (one, other) = two("each").await;
    let now = one.mutex("a").linger(Duration::ZERO);
    now.lock().await.expect("locked").release().await.expect("given back");
    assert!(other.mutex("a").try_lock().await.expect("asked").is_some());
    let by_url = builder().connect("memory:each?linger=50ms").await.expect("connected");
    by_url.mutex("b").lock().await.expect("locked").release().await.expect("given back");
    assert!(other.mutex("b").try_lock().await.expect("asked").is_none(), "the URL says it, too");
}

#[tokio::test(start_paused = true)]
async fn a_short_lease_ends_the_linger_time_before_a_renewal_is_due() {
    let (one, other) = two("short").await;
    let short = one.mutex("a").lease(Duration::from_millis(60));
    short.lock().await.expect("locked").release().await.expect("given back");
    tokio::time::sleep(Duration::from_millis(21)).await;
    assert!(other.mutex("a").try_lock().await.expect("asked").is_some(), "nobody renews what no task has");
    assert_eq!(one.stats().renewed, 0);
}

#[tokio::test(start_paused = true)]
async fn a_claim_from_elsewhere_ends_the_linger_time_at_once() {
    let (one, other) = two("claimed").await;
    one.mutex("a").lock().await.expect("locked").release().await.expect("given back");
    let asked = Instant::now();
    let next = other.mutex("a").lock().await.expect("locked");
    assert_eq!(asked.elapsed(), Duration::ZERO, "the idle hold is given back by a push");
    next.release().await.expect("given back");
    // A claim that comes while a task has the lock counts for its release.
    let held = one.mutex("a").lock().await.expect("locked");
    let waiting = tokio::spawn({
        let mutex = other.mutex("a");
        async move { mutex.lock().await.expect("locked") }
    });
    tokio::time::sleep(Duration::from_millis(1)).await;
    let released = Instant::now();
    held.release().await.expect("given back");
    drop(waiting.await.expect("no panic"));
    assert_eq!(released.elapsed(), Duration::ZERO);
}

#[tokio::test]
async fn a_claim_of_another_client_of_a_file_is_told_to_the_one_that_lingers() {
    let dir = tempfile::tempdir().expect("a directory");
    let url = format!("sqlite:{}", dir.path().join("locks.db").display());
    // Far longer than the test: only a push ends it.
    let one = Locker::connect(&format!("{url}?linger=1h")).await.expect("connected");
    let other = Locker::connect(&url).await.expect("connected");
    for _ in 0..5 {
        for _ in 0..10 {
            one.mutex("a").lock().await.expect("locked").release().await.expect("given back");
        }
        let guard = tokio::time::timeout(Duration::from_secs(20), other.mutex("a").lock()).await.expect("told").expect("locked");
        guard.release().await.expect("given back");
    }
    assert_eq!((one.stats().granted, one.stats().handed_over), (5, 45));
    one.close().await.expect("closed");
    other.close().await.expect("closed");
}

#[tokio::test(start_paused = true)]
async fn a_task_with_less_time_is_looked_after_in_time() {
    let locker = builder().linger(Duration::from_secs(5)).connect("memory:").await.expect("connected");
    locker.mutex("a").lock().await.expect("locked").release().await.expect("given back");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let began = Instant::now();
    let short = locker.mutex("a").max_hold(Duration::from_millis(10)).lock().await.expect("locked");
    // The keeper's own timer stood at the end of the linger time.
    assert_eq!(short.lost().await.reason, LostReason::MaxHold);
    assert!(began.elapsed() < Duration::from_millis(50), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn one_that_does_not_linger_gives_back_what_it_was_handed() {
    let (one, other) = two("handed").await;
    one.mutex("a").lock().await.expect("locked").release().await.expect("given back");
    one.mutex("a").linger(Duration::ZERO).lock().await.expect("locked").release().await.expect("given back");
    assert!(other.mutex("a").try_lock().await.expect("asked").is_some());
}
