//! Whose turn it is when a lock becomes free and both readers and writers wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::shared::two;
use super::waking::{Waiter, busy, long};
use super::{Peer, Subject};
use crate::backend::{Attempt, Claim, Mode, Queue, Retry};
use crate::backends::decision::GRACE;
use crate::backends::faulty::Plan;
use crate::name::{Resource, Token};

const READ: Mode = Mode::Read;
const WRITE: Mode = Mode::Write;
/// Stores may count in whole milliseconds.
const ROUNDING: Duration = Duration::from_millis(2);

/// Asks until it is granted: of several stores some may still be giving back what came to no lock. One says it at once.
async fn granted(peer: &Peer, claim: &Claim) -> Token {
    for _ in 0..50 {
        match peer.ask(claim).await {
            Attempt::Granted { token, .. } => return token,
            Attempt::Busy { retry: Retry::After(pause), .. } => tokio::time::sleep(pause).await,
            Attempt::Busy { .. } if peer.backend.capabilities().nodes > 1 => tokio::time::sleep(ROUNDING).await,
            other => panic!("{claim:?} was answered {other:?}"),
        }
    }
    panic!("{claim:?} was never granted");
}

/// Asks once. If it is granted, it must have taken a grace: answers may be late, and questions asked again.
async fn refused(peer: &Peer, claim: &Claim) -> bool {
    let asked = Instant::now();
    match peer.ask(claim).await {
        Attempt::Busy { retry: Retry::OnSignal { within }, .. } => {
            assert!(within <= GRACE + ROUNDING, "nobody will tell it, and it is told to wait for {within:?}");
            true
        }
        Attempt::Busy { retry: Retry::After(_), .. } => true,
        other => {
            let took = asked.elapsed();
            assert!(took + ROUNDING >= GRACE, "{claim:?} was answered {other:?} after {took:?}");
            false
        }
    }
}

/// Asks as the engine does, but without listening. How long it took to get in.
async fn polls(peer: &Peer, claim: &Claim) -> Duration {
    let start = Instant::now();
    loop {
        let pause = match peer.ask(claim).await {
            Attempt::Granted { .. } => return start.elapsed(),
            Attempt::Busy { retry: Retry::OnSignal { within: pause } | Retry::After(pause), .. } => pause,
            other @ Attempt::Done { .. } => panic!("{claim:?} was answered {other:?}"),
        };
        tokio::time::sleep(pause).await;
    }
}

/// A lock that is free, with a writer in the queue that has yet to hear of it.
async fn freed(s: &Subject, name: &Resource, one: &Peer, other: &Peer) -> Claim {
    let (reader, writer) = (long(s, one.wants(name, READ)), long(s, other.wants(name, WRITE)));
    granted(one, &reader).await;
    busy(other, &writer).await;
    one.release(&reader).await;
    writer
}

pub(super) async fn a_free_lock_is_left_to_a_writer_that_waits(s: Subject) {
    let Some((one, other, name)) = two(&s, READ).await else { return };
    for queue in [Queue::Allowed, Queue::Never, Queue::Allowed] {
        let writer = freed(&s, &name, &one, &other).await;
        let near = Claim { queue, ..long(&s, one.wants(&name, READ)) };
        if !refused(&one, &near).await {
            one.release(&near).await;
        }
        granted(&other, &writer).await;
        busy(&one, &near).await;
        other.release(&writer).await;
        // No writer waits any more.
        granted(&one, &near).await;
        one.release(&near).await;
    }
}

pub(super) async fn a_dead_writer_in_the_queue_costs_readers_a_grace_each_time(s: Subject) {
    let Some((one, other, name)) = two(&s, READ).await else { return };
    let dead = freed(&s, &name, &one, &other).await;
    for _ in 0..3 {
        let near = long(&s, one.wants(&name, READ));
        let took = polls(&one, &near).await;
        assert!(took + ROUNDING >= GRACE, "let in after {took:?}");
        assert!(took < dead.position_lease() / 3, "kept out for {took:?} by one that is dead");
        one.release(&near).await;
    }
}

