//! No hold is lost because of others.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::slow::{CALL, Slow, WHILE, lockers};
use tenure::Error;
use tokio::time::Instant;

#[tokio::test(start_paused = true)]
async fn a_renewal_that_panics_costs_no_hold() {
    let (store, locker, _) = lockers(Slow::default());
    let mut held = Vec::new();
    for i in 0..100 {
        held.push(locker.mutex(format!("{i}")).lock().await.expect("locked"));
    }
    store.renew_panics.store(true, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!store.renew_panics.load(Ordering::SeqCst), "it was renewed");
    assert!(locker.stats().renewal_failures > 0);
    let lost = held.iter().filter(|guard| !guard.is_valid()).count();
    assert_eq!(lost, 0, "holds were lost although the store panicked only once");
}

#[tokio::test(start_paused = true)]
async fn short_leases_survive_beside_thousands_of_long_ones() {
    let (_, locker, _) = lockers(Slow { claim_takes: Duration::from_micros(30), ..Slow::default() });
    let long = Duration::from_secs(30);
    let mut held = Vec::new();
    for i in 0..9000 {
        held.push(locker.mutex(format!("long {i}")).lease(long).lock().await.expect("locked"));
    }
    for i in 0..20 {
        held.push(locker.mutex(format!("short {i}")).lease(Duration::from_millis(200)).lock().await.expect("locked"));
    }
    // Several renewals of the long ones, hundreds of the short ones.
    tokio::time::sleep(2 * long).await;
    let lost = held.iter().filter(|guard| !guard.is_valid()).count();
    assert_eq!(lost, 0, "holds were lost although the store renewed all that it was asked to");
}

#[tokio::test(start_paused = true)]
async fn short_leases_survive_the_release_of_thousands() {
    let (_, locker, other) = lockers(Slow { claim_takes: Duration::from_micros(30), ..Slow::default() });
    let mut long = Vec::new();
    for i in 0..9000 {
        long.push(locker.mutex(format!("long {i}")).lock().await.expect("locked"));
    }
    let mut short = Vec::new();
    for i in 0..20 {
        short.push(locker.mutex(format!("short {i}")).lease(Duration::from_millis(200)).lock().await.expect("locked"));
    }
    drop(long);
    // The last one is free as soon as the store could do all of it.
    let last = other.mutex("long 8999").try_lock_for(Duration::from_secs(1)).await.expect("asked");
    drop(last.expect("it was given back"));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let lost = short.iter().filter(|guard| !guard.is_valid()).count();
    assert_eq!(lost, 0, "holds were lost because others were given back");
}

#[tokio::test(start_paused = true)]
async fn thousands_of_releases_that_hang_keep_no_turn_for_longer_than_one_call_may_take() {
    let (store, locker, _) = lockers(Slow::default());
    let mut held = Vec::new();
    for i in 0..1500 {
        held.push(locker.mutex(format!("{i}")).lock().await.expect("locked"));
    }
    store.release_hangs.store(true, Ordering::SeqCst);
    store.acquire_hangs.store(true, Ordering::SeqCst);
    let confirmed = tokio::spawn(held.pop().expect("the last one").release());
    drop(held);
    let start = Instant::now();
    let refused = confirmed.await.expect("no panic");
    assert!(refused.as_ref().is_err_and(Error::is_transient), "{refused:?}");
    let asked = store.asked.load(Ordering::SeqCst);
    let last = tokio::spawn(locker.mutex("1498").lock());
    while store.asked.load(Ordering::SeqCst) == asked {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(start.elapsed() < CALL + WHILE, "the next one asked after {:?}", start.elapsed());
    last.abort();
}
