//! Clients that stand still, and answers that come late.

use std::io::BufRead;
use std::time::Duration;

use tenure::Token;

use super::common::{Client, LEASE, LONG, OPTIONS, holds_for, nothing_is_left, write};
use tenure_testkit::fenced::Fenced;
use tenure_testkit::locker::{block_on, connect, must};
use tenure_testkit::player::Player;
use tenure_testkit::quorum::QuorumSet;
use tenure_testkit::{Signal, eventually, signal, stop};

/// What a process of this program does that is not the one that runs the tests.
pub(crate) fn play(role: &str) {
    let url = std::env::args().nth(1).expect("a URL");
    block_on(async {
        let locker = connect(&url).await;
        println!("connected");
        let mut guard = None;
        for line in std::io::stdin().lock().lines() {
            match (role, line.expect("read").as_str()) {
                ("client", "try") => {
                    let tried = locker.mutex("L").try_lock().await;
                    println!("{}", tried.as_ref().map_or(0, |guard| guard.as_ref().map_or(0, |guard| guard.token().get())));
                    guard = tried.unwrap_or_default();
                }
                // The very next statement after having stood still.
                ("client", "check") => println!("{}", guard.as_ref().is_some_and(tenure::Guard::is_valid)),
                (role, word) => panic!("{role} knows no {word}"),
            }
        }
    });
}

/// The answers of all nodes are there, but whom they are for stands still until the lease has ended.
pub(crate) fn who_stands_still_before_the_votes_are_counted_is_not_granted() {
    let (set, store) = (QuorumSet::old(5), Fenced::default());
    let other = block_on(Client::warm(&set, OPTIONS));
    let ways = set.ways();
    let mut paused = Player::start("client", &ways.url(OPTIONS), &[]);
    assert_eq!(paused.line(), "connected");
    ways.cables.iter().for_each(|cable| cable.hold_replies());
    paused.tell("try");
    eventually("all nodes have granted it", || set.with_key("L").len() == 5);
    eventually("and said so", || ways.cables.iter().all(|cable| cable.has_held_reply()));
    stop(paused.child.id());
    ways.cables.iter().for_each(|cable| cable.heal());
    nothing_is_left(&set);
    block_on(async {
        let guard = must("free", other.locker.mutex("L").lock()).await.expect("locked");
        write(&store, &guard, "other");
        signal(paused.child.id(), Signal::CONT);
        let said = paused.line();
        assert_eq!(said, "0", "told that it has it, though {} has it, which is still valid: {}", guard.token(), guard.is_valid());
        holds_for(&guard, LEASE * 2).await;
        write(&store, &guard, "other");
        let first = guard.token();
        guard.release().await.expect("given back");
        nothing_is_left(&set);
        paused.tell("try");
        let next: u64 = paused.line().parse().expect("a token");
        assert!(next > first.get());
        store.write("L", Token::new(next), "paused").expect("not stale");
    });
}

pub(crate) fn who_stands_still_with_the_lock_knows_before_its_next_statement() {
    let (set, store) = (QuorumSet::old(5), Fenced::default());
    let mut paused = Player::start("client", &set.url(OPTIONS), &[]);
    assert_eq!(paused.line(), "connected");
    paused.tell("try");
    let token = Token::new(paused.line().parse().expect("a token"));
    store.write("L", token, "paused").expect("not stale");
    paused.tell("check");
    assert_eq!(paused.line(), "true");
    // It reads its next line: it stands still there, and not between a check and a write.
    stop(paused.child.id());
    block_on(async {
        let other = Client::of(&set, OPTIONS).await;
        let guard = must("its lease has ended", other.locker.mutex("L").lock()).await.expect("locked");
        assert!(guard.token() > token);
        write(&store, &guard, "other");
        paused.tell("check");
        signal(paused.child.id(), Signal::CONT);
        assert_eq!(paused.line(), "false");
        store.write("L", token, "paused").expect_err("stale");
        // What the other one's process still does about its hold is no harm to this one.
        holds_for(&guard, LEASE * 2).await;
        guard.release().await.expect("given back");
        nothing_is_left(&set);
    });
}