pub(super) async fn who_reads_or_has_written_leaves_nothing_to_a_writer_in_the_queue(s: Subject) {
    let Some((one, other, name)) = two(&s, READ).await else { return };
    let writes = long(&s, one.wants(&name, WRITE));
    let token = granted(&one, &writes).await;
    let writer = long(&s, other.wants(&name, WRITE));
    busy(&other, &writer).await;
    let reads = Claim { mode: Mode::Downgrade, ..writes };
    assert_eq!(granted(&one, &reads).await, token);
    busy(&other, &writer).await;
    let reads = Claim { mode: READ, ..reads };
    assert_eq!(granted(&one, &reads).await, token);
    one.release(&reads).await;
    granted(&other, &writer).await;
}

pub(super) async fn readers_have_a_turn_between_writers(s: Subject) {
    let Some((one, other, name)) = two(&s, READ).await else { return };
    for _ in 0..3 {
        let (first, second) = (long(&s, one.wants(&name, WRITE)), long(&s, other.wants(&name, WRITE)));
        granted(&one, &first).await;
        busy(&other, &second).await;
        one.release(&first).await;
        // One has written: first come, first served, or writers that come and go would keep readers out forever.
        let reader = long(&s, one.wants(&name, READ));
        granted(&one, &reader).await;
        one.release(&reader).await;
        // Some have read: it is the writer's turn.
        let late = Claim { queue: Queue::Never, ..long(&s, one.wants(&name, READ)) };
        if !refused(&one, &late).await {
            one.release(&late).await;
        }
        granted(&other, &second).await;
        other.release(&second).await;
    }
}

pub(super) async fn a_release_wakes_the_writer_behind_readers_in_the_queue(s: Subject) {
    let Some((one, other, name)) = two(&s, READ).await else { return };
    let writes = long(&s, one.wants(&name, WRITE));
    granted(&one, &writes).await;
    let _before = Waiter::new(&s, &one, long(&s, one.wants(&name, READ))).await;
    let mut writer = Waiter::new(&s, &other, long(&s, other.wants(&name, WRITE))).await;
    one.release(&writes).await;
    let reads = long(&s, one.wants(&name, READ));
    granted(&one, &reads).await;
    writer.settle().await;
    one.release(&reads).await;
    writer.hears("it is its turn, and not that of those before it").await;
}

pub(super) async fn near_readers_leave_a_turn_to_a_far_writer(s: Subject) {
    if two(&s, READ).await.is_none() {
        return;
    }
    let far = Plan { way: GRACE / 10, ..s.plan.unwrap_or_default() };
    let (near, far) = (s.locker().await, s.locker_over(s.peer_with(Some(far)).await));
    let (grants, enough) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(u64::MAX)));
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let (lock, grants, enough) = (near.rwlock(s.name("a")), Arc::clone(&grants), Arc::clone(&enough));
        let section = s.lease() / 100;
        tasks.spawn(async move {
            while grants.load(Ordering::SeqCst) < enough.load(Ordering::SeqCst) {
                let guard = lock.read().await.expect("locked");
                grants.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(section).await;
                drop(guard);
            }
        });
    }
    for _ in 0..3 {
        let before = grants.load(Ordering::SeqCst);
        s.eventually("they read", async || grants.load(Ordering::SeqCst) > before + 8).await;
        let before = grants.load(Ordering::SeqCst);
        // Counted, not timed: until the question arrives they read on.
        enough.store(before + 400, Ordering::SeqCst);
        let guard = far.rwlock(s.name("a")).write().await.expect("locked");
        let passed = grants.load(Ordering::SeqCst) - before;
        assert!(passed < 400, "{passed} readers of the other client came first");
        drop(guard);
    }
    enough.store(0, Ordering::SeqCst);
    tasks.join_all().await;
}
