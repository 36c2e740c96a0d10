//! What is particular to permits.

use tenure::backend::Mode;

use super::java::{Case, name, url};
use super::kinds::Kind;
use super::place::Place;
use super::process::java_waits_for_a_process;
use tenure_testkit::locker::{block_on, connect, must};

pub(crate) const CASES: &[Case] = &[
    ("several_at_once_pass_between_both", several_at_once_pass_between_both),
    ("each_sees_what_the_other_has", each_sees_what_the_other_has),
    ("whoever_is_first_sets_the_number", whoever_is_first_sets_the_number),
];

pub(crate) const COUNTERS: &[Case] = &[("permits_of_a_killed_rust_come_back", permits_of_a_killed_rust_come_back)];

/// Whether only our own permits are written down.
fn counts_only(kind: Kind) -> bool {
    kind.java == "semaphore"
}

fn several_at_once_pass_between_both(place: Place, kind: Kind) {
    let site = place.site();
    let java = site.java.actor();
    let name = name(kind, "several", &java);
    java.ask(&kind.tell("add", &name, "2"));
    block_on(async {
        let locker = connect(&url(site, kind, "10m")).await;
        let semaphore = locker.semaphore(&name, 3);
        let two = semaphore.acquire_many(2).await.expect("taken");
        assert_eq!(java.ask(&kind.tell("available", &name, "")), "1");
        java.tell(&kind.tell("take", &name, "n=3 lease=600000"));
        java.falls_asleep();
        assert!(!java.has_answered(), "two are ours");
        two.release().await.expect("given back");
        java.answer();
        let waiter = tokio::spawn(semaphore.acquire_many(3));
        site.awaits(&name, 1);
        assert!(!waiter.is_finished(), "all are Java's");
        java.ask(&kind.tell("give", &name, "n=3"));
        let three = must("woken by the release", waiter).await.expect("no panic").expect("taken");
        assert_eq!(java.ask(&kind.tell("available", &name, "")), "0");
        three.release().await.expect("given back");
        assert_eq!(java.ask(&kind.tell("available", &name, "")), "3");
    });
}

fn each_sees_what_the_other_has(place: Place, kind: Kind) {
    let site = place.site();
    let java = site.java.actor();
    let name = name(kind, "sees", &java);
    java.ask(&kind.tell("add", &name, "3"));
    block_on(async {
        let locker = connect(&url(site, kind, "10m")).await;
        let semaphore = locker.semaphore(&name, 4);
        let two = semaphore.acquire_many(2).await.expect("taken");
        assert_eq!(java.ask(&kind.tell("available", &name, "")), "2");
        let id = java.ask(&kind.tell("take", &name, "lease=600000"));
        let state = semaphore.inspect().await.expect("seen");
        let permits = state.permits.expect("a number");
        assert_eq!(permits.free, 1);
        let ours = state.holders.iter().find(|h| h.owner == two.owner_id().to_string()).expect("our own");
        assert_eq!(ours.mode, Mode::Permits { take: 2, of: 0 });
        if counts_only(kind) {
            assert_eq!((permits.of, state.holders.len()), (3, 1), "who of Java has one is written nowhere");
        } else {
            assert_eq!((permits.of, state.holders.len()), (4, 2));
            let theirs = state.holders.iter().find(|h| h.owner == id).expect("Java's");
            assert!(theirs.expires_in.is_some_and(|left| left.as_secs() < 601), "{theirs:?}");
        }
        java.ask(&kind.tell("give", &name, ""));
        two.release().await.expect("given back");
    });
}

fn whoever_is_first_sets_the_number(place: Place, kind: Kind) {
    let site = place.site();
    let java = site.java.actor();
    let name = format!("{}:first", kind.name);
    block_on(async {
        let locker = connect(&url(site, kind, "10m")).await;
        let semaphore = locker.semaphore(&name, 2);
        let one = semaphore.acquire().await.expect("taken");
        assert_eq!(java.ask(&kind.tell("set", &name, "5")), "false");
        assert_eq!(java.ask(&kind.tell("available", &name, "")), "1");
        if !counts_only(kind) {
            semaphore.resize(4).await.expect("resized");
            assert_eq!(java.ask(&kind.tell("available", &name, "")), "3");
        }
        java.ask(&kind.tell("add", &name, "1"));
        let free = semaphore.inspect().await.expect("seen").permits.expect("a number").free;
        assert_eq!(free, if counts_only(kind) { 2 } else { 4 });
        one.release().await.expect("given back");
    });
}

/// When another one of ours asks, which Java's waiters hear of. Redisson itself has no way to get them back.
fn permits_of_a_killed_rust_come_back(place: Place, kind: Kind) {
    let site = place.site();
    let (java, name, mut holder) = java_waits_for_a_process(site, kind);
    block_on(async {
        let locker = connect(&url(site, kind, "10m")).await;
        assert!((kind.attempt)(&locker, &name).await.is_none(), "the other one lives, and has it");
        holder.kill();
        let hold = must("it comes back", (kind.take)(&locker, &name)).await;
        assert!(!java.has_answered(), "we have it");
        hold.give().await;
        java.answer();
        java.ask(&kind.tell("give", &name, ""));
        assert_eq!(java.ask(&kind.tell("available", &name, "")), "1", "none is lost, and none is there twice");
    });
}
