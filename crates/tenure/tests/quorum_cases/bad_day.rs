//! Many clients, and one fault after the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tenure::{Locker, Token};

use super::common::{Client, LEASE, LONG, OPTIONS, nothing_is_left, write};
use tenure_testkit::fenced::{Fenced, Rejected};
use tenure_testkit::locker::{block_on, connect, must};
use tenure_testkit::quorum::{QuorumSet, Ways};

const CLIENTS: usize = 4;
const FAULTS: usize = 12;

type Fail = fn(usize, &mut QuorumSet, &[Ways]);

/// One grant: asked for and given, and until when its holder knew that it had it.
#[derive(Debug)]
struct Span {
    token: Token,
    asked: Instant,
    from: Instant,
    to: Instant,
}

/// Whatever becomes of nodes and of ways to them, and of a clock that falls behind.
pub(crate) fn nobody_holds_what_another_holds() {
    let spans = a_bad_day(|number, set, ways| match number % 6 {
        1 => set.nodes[4].clock().behind(Duration::from_secs(3600)),
        3 => {
            let node = number % 4;
            set.nodes[node].lose_all();
        }
        _ => disturb(number, set, ways),
    });
    for pair in spans.windows(2) {
        assert!(pair[0].to <= pair[1].from, "two at once: {pair:?}");
    }
}

/// With clocks that jump ahead there may be two holders. Their tokens are in the order of their grants all the same.
pub(crate) fn tokens_are_in_the_order_of_grants() {
    a_bad_day(|number, set, ways| match number % 6 {
        1 => set.nodes[number % 5].clock().ahead(Duration::from_secs(60)),
        3 => set.nodes.iter().for_each(|node| node.clock().ahead(Duration::ZERO)),
        _ => disturb(number, set, ways),
    });
}

/// With a lease that outlasts the test: a vote that nobody gives back would be there at the end.
pub(crate) fn a_crowd_leaves_no_vote_behind() {
    let (set, store) = (QuorumSet::old(5), Fenced::default());
    block_on(async {
        let mut crowd = tokio::task::JoinSet::new();
        for who in 0..6 {
            let (locker, store) = (connect(&set.url(LONG)).await, store.clone());
            crowd.spawn(async move {
                for _ in 0..50 {
                    let guard = locker.mutex("L").lock().await.expect("locked");
                    write(&store, &guard, &who.to_string());
                    guard.release().await.expect("given back");
                }
            });
        }
        must("all have had their turns", crowd.join_all()).await;
        nothing_is_left(&set);
        assert_eq!(store.log("L").accepted.len(), 300);
    });
}

fn a_bad_day(fail: Fail) -> Vec<Span> {
    let (mut set, store) = (QuorumSet::old(5), Fenced::default());
    block_on(async {
        let mut ways = Vec::new();
        let stop = Arc::new(AtomicBool::new(false));
        let mut working = Vec::new();
        for who in 0..CLIENTS {
            let client = Client::of(&set, OPTIONS).await;
            working.push(tokio::spawn(work(client.locker, who, store.clone(), Arc::clone(&stop))));
            ways.push(client.ways);
        }
        let grants = || store.log("L").accepted.len();
        // Not where the clients run: it blocks. The ways have to last for as long as they are used.
        let failing = tokio::task::spawn_blocking(move || {
            for number in 0..FAULTS {
                fail(number, &mut set, &ways);
                std::thread::sleep(LEASE / 4);
            }
            (set, ways)
        });
        let (set, _ways) = failing.await.expect("no panic");
        let failed = grants();
        must("all is well again, and the lock goes round", async {
            while grants() < failed + 20 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
        stop.store(true, Ordering::SeqCst);
        let mut spans: Vec<Span> = Vec::new();
        for client in working {
            spans.extend(must("it ends", client).await.expect("no panic"));
        }
        spans.sort_unstable_by_key(|span| span.token);
        let mut first_with_larger: Option<&Span> = None;
        for span in spans.iter().rev() {
            if let Some(larger) = first_with_larger {
                assert!(span.asked < larger.from, "asked later for a smaller token: {span:?} after {larger:?}");
            }
            first_with_larger = first_with_larger.into_iter().chain([span]).min_by_key(|span| span.from);
        }
        let log = store.log("L");
        println!("{failed} grants with {FAULTS} faults, {} in all, {} stale writes", spans.len(), log.rejected.len());
        assert!(failed > FAULTS, "{failed} grants");
        assert!(log.accepted.windows(2).all(|pair| pair[0].token < pair[1].token));
        // What a clock that has fallen behind makes last longer was given back too.
        nothing_is_left(&set);
        spans
    })
}

async fn work(locker: Locker, who: usize, store: Fenced, stop: Arc<AtomicBool>) -> Vec<Span> {
    let mut spans = Vec::new();
    while !stop.load(Ordering::SeqCst) {
        let asked = Instant::now();
        // Within a fault it may take longer than anybody waits.
        let Ok(Some(guard)) = locker.mutex("L").try_lock_for(LEASE).await else { continue };
        let from = Instant::now();
        let written = store.write("L", guard.token(), format!("{who}: {}", guard.owner_id()));
        assert!(!matches!(written, Err(Rejected::Clash { .. })), "{written:?}");
        tokio::time::sleep(Duration::from_millis(2)).await;
        let to = Instant::now();
        if guard.is_valid() {
            spans.push(Span { token: guard.token(), asked, from, to });
        }
        // Its answer may be lost, as may the lock itself.
        drop(guard.release().await);
    }
    spans
}

/// Some nodes are away for a part of a lease, for some or for all.
fn disturb(number: usize, set: &QuorumSet, ways: &[Ways]) {
    let (a, b) = (number % 5, (number + 2) % 5);
    let while_it_lasts = || std::thread::sleep(LEASE / 4);
    match number % 4 {
        0 => {
            [a, b].iter().for_each(|node| set.nodes[*node].pause());
            while_it_lasts();
            [a, b].iter().for_each(|node| set.nodes[*node].resume());
        }
        1 => {
            // Each client is cut off from another one.
            let cut = || ways.iter().enumerate().map(|(who, ways)| &ways.cables[(who + number) % 5]);
            cut().for_each(|cable| cable.cut());
            while_it_lasts();
            cut().for_each(|cable| cable.heal());
        }
        2 => {
            let gone = || ways.iter().flat_map(|ways| [&ways.cables[a], &ways.cables[b]]);
            gone().for_each(|cable| cable.blackhole());
            while_it_lasts();
            gone().for_each(|cable| cable.heal());
        }
        _ => {
            let late = || ways.iter().map(|ways| &ways.cables[a]);
            late().for_each(|cable| cable.hold_replies());
            while_it_lasts();
            late().for_each(|cable| cable.heal());
        }
    }
}
