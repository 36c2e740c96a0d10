//! The queue of a fair lock, in which both sides wait.

use std::time::{Duration, Instant};

use tenure::Locker;

use super::java::{Case, SHORT, SHORT_MS, name, url};
use super::kinds::Kind;
use super::place::{Place, Site};
use super::process::Holder;
use tenure_testkit::eventually;
use tenure_testkit::locker::{block_on, connect, must};

pub(crate) const CASES: &[Case] = &[
    ("both_are_served_in_the_order_of_the_queue", both_are_served_in_the_order_of_the_queue),
    ("one_that_gives_up_leaves_the_queue", one_that_gives_up_leaves_the_queue),
    ("a_java_that_dies_in_the_queue_is_passed_over", a_java_that_dies_in_the_queue_is_passed_over),
    ("a_rust_that_dies_first_in_the_queue_costs_its_lease", a_rust_that_dies_first_in_the_queue_costs_its_lease),
    ("a_rust_that_dies_behind_java_costs_its_lease", a_rust_that_dies_behind_java_costs_its_lease),
];

/// Waits until so many are in the queue, and says who.
async fn queue(locker: &Locker, name: &str, length: usize) -> Vec<String> {
    must("they are in the queue", async {
        loop {
            let queue = locker.mutex(name).inspect().await.expect("seen").queue;
            if queue.len() == length {
                return queue;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
}

fn both_are_served_in_the_order_of_the_queue(place: Place, kind: Kind) {
    const PAIRS: usize = 4;
    let site = place.site();
    let java: Vec<_> = (0..PAIRS).map(|_| site.java.actor()).collect();
    let name = name(kind, "order", &java[0]);
    block_on(async {
        let lockers = [connect(&url(site, kind, "10m")).await, connect(&url(site, kind, "10m")).await];
        let hold = (kind.take)(&lockers[0], &name).await;
        let mut ours = Vec::new();
        for (i, java) in java.iter().enumerate() {
            // One has more patience than is usual, and one has less: what it takes off the others' deadlines is as much.
            let how = [("take", ""), ("try", "wait=1200000"), ("try", "wait=60000"), ("take", "")][i];
            java.tell(&kind.tell(how.0, &name, &format!("{} lease=600000", how.1)));
            queue(&lockers[0], &name, 2 * i + 1).await;
            ours.push(tokio::spawn((kind.take)(&lockers[i % 2], &name)));
            let queue = queue(&lockers[0], &name, 2 * i + 2).await;
            let client = lockers[i % 2].client_id().to_string();
            assert!(queue[2 * i + 1].starts_with(&client) && !queue[2 * i].starts_with(&client), "{queue:?}");
        }
        // Nobody comes in between.
        assert_eq!(site.java.actor().ask(&kind.tell("try", &name, "")), "refused");
        assert!((kind.attempt)(&lockers[1], &name).await.is_none());
        hold.give().await;
        for (i, (java, ours)) in java.iter().zip(&mut ours).enumerate() {
            java.answer();
            queue(&lockers[0], &name, 2 * (PAIRS - i) - 1).await;
            assert!(!ours.is_finished(), "Java was before it");
            java.ask(&kind.tell("give", &name, ""));
            let hold = must("its turn", ours).await.expect("no panic");
            queue(&lockers[0], &name, 2 * (PAIRS - i) - 2).await;
            hold.check();
            hold.give().await;
        }
        let state = lockers[0].mutex(&name).inspect().await.expect("seen");
        assert!(state.holders.is_empty() && state.queue.is_empty(), "{state:?}");
    });
}

fn one_that_gives_up_leaves_the_queue(place: Place, kind: Kind) {
    let site = place.site();
    let (java, other) = (site.java.actor(), site.java.actor());
    let name = name(kind, "gives_up", &java);
    block_on(async {
        let locker = connect(&url(site, kind, "10m")).await;
        let hold = (kind.take)(&locker, &name).await;
        let waiter = tokio::spawn((kind.take)(&locker, &name));
        queue(&locker, &name, 1).await;
        other.tell(&kind.tell("take", &name, ""));
        queue(&locker, &name, 2).await;
        other.falls_asleep();
        assert_eq!(java.ask(&kind.tell("try", &name, "wait=50")), "refused");
        queue(&locker, &name, 2).await;
        waiter.abort();
        let left = queue(&locker, &name, 1).await;
        assert!(!left[0].starts_with(&locker.client_id().to_string()), "{left:?}");
        hold.give().await;
        other.answer();
        other.ask(&kind.tell("give", &name, ""));
    });
}

/// Its place ends with the patience that Redisson gives it, from the end of the lease that it found on.
fn a_java_that_dies_in_the_queue_is_passed_over(place: Place, kind: Kind) {
    let site = place.site();
    let mut peer = site.another_java(&["--watchdog", SHORT_MS, "--fair-wait", SHORT_MS]);
    let name = name(kind, "dead_java", &peer.actor());
    block_on(async {
        let locker = connect(&url(site, kind, SHORT)).await;
        let hold = (kind.take)(&locker, &name).await;
        peer.actor().tell(&kind.tell("take", &name, ""));
        queue(&locker, &name, 1).await;
        let waiter = tokio::spawn((kind.take)(&locker, &name));
        queue(&locker, &name, 2).await;
        peer.kill();
        hold.give().await;
        must("its turn", waiter).await.expect("no panic").give().await;
    });
}

/// How many milliseconds a queue position still has, by the deadline that Redisson goes by.
fn place_ends_in(site: &Site, name: &str, owner: &str) -> f64 {
    let mut raw = site.raw(name);
    let deadline: f64 =
        redis::cmd("ZSCORE").arg(format!("redisson_lock_timeout:{{{name}}}")).arg(owner).query(&mut raw).expect("a place");
    let (s, us): (f64, f64) = redis::cmd("TIME").query(&mut raw).expect("the time");
    deadline - (s * 1000.0 + us / 1000.0)
}

const SHORT_FOR: Duration = Duration::from_secs(5);

/// Also where nobody of ours asks any more, who would take it out of the queue.
fn a_rust_that_dies_first_in_the_queue_costs_its_lease(place: Place, kind: Kind) {
    let site = place.site();
    let java = site.java.actor();
    let name = name(kind, "dead_rust", &java);
    block_on(async {
        // Java asks again when the lease is over that it found.
        let locker = connect(&url(site, kind, SHORT)).await;
        let hold = (kind.take)(&locker, &name).await;
        let mut dying = Holder::waiting(kind, &url(site, kind, SHORT), &name);
        let dead = queue(&locker, &name, 1).await.remove(0);
        java.tell(&kind.tell("take", &name, ""));
        queue(&locker, &name, 2).await;
        assert!(place_ends_in(site, &name, &dead) <= 5000.0);
        dying.kill();
        let died = Instant::now();
        hold.give().await;
        java.answer();
        // Whatever the machine does besides.
        assert!(died.elapsed() < 4 * SHORT_FOR, "after {:?}", died.elapsed());
        java.ask(&kind.tell("give", &name, ""));
    });
}

/// Redisson takes what those in front had as patience off the deadlines behind them: that must be in ours, and not more.
fn a_rust_that_dies_behind_java_costs_its_lease(place: Place, kind: Kind) {
    let site = place.site();
    let (first, last) = (site.java.actor(), site.java.actor());
    let name = name(kind, "dead_between", &first);
    block_on(async {
        let locker = connect(&url(site, kind, "10m")).await;
        let hold = (kind.take)(&locker, &name).await;
        first.tell(&kind.tell("take", &name, "lease=600000"));
        queue(&locker, &name, 1).await;
        let mut dying = Holder::waiting(kind, &url(site, kind, SHORT), &name);
        let dead = queue(&locker, &name, 2).await.remove(1);
        last.tell(&kind.tell("take", &name, ""));
        queue(&locker, &name, 3).await;
        last.falls_asleep();
        dying.kill();
        hold.give().await;
        first.answer();
        let left = place_ends_in(site, &name, &dead);
        assert!(left <= 5000.0, "its place has {left} ms left");
        eventually("its place has ended", || place_ends_in(site, &name, &dead) < 0.0);
        assert!(!last.has_answered(), "the first one holds it");
        first.ask(&kind.tell("give", &name, ""));
        last.answer();
        last.ask(&kind.tell("give", &name, ""));
    });
}
