//! Readers, writers and permits, below the engine.

use super::{Peer, Subject, sure, sure_or_refused};
use crate::backend::{Attempt, Claim, Mode, Queue, Released};
use crate::error::Error;
use crate::name::Resource;

const READ: Mode = Mode::Read;
const WRITE: Mode = Mode::Write;

/// Two clients of a store that carries the mode, and a name; `None` if it does not, and says so.
pub(super) async fn two(s: &Subject, mode: Mode) -> Option<(Peer, Peer, Resource)> {
    let (one, other) = (s.peer().await, s.peer().await);
    if one.backend.capabilities().modes.carry(mode) {
        return Some((one, other, s.name("a")));
    }
    let locker = s.locker().await;
    let refused = match mode {
        Mode::Read => locker.rwlock("a").read().await.map(drop),
        Mode::Fair => locker.mutex("a").fair().lock().await.map(drop),
        Mode::Permits { .. } => locker.semaphore("a", 1).acquire().await.map(drop),
        _ => locker.latch("a").wait().await,
    };
    assert!(matches!(refused, Err(Error::Unsupported { .. })), "{refused:?}");
    None
}

fn permits(peer: &Peer, name: &Resource, take: u32, of: u32) -> Claim {
    peer.wants(name, Mode::Permits { take, of })
}

pub(super) async fn readers_share_and_a_writer_is_alone(s: Subject) {
    let Some((one, other, name)) = two(&s, READ).await else { return };
    let (first, second) = (one.wants(&name, READ), other.wants(&name, READ));
    let third = one.wants(&name, READ);
    let mut tokens = Vec::new();
    for (peer, claim) in [(&one, &first), (&other, &second), (&one, &third)] {
        tokens.push(peer.granted(claim).await);
    }
    assert!(tokens.is_sorted() && tokens[0] < tokens[1] && tokens[1] < tokens[2], "{tokens:?}");
    assert_eq!(one.granted(&first).await, tokens[0], "asking again is the same question");
    let write = Claim { queue: Queue::Never, ..other.wants(&name, WRITE) };
    for (peer, claim) in [(&one, &first), (&other, &second), (&one, &third)] {
        other.busy(&write).await;
        peer.release(claim).await;
    }
    other.granted(&write).await;
    one.busy(&Claim { queue: Queue::Never, ..one.wants(&name, READ) }).await;
    one.busy(&Claim { queue: Queue::Never, ..one.wants(&name, WRITE) }).await;
    assert!(other.renews(&write).await);
    other.release(&write).await;
    one.granted(&one.wants(&name, READ)).await;
}

pub(super) async fn a_waiting_writer_stops_new_readers(s: Subject) {
    let Some((one, other, name)) = two(&s, READ).await else { return };
    let (reader, writer) = (one.wants(&name, READ), other.wants(&name, WRITE));
    one.granted(&reader).await;
    other.busy(&writer).await;
    let late = one.wants(&name, READ);
    one.busy(&late).await;
    // Present readers go on, also if they ask again.
    one.granted(&reader).await;
    one.release(&reader).await;
    other.granted(&writer).await;
    other.release(&writer).await;
    one.granted(&late).await;
}

pub(super) async fn a_writer_that_gives_up_lets_readers_in(s: Subject) {
    let Some((one, other, name)) = two(&s, READ).await else { return };
    let (reader, writer, late) = (one.wants(&name, READ), other.wants(&name, WRITE), one.wants(&name, READ));
    one.granted(&reader).await;
    other.busy(&writer).await;
    let mut signal = sure(|| one.backend.watch(&late)).await;
    one.busy(&late).await;
    assert_eq!(sure(|| other.backend.release(&writer)).await, Released::NotHeld);
    // Told, or at the next poll: a store need not publish that a waiter has left.
    drop(tokio::time::timeout(s.lease() / 3, signal.fired()).await);
    one.granted(&late).await;
}

