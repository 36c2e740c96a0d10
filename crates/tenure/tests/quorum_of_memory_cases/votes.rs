//! Which votes make a lock, and what the error says where they do not.

use std::sync::Arc;
use std::time::Duration;

use super::set::{Set, node};
use tenure::backend::{Backend, Mode, Voter};
use tenure::backends::quorum::Settings;
use tenure::{Error, LostReason, Token};

#[tokio::test(start_paused = true)]
async fn a_late_vote_is_kept_while_the_hold_lasts_and_given_back_with_it() {
    let set = Set::of(3);
    let locker = set.locker().await;
    set.node(2).answers_take(Duration::from_millis(500));
    let guard = locker.mutex("a").lock().await.expect("locked by the others");
    set.eventually("a", &[0, 1, 2]).await;
    guard.release().await.expect("given back");
    set.eventually("a", &[]).await;
    // Given back before the late vote has come.
    let guard = locker.mutex("a").lock().await.expect("locked by the others");
    guard.release().await.expect("given back");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(set.with("a").await, Vec::<usize>::new());
}

#[tokio::test(start_paused = true)]
async fn a_token_stands_on_a_majority_and_is_larger_than_any_that_did() {
    let set = Set::of(3);
    let locker = set.locker().await;
    let first = locker.mutex("a").lock().await.expect("locked");
    let ahead = Token::new(first.token().get() + 3_600_000_000);
    first.release().await.expect("given back");
    // One node is an hour ahead, as if its clock had been, and one is away: it takes part in every majority.
    let node = set.node(0);
    assert!(node.memory.break_above(&node.named("a"), ahead).await.expect("raised").is_none());
    set.away(&[2], true);
    let second = locker.mutex("a").lock().await.expect("locked");
    assert!(second.token() > ahead, "{} after {ahead}", second.token());
    let third = second.token();
    second.release().await.expect("given back");
    // The node that had it alone goes away: the token must stand elsewhere too.
    set.away(&[2], false);
    set.away(&[0], true);
    let last = locker.mutex("a").lock().await.expect("locked");
    assert!(last.token() > third, "{} after {third}", last.token());
}

#[tokio::test(start_paused = true)]
async fn what_a_majority_cannot_decide_is_not_supported() {
    let quorum = Set::of(3).quorum(Settings::default()).await.expect("connected");
    let carried = |mode| quorum.capabilities().modes.carry(mode);
    assert!([Mode::Exclusive, Mode::Read, Mode::Write, Mode::Downgrade].into_iter().all(carried));
    assert!(![Mode::Fair, Mode::Permits { take: 1, of: 2 }, Mode::CountZero].into_iter().any(carried));
    let set = Set::of(3);
    let locker = set.locker().await;
    let refused = locker.semaphore("s", 2).acquire().await.expect_err("three winners of two permits");
    assert!(matches!(refused, Error::Unsupported { .. }), "{refused}");
    let refused = locker.mutex("f").fair().lock().await.expect_err("queues differ by node");
    assert!(matches!(refused, Error::Unsupported { .. }), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn lists_that_make_no_sense_are_refused_by_name() {
    for (n, says) in [(1, "alone"), (2, "draw"), (4, "draw"), (9, "more than")] {
        let error = Set::of(n).quorum(Settings::default()).await.expect_err("refused").to_string();
        assert!(error.contains(&format!("a quorum of {n}")) && error.contains(says), "{error}");
    }
    let mut twice = Set::of(3);
    twice.stores[2] = Arc::clone(&twice.stores[0]);
    let error = twice.quorum(Settings::default()).await.expect_err("refused").to_string();
    assert!(error.contains("node 2") && error.contains("the same server"), "{error}");
    let mut replicated = Set::of(3);
    replicated.stores[1] = node(&replicated.clock, true);
    let error = replicated.quorum(Settings::default()).await.expect_err("refused").to_string();
    assert!(error.contains("node 1") && error.contains("fails over"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn an_error_says_what_each_node_said() {
    let set = Set::of(5);
    let locker = set.locker().await;
    let guard = locker.mutex("a").lock().await.expect("locked");
    set.eventually("a", &[0, 1, 2, 3, 4]).await;
    set.away(&[0, 1, 2], true);
    let other = set.quorum(Settings::default()).await.expect_err("a majority is away").to_string();
    for says in ["3 of 5 nodes", "node 0: ", "node 1: ", "node 2: ", "away"] {
        assert!(other.contains(says), "{other}");
    }
    let error = locker.mutex("b").try_lock().await.expect_err("a majority is away").to_string();
    assert!(error.contains("node 2: ") && error.contains("away") && error.contains("node 4: has answered"), "{error}");
    assert_eq!(guard.lost().await.reason, LostReason::Expired);
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_held_is_busy_also_with_a_node_away() {
    let set = Set::of(3);
    let (holder, other) = (set.locker().await, set.locker().await);
    set.away(&[2], true);
    let _guard = holder.mutex("a").lock().await.expect("locked");
    // Its answer comes after the error.
    set.node(1).answers_take(Duration::from_millis(20));
    for _ in 0..10 {
        assert!(other.mutex("a").try_lock().await.expect("busy, and no error").is_none());
    }
    assert!(other.mutex("a").try_lock_for(Duration::from_secs(3)).await.expect("busy, and no error").is_none());
    assert_eq!(other.stats().errors, 0);
}

#[tokio::test(start_paused = true)]
async fn one_node_away_and_one_that_is_far_are_enough_to_connect() {
    let set = Set::of(3);
    set.away(&[0], true);
    set.node(2).answers_take(Duration::from_millis(400));
    let locker = set.locker().await;
    set.node(2).answers_take(Duration::ZERO);
    locker.mutex("a").lock().await.expect("locked").release().await.expect("given back");
}
