//! What this client knows of each owner that has asked: under which identity it stands at the nodes, and with which token.
//!
//! An attempt that has failed is undone in the background, and a late release must not hit the next attempt. So each attempt is an
//! owner of its own: to the nodes, the number of the try stands above that of the hold.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::backend::{Claim, Released};
use crate::clock::Instant;
use crate::name::{OwnerId, Token};

/// Numbers of holds are below, numbers of tries above.
const TRY_SHIFT: u32 = 40;
/// How many owners are kept before those are looked for that nobody will ask of again.
const SWEEP_AT: usize = 1024;
/// How long it may take to undo an attempt, beyond its lease.
const UNDONE: Duration = Duration::from_secs(60);

/// The owner that the engine knows, of one that a node knows.
pub(super) fn engines_own(owner: OwnerId) -> OwnerId {
    OwnerId { number: owner.number & ((1 << TRY_SHIFT) - 1), ..owner }
}

/// Which try of its owner it is, of an owner that a node knows.
pub(super) fn number_of_try(owner: OwnerId) -> u64 {
    owner.number >> TRY_SHIFT
}

/// Long enough for everything that may still be asked under this owner, and for all that is still being undone.
fn asked_of_until(claim: &Claim, now: Instant) -> Instant {
    now.after(claim.lease).after(claim.lease).after(UNDONE)
}

/// One attempt, and the hold that came of it. Shared with calls that are still under way.
#[derive(Debug)]
pub(super) struct Attempt {
    /// As the nodes know it.
    pub(super) owner: OwnerId,
    stands: Mutex<Stands>,
}

#[derive(Debug)]
struct Stands {
    /// Until it is given up: a vote that comes later is given back.
    alive: bool,
    /// How often it was asked.
    asked: u64,
    /// The token that was granted.
    token: Option<Token>,
    /// Until when the grant is good. After that somebody else may have had it.
    until: Instant,
    /// The token at each node.
    at: Vec<Option<Token>>,
    /// The nodes that have answered, as bits.
    answered: u64,
}

impl Attempt {
    fn stands(&self) -> MutexGuard<'_, Stands> {
        self.stands.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_alive(&self) -> bool {
        self.stands().alive
    }

    /// Takes note that a node has answered. False if nobody wants the answer any more: who gives the attempt up from now on
    /// knows of it.
    pub(super) fn is_wanted_of(&self, node: usize) -> bool {
        let mut stands = self.stands();
        stands.answered |= 1 << node;
        stands.alive
    }

    pub(super) fn has_heard(&self, node: usize) -> bool {
        self.stands().answered >> node & 1 == 1
    }

    pub(super) fn give_up(&self) {
        self.stands().alive = false;
    }

    /// Gives it up if it was not asked again since.
    pub(super) fn give_up_if_still(&self, asked: u64) -> bool {
        let mut stands = self.stands();
        let still = stands.alive && stands.asked == asked && stands.token.is_none();
        stands.alive &= !still;
        still
    }

    /// How often it was asked.
    pub(super) fn asked(&self) -> u64 {
        self.stands().asked
    }

    pub(super) fn token(&self) -> Option<Token> {
        self.stands().token
    }

    /// Takes note of the grant, unless it was given up meanwhile.
    pub(super) fn granted(&self, token: Token, until: Instant) -> bool {
        let mut stands = self.stands();
        if stands.alive {
            (stands.token, stands.until) = (Some(token), until);
        }
        stands.alive
    }

    pub(super) fn extended(&self, until: Instant) {
        let mut stands = self.stands();
        stands.until = stands.until.max(until);
    }

    /// Whether somebody else may have had it since it was granted.
    fn has_lapsed(&self, now: Instant) -> bool {
        let stands = self.stands();
        stands.token.is_some() && stands.until <= now
    }

    /// Takes note of a node's token. One that stood there when the lock was granted stands for the token that was granted.
    pub(super) fn hears(&self, node: usize, token: Token) -> Token {
        let mut stands = self.stands();
        let granted = stands.token;
        // One that a node gives later is another: it has given tokens to others since.
        if granted.is_none() {
            stands.at[node] = Some(token);
        }
        let stood = stands.at[node] == Some(token);
        granted.filter(|_| stood).unwrap_or(token)
    }
}

