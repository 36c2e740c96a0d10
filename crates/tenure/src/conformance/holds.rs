//! What a holder sees.

use std::sync::Arc;
use std::time::Duration;

use super::{Subject, sure};
use crate::backend::{Mode, Pushes, Scope};
use crate::backends::faulty::Plan;
use crate::engine::guard::HoldState;
use crate::engine::owner::Owner;
use crate::error::Error;
use crate::lost::LostReason;

pub(super) async fn a_lock_is_kept_alive_past_its_lease(s: Subject) {
    let (one, other) = (s.locker().await, s.locker().await);
    let guard = one.mutex(s.name("a")).lock().await.expect("locked");
    tokio::time::sleep(s.lease() * 3).await;
    assert!(guard.is_valid());
    assert!(sure(|| other.mutex(s.name("a")).try_lock()).await.is_none());
    assert!(one.stats().renewed >= 3);
    guard.release().await.expect("given back");
}

pub(super) async fn a_fixed_lease_ends_and_says_so(s: Subject) {
    let (one, other) = (s.locker().await, s.locker().await);
    let guard = one.mutex(s.name("a")).lease_fixed(s.lease()).lock().await.expect("locked");
    assert_eq!(guard.state(), HoldState::Held);
    let lost = tokio::time::timeout(s.lease() * 2, guard.lost()).await.expect("told");
    assert_eq!((lost.reason, lost.token), (LostReason::LeaseEnded, guard.token()));
    assert_eq!(guard.state(), HoldState::Lost);
    let next = other.mutex(s.name("a")).lock().await.expect("free by now");
    assert!(next.token() > guard.token());
    assert!(matches!(guard.release().await, Err(Error::Lost(_))));
    assert!(next.is_valid());
}

pub(super) async fn max_hold_ends_a_forgotten_guard(s: Subject) {
    let (one, other) = (s.locker().await, s.locker().await);
    let max = s.lease() + s.lease() / 2;
    let forgotten = one.mutex(s.name("a")).max_hold(max).lock().await.expect("locked");
    let next = other.mutex(s.name("a")).lock().await.expect("locked after the other's time was up");
    assert_eq!(forgotten.check().expect_err("lost").reason, LostReason::MaxHold);
    assert!(next.is_valid());
}

pub(super) async fn a_broken_hold_is_told(s: Subject) {
    let (one, other) = (s.locker().await, s.locker().await);
    let guard = one.mutex(s.name("a")).lock().await.expect("locked");
    let broken = sure(|| other.mutex(s.name("a")).break_hold()).await;
    // A lost reply may have hidden the one that broke it.
    assert!(broken.is_none_or(|b| b.fence > guard.token()));
    let lost = tokio::time::timeout(s.lease() * 2, guard.lost()).await.expect("told");
    assert!(matches!(lost.reason, LostReason::Revoked | LostReason::Expired));
    let next = other.mutex(s.name("a")).lock().await.expect("locked");
    assert!(next.token() > guard.token());
}

pub(super) async fn a_broken_hold_is_told_long_before_its_next_renewal(s: Subject) {
    let (one, other) = (s.locker().await, s.locker().await);
    let can = one.capabilities();
    if can.pushes_losses == Pushes::Never {
        return;
    }
    // Renewed after twenty seconds.
    let lease = Duration::from_secs(60);
    let (mutex, rwlock) = (one.mutex(s.name("m")).lease(lease), one.rwlock(s.name("rw")).lease(lease));
    let mut held = vec![(s.name("m"), mutex.lock().await.expect("locked"))];
    held.push((s.name("fixed"), one.mutex(s.name("fixed")).lease_fixed(lease).lock().await.expect("locked")));
    if can.modes.carry(Mode::Fair) {
        held.push((s.name("fair"), one.mutex(s.name("fair")).fair().lease(lease).lock().await.expect("locked")));
    }
    if can.modes.carry(Mode::Read) {
        held.push((s.name("rw"), rwlock.read().await.expect("read")));
        held.push((s.name("w"), one.rwlock(s.name("w")).lease(lease).write().await.expect("written")));
    }
    for (name, guard) in held {
        sure(|| other.mutex(&name).break_hold()).await;
        let told = tokio::time::timeout(lease / 6, guard.lost()).await;
        assert_eq!(told.unwrap_or_else(|_| panic!("not told of {name:?}")).reason, LostReason::Revoked);
    }
}

pub(super) async fn a_lost_hold_is_never_valid_again(s: Subject) {
    let locker = s.locker().await;
    let guard = locker.mutex(s.name("a")).lock().await.expect("locked");
    sure(|| locker.mutex(s.name("a")).break_hold()).await;
    guard.lost().await;
    let again = locker.mutex(s.name("a")).lock().await.expect("locked again");
    tokio::time::sleep(s.lease()).await;
    assert!(!guard.is_valid());
    assert_eq!((guard.state(), guard.expires_in()), (HoldState::Lost, Duration::ZERO));
    assert!(guard.reenter().is_err());
    assert!(again.is_valid());
}

