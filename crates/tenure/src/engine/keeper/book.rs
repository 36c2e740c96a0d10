//! The holds that are kept, and when each is due. Shared by callers and the keeper's task.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::linger::Idle;
use crate::backend::{Claim, Mode};
use crate::clock::Instant;
use crate::engine::hold::Hold;
use crate::engine::turnstile::{LEAST_HAND_OVERS, Turn};
use crate::lost::LostReason;
use crate::name::OwnerId;

/// How often a hold is renewed at most because the store says that it may be gone.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How long a hold is handed over inside the process before other processes get their turn.
const HAND_OVERS_FOR: Duration = Duration::from_millis(10);

/// Leases within a factor of two: they are renewed together, apart from shorter and longer ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Urgency(u32);

impl Urgency {
    fn of(lease: Duration) -> Self {
        Self(u64::try_from(lease.as_millis()).unwrap_or(u64::MAX).checked_ilog2().unwrap_or(0))
    }
}

/// Why a hold is renewed before it is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// So that the store watches it.
    ToWatch,
    /// The store has said that it may be gone. What a renewal under way says of it may be older than that.
    Suspect,
}

/// When something is to be done for a hold.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    pub(super) due: Instant,
    pub(super) renew_at: Instant,
}

#[derive(Debug)]
pub(super) struct KeptHold {
    pub(super) hold: Arc<Hold>,
    /// Kept by an exclusive hold, so that no other task of this process asks.
    pub(super) turn: Option<Turn>,
    /// As in the hold, but readable after the hold was given back.
    pub(super) until: Instant,
    due: Instant,
    renewing: bool,
    /// Whether it is to be renewed although it is not due.
    look: Option<Look>,
    /// When it was last renewed because it was suspect.
    looked_at: Option<Instant>,
    pub(super) failures: u32,
    pub(super) spare_tokens: u32,
    /// How often it was handed over inside the process.
    pub(super) handed_over: u32,
    /// When the store granted it, or before.
    granted_at: Instant,
    /// Stays with the process until then, without a task for now if it is idle.
    pub(super) lingers_until: Option<Instant>,
    pub(super) idle: Option<Idle>,
    /// Other clients are known to wait.
    pub(super) is_wanted: bool,
}

impl KeptHold {
    pub(super) fn new(hold: Arc<Hold>, turn: Option<Turn>, until: Instant) -> Self {
        let (spare_tokens, handed_over, granted_at) = (hold.claim.tokens - 1, 0, hold.since);
        let (due, renewing, look, looked_at, failures) = (until, false, None, None, 0);
        let (lingers_until, idle, is_wanted) = (None, None, false);
        Self {
            hold,
            turn,
            until,
            due,
            renewing,
            look,
            looked_at,
            failures,
            spare_tokens,
            handed_over,
            granted_at,
            lingers_until,
            idle,
            is_wanted,
        }
    }

    /// When it is looked at next, and when its lease asks for a renewal.
    pub(super) fn times(&self) -> Times {
        let due = self.due;
        let by_lease = self.granted_at.after(self.until.since(self.granted_at) / 3).max(due);
        Times { due, renew_at: if self.look.is_some() { by_lease } else { due } }
    }

    /// It shall be renewed the first time, also if its lease is fixed.
    pub(super) fn is_to_be_watched(&mut self) {
        self.look = Some(Look::ToWatch);
    }

    /// When it can be renewed again as a suspect. A store that pushes all the time is not asked all the time.
    fn next_look(&self, now: Instant) -> Instant {
        self.looked_at.map_or(now, |last| last.after(LOOK_EVERY).max(now)).min(self.ends())
    }

    fn max_until(&self) -> Option<Instant> {
        self.hold.terms.max_hold.map(|d| self.hold.since.after(d))
    }

    pub(super) fn urgency(&self) -> Urgency {
        Urgency::of(self.hold.terms.lease)
    }

    pub(super) fn ends(&self) -> Instant {
        let idle = self.idle.as_ref().map(|idle| idle.until);
        [self.max_until(), idle].into_iter().flatten().fold(self.until, Instant::min)
    }

    /// Whether the reserved tokens can serve another task now. Other processes get their turn after a while.
    pub(super) fn can_be_handed_over(&self, now: Instant) -> bool {
        let had = now.since(self.granted_at);
        let may = had < HAND_OVERS_FOR
            || self.handed_over < LEAST_HAND_OVERS && had < self.hold.terms.lease
            || !self.is_wanted && self.lingers_until.is_some_and(|until| now < until);
        may && self.spare_tokens > 0 && now < self.until && self.turn.is_some()
    }
}

