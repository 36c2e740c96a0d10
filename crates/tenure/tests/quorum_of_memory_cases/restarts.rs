//! A restarted node has forgotten its votes, and must not count too soon.

use std::time::Duration;

use super::set::{LEASE, Set};
use tenure::backend::OwnerIds;
use tenure::backend::{Attempt, Backend, Claim, Mode, Renewal, Standing};
use tenure::backends::quorum::Settings;
use tenure::{ClientId, LostReason, Resource};
use tokio::time::Instant;

#[tokio::test(start_paused = true)]
async fn a_node_that_lost_a_vote_is_given_it_again_only_by_a_majority() {
    let set = Set::of(3);
    let locker = set.locker().await;
    let guard = locker.mutex("a").lock().await.expect("locked");
    set.eventually("a", &[0, 1, 2]).await;
    set.node(1).restart();
    set.eventually("a", &[0, 1, 2]).await;
    assert!(guard.is_valid());
    // The majority has lost it: nothing is given to anybody, and what is left goes.
    set.node(0).restart();
    set.node(1).restart();
    let lost = guard.lost().await;
    assert_eq!(lost.reason, LostReason::Revoked);
    set.eventually("a", &[]).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_restarted_does_not_count_until_the_longest_lease_has_passed() {
    let set = Set::of(3);
    let locker = set.locker().await;
    drop(locker.mutex("warm").lock().await.expect("locked"));
    set.node(0).restart();
    set.away(&[1], true);
    let error = locker.mutex("a").try_lock().await.expect_err("one vote that counts");
    assert!(error.is_transient(), "{error}");
    assert!(error.to_string().contains("node 0: recently restarted"), "{error}");
    let members = locker.stats().nodes;
    assert!(matches!(members[0].standing, Standing::Quarantined { left } if left <= LEASE), "{members:?}");
    let start = Instant::now();
    let guard = locker.mutex("a").lock().await.expect("locked when it counts again");
    assert!(start.elapsed() > LEASE * 9 / 10, "after {:?}", start.elapsed());
    assert!(guard.is_valid());
    assert!(matches!(locker.stats().nodes[0].standing, Standing::Counts));
}

#[tokio::test(start_paused = true)]
async fn the_quarantine_lasts_as_long_as_the_longest_lease_of_any_client() {
    let set = Set::of(3);
    let long = set.locker_with(Settings { lease: LEASE * 10, ..Settings::default() }).await;
    let short = set.locker().await;
    drop(long.mutex("warm").lock().await.expect("locked"));
    drop(short.mutex("warm").lock().await.expect("locked"));
    set.node(0).restart();
    set.away(&[1], true);
    tokio::time::sleep(LEASE * 5).await;
    short.mutex("a").try_lock().await.expect_err("one vote that counts");
    tokio::time::sleep(LEASE * 6).await;
    assert!(short.mutex("a").try_lock().await.expect("asked").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_comes_into_use_later_quarantines_nobody() {
    let set = Set::of(3);
    set.stores.iter().for_each(|node| node.layer().restart());
    tokio::time::sleep(LEASE + Duration::from_secs(5)).await;
    let early = set.locker().await;
    let guard = early.mutex("early").lock().await.expect("locked");
    // By one who comes with a lease that is much longer than the nodes are old.
    let long = set.locker().await;
    let _long = long.mutex("long").lease(LEASE * 100).lock().await.expect("locked");
    tokio::time::sleep(LEASE * 2).await;
    assert!(guard.is_valid(), "{:?}", guard.state());
    let late = set.locker().await;
    assert!(late.mutex("late").try_lock().await.expect("asked").is_some());
    // But what is forgotten in a restart from now on may be of that length.
    set.node(0).restart();
    set.away(&[1], true);
    tokio::time::sleep(LEASE * 50).await;
    for locker in [&early, &set.locker().await] {
        let error = locker.mutex("x").try_lock().await.expect_err("one vote that counts").to_string();
        assert!(error.contains("node 0: recently restarted"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_has_been_idle_asks_the_others_before_a_restarted_node_counts() {
    let set = Set::of(3);
    let idle = set.locker().await;
    let _long = set.locker_with(Settings { lease: LEASE * 10, ..Settings::default() }).await;
    set.node(0).restart();
    set.away(&[1], true);
    // Longer than the longest lease that the idle one knows of.
    tokio::time::sleep(LEASE * 2).await;
    for _ in 0..3 {
        let error = idle.mutex("a").try_lock().await.expect_err("one vote that counts").to_string();
        assert!(error.contains("node 0: recently restarted"), "{error}");
    }
    tokio::time::sleep(LEASE * 9).await;
    assert!(idle.mutex("a").try_lock().await.expect("asked").is_some());
}

/// Two of five restart within a moment, and the one that could tell of the lease is slow.
#[tokio::test(start_paused = true)]
async fn nodes_that_forgot_are_no_witnesses_for_each_other() {
    let set = Set::of(5);
    let holder = set.locker().await;
    set.away(&[3, 4], true);
    let guard = holder.mutex("a").lease_fixed(LEASE).lock().await.expect("locked");
    set.away(&[3, 4], false);
    tokio::time::sleep(Duration::from_secs(1)).await;
    set.node(1).restart();
    tokio::time::sleep(Duration::from_secs(1)).await;
    set.node(0).restart();
    tokio::time::sleep(Duration::from_secs(2)).await;
    set.node(2).answers_take(Duration::from_millis(60));
    let other = set.locker().await;
    while guard.is_valid() {
        let second = other.mutex("a").try_lock().await;
        assert!(!guard.is_valid() || !matches!(second, Ok(Some(_))), "two hold it");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    drop(tokio::time::timeout(LEASE * 2, other.mutex("a").lock()).await.expect("in time").expect("locked"));
}

/// With one lease longer than the other, for one who comes anew and for one who was there.
#[tokio::test(start_paused = true)]
async fn who_may_know_of_a_longer_lease_is_waited_for() {
    for newcomer in [true, false] {
        let set = Set::of(3);
        let (holder, old) = (set.locker().await, set.locker().await);
        drop(old.mutex("warm").lock().await.expect("locked"));
        set.away(&[2], true);
        let guard = holder.mutex("a").lease_fixed(LEASE * 2).lock().await.expect("locked");
        set.away(&[2], false);
        set.node(0).restart();
        tokio::time::sleep(LEASE + Duration::from_secs(3)).await;
        set.node(1).answers_take(Duration::from_millis(60));
        let other = if newcomer { set.locker().await } else { old };
        while guard.is_valid() {
            let second = other.mutex("a").try_lock().await;
            assert!(!guard.is_valid() || !matches!(second, Ok(Some(_))), "two hold it (newcomer: {newcomer})");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

fn claim(name: &str, lease: Duration) -> Claim {
    let owner = OwnerIds::new(ClientId::random().expect("random bits")).next();
    let resource = Resource::new(name).expect("a name");
    Claim::new(resource, owner, Mode::Exclusive, lease)
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_has_lapsed_is_not_granted_again_under_its_token() {
    let lease = Duration::from_secs(1);
    let set = Set::of(3);
    let settings = || Settings { quarantine: false, ..Settings::default() };
    let (one, other) = (set.quorum(settings()).await.expect("one"), set.quorum(settings()).await.expect("two"));
    set.away(&[2], true);
    let (first, second) = (claim("a", lease), claim("a", lease));
    let Ok(Attempt::Granted { token, .. }) = one.acquire(&first).await else { panic!("not granted") };
    // One node counts a little slower.
    tokio::time::sleep(lease - Duration::from_millis(10)).await;
    let slower = Claim { resource: set.node(0).named("a"), ..first.clone() };
    assert!(matches!(set.node(0).memory.renew(&[slower]).await.as_deref(), Ok([Renewal::Extended { .. }])));
    tokio::time::sleep(Duration::from_millis(20)).await;
    set.away(&[2], false);
    let Ok(Attempt::Granted { token: larger, .. }) = other.acquire(&second).await else { panic!("not granted") };
    assert!(larger > token);
    other.release(&second).await.expect("given back");
    tokio::time::sleep(Duration::from_millis(50)).await;
    // One of those who know has forgotten, and one is away: only the time is larger than both tokens.
    set.node(2).restart();
    set.away(&[1], true);
    for _ in 0..3 {
        if let Ok(Attempt::Granted { token: again, .. }) = one.acquire(&first).await {
            assert!(again > larger, "{again} after {larger}");
        }
    }
}