pub(super) async fn run_drops_its_future_on_loss(s: Subject) {
    let locker = s.locker().await;
    let guard = locker.mutex(s.name("a")).lock().await.expect("locked");
    assert_eq!(guard.run(async { 7 }).await.expect("held"), 7);
    let alive = Arc::new(());
    let work = {
        let alive = Arc::clone(&alive);
        async move {
            let _alive = alive;
            std::future::pending::<()>().await;
        }
    };
    sure(|| locker.mutex(s.name("a")).break_hold()).await;
    guard.run(work).await.expect_err("lost");
    assert_eq!(Arc::strong_count(&alive), 1);
    guard.run(async { panic!("must not run under a lost lock") }).await.expect_err("still lost");
}

pub(super) async fn a_dropped_guard_gives_the_lock_back(s: Subject) {
    let (one, other) = (s.locker().await, s.locker().await);
    drop(one.mutex(s.name("a")).lock().await.expect("locked"));
    let locked = tokio::time::timeout(s.lease() / 2, other.mutex(s.name("a")).lock()).await;
    locked.expect("long before the lease could end").expect("locked").release().await.expect("given back");
}

pub(super) async fn an_owner_reenters_with_the_same_token(s: Subject) {
    let (locker, other) = (s.locker().await, s.locker().await);
    let (owner, stranger) = (Owner::new(), Owner::new());
    let mutex = locker.mutex(s.name("a"));
    let outer = mutex.clone().owner(&owner).lock().await.expect("locked");
    let before = locker.stats().granted;
    let inner = mutex.clone().owner(&owner).try_lock().await.expect("asked").expect("re-entered");
    let third = mutex.clone().owner(&owner).try_lock_for(s.lease()).await.expect("asked").expect("re-entered");
    assert_eq!((outer.token(), outer.token()), (inner.token(), third.token()));
    assert_eq!((outer.hold_count(), locker.stats().granted, locker.stats().reentered), (3, before, 2));
    assert!(sure(|| mutex.clone().owner(&stranger).try_lock()).await.is_none());
    assert!(sure(|| mutex.try_lock()).await.is_none());
    drop(outer);
    third.release().await.expect("one of three");
    assert!(inner.is_valid());
    assert!(sure(|| other.mutex(s.name("a")).try_lock()).await.is_none());
    assert_eq!(inner.hold_count(), 1);
    inner.release().await.expect("the last one");
    assert!(sure(|| other.mutex(s.name("a")).try_lock()).await.is_some());
}

pub(super) async fn a_scope_reenters_without_being_named(s: Subject) {
    let locker = s.locker().await;
    let mutex = locker.mutex(s.name("a"));
    let owner = Owner::new();
    let both = owner.scope(async {
        let outer = mutex.lock().await.expect("locked");
        let inner = mutex.lock().await.expect("did not block itself");
        (outer.token(), inner.token())
    });
    let (outer, inner) = both.await;
    assert_eq!(outer, inner);
    // Concurrent calls of one owner meet in one hold.
    let pair = owner.scope(async { tokio::join!(mutex.lock(), mutex.lock()) }).await;
    assert_eq!(pair.0.expect("locked").token(), pair.1.expect("re-entered").token());
}

pub(super) async fn closing_gives_everything_back(s: Subject) {
    let (one, other) = (s.locker().await, s.locker().await);
    let guard = one.mutex(s.name("a")).lock().await.expect("locked");
    drop(one.mutex(s.name("b")).lock().await.expect("locked"));
    let waiting = tokio::spawn(one.mutex(s.name("a")).lock());
    tokio::task::yield_now().await;
    one.close().await.expect("closed");
    one.close().await.expect("closing twice is no error");
    assert!(matches!(waiting.await.expect("no panic"), Err(Error::Closed)));
    assert_eq!(guard.check().expect_err("lost").reason, LostReason::Closed);
    assert!(matches!(one.mutex("a").try_lock().await, Err(Error::Closed)));
    for name in ["a", "b"] {
        let locked = tokio::time::timeout(s.lease() / 2, other.mutex(s.name(name)).lock()).await;
        locked.expect("before the lease could end").expect("locked").release().await.expect("given back");
    }
}

pub(super) async fn a_grant_that_comes_too_late_is_not_taken(s: Subject) {
    // The second answer of this client, and every other one after it, comes after the lease has ended.
    let plan = Plan { delay_every: 2, delay: s.lease() + s.lease() / 5, ..Plan::default() };
    let (locker, honest) = (s.locker_over(s.peer_with(Some(plan)).await), s.peer_with(None).await);
    for name in ["a", "b"] {
        let guard = locker.mutex(s.name(name)).lease_fixed(s.lease()).lock().await.expect("locked in the end");
        assert!(guard.is_valid(), "a guard that is handed out is valid");
        let holders = sure(|| honest.backend.inspect(Scope::One(guard.resource()))).await.remove(0).holders;
        let is_there = holders.iter().any(|h| h.owner == guard.owner_id().to_string());
        assert!(is_there || !guard.is_valid(), "valid no longer than at the store");
    }
}