/// What is due.
#[derive(Debug, Default)]
pub(super) struct Due {
    pub(super) ended: Vec<(Arc<Hold>, LostReason)>,
    pub(super) renew: Vec<u64>,
    /// Have been idle for long enough.
    pub(super) idle: Vec<u64>,
}

/// The claims of one renewal, by owner and mode: the answer to a writer says nothing of the reader that it has become meanwhile.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) claims: Vec<Claim>,
    pub(super) owners: Vec<(u64, Mode)>,
    pub(super) timeout: Duration,
}

#[derive(Debug, Default)]
pub(super) struct Book {
    /// By the owner's number, which is unique in a locker.
    entries: HashMap<u64, KeptHold>,
    schedule: BTreeSet<(Instant, u64)>,
    /// When the keeper looks next. It is woken only for what is due sooner.
    looks_at: Option<Instant>,
    /// Nothing is kept any more.
    pub(super) closed: bool,
}

impl Book {
    /// Keeps a hold. Returns one that it takes the place of (a writer that has become a reader), and whether the keeper must be woken.
    pub(super) fn keep(&mut self, entry: KeptHold, due: Instant) -> (Option<KeptHold>, bool) {
        let owner = entry.hold.claim.owner.number;
        let before = self.remove(owner);
        self.schedule.insert((due, owner));
        self.entries.insert(owner, KeptHold { due, ..entry });
        (before, self.wants_a_look(due))
    }

    fn wants_a_look(&mut self, due: Instant) -> bool {
        let sooner = self.looks_at.is_none_or(|at| due < at);
        if sooner {
            self.looks_at = Some(due);
        }
        sooner
    }

    /// When the keeper shall look next, if there is something to look at.
    pub(super) fn next_look(&mut self) -> Option<Instant> {
        self.looks_at = self.schedule.first().map(|(when, _)| *when);
        self.looks_at
    }

    /// The present hold of an owner.
    pub(super) fn hold(&self, owner: u64) -> Option<Arc<Hold>> {
        self.entries.get(&owner).map(|entry| Arc::clone(&entry.hold))
    }

    /// Takes everything.
    pub(super) fn drain(&mut self) -> Vec<KeptHold> {
        self.schedule.clear();
        self.entries.drain().map(|(_, entry)| entry).collect()
    }

    /// The entry of this very hold: under its owner there may be another one by now.
    pub(super) fn of(&mut self, hold: &Arc<Hold>) -> Option<&mut KeptHold> {
        self.entries.get_mut(&hold.claim.owner.number).filter(|entry| Arc::ptr_eq(&entry.hold, hold))
    }

    /// The entry of an owner.
    pub(super) fn entry(&mut self, owner: u64) -> Option<&mut KeptHold> {
        self.entries.get_mut(&owner)
    }

    pub(super) fn remove(&mut self, owner: u64) -> Option<KeptHold> {
        let entry = self.entries.remove(&owner)?;
        self.schedule.remove(&(entry.due, owner));
        Some(entry)
    }

    pub(super) fn holds(&self) -> impl Iterator<Item = &Arc<Hold>> {
        self.entries.values().map(|entry| &entry.hold)
    }

    /// Looks at an entry at another time. Whether the keeper must be woken for it.
    pub(super) fn schedule_at(&mut self, owner: u64, due: Instant) -> bool {
        let Some(entry) = self.entries.get_mut(&owner) else { return false };
        self.schedule.remove(&(entry.due, owner));
        entry.due = due;
        self.schedule.insert((due, owner));
        self.wants_a_look(due)
    }

    /// Has a hold renewed at once that may be gone. Whether the keeper must be woken for it.
    pub(super) fn suspect(&mut self, owner: OwnerId, now: Instant) -> bool {
        let Some(entry) = self.entries.get_mut(&owner.number).filter(|entry| entry.hold.claim.owner == owner) else {
            return false;
        };
        entry.look = Some(Look::Suspect);
        let due = entry.next_look(now).min(entry.due);
        if entry.renewing { false } else { self.schedule_at(owner.number, due) }
    }

    /// Another client waits for a hold: it lingers no more. Whether the keeper must be woken for it.
    pub(super) fn wanted(&mut self, owner: OwnerId, now: Instant) -> bool {
        let Some(entry) = self.entries.get_mut(&owner.number).filter(|entry| entry.hold.claim.owner == owner) else {
            return false;
        };
        entry.is_wanted = true;
        if entry.idle.is_some() { self.schedule_at(owner.number, now) } else { false }
    }

