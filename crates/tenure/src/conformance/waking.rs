//! A client's own writes never make its waiters deaf: they are told of the next change by another client. They do not poll here.

use super::shared::two;
use super::{Peer, Subject, sure};
use crate::backend::{Attempt, Claim, Mode, Retry};
use crate::signal::Signal;

/// Asks until it is told "busy": a quorum may take a while to see that no owner can have it.
pub(super) async fn busy(peer: &Peer, claim: &Claim) {
    for _ in 0..50 {
        match peer.ask(claim).await {
            Attempt::Busy { retry: Retry::OnSignal { .. }, .. } => return,
            Attempt::Busy { retry: Retry::After(pause), .. } => tokio::time::sleep(pause).await,
            other => panic!("{claim:?} was answered {other:?}"),
        }
    }
    panic!("{claim:?} has only collided");
}

/// A waiter below the engine.
pub(super) struct Waiter<'a> {
    s: &'a Subject,
    peer: &'a Peer,
    claim: Claim,
    signal: Signal,
}

impl<'a> Waiter<'a> {
    pub(super) async fn new(s: &'a Subject, peer: &'a Peer, claim: Claim) -> Self {
        let signal = sure(|| peer.backend.watch(&claim)).await;
        busy(peer, &claim).await;
        let mut waiter = Self { s, peer, claim, signal };
        waiter.settle().await;
        waiter
    }

    /// Asks again for as long as it is told to, as the engine does.
    pub(super) async fn settle(&mut self) {
        for _ in 0..20 {
            if tokio::time::timeout(self.s.lease() / 10, self.signal.fired()).await.is_err() {
                return;
            }
            busy(self.peer, &self.claim).await;
        }
    }

    /// It has heard of what came after it had settled.
    pub(super) async fn hears(mut self, what: &str) {
        let told = tokio::time::timeout(self.s.lease() * 10, self.signal.fired()).await;
        assert!(told.is_ok(), "{:?} was not told: {what}", self.claim.mode);
        self.peer.release(&self.claim).await;
    }
}

/// Claims that outlive the test, so that no end of a lease wakes a waiter.
pub(super) fn long(s: &Subject, claim: Claim) -> Claim {
    Claim { lease: s.lease() * 100, ..claim }
}

/// Each of these is held, awaited and renewed by one client, and then broken by another.
async fn woken_by_a_break(s: &Subject, hold: Mode, wait: Mode) {
    let Some((one, other, name)) = two(s, hold).await else { return };
    let held = one.hold(long(s, one.wants(&name, hold))).await;
    let mut waiter = Waiter::new(s, &one, long(s, one.wants(&name, wait))).await;
    assert!(one.renews(&held).await);
    waiter.settle().await;
    sure(|| other.backend.break_hold(&name)).await;
    waiter.hears("a break after a renewal").await;
}

pub(super) async fn who_waits_for_a_lock_hears_of_a_break_after_a_renewal(s: Subject) {
    woken_by_a_break(&s, Mode::Exclusive, Mode::Exclusive).await;
}

pub(super) async fn who_stands_in_the_queue_hears_of_a_break_after_a_renewal(s: Subject) {
    woken_by_a_break(&s, Mode::Fair, Mode::Fair).await;
}

pub(super) async fn who_wants_to_read_hears_of_a_break_after_a_renewal(s: Subject) {
    woken_by_a_break(&s, Mode::Write, Mode::Read).await;
}

pub(super) async fn who_wants_to_write_hears_of_other_readers_after_its_own(s: Subject) {
    let Some((one, other, name)) = two(&s, Mode::Read).await else { return };
    let (held, others) = (long(&s, one.wants(&name, Mode::Read)), long(&s, other.wants(&name, Mode::Read)));
    one.granted(&held).await;
    other.granted(&others).await;
    let mut writer = Waiter::new(&s, &one, long(&s, one.wants(&name, Mode::Write))).await;
    assert!(one.renews(&held).await);
    one.release(&held).await;
    writer.settle().await;
    other.release(&others).await;
    writer.hears("a reader of another client has gone").await;
}

pub(super) async fn who_wants_to_read_hears_of_other_writers_after_its_own(s: Subject) {
    let Some((one, other, name)) = two(&s, Mode::Read).await else { return };
    other.granted(&long(&s, other.wants(&name, Mode::Read))).await;
    let queued = long(&s, other.wants(&name, Mode::Write));
    busy(&other, &queued).await;
    let mut reader = Waiter::new(&s, &one, long(&s, one.wants(&name, Mode::Read))).await;
    let own = long(&s, one.wants(&name, Mode::Write));
    busy(&one, &own).await;
    one.release(&own).await;
    reader.settle().await;
    other.release(&queued).await;
    reader.hears("a writer of another client has left").await;
}

fn permits(s: &Subject, peer: &Peer, take: u32, of: u32) -> Claim {
    long(s, peer.wants(&s.name("a"), Mode::Permits { take, of }))
}

pub(super) async fn who_wants_a_permit_hears_of_others_after_a_renewal(s: Subject) {
    let Some((one, other, _)) = two(&s, Mode::Permits { take: 1, of: 2 }).await else { return };
    let (held, others) = (permits(&s, &one, 1, 2), permits(&s, &other, 1, 2));
    one.granted(&held).await;
    other.granted(&others).await;
    let mut waiter = Waiter::new(&s, &one, permits(&s, &one, 1, 2)).await;
    assert!(one.renews(&held).await);
    waiter.settle().await;
    other.release(&others).await;
    waiter.hears("a permit of another client came back").await;
}

pub(super) async fn who_wants_permits_hears_of_others_after_its_own_client_took_one(s: Subject) {
    let Some((one, other, _)) = two(&s, Mode::Permits { take: 1, of: 3 }).await else { return };
    let others = other.hold(permits(&s, &other, 2, 3)).await;
    let mut waiter = Waiter::new(&s, &one, permits(&s, &one, 2, 3)).await;
    one.granted(&permits(&s, &one, 1, 3)).await;
    waiter.settle().await;
    other.release(&others).await;
    waiter.hears("permits of another client came back").await;
}

pub(super) async fn who_waits_for_a_latch_hears_of_others_after_its_own_client_counted(s: Subject) {
    let Some((one, other, name)) = two(&s, Mode::CountDown).await else { return };
    let set = other.wants(&name, Mode::SetCount { of: 2 });
    other.ask(&set).await;
    let mut waiter = Waiter::new(&s, &one, long(&s, one.wants(&name, Mode::CountZero))).await;
    let own = one.wants(&name, Mode::CountDown);
    one.ask(&own).await;
    waiter.settle().await;
    let last = other.wants(&name, Mode::CountDown);
    other.ask(&last).await;
    waiter.hears("the latch is open").await;
}
