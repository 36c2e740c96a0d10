//! Nodes that come back without their data.

use std::time::{Duration, Instant};

use tenure::backend::Standing;
use tenure::{Guard, LostReason};

use super::common::{Client, LEASE, LONG, OPTIONS, holds_for, nothing_is_left, write};
use tenure_testkit::eventually;
use tenure_testkit::fenced::Fenced;
use tenure_testkit::locker::{block_on, connect, must};
use tenure_testkit::quorum::QuorumSet;

/// Where the fence of the name is kept, also when nobody holds it.
const FENCE: &str = "redisson_lock_token:{L}";

/// The classic: one holds at 1, 2 and 3; then 3 forgets it, and 3, 4 and 5 would make another majority.
pub(crate) fn a_node_that_has_forgotten_makes_no_second_majority() {
    block_on(async {
        let (mut set, store) = (QuorumSet::old(5), Fenced::default());
        let one = Client::reaching(&set, &[0, 1, 2], OPTIONS).await;
        let known = Client::reaching(&set, &[2, 3, 4], OPTIONS).await;
        let first = one.locker.mutex("L").lock().await.expect("locked");
        write(&store, &first, "one");
        assert_eq!(set.with_key("L"), [0, 1, 2]);
        set.nodes[2].lose_all();
        let restarted = Instant::now();
        let second = rival(&known, &first).await;
        assert!(second.token() > first.token());
        write(&store, &second, "other");
        store.write("L", first.token(), "one").expect_err("stale");
        println!("granted {:?} after the restart, with a lease of {LEASE:?}", restarted.elapsed());
        second.release().await.expect("given back");
    });
}

/// The same for one that knows nothing of the time before the restart.
pub(crate) fn a_node_that_has_forgotten_makes_no_second_majority_for_a_newcomer() {
    block_on(async {
        let (mut set, store) = (QuorumSet::old(5), Fenced::default());
        let one = Client::reaching(&set, &[0, 1, 2], OPTIONS).await;
        let first = one.locker.mutex("L").lock().await.expect("locked");
        write(&store, &first, "one");
        set.nodes[2].lose_all();
        let newcomer = Client::reaching(&set, &[2, 3, 4], OPTIONS).await;
        let second = rival(&newcomer, &first).await;
        assert!(second.token() > first.token());
        write(&store, &second, "other");
        store.write("L", first.token(), "one").expect_err("stale");
        second.release().await.expect("given back");
    });
}

/// Two faults of one node at once: a newcomer knows its age only by its wall clock. What is fenced is safe all the same.
pub(crate) fn a_node_that_has_forgotten_and_whose_clock_has_jumped_is_no_danger_to_what_is_fenced() {
    block_on(async {
        let (mut set, store) = (QuorumSet::old(5), Fenced::default());
        let one = Client::reaching(&set, &[0, 1, 2], LONG).await;
        let first = one.locker.mutex("L").lock().await.expect("locked");
        write(&store, &first, "one");
        set.nodes[2].kill();
        // As below: only the time tells that the next token has to be larger.
        tokio::time::sleep(Duration::from_secs(1)).await;
        set.nodes[2].restart_empty();
        set.nodes[2].clock().ahead(Duration::from_secs(3600));
        let newcomer = Client::reaching(&set, &[2, 3, 4], LONG).await;
        let second = must("granted", newcomer.locker.mutex("L").lock()).await.expect("locked");
        assert!(first.is_valid() && second.is_valid(), "both think that they hold it");
        assert!(second.token() > first.token());
        write(&store, &second, "newcomer");
        store.write("L", first.token(), "one").expect_err("stale");
    });
}

/// Locks, and sees to it that nobody else thinks that it does.
async fn rival(client: &Client, holder: &Guard) -> Guard {
    assert!(holder.is_valid());
    let refused = client.locker.mutex("L").try_lock().await;
    if holder.is_valid() {
        let error = refused.expect_err("too few nodes count");
        assert!(error.is_transient() && error.to_string().contains("may have forgotten locks"), "{error}");
    }
    let guard = must("granted after all", client.locker.mutex("L").lock()).await.expect("locked");
    assert!(!holder.is_valid(), "two hold it");
    guard
}

/// It is the quarantine that makes the difference: without it there are two holders, and only the tokens tell.
pub(crate) fn without_the_quarantine_only_the_tokens_tell_two_holders_apart() {
    block_on(async {
        let (mut set, store) = (QuorumSet::old(5), Fenced::default());
        let options = format!("{LONG}&quarantine=off");
        let one = Client::reaching(&set, &[0, 1, 2], &options).await;
        let other = Client::reaching(&set, &[2, 3, 4], &options).await;
        let first = one.locker.mutex("L").lock().await.expect("locked");
        write(&store, &first, "one");
        set.nodes[2].kill();
        // Nothing but the time is left to tell that the next token has to be larger, and clients know the nodes' only roughly.
        tokio::time::sleep(Duration::from_secs(1)).await;
        set.nodes[2].restart_empty();
        let second = must("granted at once", other.locker.mutex("L").lock()).await.expect("locked");
        assert!(first.is_valid() && second.is_valid(), "both think that they hold it");
        assert!(second.token() > first.token(), "{} after {}", second.token(), first.token());
        write(&store, &second, "other");
        store.write("L", first.token(), "one").expect_err("stale");
        assert_eq!(store.log("L").writers(), ["one", "other"]);
        second.release().await.expect("given back");
    });
}

