//! What the engine does on a store of many servers: parts that fail by themselves, and failovers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tenure::backend::{Attempt, Capabilities, Claim, Client, Layer, Layered, Renewal};
use tenure::backends::memory::Memory;
use tenure::clock::Clock;
use tenure::signal::{Hub, Signal};
use tenure::{ClientId, Error, Fault, HoldState as Held, Locker, LostReason, Resource, Result};
use tokio::runtime::Handle;
use tokio::time::Instant;

/// A memory store in which each first letter of a name is a part of its own. Part `b` renews nothing.
#[derive(Debug, Default)]
struct Parted {
    fails_over: bool,
    down: AtomicBool,
    hub: Hub,
}

impl Parted {
    fn new(fails_over: bool) -> (Arc<Self>, Locker) {
        let clock = Clock::for_tests();
        let client = Client { id: ClientId::random().expect("random bits"), about: "parted".into() };
        let memory = Arc::new(Memory::new(client, clock.clone()));
        let store = Arc::new(Layered::new(Self { fails_over, ..Self::default() }, memory));
        let parted = Arc::clone(store.layer());
        (parted, Locker::builder().clock(clock).runtime(Handle::current()).backend(store).expect("a locker"))
    }
}

fn part_of(name: &Resource) -> u32 {
    u32::from(name.as_str().as_bytes()[0])
}

impl Layer for Parted {
    fn capabilities(&self, inner: &Capabilities) -> Capabilities {
        let mut own = inner.clone();
        own.fails_over = self.fails_over;
        own
    }

    fn partition(&self, name: &Resource, _: u32) -> u32 {
        part_of(name)
    }

    async fn acquire(&self, _: &Claim, inner: impl Future<Output = Result<Attempt>> + Send) -> Result<Attempt> {
        if self.down.load(Ordering::SeqCst) {
            return Err(Error::unavailable("parted", "acquiring", Fault::Connection, "down"));
        }
        inner.await
    }

    async fn renew(&self, claims: &[Claim], inner: impl Future<Output = Result<Vec<Renewal>>> + Send) -> Result<Vec<Renewal>> {
        let part = part_of(&claims[0].resource);
        assert!(claims.iter().all(|claim| part_of(&claim.resource) == part), "a call for each part");
        if part == u32::from(b'b') {
            std::future::pending::<()>().await;
        }
        inner.await
    }

    async fn watch(&self, claim: &Claim, _: impl Future<Output = Result<Signal>> + Send) -> Result<Signal> {
        Ok(self.hub.listen(claim.resource.as_str()).0)
    }
}

#[tokio::test(start_paused = true)]
async fn trouble_in_one_part_costs_no_hold_elsewhere() {
    let (_, locker) = Parted::new(true);
    let mut guards = Vec::new();
    for name in ["a1", "b1", "c1", "a2", "b2", "c2"] {
        guards.push(locker.mutex(name).lock().await.expect("locked"));
    }
    tokio::time::sleep(Duration::from_secs(100)).await;
    for guard in guards {
        if guard.resource().as_str().starts_with('b') {
            assert_eq!(guard.check().expect_err("lost").reason, LostReason::Expired);
        } else {
            assert_eq!(guard.state(), Held::Held, "{:?}", guard.resource());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_store_that_is_away_asks_at_once_when_it_is_back() {
    let (store, locker) = Parted::new(true);
    store.down.store(true, Ordering::SeqCst);
    let waiter = tokio::spawn(locker.mutex("a").lock());
    // By now the pauses between two attempts are longer than what follows.
    tokio::time::sleep(Duration::from_secs(20)).await;
    store.down.store(false, Ordering::SeqCst);
    let back = Instant::now();
    store.hub.fire_all();
    drop(waiter.await.expect("no panic").expect("locked"));
    assert!(back.elapsed() < Duration::from_millis(200), "after {:?}", back.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_over_is_asked_for_about_a_minute() {
    let mut patience = Vec::new();
    for fails_over in [false, true] {
        let (store, locker) = Parted::new(fails_over);
        store.down.store(true, Ordering::SeqCst);
        let before = Instant::now();
        let error = locker.mutex("a").lock().await.expect_err("down");
        assert_eq!(error.fault(), Some(Fault::Connection));
        patience.push(before.elapsed());
        // Who does not wait is told at once in any case.
        let before = Instant::now();
        locker.mutex("a").try_lock().await.expect_err("down");
        assert!(before.elapsed() < Duration::from_secs(1));
    }
    assert!(patience[0] < Duration::from_secs(10), "{patience:?}");
    assert!((Duration::from_secs(35)..Duration::from_secs(90)).contains(&patience[1]), "{patience:?}");
}
