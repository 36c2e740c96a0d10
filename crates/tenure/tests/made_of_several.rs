//! What the engine does with the answers that only a store made of several gives.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::backend::{Attempt, Claim, Client, Layer, Layered, NodeState, Nodes, Opened, Renewal, Retry, Standing};
use tenure::backends::memory::Memory;
use tenure::clock::Clock;
use tenure::signal::{Hub, Signal};
use tenure::{ClientId, HoldState as Held, Locker, LostReason, Result};
use tokio::runtime::Handle;
use tokio::time::Instant;

const PAUSE: Duration = Duration::from_millis(40);

/// A memory store that says what it is told to say first.
#[derive(Debug, Default)]
struct Scripted {
    /// How often it says that several asked at once.
    collisions: AtomicUsize,
    asked: AtomicUsize,
    /// Names of which renewals know nothing.
    unknown: Mutex<VecDeque<&'static str>>,
    hub: Hub,
}

impl Scripted {
    fn with(collisions: usize) -> (Arc<Self>, Locker) {
        let clock = Clock::for_tests();
        let client = Client { id: ClientId::random().expect("random bits"), about: "scripted".into() };
        let memory = Arc::new(Memory::new(client, clock.clone()));
        let store = Arc::new(Layered::new(Self { collisions: AtomicUsize::new(collisions), ..Self::default() }, memory));
        let scripted = Arc::clone(store.layer());
        let opened = Opened::from(store).with_nodes(Arc::<Self>::clone(&scripted));
        let locker = Locker::builder().clock(clock).runtime(Handle::current()).backend(opened).expect("a locker");
        (scripted, locker)
    }
}

impl Nodes for Scripted {
    fn nodes(&self) -> Vec<NodeState> {
        vec![NodeState::new("one", Standing::Counts)]
    }
}

impl Layer for Scripted {
    async fn acquire(&self, claim: &Claim, inner: impl Future<Output = Result<Attempt>> + Send) -> Result<Attempt> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let fewer = |n: usize| n.checked_sub(1);
        if self.collisions.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fewer).is_ok() {
            // As others do who collided, and give their votes back.
            self.hub.fire(claim.resource.as_str());
            return Ok(Attempt::Busy { retry: Retry::After(PAUSE), holder: None });
        }
        inner.await
    }

    async fn renew(&self, claims: &[Claim], inner: impl Future<Output = Result<Vec<Renewal>>> + Send) -> Result<Vec<Renewal>> {
        let mut answers = inner.await?;
        let unknown = self.unknown.lock().expect("not poisoned");
        for (answer, _) in answers.iter_mut().zip(claims).filter(|(_, claim)| unknown.contains(&claim.resource.as_str())) {
            *answer = Renewal::Unknown(tenure::Fault::Timeout);
        }
        Ok(answers)
    }

    async fn watch(&self, claim: &Claim, _: impl Future<Output = Result<Signal>> + Send) -> Result<Signal> {
        Ok(self.hub.listen(claim.resource.as_str()).0)
    }
}

#[tokio::test(start_paused = true)]
async fn those_who_collided_wait_their_pause_also_when_they_are_woken() {
    let (store, locker) = Scripted::with(3);
    let start = Instant::now();
    let guard = locker.mutex("a").lock().await.expect("locked");
    assert!(start.elapsed() >= 3 * PAUSE, "a signal has cut a pause short: {:?}", start.elapsed());
    assert_eq!(store.asked.load(Ordering::SeqCst), 4);
    assert!(guard.is_valid());
}

#[tokio::test(start_paused = true)]
async fn one_who_does_not_wait_asks_a_few_times_among_others() {
    let (store, locker) = Scripted::with(3);
    assert!(locker.mutex("a").try_lock().await.expect("answered").is_some(), "a free lock, after three collisions");
    let (crowded, locker) = Scripted::with(1000);
    assert!(locker.mutex("a").try_lock().await.expect("answered").is_none());
    let asked = crowded.asked.load(Ordering::SeqCst);
    assert!(asked > store.asked.load(Ordering::SeqCst) && asked < 10, "{asked} times");
}

#[tokio::test(start_paused = true)]
async fn a_wait_among_those_who_collide_is_bounded() {
    let (_, locker) = Scripted::with(usize::MAX);
    let start = Instant::now();
    let granted = locker.mutex("a").try_lock_for(10 * PAUSE).await.expect("answered");
    assert!(granted.is_none());
    assert!(start.elapsed() < 12 * PAUSE, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn what_is_unknown_of_one_hold_costs_no_other() {
    let (store, locker) = Scripted::with(0);
    let known = locker.mutex("known").lock().await.expect("locked");
    let unknown = locker.mutex("unknown").lock().await.expect("locked");
    store.unknown.lock().expect("not poisoned").push_back("unknown");
    let lost = unknown.lost().await;
    assert_eq!(lost.reason, LostReason::Expired, "by the deadline, and not before");
    assert_eq!(known.state(), Held::Held);
    assert!(known.expires_in() > Duration::from_secs(10), "{:?} left", known.expires_in());
    assert!(locker.stats().renewal_failures > 0);
}

#[tokio::test(start_paused = true)]
async fn a_hold_survives_a_renewal_of_which_nothing_is_known() {
    let (store, locker) = Scripted::with(0);
    let guard = locker.mutex("a").lock().await.expect("locked");
    store.unknown.lock().expect("not poisoned").push_back("a");
    while guard.state() == Held::Held {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(guard.state(), Held::Unsure);
    store.unknown.lock().expect("not poisoned").clear();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(guard.state(), Held::Held);
}

#[tokio::test(start_paused = true)]
async fn stats_name_the_members() {
    let (_, locker) = Scripted::with(0);
    assert_eq!(locker.stats().nodes.len(), 1);
}