pub(crate) fn a_node_that_restarts_with_all_that_it_knew_is_quarantined_too() {
    block_on(async {
        let mut set = QuorumSet::old(3);
        let client = Client::of(&set, OPTIONS).await;
        let guard = client.locker.mutex("L").lock().await.expect("locked");
        set.nodes[0].lose_nothing();
        // Nobody can tell what it has lost.
        must("it is found to be another process", standing(&client, 0, |it| matches!(it, Standing::Quarantined { .. }))).await;
        assert!(guard.is_valid());
        must("it counts again", standing(&client, 0, |it| *it == Standing::Counts)).await;
        assert!(guard.is_valid());
        guard.release().await.expect("given back");
        nothing_is_left(&set);
    });
}

/// A server tells its age in whole seconds.
pub(crate) fn a_young_node_is_not_taken_for_older_than_it_is() {
    block_on(async {
        let mut set = QuorumSet::start(3);
        for _ in 0..3 {
            // Started at the end of a second, it says in the next one that it is a second old.
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
            tokio::time::sleep(Duration::from_millis(1850 - u64::from(now.subsec_millis()) % 1000)).await;
            let started = Instant::now();
            set.nodes.iter_mut().for_each(|node| node.lose_all());
            tokio::time::sleep(Duration::from_millis(200)).await;
            let asked = Instant::now();
            let locker = connect(&set.url("lease=10m")).await;
            for member in locker.stats().nodes {
                let Standing::Quarantined { left } = member.standing else { panic!("{member:?}") };
                let age = Duration::from_secs(600) - left;
                assert!(age <= started.elapsed(), "{age:?} old, {:?} after it was started", asked - started);
            }
        }
    });
}

pub(crate) fn a_majority_of_young_nodes_says_for_how_long_it_does_not_count() {
    block_on(async {
        let set = QuorumSet::start(3);
        let locker = connect(&set.url(LONG)).await;
        let error = locker.mutex("L").try_lock().await.expect_err("none counts");
        let said = error.to_string();
        assert_eq!((error.is_transient(), error.fault()), (true, Some(tenure::Fault::Quarantine)), "{said}");
        for node in &set.nodes {
            let words = format!("127.0.0.1:{}: recently restarted and may have forgotten locks; counts again in ", node.port);
            assert!(said.contains(&words), "{said}");
        }
        let tenure::Error::TooFewNodes(few) = error else { panic!("{error:?}") };
        assert_eq!((few.needed, few.of, few.lasting, few.nodes.len()), (2, 3, false, 3));
        for (node, trouble) in set.nodes.iter().zip(&few.nodes) {
            assert!(trouble.node.ends_with(&format!("127.0.0.1:{}", node.port)), "{trouble:?}");
            assert_eq!(trouble.fault, Some(tenure::Fault::Quarantine), "{trouble:?}");
        }
        nothing_is_left(&set);
        let trusting = connect(&set.url(&format!("{LONG}&quarantine=off"))).await;
        let guard = trusting.mutex("L").lock().await.expect("locked");
        guard.release().await.expect("given back");
    });
}

pub(crate) fn a_restarted_node_gets_the_lock_again_from_a_holder_with_a_majority() {
    block_on(async {
        let (mut set, store) = (QuorumSet::old(5), Fenced::default());
        let client = Client::of(&set, OPTIONS).await;
        let guard = client.locker.mutex("L").lock().await.expect("locked");
        write(&store, &guard, "one");
        for node in [1, 4] {
            set.nodes[node].lose_all();
            must("a renewal writes it there", async {
                while set.nodes[node].hash("L") != set.nodes[0].hash("L") {
                    assert!(guard.is_valid());
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            })
            .await;
        }
        // Its fence too: the next token is larger for whomever it grants to.
        let fence = |node: usize| redis::cmd("GET").arg(FENCE).query::<u64>(&mut set.nodes[node].raw()).expect("a number");
        assert!([0, 1, 2, 3, 4].iter().all(|node| fence(*node) >= guard.token().get()));
        holds_for(&guard, LEASE).await;
        write(&store, &guard, "one");
        guard.release().await.expect("given back");
        nothing_is_left(&set);
    });
}

pub(crate) fn a_hold_that_a_majority_has_forgotten_is_lost_and_not_written_again() {
    block_on(async {
        let (mut set, store) = (QuorumSet::old(5), Fenced::default());
        let client = Client::of(&set, LONG).await;
        let guard = client.locker.mutex("L").lease(Duration::from_secs(6)).lock().await.expect("locked");
        write(&store, &guard, "one");
        eventually("all nodes have it", || set.with_key("L").len() == 5);
        // All at once: one by one they would be given it again.
        [2, 3, 4].iter().for_each(|node| set.nodes[*node].kill());
        [2, 3, 4].iter().for_each(|node| set.nodes[*node].restart_empty());
        let lost = must("told", guard.lost()).await;
        assert!(matches!(lost.reason, LostReason::Revoked | LostReason::Expired), "{lost:?}");
        nothing_is_left(&set);
        let ever: Vec<bool> = set.nodes.iter().map(|node| node.has(FENCE)).collect();
        assert_eq!(ever, [true, true, false, false, false], "nothing was ever granted where it was forgotten");
    });
}

async fn standing(client: &Client, node: usize, is: impl Fn(&Standing) -> bool) {
    while !is(&client.locker.stats().nodes[node].standing) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
