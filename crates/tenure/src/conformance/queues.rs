//! The queue of a fair lock, and latches, below the engine.

use std::time::Duration;

use super::shared::two;
use super::{Peer, Subject, sure};
use crate::backend::{Attempt, Claim, Mode, Queue, Retry};

async fn done(peer: &Peer, claim: &Claim) -> u64 {
    match peer.ask(claim).await {
        Attempt::Done { left } => left,
        other => panic!("{claim:?} was answered {other:?}"),
    }
}

pub(super) async fn a_fair_queue_is_served_in_order(s: Subject) {
    let Some((one, other, name)) = two(&s, Mode::Fair).await else { return };
    // A queue position ends with its lease: a busy machine must not take it for dead.
    let lease = s.lease() * 5;
    let held = one.hold(Claim { lease, ..one.wants(&name, Mode::Fair) }).await;
    let peers = [&other, &one, &other, &other, &one];
    let queue: Vec<Claim> = peers.iter().map(|peer| Claim { lease, ..peer.wants(&name, Mode::Fair) }).collect();
    for (peer, claim) in peers.iter().zip(&queue) {
        peer.busy(claim).await;
    }
    let state = one.state(&name).await;
    assert_eq!(state.queue, queue.iter().map(|claim| claim.owner.to_string()).collect::<Vec<_>>());
    one.release(&held).await;
    let mut last = None;
    for (turn, (peer, claim)) in peers.iter().zip(&queue).enumerate() {
        // Asking again brings no waiter forward.
        for (peer, later) in peers.iter().zip(&queue).skip(turn + 1).rev() {
            peer.busy(later).await;
        }
        one.busy(&Claim { queue: Queue::Never, ..one.wants(&name, Mode::Fair) }).await;
        let token = peer.granted(claim).await;
        assert!(Some(token) > last);
        last = Some(token);
        peer.release(claim).await;
    }
    let state = one.state(&name).await;
    assert!(state.queue.is_empty() && state.holders.is_empty(), "{state:?}");
}

pub(super) async fn a_release_wakes_the_first_in_the_queue_alone(s: Subject) {
    let Some((one, other, name)) = two(&s, Mode::Fair).await else { return };
    let (held, first, second) = (one.wants(&name, Mode::Fair), other.wants(&name, Mode::Fair), other.wants(&name, Mode::Fair));
    one.granted(&held).await;
    let mut first_signal = sure(|| other.backend.watch(&first)).await;
    other.busy(&first).await;
    let mut second_signal = sure(|| other.backend.watch(&second)).await;
    other.busy(&second).await;
    // A signal may fire needlessly, for one when its subscription stands.
    while tokio::time::timeout(s.lease() / 4, second_signal.fired()).await.is_ok() {}
    one.release(&held).await;
    tokio::time::timeout(s.lease() / 2, first_signal.fired()).await.expect("the first is told");
    let needless = tokio::time::timeout(Duration::from_millis(50), second_signal.fired()).await;
    assert!(needless.is_err(), "the second is left alone");
    other.granted(&first).await;
    other.release(&first).await;
    tokio::time::timeout(s.lease() / 2, second_signal.fired()).await.expect("then the second");
    other.granted(&second).await;
}

pub(super) async fn leaving_the_queue_lets_the_next_one_in(s: Subject) {
    let Some((one, other, name)) = two(&s, Mode::Fair).await else { return };
    let (held, first, second) = (one.wants(&name, Mode::Fair), other.wants(&name, Mode::Fair), one.wants(&name, Mode::Fair));
    one.granted(&held).await;
    other.busy(&first).await;
    let mut signal = sure(|| one.backend.watch(&second)).await;
    one.busy(&second).await;
    one.release(&held).await;
    one.busy(&second).await;
    // Told that it is free, and gone.
    other.release(&first).await;
    tokio::time::timeout(s.lease() / 2, signal.fired()).await.expect("the next one is told");
    one.granted(&second).await;
}

