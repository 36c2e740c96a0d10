//! Redisson and we, on the same names.

use tenure::Locker;

use super::kinds::{FENCED, Kind, LOCK};
use super::place::Place;
use super::process::Holder;
use crate::support::locker::{block_on, connect, must};
use crate::support::peer::Actor;

pub(crate) type Case = (&'static str, fn(Place, Kind));

/// What each kind is tested for: a new one is a row here.
pub(crate) const ROWS: [(Kind, &[&[Case]]); 2] = [(LOCK, &[WAKES, KILLS, CROWDS]), (FENCED, &[WAKES, KILLS, CROWDS, TOKENS])];

/// A release must be told: all leases are ten minutes, and all deadlines shorter.
const WAKES: &[Case] = &[
    ("rust_waits_until_java_gives_back", rust_waits_until_java_gives_back),
    ("java_waits_until_rust_gives_back", java_waits_until_rust_gives_back),
];

/// For kinds that a dead holder does not keep.
const KILLS: &[Case] =
    &[("a_killed_java_frees_rust", a_killed_java_frees_rust), ("a_killed_rust_frees_java", a_killed_rust_frees_java)];

/// For kinds that let one in at a time, on both sides.
const CROWDS: &[Case] = &[("a_mixed_crowd_loses_no_update", a_mixed_crowd_loses_no_update)];

const TOKENS: &[Case] = &[("tokens_grow_across_both", tokens_grow_across_both)];

/// Java's tokens have no end, and ours must not end below them.
const OPTIONS: &str = "?token_ttl=never&lease=10m";

/// The lease of those who are killed. A busy machine must not end it sooner.
const SHORT_MS: &str = "5000";

/// A new name, made ready for the kind.
fn name(kind: Kind, case: &str, java: &Actor) -> String {
    let name = format!("{}:{case}", kind.name);
    if let Some((verb, more)) = kind.first {
        java.ask(&kind.tell(verb, &name, more));
    }
    name
}

fn rust_waits_until_java_gives_back(place: Place, kind: Kind) {
    let site = place.site();
    let java = site.java.actor();
    for wake in ["tracking", "pubsub"] {
        let name = name(kind, &format!("rust_waits_by_{wake}"), &java);
        block_on(async {
            let locker = connect(&format!("{}{OPTIONS}&wake={wake}", site.url())).await;
            java.ask(&kind.tell("take", &name, "lease=600000"));
            assert!((kind.attempt)(&locker, &name).await.is_none(), "Java holds it");
            let waiter = tokio::spawn((kind.take)(&locker, &name));
            site.awaits(&name, 1);
            assert!(!waiter.is_finished(), "Java holds it");
            java.ask(&kind.tell("give", &name, ""));
            let hold = must("woken by the release", waiter).await.expect("no panic");
            assert_eq!(java.ask(&kind.tell("try", &name, "")), "refused");
            hold.give().await;
            assert!(java.ask(&kind.tell("try", &name, "")).starts_with("taken"));
            java.ask(&kind.tell("give", &name, ""));
        });
    }
}

fn java_waits_until_rust_gives_back(place: Place, kind: Kind) {
    let site = place.site();
    let java = site.java.actor();
    let name = name(kind, "java_waits", &java);
    block_on(async {
        let locker = connect(&format!("{}{OPTIONS}", site.url())).await;
        let hold = (kind.take)(&locker, &name).await;
        assert_eq!(java.ask(&kind.tell("try", &name, "")), "refused");
        java.tell(&kind.tell("take", &name, ""));
        site.awaits(&name, 1);
        java.falls_asleep();
        assert!(!java.has_answered(), "Rust holds it");
        hold.give().await;
        java.answer();
        assert!((kind.attempt)(&locker, &name).await.is_none(), "Java holds it");
        java.ask(&kind.tell("give", &name, ""));
        let hold = (kind.attempt)(&locker, &name).await.expect("free");
        hold.give().await;
    });
}

/// Its watchdog goes with it.
fn a_killed_java_frees_rust(place: Place, kind: Kind) {
    let site = place.site();
    let mut peer = site.another_java(&["--watchdog", SHORT_MS]);
    let name = name(kind, "killed_java", &peer.actor());
    peer.actor().ask(&kind.tell("take", &name, ""));
    block_on(async {
        let locker = connect(&format!("{}{OPTIONS}", site.url())).await;
        let waiter = tokio::spawn((kind.take)(&locker, &name));
        site.awaits(&name, 1);
        assert!(!waiter.is_finished(), "Java lives, and holds it");
        peer.kill();
        must("free", waiter).await.expect("no panic").give().await;
    });
}

fn a_killed_rust_frees_java(place: Place, kind: Kind) {
    let site = place.site();
    let java = site.java.actor();
    let name = name(kind, "killed_rust", &java);
    let mut holder = Holder::start(kind, &format!("{}?token_ttl=never&lease={SHORT_MS}ms", site.url()), &name);
    java.tell(&kind.tell("take", &name, ""));
    site.awaits(&name, 1);
    java.falls_asleep();
    assert!(!java.has_answered(), "Rust lives, and holds it");
    holder.kill();
    java.answer();
    java.ask(&kind.tell("give", &name, ""));
}

fn tokens_grow_across_both(place: Place, kind: Kind) {
    let site = place.site();
    let java = site.java.actor();
    let name = name(kind, "tokens", &java);
    block_on(async {
        let locker = connect(&format!("{}{OPTIONS}", site.url())).await;
        let mut tokens = Vec::new();
        for _ in 0..10 {
            tokens.push(java.ask(&kind.tell("take", &name, "")).parse::<u64>().expect("a token"));
            java.ask(&kind.tell("give", &name, ""));
            let hold = (kind.take)(&locker, &name).await;
            tokens.push(hold.token().expect("a token"));
            hold.give().await;
        }
        assert!(tokens.is_sorted_by(|before, after| before < after), "{tokens:?}");
    });
}

const EACH: u64 = 250;

/// Four of Java and four of ours, two to a locker, count with a counter that only the lock protects.
fn a_mixed_crowd_loses_no_update(place: Place, kind: Kind) {
    let site = place.site();
    let java: Vec<Actor> = (0..4).map(|_| site.java.actor()).collect();
    let name = name(kind, "crowd", &java[0]);
    let counter = format!("{{{name}}}:counter");
    block_on(async {
        let url = format!("{}{OPTIONS}", site.url());
        let lockers = [connect(&url).await, connect(&url).await];
        for actor in &java {
            actor.tell(&kind.tell("crowd", &name, &format!("{counter} {EACH}")));
        }
        let mut ours = tokio::task::JoinSet::new();
        for i in 0..4 {
            let raw = site.raw(&counter);
            ours.spawn(count(kind, lockers[i % 2].clone(), name.clone(), counter.clone(), raw));
        }
        while let Some(done) = must("all of ours have counted", ours.join_next()).await {
            done.expect("no panic");
        }
    });
    for actor in &java {
        assert_eq!(actor.answer(), EACH.to_string());
    }
    let counted: u64 = redis::cmd("GET").arg(&counter).query(&mut site.raw(&counter)).expect("counted");
    assert_eq!(counted, 8 * EACH);
}

async fn count(kind: Kind, locker: Locker, name: String, counter: String, mut raw: redis::Connection) {
    for _ in 0..EACH {
        let hold = (kind.take)(&locker, &name).await;
        let seen: Option<u64> = redis::cmd("GET").arg(&counter).query(&mut raw).expect("read");
        tokio::task::yield_now().await;
        redis::cmd("SET").arg(&counter).arg(seen.unwrap_or(0) + 1).query::<()>(&mut raw).expect("written");
        hold.check();
        hold.give().await;
    }
}