/// With a lease that outlasts the test: nothing but giving back ends it.
pub(crate) fn votes_that_come_too_late_are_given_back() {
    block_on(async {
        let set = QuorumSet::old(5);
        let (one, other) = (Client::warm(&set, LONG).await, Client::warm(&set, LONG).await);
        one.ways.cables[..3].iter().for_each(|cable| cable.hold_replies());
        let error = one.locker.mutex("L").try_lock().await.expect_err("no majority in time");
        assert!(error.is_transient(), "{error}");
        assert!(one.ways.cables[..3].iter().all(|cable| cable.has_held_reply()));
        one.ways.cables.iter().for_each(|cable| cable.heal());
        nothing_is_left(&set);
        other.locker.mutex("L").lock().await.expect("free").release().await.expect("given back");
    });
}

/// Nobody waits for the last ones, and they keep nothing.
pub(crate) fn stragglers_give_their_votes_back_after_the_release() {
    block_on(async {
        let set = QuorumSet::old(5);
        let client = Client::warm(&set, LONG).await;
        for late in [[0, 3], [1, 4]] {
            late.iter().for_each(|node| client.ways.cables[*node].hold_replies());
            let guard = must("three are enough", client.locker.mutex("L").lock()).await.expect("locked");
            eventually("the others have it too", || set.with_key("L").len() == 5);
            must("three are enough", guard.release()).await.expect("given back");
            nothing_is_left(&set);
            late.iter().for_each(|node| client.ways.cables[*node].heal());
            nothing_is_left(&set);
        }
    });
}

/// The requests come late, not only the answers: long after the lock was given back.
pub(crate) fn requests_that_come_after_the_release_leave_nothing() {
    block_on(async {
        let set = QuorumSet::old(5);
        let client = Client::warm(&set, &format!("{LONG}&timeout=1s")).await;
        for (name, stays) in [("L", false), ("M", true)] {
            client.ways.cables[..2].iter().for_each(|cable| cable.hold_requests());
            let guard = must("three are enough", client.locker.mutex(name).lock()).await.expect("locked");
            eventually("the others are being asked", || client.ways.cables[..2].iter().all(|cable| cable.has_held_request()));
            must("three are enough", guard.release()).await.expect("given back");
            if stays {
                // Longer than a call to a node may be under way, so that they are asked again.
                tokio::time::sleep(Duration::from_millis(1500)).await;
            }
            client.ways.cables.iter().for_each(|cable| cable.heal());
            let late = |node: usize| set.nodes[node].has(&format!("redisson_lock_token:{{{name}}}"));
            eventually("they are asked after all", || late(0) && late(1));
            eventually("no node has it any more", || set.with_key(name).is_empty());
        }
    });
}

pub(crate) fn a_straggler_keeps_the_vote_of_a_hold_that_goes_on() {
    block_on(async {
        let (set, store) = (QuorumSet::old(5), Fenced::default());
        let client = Client::warm(&set, OPTIONS).await;
        client.ways.cables[3].hold_replies();
        let guard = must("four are enough", client.locker.mutex("L").lock()).await.expect("locked");
        write(&store, &guard, "one");
        eventually("the last one has it too", || client.ways.cables[3].has_held_reply() && set.with_key("L").len() == 5);
        client.ways.cables[3].heal();
        // Past the lease that the late vote was for.
        holds_for(&guard, LEASE * 2).await;
        eventually("the straggler has it still", || set.with_key("L").len() == 5);
        write(&store, &guard, "one");
        guard.release().await.expect("given back");
        nothing_is_left(&set);
    });
}

pub(crate) fn who_goes_away_while_the_votes_come_in_leaves_nothing() {
    block_on(async {
        let set = QuorumSet::old(5);
        let client = Client::warm(&set, LONG).await;
        client.ways.cables.iter().for_each(|cable| cable.hold_replies());
        let asking = tokio::spawn(client.locker.mutex("L").lock());
        eventually("all nodes have granted it", || set.with_key("L").len() == 5);
        asking.abort();
        client.ways.cables.iter().for_each(|cable| cable.heal());
        nothing_is_left(&set);
        must("free", client.locker.mutex("L").lock()).await.expect("locked").release().await.expect("given back");
    });
}