pub(super) async fn the_dead_in_the_queue_end_with_one_waiters_lease(s: Subject) {
    let Some((one, other, name)) = two(&s, Mode::Fair).await else { return };
    let held = one.hold(one.wants(&name, Mode::Fair)).await;
    for _ in 0..20 {
        other.busy(&other.wants(&name, Mode::Fair)).await;
    }
    let alive = one.wants(&name, Mode::Fair);
    one.busy(&alive).await;
    one.release(&held).await;
    let lease = alive.position_lease();
    let start = tokio::time::Instant::now();
    let mut asked = 0;
    while let Attempt::Busy { retry: Retry::OnSignal { within }, .. } = one.ask(&alive).await {
        asked += 1;
        assert!(start.elapsed() < lease * 5, "twenty dead cost no more than one");
        assert!(within >= Duration::from_millis(1), "no spinning");
        tokio::time::sleep(within).await;
    }
    // Where a question takes long, the dead asked at moments of their own, and each may end by itself.
    assert!(asked <= 25, "asked {asked} times");
}

pub(super) async fn a_latch_opens_at_zero(s: Subject) {
    let Some((one, other, name)) = two(&s, Mode::CountZero).await else { return };
    let set = one.wants(&name, Mode::SetCount { of: 2 });
    assert_eq!(done(&one, &set).await, 2);
    assert_eq!(done(&one, &set).await, 2, "asking again is the same question");
    other.busy(&other.wants(&name, Mode::SetCount { of: 5 })).await;
    let wait = other.wants(&name, Mode::CountZero);
    let mut signal = sure(|| other.backend.watch(&wait)).await;
    other.busy(&wait).await;
    let down = one.wants(&name, Mode::CountDown);
    for _ in 0..3 {
        assert_eq!(done(&one, &down).await, 1, "once per owner");
    }
    assert_eq!(one.state(&name).await.count, Some(1));
    other.busy(&wait).await;
    assert_eq!(done(&other, &other.wants(&name, Mode::CountDown)).await, 0);
    tokio::time::timeout(s.lease() / 2, signal.fired()).await.expect("those who wait are told");
    assert_eq!(done(&other, &wait).await, 0);
    // Open stays open, and below zero there is nothing.
    assert_eq!(done(&one, &one.wants(&name, Mode::CountDown)).await, 0);
    assert_eq!(done(&one, &one.wants(&name, Mode::CountZero)).await, 0);
    assert_eq!(done(&one, &one.wants(&name, Mode::SetCount { of: 1 })).await, 1, "it can be set again");
}

pub(super) async fn a_removed_latch_wakes_all(s: Subject) {
    let Some((one, other, name)) = two(&s, Mode::CountZero).await else { return };
    assert_eq!(done(&one, &one.wants(&name, Mode::SetCount { of: 3 })).await, 3);
    let wait = other.wants(&name, Mode::CountZero);
    let mut signal = sure(|| other.backend.watch(&wait)).await;
    other.busy(&wait).await;
    assert_eq!(done(&one, &one.wants(&name, Mode::RemoveCount)).await, 0);
    tokio::time::timeout(s.lease() / 2, signal.fired()).await.expect("those who wait are told");
    assert_eq!(done(&other, &wait).await, 0);
    assert_eq!(one.state(&name).await.count, None);
}

pub(super) async fn asking_a_latch_again_changes_nothing(s: Subject) {
    let Some((one, other, name)) = two(&s, Mode::CountZero).await else { return };
    let (set, down) = (one.wants(&name, Mode::SetCount { of: 1 }), other.wants(&name, Mode::CountDown));
    let remove = one.wants(&name, Mode::RemoveCount);
    done(&one, &set).await;
    done(&other, &down).await;
    // The answer to the first was lost, and by now the latch is open.
    assert_eq!(done(&one, &set).await, 0);
    assert_eq!(done(&other, &other.wants(&name, Mode::CountZero)).await, 0);
    done(&one, &remove).await;
    assert_eq!(done(&other, &other.wants(&name, Mode::SetCount { of: 5 })).await, 5);
    for late in [&remove, &set] {
        assert_eq!(done(&one, late).await, 5, "a new latch is another one");
    }
    assert_eq!(done(&other, &down).await, 5);
    one.busy(&one.wants(&name, Mode::CountZero)).await;
}
