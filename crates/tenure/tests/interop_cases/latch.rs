//! Redisson's RCountDownLatch and ours. It has no holder, so it has cases of its own.

use tenure::Error;

use super::place::{Place, Site};
use tenure_testkit::locker::{block_on, connect, must};
use tenure_testkit::peer::Actor;

pub(crate) type Case = (&'static str, fn(Place));

pub(crate) const CASES: [Case; 6] = [
    ("rust_counts_down_for_java", rust_counts_down_for_java),
    ("java_counts_down_for_rust", java_counts_down_for_rust),
    ("a_latch_that_java_deletes_lets_rust_go_on", a_latch_that_java_deletes_lets_rust_go_on),
    ("a_latch_that_rust_removes_lets_java_go_on", a_latch_that_rust_removes_lets_java_go_on),
    ("each_reads_the_count_of_the_other", each_reads_the_count_of_the_other),
    ("only_a_cluster_refuses_a_name_with_braces", only_a_cluster_refuses_a_name_with_braces),
];

/// Names for a case: where the channel may be in another slot than the latch, also one with a hash tag.
fn names(place: Place, case: &str) -> Vec<String> {
    let mut names = vec![format!("latch:{case}")];
    if place == Place::Single {
        names.push(format!("{{latch:{case}:tag}}b"));
    }
    names
}

fn java_waits<'a>(site: &'a Site, name: &str) -> Actor<'a> {
    let java = site.java.actor();
    java.tell(&format!("await latch {name}"));
    java.falls_asleep();
    assert!(!java.has_answered(), "the latch is closed");
    java
}

fn rust_counts_down_for_java(place: Place) {
    let site = place.site();
    for name in names(place, "for_java") {
        block_on(async {
            let locker = connect(&site.url()).await;
            assert_eq!(site.java.actor().ask(&format!("set latch {name} 3")), "true");
            let (one, two) = (java_waits(site, &name), java_waits(site, &name));
            let latch = locker.latch(&name);
            for left in [2, 1] {
                assert_eq!(latch.count_down().await.expect("counted"), left);
                assert!(!one.has_answered() && !two.has_answered(), "{left} left");
            }
            assert_eq!(latch.count_down().await.expect("counted"), 0);
            assert_eq!([one.answer(), two.answer()], ["true", "true"]);
            latch.wait().await.expect("open");
        });
    }
}

fn java_counts_down_for_rust(place: Place) {
    let site = place.site();
    let java = site.java.actor();
    for wake in ["tracking", "pubsub"] {
        for name in names(place, &format!("for_rust_by_{wake}")) {
            block_on(async {
                let locker = connect(&format!("{}?wake={wake}", site.url())).await;
                let latch = locker.latch(&name);
                assert!(latch.set(2).await.expect("set"));
                assert_eq!(java.ask(&format!("set latch {name} 5")), "false");
                let waiter = tokio::spawn(latch.wait());
                site.awaits(&name, 1);
                java.ask(&format!("down latch {name}"));
                assert!(!waiter.is_finished(), "one is left");
                java.ask(&format!("down latch {name}"));
                must("woken at zero", waiter).await.expect("no panic").expect("open");
                locker.close().await.expect("closed");
            });
        }
    }
}

/// Redisson tells this as if the latch had been set anew; its own waiters sleep on.
fn a_latch_that_java_deletes_lets_rust_go_on(place: Place) {
    let site = place.site();
    let java = site.java.actor();
    for wake in ["tracking", "pubsub"] {
        for name in names(place, &format!("java_deletes_by_{wake}")) {
            block_on(async {
                let locker = connect(&format!("{}?wake={wake}", site.url())).await;
                java.ask(&format!("set latch {name} 2"));
                let waiter = tokio::spawn(locker.latch(&name).wait());
                site.awaits(&name, 1);
                assert!(!waiter.is_finished(), "two are left");
                assert_eq!(java.ask(&format!("delete latch {name}")), "true");
                must("woken by the removal", waiter).await.expect("no panic").expect("open");
                locker.close().await.expect("closed");
            });
        }
    }
}

fn a_latch_that_rust_removes_lets_java_go_on(place: Place) {
    let site = place.site();
    for name in names(place, "rust_removes") {
        block_on(async {
            let locker = connect(&site.url()).await;
            let latch = locker.latch(&name);
            assert!(latch.set(2).await.expect("set"));
            let java = java_waits(site, &name);
            latch.remove().await.expect("removed");
            assert_eq!(java.answer(), "true");
            // Both can set it anew.
            assert_eq!(java.ask(&format!("set latch {name} 1")), "true");
            assert!(!latch.set(1).await.expect("asked"));
            latch.remove().await.expect("removed");
        });
    }
}

fn each_reads_the_count_of_the_other(place: Place) {
    let site = place.site();
    let java = site.java.actor();
    for name in names(place, "counts") {
        let count = || java.ask(&format!("count latch {name}"));
        block_on(async {
            let locker = connect(&site.url()).await;
            let latch = locker.latch(&name);
            assert_eq!((latch.count().await.expect("read"), &*count()), (0, "0"));
            assert!(latch.set(3).await.expect("set"));
            assert_eq!(count(), "3");
            java.ask(&format!("down latch {name}"));
            assert_eq!(latch.count().await.expect("read"), 2);
            latch.count_down().await.expect("counted");
            assert_eq!(count(), "1");
            java.ask(&format!("down latch {name}"));
            assert_eq!(latch.count().await.expect("read"), 0);
            // One too many on either side leaves nothing behind.
            java.ask(&format!("down latch {name}"));
            assert_eq!(latch.count_down().await.expect("counted"), 0);
            assert_eq!(java.ask(&format!("set latch {name} 4")), "true");
            assert_eq!(latch.count().await.expect("read"), 4);
            latch.remove().await.expect("removed");
        });
    }
}

/// On either side: the channel that Redisson has for it is in another slot.
fn only_a_cluster_refuses_a_name_with_braces(place: Place) {
    let site = place.site();
    let (latch, java) = ("{latch:braces}b", site.java.actor());
    block_on(async {
        let locker = connect(&site.url()).await;
        let ours = locker.latch(latch).set(1).await;
        java.tell(&format!("delete latch {latch}"));
        let theirs = java.result();
        match place {
            Place::Single => assert_eq!((ours.ok(), theirs), (Some(true), Ok("true".to_owned()))),
            Place::Cluster => assert!(matches!(ours, Err(Error::Config { .. })) && theirs.is_err(), "{ours:?} {theirs:?}"),
        }
    });
}
