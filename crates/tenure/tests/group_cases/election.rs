//! One leader, visible to all.

use std::time::Duration;

use tenure::election::{Changes, Leader};

use super::store::Store;
use tenure_testkit::locker::must;

async fn until_led_by(changes: &mut Changes, value: Option<&str>) -> Option<Leader> {
    let seen = async {
        loop {
            let now = changes.next().await.expect("looked");
            if now.as_ref().and_then(|leader| leader.value.as_deref()) == value {
                return now;
            }
        }
    };
    must(value.unwrap_or("nobody"), seen).await
}

pub(crate) async fn leaders_follow_each_other_and_terms_grow(store: Store) {
    let lockers = [store.locker().await, store.locker().await, store.locker().await];
    let watcher = store.locker().await.election("e");
    assert_eq!(watcher.leader().await.expect("asked"), None);
    let mut term = lockers[0].election("e").campaign("0").await.expect("elected");
    let mut last = None;
    for next in 1..6 {
        let candidate = lockers[next % 3].election("e");
        assert!(candidate.try_campaign("x").await.expect("asked").is_none());
        assert!(candidate.try_campaign_for("x", Duration::from_millis(20)).await.expect("asked").is_none());
        let leader = watcher.leader().await.expect("asked").expect("somebody leads");
        let expected = (Some((next - 1).to_string()), Some(term.token()), term.owner_id().to_string());
        assert_eq!((leader.value, leader.term, leader.owner), expected);
        assert!(leader.term > last);
        last = leader.term;
        let campaign = tokio::spawn(candidate.campaign(&next.to_string()));
        term.release().await.expect("resigned");
        term = must("the next leader", campaign).await.expect("no panic").expect("elected");
    }
    term.release().await.expect("resigned");
    assert_eq!(watcher.leader().await.expect("asked"), None);
}

pub(crate) async fn who_loses_the_office_campaigns_again(store: Store) {
    let (mine, operator) = (store.locker().await, store.locker().await);
    let (told, mut terms) = tokio::sync::mpsc::unbounded_channel();
    let leads = tokio::spawn(async move {
        let mut times = 0;
        let done = mine.election("e").run("me", |term| {
            times += 1;
            told.send(term.token()).expect("the test listens");
            let is_last = times == 3;
            async move { if is_last { term.token() } else { std::future::pending().await } }
        });
        (done.await.expect("it leads until it is done"), mine)
    });
    let mut last = None;
    for _ in 0..2 {
        let term = must("a term", terms.recv()).await;
        assert!(term > last, "terms grow: {last:?}, {term:?}");
        last = term;
        operator.mutex("e").break_hold().await.expect("broken").expect("somebody led");
    }
    let third = must("the last term", terms.recv()).await.expect("a term");
    let (done, mine) = must("the end", leads).await.expect("no panic");
    assert_eq!(done, third);
    assert_eq!(operator.election("e").leader().await.expect("asked"), None, "it has resigned");
    // What asking again does not change is told.
    mine.close().await.expect("closed");
    let closed = mine.election("e").run("me", |_| async {}).await;
    assert!(matches!(closed, Err(tenure::Error::Closed)), "{closed:?}");
}

pub(crate) async fn changes_are_seen(store: Store) {
    let (a, b, seen) = (store.locker().await.election("e"), store.locker().await.election("e"), store.locker().await);
    let mut changes = seen.election("e").changes();
    assert_eq!(must("the state", changes.next()).await.expect("looked"), None);
    let mut last = None;
    for round in 0..3 {
        let term = a.campaign("a").await.expect("elected");
        let leader = until_led_by(&mut changes, Some("a")).await.expect("a leader");
        assert_eq!(leader.term, Some(term.token()), "round {round}");
        assert!(leader.term > last);
        last = leader.term;
        let next = tokio::spawn(b.campaign("b"));
        // Nothing has changed: nothing is told.
        assert!(tokio::time::timeout(Duration::from_millis(20), changes.next()).await.is_err());
        drop(term);
        let term = must("the next leader", next).await.expect("no panic").expect("elected");
        let leader = until_led_by(&mut changes, Some("b")).await.expect("a leader");
        assert!(leader.term > last);
        last = leader.term;
        term.release().await.expect("resigned");
        until_led_by(&mut changes, None).await;
    }
}

pub(crate) async fn a_leader_that_dies_is_followed(store: Store) {
    let (dies, life) = store.mortal(Duration::from_secs(1)).await;
    let follows = store.locker().await.election("e");
    let mut changes = follows.changes();
    let term = dies.election("e").campaign("old").await.expect("elected");
    until_led_by(&mut changes, Some("old")).await;
    let next = tokio::spawn(follows.campaign("new"));
    life.die();
    let after = must("the next leader", next).await.expect("no panic").expect("elected");
    assert!(!term.is_valid() && after.token() > term.token());
    until_led_by(&mut changes, Some("new")).await;
}
