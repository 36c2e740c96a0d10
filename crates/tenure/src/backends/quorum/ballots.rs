//! The ballots of this client, by the owner that the engine knows.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::ballot::{Ballot, NodeOwner};
use crate::backend::{Claim, Released};
use crate::clock::Instant;
use crate::name::OwnerId;

/// How many owners are kept before the old ones are swept.
const SWEEP_AT: usize = 1024;
/// How long the undoing of a ballot may take beyond its lease.
const UNDONE: Duration = Duration::from_secs(60);

/// What is kept of one owner.
#[derive(Debug)]
struct OwnerRecord {
    ballot: Arc<Ballot>,
    /// In a row.
    collisions: u32,
    /// The nodes that said no, as bits: when one of them changes, asking again may help.
    blocked_by: Arc<AtomicU64>,
    /// Earlier ballots that still have a position in the queues of nodes, since when.
    queued: Vec<(NodeOwner, Instant)>,
    /// What the nodes have answered to a release.
    returned: Vec<Option<Released>>,
    /// No call comes for it after this.
    until: Instant,
}

impl OwnerRecord {
    fn take_queued(&mut self) -> Vec<NodeOwner> {
        std::mem::take(&mut self.queued).into_iter().map(|(owner, _)| owner).collect()
    }
}

/// Long enough for all calls that may still come for this owner, and for all that is still being undone.
fn kept_until(claim: &Claim, now: Instant) -> Instant {
    now.after(claim.lease).after(claim.lease).after(UNDONE)
}

#[derive(Debug)]
pub(super) struct Ballots {
    nodes: usize,
    owners: Mutex<HashMap<OwnerId, OwnerRecord>>,
    sweep_at: AtomicUsize,
}

impl Ballots {
    pub(super) fn new(nodes: usize) -> Self {
        Self { nodes, owners: Mutex::default(), sweep_at: AtomicUsize::new(SWEEP_AT) }
    }