/// What is kept of one owner.
#[derive(Debug)]
struct Entry {
    attempt: Arc<Attempt>,
    tries: u64,
    /// In a row.
    collisions: u32,
    /// Those of the nodes that said no: when they change, asking again may help.
    blocked_by: Arc<AtomicU64>,
    /// Earlier attempts that still stand in line where they were told no, since when.
    places: Vec<(OwnerId, Instant)>,
    /// What the nodes have said to a release.
    returned: Vec<Option<Released>>,
    /// Nobody asks of it after this.
    until: Instant,
}

#[derive(Debug)]
pub(super) struct Attempts {
    nodes: usize,
    owners: Mutex<HashMap<OwnerId, Entry>>,
    sweep_at: Mutex<usize>,
}

impl Attempts {
    pub(super) fn new(nodes: usize) -> Self {
        Self { nodes, owners: Mutex::default(), sweep_at: Mutex::new(SWEEP_AT) }
    }

    fn owners(&self) -> MutexGuard<'_, HashMap<OwnerId, Entry>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn make(&self, owner: OwnerId, tries: u64) -> Arc<Attempt> {
        let owner = OwnerId { number: owner.number | (tries << TRY_SHIFT), ..owner };
        let stands =
            Stands { alive: true, asked: 0, token: None, until: Instant::from_nanos(1), at: vec![None; self.nodes], answered: 0 };
        Arc::new(Attempt { owner, stands: Mutex::new(stands) })
    }

    fn with<T>(&self, claim: &Claim, now: Instant, act: impl FnOnce(&mut Entry) -> T) -> T {
        let mut owners = self.owners();
        self.sweep(&mut owners, now);
        let until = asked_of_until(claim, now);
        let entry = owners.entry(claim.owner).or_insert_with(|| Entry {
            attempt: self.make(claim.owner, 0),
            tries: 0,
            collisions: 0,
            blocked_by: Arc::new(AtomicU64::new(u64::MAX)),
            places: Vec::new(),
            returned: vec![None; self.nodes],
            until,
        });
        entry.until = until;
        act(entry)
    }

    fn sweep(&self, owners: &mut HashMap<OwnerId, Entry>, now: Instant) {
        let mut sweep_at = self.sweep_at.lock().unwrap_or_else(PoisonError::into_inner);
        if owners.len() >= *sweep_at {
            owners.retain(|_, entry| entry.until > now);
            *sweep_at = (owners.len() * 2).max(SWEEP_AT);
        }
    }

    /// The attempt that an owner is making, or the hold that it has; a new one after one that was given up.
    /// With the one that has lapsed since, whose votes are to be given back.
    pub(super) fn of(&self, claim: &Claim, now: Instant) -> (Arc<Attempt>, Option<OwnerId>) {
        self.with(claim, now, |entry| {
            entry.returned.fill(None);
            let lapsed = entry.attempt.has_lapsed(now).then_some(entry.attempt.owner);
            if lapsed.is_some() {
                entry.attempt.give_up();
            }
            if !entry.attempt.is_alive() {
                entry.tries += 1;
                entry.attempt = self.make(claim.owner, entry.tries);
            }
            entry.attempt.stands().asked += 1;
            (Arc::clone(&entry.attempt), lapsed)
        })
    }

    /// The hold that an owner has; one that is given up if it has none.
    pub(super) fn held(&self, claim: &Claim, now: Instant) -> Arc<Attempt> {
        let held = self.owners().get_mut(&claim.owner).map(|entry| {
            // However long it is held, it is asked of until it is given back.
            entry.until = asked_of_until(claim, now);
            Arc::clone(&entry.attempt)
        });
        held.unwrap_or_else(|| {
            let none = self.make(claim.owner, 0);
            none.give_up();
            none
        })
    }

    /// What an owner gives back: its attempt or hold, and its places in line.
    pub(super) fn giving_back(&self, claim: &Claim, now: Instant) -> (Arc<Attempt>, Vec<OwnerId>) {
        self.with(claim, now, |entry| {
            entry.attempt.give_up();
            let places = std::mem::take(&mut entry.places);
            (Arc::clone(&entry.attempt), places.into_iter().map(|(owner, _)| owner).collect())
        })
    }

    /// What an owner that waits is blocked by.
    pub(super) fn blocked_by(&self, claim: &Claim, now: Instant) -> Arc<AtomicU64> {
        self.with(claim, now, |entry| Arc::clone(&entry.blocked_by))
    }

    /// Takes note of who said no, and how often nobody won. Returns the latter.
    pub(super) fn refused(&self, claim: &Claim, now: Instant, by: u64, collided: bool) -> u32 {
        self.with(claim, now, |entry| {
            entry.blocked_by.store(by, Ordering::Release);
            entry.collisions = if collided { entry.collisions.saturating_add(1) } else { 0 };
            entry.collisions
        })
    }

    /// Gives an attempt up: the next one is another owner. With `in_line`, it keeps its places until that one has asked.
    pub(super) fn give_up(&self, claim: &Claim, now: Instant, attempt: &Attempt, in_line: bool) {
        attempt.give_up();
        if in_line {
            self.with(claim, now, |entry| {
                // Older ones have ended by themselves.
                entry.places.retain(|(_, since)| now.since(*since) < claim.place_lease());
                entry.places.push((attempt.owner, now));
            });
        }
    }

    /// Earlier attempts whose places in line are no longer needed.
    pub(super) fn take_places(&self, claim: &Claim) -> Vec<OwnerId> {
        let places = self.owners().get_mut(&claim.owner).map(|entry| std::mem::take(&mut entry.places));
        places.unwrap_or_default().into_iter().map(|(owner, _)| owner).collect()
    }

    /// Takes note of what a node said to a release, and counts who has given a vote back, and who had none.
    pub(super) fn returned(&self, claim: &Claim, node: usize, said: Released) {
        if let Some(entry) = self.owners().get_mut(&claim.owner) {
            // An echo of a release whose answer was lost changes nothing.
            entry.returned[node].get_or_insert(said);
        }
    }

    pub(super) fn count_returned(&self, claim: &Claim) -> (usize, usize) {
        let owners = self.owners();
        let Some(entry) = owners.get(&claim.owner) else { return (0, 0) };
        let said = || entry.returned.iter().flatten();
        let not_held = said().filter(|said| **said == Released::NotHeld).count();
        (said().count() - not_held, not_held)
    }

    /// Whether a node that gave a vote back knows of others who wait.
    pub(super) fn others_wait(&self, claim: &Claim) -> bool {
        let owners = self.owners();
        let Some(entry) = owners.get(&claim.owner) else { return false };
        entry.returned.iter().flatten().any(|said| matches!(said, Released::Yes { others_wait: true }))
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
    use crate::name::{ClientId, OwnerIds, Resource};

    #[test]
    fn a_hold_is_known_for_as_long_as_it_is_renewed() {
        let (attempts, owners) = (Attempts::new(3), OwnerIds::new(ClientId::random().expect("random bits")));
        let name = Resource::new("a").expect("a name");
        let claim = || Claim::new(name.clone(), owners.next(), Mode::Exclusive, Duration::from_secs(30));
        let held = claim();
        let mut now = Instant::from_nanos(1);
        assert!(attempts.of(&held, now).0.granted(Token::new(1), now.after(held.lease)));
        for _ in 0..60 {
            now = now.after(held.lease / 3);
            attempts.held(&held, now).extended(now.after(held.lease));
            // Others come and go, enough of them to have the forgotten looked for.
            (0..100).for_each(|_| drop(attempts.of(&claim(), now)));
            assert!(attempts.held(&held, now).is_alive());
        }
        assert!(attempts.owners().len() < 3000, "what nobody asks of any more goes");
        attempts.forget(held.owner);
        assert!(!attempts.held(&held, now).is_alive());
    }
}
