//! Clocks of nodes that jump.

use std::time::Duration;

use tenure::Locker;
use tenure::backend::Standing;
use tokio::runtime::Handle;

use super::common::{Client, LEASE, LONG, OPTIONS, nothing_is_left, write};
use tenure_testkit::eventually;
use tenure_testkit::fenced::Fenced;
use tenure_testkit::locker::{block_on, must};
use tenure_testkit::log::Events;
use tenure_testkit::quorum::QuorumSet;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

pub(crate) fn a_clock_a_minute_ahead_makes_no_second_holder() {
    one_clock_jumps(|set| set.nodes[2].clock().ahead(MINUTE), 60_000);
}

pub(crate) fn a_clock_an_hour_behind_makes_no_second_holder() {
    one_clock_jumps(|set| set.nodes[2].clock().behind(HOUR), -3_600_000);
}

fn one_clock_jumps(jump: fn(&QuorumSet), ahead_ms: i64) {
    let (set, store) = (QuorumSet::old(5), Fenced::default());
    block_on(async {
        let (one, other) = (Client::of(&set, OPTIONS).await, Client::of(&set, OPTIONS).await);
        let guard = one.locker.mutex("L").lock().await.expect("locked");
        write(&store, &guard, "one");
        jump(&set);
        // Others ask all the time, for longer than any lease lasts.
        let (start, mut answered) = (std::time::Instant::now(), 0);
        while start.elapsed() < LEASE * 2 || answered < 10 {
            match other.locker.mutex("L").try_lock().await {
                Ok(tried) => {
                    assert!(guard.is_valid() && tried.is_none(), "a second holder");
                    answered += 1;
                }
                // A busy machine may be too slow for a majority to answer in time.
                Err(error) => assert!(error.is_transient() && start.elapsed() < LEASE * 20, "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        must("the holder's renewals are written there again", async {
            while set.nodes[2].hash("L") != set.nodes[0].hash("L") {
                assert!(guard.is_valid());
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
        write(&store, &guard, "one");
        let mut last = guard.token();
        guard.release().await.expect("given back");
        nothing_is_left(&set);
        for client in [&other, &one, &other] {
            let guard = must("granted", client.locker.mutex("L").lock()).await.expect("locked");
            assert!(guard.token() > last, "{} after {last}", guard.token());
            write(&store, &guard, "the next");
            last = guard.token();
            guard.release().await.expect("given back");
            // Back and forth: what the one clock has brought about is no help to the next token.
            set.nodes[2].clock().ahead(Duration::ZERO);
        }
        jump(&set);
        must("the difference is known", is_ahead(&one, 2, ahead_ms)).await;
        assert!(store.log("L").rejected.is_empty());
    });
}

async fn is_ahead(client: &Client, node: usize, ms: i64) {
    loop {
        let members = client.locker.stats().nodes;
        if members[node].clock_ahead_ms.is_some_and(|ahead| (ahead - ms).abs() < 2000) {
            let right = |at: usize| at == node || members[at].clock_ahead_ms.is_some_and(|ahead| ahead.abs() < 2000);
            assert!((0..members.len()).all(right), "the others are right: {members:?}");
            return;
        }
        // They are asked now and then, while they are asked for locks.
        drop(client.locker.mutex("asked").lock().await.expect("locked"));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// One that has just been started says that it was started in the future.
pub(crate) fn a_young_node_whose_clock_is_set_back_is_one_that_does_not_count_yet() {
    let mut set = QuorumSet::old(3);
    set.nodes[1].lose_all();
    set.nodes[1].clock().behind(HOUR);
    block_on(async {
        let client = Client::of(&set, OPTIONS).await;
        let Standing::Quarantined { left } = client.locker.stats().nodes[1].standing else {
            panic!("{:?}", client.locker.stats().nodes[1]);
        };
        assert!(left <= LEASE, "{left:?}");
        must("the difference is known", is_ahead(&client, 1, -3_600_000)).await;
        must("it counts after a lease", async {
            while client.locker.stats().nodes[1].standing != Standing::Counts {
                drop(client.locker.mutex("L").lock().await.expect("locked"));
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
        .await;
    });
}

/// Step by step as Martin Kleppmann tells it: <https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html>.
pub(crate) fn two_who_hold_because_a_clock_has_jumped_are_told_apart_by_their_tokens() {
    let (set, store) = (QuorumSet::old(5), Fenced::default());
    block_on(async {
        // 1. Client 1 acquires the lock on A, B, C. Because of a network problem D and E cannot be reached.
        let one = Client::reaching(&set, &[0, 1, 2], LONG).await;
        let first = one.locker.mutex("L").lock().await.expect("locked");
        assert_eq!(set.with_key("L"), [0, 1, 2]);
        // 2. The clock on C jumps forward, and the lock expires there.
        set.nodes[2].clock().ahead(2 * HOUR);
        assert_eq!(set.with_key("L"), [0, 1]);
        // 3. Client 2 acquires the lock on C, D, E. A and B cannot be reached.
        let two = Client::reaching(&set, &[2, 3, 4], LONG).await;
        let second = must("granted", two.locker.mutex("L").lock()).await.expect("locked");
        assert_eq!(set.with_key("L"), [0, 1, 2, 3, 4]);
        // 4. Both believe that they hold it.
        assert!(first.is_valid() && second.is_valid());
        // But not for what is fenced.
        assert!(second.token() > first.token(), "{} after {}", second.token(), first.token());
        write(&store, &second, "two");
        store.write("L", first.token(), "one").expect_err("stale");
        assert_eq!(store.log("L").writers(), ["two"]);
        // Nothing of what the first gives back is the second's.
        first.release().await.expect("given back");
        eventually("only the second is left", || set.with_key("L") == [2, 3, 4]);
        assert!(second.is_valid());
        second.release().await.expect("given back");
        nothing_is_left(&set);
    });
}

/// Tokens do not follow one clock, not even upwards: that would use them up.
pub(crate) fn one_clock_moves_no_token() {
    let set = QuorumSet::old(3);
    block_on(async {
        let client = Client::of(&set, LONG).await;
        let before = client.locker.mutex("before").lock().await.expect("locked").token().get();
        set.nodes[0].clock().ahead(24 * HOUR);
        must("the difference is known", is_ahead(&client, 0, 24 * 3_600_000)).await;
        let newcomer = Client::of(&set, LONG).await;
        let day = 24 * 3_600_000_000;
        for client in [&client, &newcomer] {
            let guard = client.locker.mutex("after").lock().await.expect("locked");
            assert!(guard.token().get() - before < day / 2, "{} after {before}", guard.token());
            guard.release().await.expect("given back");
        }
    });
}

pub(crate) fn a_clock_that_differs_is_reported_once_and_once_when_it_no_longer_does() {
    let set = QuorumSet::old(3);
    let log = Events::up_to(tracing::Level::INFO);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    tracing::subscriber::with_default(log.clone(), || {
        runtime.block_on(async {
            let locker = Locker::builder().runtime(Handle::current()).connect(&set.url(LONG)).await.expect("connected");
            for (ahead, words, times) in [(MINUTE, "its clock differs", 1), (Duration::ZERO, "its clock agrees", 1)] {
                set.nodes[1].clock().ahead(ahead);
                must(words, async {
                    while log.count(words) < times {
                        drop(locker.mutex("L").lock().await.expect("locked"));
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                })
                .await;
                // Asked some more times, it says nothing new.
                for _ in 0..3 {
                    locker.mutex("L").inspect().await.expect("inspected");
                }
                assert_eq!(log.count(words), times);
            }
            locker.close().await.expect("closed");
        });
    });
}