    fn owners(&self) -> MutexGuard<'_, HashMap<OwnerId, OwnerRecord>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, claim: &Claim, now: Instant, act: impl FnOnce(&mut OwnerRecord) -> T) -> T {
        let mut owners = self.owners();
        if owners.len() >= self.sweep_at.load(Ordering::Relaxed) {
            owners.retain(|_, record| record.until > now);
            self.sweep_at.store((owners.len() * 2).max(SWEEP_AT), Ordering::Relaxed);
        }
        let until = kept_until(claim, now);
        let record = owners.entry(claim.owner).or_insert_with(|| OwnerRecord {
            ballot: Ballot::new(claim.owner, 0, self.nodes),
            collisions: 0,
            blocked_by: Arc::new(AtomicU64::new(u64::MAX)),
            queued: Vec::new(),
            returned: vec![None; self.nodes],
            until,
        });
        record.until = until;
        act(record)
    }

    /// The ballot or the hold of an owner; a new ballot after one that was given up. The second is a hold that has lapsed, whose votes
    /// are to be given back.
    pub(super) fn of(&self, claim: &Claim, now: Instant) -> (Arc<Ballot>, Option<NodeOwner>) {
        self.with(claim, now, |record| {
            record.returned.fill(None);
            let NodeOwner { owner, attempt } = record.ballot.owner;
            let lapsed = record.ballot.has_lapsed(now).then_some(record.ballot.owner);
            if lapsed.is_some() {
                record.ballot.give_up();
            }
            if !record.ballot.is_alive() {
                record.ballot = Ballot::new(owner, attempt + 1, self.nodes);
            }
            record.ballot.ask();
            (Arc::clone(&record.ballot), lapsed)
        })
    }

    /// The hold of an owner; one that is given up if it has none.
    pub(super) fn held(&self, claim: &Claim, now: Instant) -> Arc<Ballot> {
        let held = self.owners().get_mut(&claim.owner).map(|record| {
            // A hold is known until it is given back, however long that takes.
            record.until = kept_until(claim, now);
            Arc::clone(&record.ballot)
        });
        held.unwrap_or_else(|| {
            let none = Ballot::new(claim.owner, 0, self.nodes);
            none.give_up();
            none
        })
    }

    /// What an owner gives back: its ballot or hold, and those that still queue.
    pub(super) fn giving_back(&self, claim: &Claim, now: Instant) -> (Arc<Ballot>, Vec<NodeOwner>) {
        self.with(claim, now, |record| {
            record.ballot.give_up();
            (Arc::clone(&record.ballot), record.take_queued())
        })
    }

    /// The nodes that block an owner that waits.
    pub(super) fn blocked_by(&self, claim: &Claim, now: Instant) -> Arc<AtomicU64> {
        self.with(claim, now, |record| Arc::clone(&record.blocked_by))
    }

    /// Notes which nodes said no, and how often no owner won. Returns the latter.
    pub(super) fn refused(&self, claim: &Claim, now: Instant, by: u64, collided: bool) -> u32 {
        self.with(claim, now, |record| {
            record.blocked_by.store(by, Ordering::Release);
            record.collisions = if collided { record.collisions.saturating_add(1) } else { 0 };
            record.collisions
        })
    }

    /// Gives a ballot up: the next one is another owner. With `queues`, it keeps its positions until that one has asked.
    pub(super) fn give_up(&self, claim: &Claim, now: Instant, ballot: &Ballot, queues: bool) {
        ballot.give_up();
        if queues {
            self.with(claim, now, |record| {
                // Older ones have ended by themselves.
                record.queued.retain(|(_, since)| now.since(*since) < claim.position_lease());
                record.queued.push((ballot.owner, now));
            });
        }
    }

    /// Earlier ballots whose positions in queues are no longer needed.
    pub(super) fn take_queued(&self, claim: &Claim) -> Vec<NodeOwner> {
        self.owners().get_mut(&claim.owner).map(OwnerRecord::take_queued).unwrap_or_default()
    }

    /// Notes what a node answered to a release.
    pub(super) fn note_returned(&self, claim: &Claim, node: usize, said: Released) {
        if let Some(record) = self.owners().get_mut(&claim.owner) {
            // The echo of a release whose answer was lost changes nothing.
            record.returned[node].get_or_insert(said);
        }
    }

    /// What the nodes have answered to a release so far.
    pub(super) fn returned(&self, claim: &Claim) -> Vec<Released> {
        let owners = self.owners();
        owners.get(&claim.owner).into_iter().flat_map(|record| &record.returned).flatten().copied().collect()
    }

    /// Forgets an owner that has nothing any more.
    pub(super) fn forget(&self, owner: OwnerId) {
        self.owners().remove(&owner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Mode;
    use crate::name::{ClientId, OwnerIds, Resource, Token};

    #[test]
    fn a_hold_is_known_for_as_long_as_it_is_renewed() {
        let (ballots, owners) = (Ballots::new(3), OwnerIds::new(ClientId::random().expect("random bits")));
        let name = Resource::new("a").expect("a name");
        let claim = || Claim::new(name.clone(), owners.next(), Mode::Exclusive, Duration::from_secs(30));
        let held = claim();
        let mut now = Instant::from_nanos(1);
        assert!(ballots.of(&held, now).0.granted(Token::new(1), now.after(held.lease)));
        for _ in 0..60 {
            now = now.after(held.lease / 3);
            ballots.held(&held, now).extended(now.after(held.lease));
            // Others come and go, enough of them to have the forgotten looked for.
            (0..100).for_each(|_| drop(ballots.of(&claim(), now)));
            assert!(ballots.held(&held, now).is_alive());
        }
        assert!(ballots.owners().len() < 3000, "what nobody asks of any more goes");
        ballots.forget(held.owner);
        assert!(!ballots.held(&held, now).is_alive());
    }
}
