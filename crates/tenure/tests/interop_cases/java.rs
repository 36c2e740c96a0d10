//! Redisson and Tenure on the same names.

use super::kinds::{FAIR, FENCED, JAVA_READS, Kind, LOCK, PERMIT, RUST_READS, SEMAPHORE, WRITERS};
use super::place::{Place, Site};
use super::process::java_waits_for_a_process;
use super::{crowd, fair, permits, rwlock, sees};
use tenure_testkit::locker::{block_on, connect, must};
use tenure_testkit::peer::Actor;

pub(crate) type Case = (&'static str, fn(Place, Kind));

/// What each kind is tested for: a new one is a row here.
pub(crate) const ROWS: [(Kind, &[&[Case]]); 8] = [
    (LOCK, &[WAKES, KILLS, crowd::CASES, sees::LOCKS]),
    (FENCED, &[WAKES, KILLS, crowd::CASES, sees::LOCKS, TOKENS]),
    (FAIR, &[WAKES, KILLS, crowd::CASES, sees::LOCKS, fair::CASES]),
    (WRITERS, &[WAKES, KILLS, crowd::CASES, sees::LOCKS, rwlock::CASES]),
    (JAVA_READS, &[WAKES, KILLS, sees::LOCKS]),
    (RUST_READS, &[WAKES, KILLS, sees::LOCKS]),
    (PERMIT, &[WAKES, KILLS, crowd::CASES, permits::CASES]),
    // What a dead Java has taken of it does not come back.
    (SEMAPHORE, &[WAKES, crowd::CASES, permits::CASES, permits::COUNTERS]),
];

/// A release must be told: all leases are ten minutes, and all deadlines shorter.
const WAKES: &[Case] = &[
    ("rust_waits_until_java_gives_back", rust_waits_until_java_gives_back),
    ("java_waits_until_rust_gives_back", java_waits_until_rust_gives_back),
];

/// For kinds that a dead holder does not keep.
const KILLS: &[Case] =
    &[("a_killed_java_frees_rust", a_killed_java_frees_rust), ("a_killed_rust_frees_java", a_killed_rust_frees_java)];

const TOKENS: &[Case] = &[("tokens_grow_across_both", tokens_grow_across_both)];

/// The lease of those who are killed. A busy machine must not end it sooner.
pub(crate) const SHORT_MS: &str = "5000";
pub(crate) const SHORT: &str = "5000ms";

/// Where we connect to. Java's tokens have no end, and ours must not end below them.
pub(crate) fn url(site: &Site, kind: Kind, lease: &str) -> String {
    format!("{}?token_ttl=never&lease={lease}{}", site.url(), kind.options)
}

/// A new name, made ready for the kind.
pub(crate) fn name(kind: Kind, case: &str, java: &Actor) -> String {
    ready(kind, format!("{}:{case}", kind.name), java)
}

/// One that brings its own hash tag.
fn tagged_name(kind: Kind, case: &str, java: &Actor) -> String {
    ready(kind, format!("{{{}:{case}:tag}}b", kind.name), java)
}

fn ready(kind: Kind, name: String, java: &Actor) -> String {
    if let Some((verb, more)) = kind.first {
        assert_eq!(java.ask(&kind.tell(verb, &name, more)), "true");
    }
    name
}

fn rust_waits_until_java_gives_back(place: Place, kind: Kind) {
    let site = place.site();
    let java = site.java.actor();
    for wake in ["tracking", "pubsub"] {
        let case = format!("rust_waits_by_{wake}");
        for name in [name(kind, &case, &java), tagged_name(kind, &case, &java)] {
            block_on(async {
                let locker = connect(&format!("{}&wake={wake}", url(site, kind, "10m"))).await;
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
                locker.close().await.expect("closed");
            });
        }
    }
}

fn java_waits_until_rust_gives_back(place: Place, kind: Kind) {
    let site = place.site();
    let java = site.java.actor();
    for name in [name(kind, "java_waits", &java), tagged_name(kind, "java_waits", &java)] {
        block_on(async {
            let locker = connect(&url(site, kind, "10m")).await;
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
}

fn a_killed_java_frees_rust(place: Place, kind: Kind) {
    let site = place.site();
    let mut peer = site.another_java(&["--watchdog", SHORT_MS]);
    let name = name(kind, "killed_java", &peer.actor());
    peer.actor().ask(&kind.tell("take", &name, kind.mortal));
    block_on(async {
        let locker = connect(&url(site, kind, "10m")).await;
        let waiter = tokio::spawn((kind.take)(&locker, &name));
        site.awaits(&name, 1);
        assert!(!waiter.is_finished(), "Java lives, and holds it");
        peer.kill();
        must("free", waiter).await.expect("no panic").give().await;
    });
}

fn a_killed_rust_frees_java(place: Place, kind: Kind) {
    let site = place.site();
    let (java, name, mut holder) = java_waits_for_a_process(site, kind);
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
        let locker = connect(&url(site, kind, "10m")).await;
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