    /// Takes what is due off the schedule.
    pub(super) fn due(&mut self, now: Instant) -> Due {
        let mut due = Due::default();
        while let Some(&(when, owner)) = self.schedule.first()
            && when <= now
        {
            self.schedule.pop_first();
            let Some(entry) = self.entries.get(&owner) else { continue };
            if entry.idle.is_some() {
                // Also when a renewal is due: what no task has is not renewed.
                due.idle.push(owner);
                continue;
            }
            // One that was given back meanwhile has its release under way.
            if now >= entry.until || entry.hold.is_lost() {
                due.ended.push((Arc::clone(&entry.hold), entry.hold.expiry_reason()));
            } else if entry.max_until().is_some_and(|max| now >= max) {
                due.ended.push((Arc::clone(&entry.hold), LostReason::MaxHold));
            } else if entry.renewing || entry.hold.terms.fixed && entry.look.is_none() {
                let ends = entry.ends();
                self.schedule_at(owner, ends);
            } else {
                due.renew.push(owner);
            }
        }
        if !due.renew.is_empty() {
            self.add_nearly_due(&mut due.renew, now);
        }
        due
    }

    /// Holds of the same urgency that would be renewed a moment later ride along.
    fn add_nearly_due(&self, batch: &mut Vec<u64>, now: Instant) {
        let due: BTreeSet<Urgency> = batch.iter().filter_map(|o| self.entries.get(o)).map(KeptHold::urgency).collect();
        let longest = batch.iter().filter_map(|o| self.entries.get(o)).map(|e| e.hold.terms.lease).max();
        let soon = now.after(longest.unwrap_or_default() / 10);
        for (when, owner) in self.schedule.range(..=(soon, u64::MAX)) {
            let rides = self.entries.get(owner).is_some_and(|e| {
                let renewable = !e.renewing && !e.hold.terms.fixed && e.ends() > e.due;
                renewable && due.contains(&e.urgency()) && *when <= now.after(e.hold.terms.lease / 10)
            });
            if rides {
                batch.push(*owner);
            }
        }
    }

    /// By urgency and part of the store, the most urgent first.
    pub(super) fn by_part(&self, owners: Vec<u64>, part_of: impl Fn(&Claim) -> u32) -> BTreeMap<(Urgency, u32), Vec<u64>> {
        let mut parts = BTreeMap::<_, Vec<u64>>::new();
        for owner in owners {
            let Some(entry) = self.entries.get(&owner) else { continue };
            parts.entry((entry.urgency(), part_of(&entry.hold.claim))).or_default().push(owner);
        }
        parts
    }

    /// Notes that these are being renewed.
    pub(super) fn begin_renewal(&mut self, owners: &[u64], timeout: Duration, now: Instant) -> Batch {
        let mut batch = Batch { claims: Vec::with_capacity(owners.len()), owners: Vec::with_capacity(owners.len()), timeout };
        for owner in owners {
            let Some(entry) = self.entries.get_mut(owner) else { continue };
            if entry.look == Some(Look::Suspect) {
                entry.looked_at = Some(now);
            }
            (entry.renewing, entry.look) = (true, None);
            let mut claim = entry.hold.claim.clone();
            if entry.hold.terms.fixed {
                // Only to see whether it is there: it must not last longer for that.
                claim.lease = entry.hold.since.after(claim.lease).since(now);
            }
            batch.claims.push(claim);
            batch.owners.push((*owner, entry.hold.claim.mode));
            // Short enough to leave time for another try before the deadline. Not shorter for one that is late: the others have time.
            batch.timeout = batch.timeout.min(entry.hold.terms.lease / 3);
            let ends = entry.ends();
            self.schedule_at(*owner, ends);
        }
        batch
    }

    /// The hold that a renewal was about, if it still is that hold.
    pub(super) fn end_renewal(&mut self, owner: u64, mode: Mode) -> Option<&mut KeptHold> {
        let entry = self.entries.get_mut(&owner).filter(|entry| entry.hold.claim.mode == mode)?;
        entry.renewing = false;
        Some(entry)
    }

    /// As [`end_renewal`](Self::end_renewal), for a hold that is gone: from now on it is not handed over.
    pub(super) fn end_revoked(&mut self, owner: u64, mode: Mode) -> Option<Arc<Hold>> {
        let entry = self.end_renewal(owner, mode)?;
        entry.spare_tokens = 0;
        Some(Arc::clone(&entry.hold))
    }

    /// Looks at a renewed hold again at this time, or at once if it has become suspect meanwhile.
    pub(super) fn after_renewal(&mut self, owner: u64, now: Instant, due: Instant) {
        let Some(entry) = self.entries.get(&owner) else { return };
        let due = due.min(entry.ends());
        let due = if entry.look.is_some() { due.min(entry.next_look(now)) } else { due };
        self.schedule_at(owner, due);
    }
}

#[cfg(test)]
mod tests;
