//! Nodes that are away: stopped, cut off, or silent.

use std::time::{Duration, Instant};

use tenure::LostReason;
use tenure::backend::Standing;

use super::common::{AWAY, Away, Client, LEASE, LONG, OPTIONS, holds_for, nothing_is_left, write};
use tenure_testkit::fenced::Fenced;
use tenure_testkit::locker::{block_on, connect, must};
use tenure_testkit::quorum::QuorumSet;
use tenure_testkit::{Needs, Test};

/// Each with every way of being away.
pub(crate) fn tests() -> Vec<Test> {
    let mut tests = Vec::new();
    for away in AWAY {
        let name = format!("{away:?}").to_lowercase();
        let mut add = |sentence: &str, run: fn(Away)| {
            tests.push(Test::new(format!("{name}::{sentence}"), Needs::Cc, move || run(away)));
        };
        add("two_of_five_away_cost_no_hold_and_no_waiter", |away| block_on(two_of_five_away(away)));
        add("a_try_is_not_slower_for_two_of_five_away", |away| block_on(a_try_is_not_slower(away)));
        add("with_three_of_five_away_the_holder_is_told", |away| block_on(three_of_five_away(away)));
        add("with_three_of_five_away_an_error_says_what_each_said", |away| block_on(what_each_said(away)));
        add("a_quorum_is_reached_with_a_minority_away", |away| block_on(one_of_three_away(away)));
    }
    tests
}

async fn two_of_five_away(away: Away) {
    let (set, store) = (QuorumSet::old(5), Fenced::default());
    let (one, other) = (Client::of(&set, OPTIONS).await, Client::of(&set, OPTIONS).await);
    let guard = one.locker.mutex("L").lock().await.expect("locked");
    write(&store, &guard, "one");
    let waiter = tokio::spawn(other.locker.mutex("L").lock());
    waits(&other).await;
    away.take(&set, &[&one.ways, &other.ways], &[1, 3]);
    holds_for(&guard, LEASE * 3).await;
    assert!(!waiter.is_finished());
    write(&store, &guard, "one");
    let first = guard.token();
    guard.release().await.expect("given back");
    let given_back = Instant::now();
    let second = must("the waiter is woken", waiter).await.expect("no panic").expect("locked");
    // Not when a lease would have ended.
    assert!(given_back.elapsed() < LEASE / 2, "woken after {:?}", given_back.elapsed());
    assert!(second.token() > first);
    write(&store, &second, "other");
    assert!(store.write("L", first, "one").is_err());
    let mut last = second.token();
    second.release().await.expect("given back");
    for client in [&one, &other, &one, &other] {
        let guard = must("locks are granted", client.locker.mutex("L").lock()).await.expect("locked");
        assert!(guard.token() > last);
        write(&store, &guard, "one of both");
        last = guard.token();
        guard.release().await.expect("given back");
    }
    away.bring_back(&set, &[&one.ways, &other.ways], &[1, 3]);
    nothing_is_left(&set);
    assert_eq!(store.log("L").rejected.len(), 1);
}

async fn a_try_is_not_slower(away: Away) {
    let set = QuorumSet::old(5);
    let client = Client::of(&set, LONG).await;
    let (mut with_all, mut without) = (Vec::new(), Vec::new());
    // By turns, so that other work on this machine slows down both.
    for _ in 0..5 {
        tries(&client, &mut with_all).await;
        away.take(&set, &[&client.ways], &[0, 2]);
        tries(&client, &mut without).await;
        away.bring_back(&set, &[&client.ways], &[0, 2]);
    }
    let (with_all, without) = (median(with_all), median(without));
    println!("{away:?}: a try takes {without:?}, with all nodes {with_all:?}");
    assert!(without < with_all * 10, "{without:?}, with all nodes {with_all:?}");
}

async fn tries(client: &Client, took: &mut Vec<Duration>) {
    for _ in 0..10 {
        let start = Instant::now();
        let guard = client.locker.mutex("L").try_lock().await.expect("answered").expect("free");
        took.push(start.elapsed());
        guard.release().await.expect("given back");
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

async fn three_of_five_away(away: Away) {
    let (set, store) = (QuorumSet::old(5), Fenced::default());
    let client = Client::of(&set, OPTIONS).await;
    let guard = client.locker.mutex("L").lock().await.expect("locked");
    write(&store, &guard, "first");
    away.take(&set, &[&client.ways], &[0, 2, 4]);
    let (left, since) = (guard.expires_in(), Instant::now());
    let lost = must("told", guard.lost()).await;
    assert_eq!((lost.reason, guard.is_valid()), (LostReason::Expired, false));
    // A renewal that was under way may have counted; a lease more is generous.
    assert!(left <= LEASE && since.elapsed() < left + LEASE, "told after {:?}", since.elapsed());
    let waiter = tokio::spawn(client.locker.mutex("L").lock());
    away.bring_back(&set, &[&client.ways], &[0, 2, 4]);
    let next = must("granted again", waiter).await.expect("no panic").expect("locked");
    assert!(next.token() > guard.token());
    write(&store, &next, "second");
    store.write("L", guard.token(), "first").expect_err("stale");
    next.release().await.expect("given back");
    nothing_is_left(&set);
}

async fn what_each_said(away: Away) {
    let set = QuorumSet::old(5);
    let client = Client::of(&set, OPTIONS).await;
    away.take(&set, &[&client.ways], &[0, 2, 4]);
    let start = Instant::now();
    let error = client.locker.mutex("L").try_lock().await.expect_err("too few nodes");
    // Asked twice, each time for as long as a node may take, which is a tenth of the lease. TCP would take minutes.
    assert!(start.elapsed() < LEASE, "{:?}", start.elapsed());
    assert!(error.is_transient(), "{error}");
    let said = error.to_string();
    for cable in &client.ways.cables {
        assert!(said.contains(&format!("127.0.0.1:{}: ", cable.port)), "{said}");
    }
    assert_eq!(said.matches(": has answered").count(), 2, "{said}");
    let members = client.locker.stats().nodes;
    let is_away: Vec<bool> = members.iter().map(|member| matches!(member.standing, Standing::Away { .. })).collect();
    assert_eq!(is_away, [true, false, true, false, true], "{members:?}");
    away.bring_back(&set, &[&client.ways], &[0, 2, 4]);
    must("granted again", client.locker.mutex("L").lock()).await.expect("locked").release().await.expect("given back");
    nothing_is_left(&set);
}

async fn one_of_three_away(away: Away) {
    let set = QuorumSet::old(3);
    let ways = set.ways();
    away.take(&set, &[&ways], &[1]);
    let locker = must("connected", connect(&ways.url(&format!("{OPTIONS}&timeout=1s")))).await;
    let guard = must("granted", locker.mutex("L").lock()).await.expect("locked");
    away.bring_back(&set, &[&ways], &[1]);
    must("the renewals give it a vote", async {
        while set.with_key("L").len() < 3 {
            assert!(guard.is_valid());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    guard.release().await.expect("given back");
    nothing_is_left(&set);
}

async fn waits(client: &Client) {
    must("it is seen to wait", async {
        while client.locker.mutex("L").inspect().await.ok().and_then(|state| state.waiting) != Some(1) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}