pub(super) async fn a_dead_reader_ends_alone(s: Subject) {
    let Some((one, other, name)) = two(&s, READ).await else { return };
    let (dead, alive) = (one.wants(&name, READ), other.wants(&name, READ));
    one.granted(&dead).await;
    other.granted(&alive).await;
    for _ in 0..3 {
        tokio::time::sleep(s.lease() / 2).await;
        assert!(other.renews(&alive).await);
    }
    assert!(!one.renews(&dead).await, "not kept alive by the other one");
    let holders = one.state(&name).await.holders;
    assert_eq!(holders.iter().map(|h| &*h.owner).collect::<Vec<_>>(), [alive.owner.to_string()]);
    let writer = one.wants(&name, WRITE);
    one.busy(&writer).await;
    other.release(&alive).await;
    one.granted(&writer).await;
}

pub(super) async fn a_writer_becomes_a_reader_under_the_same_token(s: Subject) {
    let Some((one, other, name)) = two(&s, READ).await else { return };
    let write = one.wants(&name, WRITE);
    let token = one.granted(&write).await;
    let late = other.wants(&name, READ);
    let mut signal = sure(|| other.backend.watch(&late)).await;
    other.busy(&late).await;
    let downgrade = Claim { mode: Mode::Downgrade, ..write.clone() };
    assert_eq!(one.granted(&downgrade).await, token);
    assert_eq!(one.granted(&downgrade).await, token, "asking again is the same question");
    let read = Claim { mode: READ, ..write.clone() };
    tokio::time::timeout(s.lease() / 2, signal.fired()).await.expect("readers are told");
    other.granted(&late).await;
    // A renewal that was under way as a writer's is none that failed.
    assert_eq!(one.renew(&[write, read.clone()]).await, [true, true]);
    other.busy(&Claim { queue: Queue::Never, ..other.wants(&name, WRITE) }).await;
    one.release(&read).await;
    other.release(&late).await;
    other.granted(&other.wants(&name, WRITE)).await;
}

pub(super) async fn a_downgrade_is_never_granted_anew(s: Subject) {
    let Some((one, other, name)) = two(&s, READ).await else { return };
    let write = one.wants(&name, WRITE);
    let downgrade = Claim { mode: Mode::Downgrade, ..write.clone() };
    one.busy(&downgrade).await;
    one.granted(&write).await;
    let peer = s.peer_with(None).await;
    sure(|| peer.backend.break_hold(&name)).await.expect("it was held");
    // Free, or read by others: another owner may have written since.
    one.busy(&downgrade).await;
    other.granted(&other.wants(&name, READ)).await;
    one.busy(&downgrade).await;
    assert_eq!(one.state(&name).await.holders.len(), 1);
}

pub(super) async fn a_read_release_fires_the_writers_signal(s: Subject) {
    let Some((one, other, name)) = two(&s, READ).await else { return };
    let (reader, writer) = (one.wants(&name, READ), other.wants(&name, WRITE));
    one.granted(&reader).await;
    let mut signal = sure(|| other.backend.watch(&writer)).await;
    other.busy(&writer).await;
    one.release(&reader).await;
    tokio::time::timeout(s.lease() / 2, signal.fired()).await.expect("fired before the lease could end");
    other.granted(&writer).await;
}

pub(super) async fn a_break_ends_all_readers(s: Subject) {
    let Some((one, other, name)) = two(&s, READ).await else { return };
    let (first, second) = (one.wants(&name, READ), other.wants(&name, READ));
    one.granted(&first).await;
    let token = other.granted(&second).await;
    let peer = s.peer_with(None).await;
    let broken = sure(|| peer.backend.break_hold(&name)).await.expect("it was held");
    assert_eq!(broken.holders.len(), 2);
    assert!(broken.holders.iter().all(|h| h.mode == READ) && broken.fence > token, "{broken:?}");
    assert!(!one.renews(&first).await);
    assert!(!other.renews(&second).await);
    assert!(one.granted(&one.wants(&name, WRITE)).await > broken.fence);
}

pub(super) async fn permits_never_exceed_the_number(s: Subject) {
    let Some((one, other, name)) = two(&s, Mode::Permits { take: 1, of: 3 }).await else { return };
    let held = permits(&one, &name, 2, 3);
    let token = one.granted(&held).await;
    assert_eq!(one.granted(&held).await, token, "asking again takes no more");
    let last = permits(&other, &name, 1, 3);
    other.busy(&permits(&other, &name, 2, 3)).await;
    other.granted(&last).await;
    one.busy(&permits(&one, &name, 1, 3)).await;
    let state = one.state(&name).await;
    assert_eq!(state.permits.map(|p| (p.of, p.free)), Some((3, 0)));
    let mut takes: Vec<Mode> = state.holders.iter().map(|h| h.mode).collect();
    takes.sort_by_key(|mode| matches!(mode, Mode::Permits { take: 2, .. }));
    assert!(matches!(takes[..], [Mode::Permits { take: 1, .. }, Mode::Permits { take: 2, .. }]), "{takes:?}");
    one.release(&held).await;
    one.release(&held).await;
    assert_eq!(one.state(&name).await.permits.map(|p| (p.of, p.free)), Some((3, 2)), "released once");
    other.granted(&permits(&other, &name, 2, 3)).await;
}

pub(super) async fn a_lapsed_permit_comes_back(s: Subject) {
    let Some((one, other, name)) = two(&s, Mode::Permits { take: 1, of: 2 }).await else { return };
    let (dead, alive) = (permits(&one, &name, 1, 2), permits(&other, &name, 1, 2));
    one.granted(&dead).await;
    other.granted(&alive).await;
    for _ in 0..3 {
        tokio::time::sleep(s.lease() / 2).await;
        assert!(other.renews(&alive).await);
    }
    assert!(!one.renews(&dead).await);
    assert_eq!(sure(|| one.backend.release(&dead)).await, Released::NotHeld);
    one.busy(&permits(&one, &name, 2, 2)).await;
    one.granted(&permits(&one, &name, 1, 2)).await;
    other.busy(&permits(&other, &name, 1, 2)).await;
}

pub(super) async fn resizing_never_admits_above_the_new_number(s: Subject) {
    let Some((one, other, name)) = two(&s, Mode::Permits { take: 1, of: 3 }).await else { return };
    let held: Vec<Claim> = (0..3).map(|_| permits(&one, &name, 1, 3)).collect();
    for claim in &held {
        one.granted(claim).await;
    }
    let resize = async |of| {
        let claim = other.wants(&name, Mode::Resize { of });
        match sure_or_refused(|| other.backend.acquire(&claim)).await {
            Ok(answer) => assert!(matches!(answer, Attempt::Done { .. }), "{answer:?}"),
            // A store may know no more than how many are free.
            Err(e) => assert!(matches!(e, Error::Unsupported { .. }), "{e}"),
        }
    };
    resize(1).await;
    if one.state(&name).await.permits.is_some_and(|p| p.of == 3) {
        return;
    }
    let late = permits(&other, &name, 1, 3);
    for claim in &held {
        other.busy(&late).await;
        assert!(one.renews(claim).await, "nobody is thrown out");
        one.release(claim).await;
    }
    other.granted(&late).await;
    one.busy(&permits(&one, &name, 1, 3)).await;
    resize(2).await;
    one.granted(&permits(&one, &name, 1, 3)).await;
    one.busy(&permits(&one, &name, 1, 3)).await;
}

pub(super) async fn a_permit_that_comes_back_fires_the_signal(s: Subject) {
    let Some((one, other, name)) = two(&s, Mode::Permits { take: 1, of: 1 }).await else { return };
    let (held, waiting) = (permits(&one, &name, 1, 1), permits(&other, &name, 1, 1));
    one.granted(&held).await;
    let mut signal = sure(|| other.backend.watch(&waiting)).await;
    other.busy(&waiting).await;
    one.release(&held).await;
    tokio::time::timeout(s.lease() / 2, signal.fired()).await.expect("fired before the lease could end");
    other.granted(&waiting).await;
}

pub(super) async fn a_break_takes_all_permits_back(s: Subject) {
    let Some((one, other, name)) = two(&s, Mode::Permits { take: 1, of: 3 }).await else { return };
    let (first, second) = (permits(&one, &name, 2, 3), permits(&other, &name, 1, 3));
    one.granted(&first).await;
    other.granted(&second).await;
    let peer = s.peer_with(None).await;
    let broken = sure(|| peer.backend.break_hold(&name)).await.expect("some were held");
    assert_eq!(broken.holders.len(), 2);
    assert!(!one.renews(&first).await);
    assert!(!other.renews(&second).await);
    assert!(one.granted(&permits(&one, &name, 3, 3)).await > broken.fence);
}
