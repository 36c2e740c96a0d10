//! The answer to a claim that must wait, and when it asks again.

use std::fs::File;
use std::time::Duration;

use super::queue::key_of;
use super::rows::{Hold, Waiter, turn_of};
use super::verbs::Verbs;
use crate::backend::{Attempt, Claim, Mode, Queue};
use crate::backends::decision::Turn;
use crate::clock::Instant;
use crate::name::ClientId;

/// What a lost message to a waiter costs.
const POLL: Duration = Duration::from_secs(1);
/// The same for those far from their turn.
const PATIENT_POLL: Duration = Duration::from_secs(5);
/// The same where there are no pipes.
const BLIND_POLL: Duration = Duration::from_millis(50);
/// What is about to end is not asked for all the time.
const LEAST_POLL: Duration = Duration::from_millis(1);

impl Verbs<'_> {
    pub(super) fn busy(
        &mut self,
        claim: &Claim,
        owner: &str,
        (holds, queue): (&[Hold], &[Waiter]),
        alive: Vec<(ClientId, File)>,
        now: Instant,
    ) -> rusqlite::Result<Attempt> {
        let ends = holds.iter().map(|hold| hold.until.since(now));
        // One permit may be enough; what is not shared is free when the last one has ended.
        let ends = if matches!(claim.mode, Mode::Permits { .. }) { ends.min() } else { ends.max() };
        let before = queue.iter().take_while(|waiter| waiter.owner != owner || claim.mode == Mode::Read);
        let before = before.filter(|w| w.mode.keeps_position());
        // In a fair queue the one before this one counts: if its position lapses, another one is to be watched.
        let last = if claim.mode == Mode::Fair { before.last() } else { before.max_by_key(|w| w.until) };
        let ahead = last.map(|w| w.until.since(now));
        let position = claim.mode.keeps_position().then(|| claim.position_lease() / 3);
        let is_told = claim.mode == Mode::Fair && last.is_some_and(|w| self.will_tell(w.client, &alive));
        // A reader is not told when the writer that it left the lock to does not come.
        let mut left = None;
        if claim.mode == Mode::Read && holds.is_empty() {
            let turn = turn_of(queue).begun(now);
            self.set_turn(claim.resource.as_str(), turn)?;
            left = turn.left_to_writers(now);
        }
        let turn = if holds.iter().any(|hold| hold.mode == Mode::Read) { Turn::Writers } else { Turn::Open };
        if claim.queue == Queue::Allowed {
            self.enqueue(claim, owner, turn, now)?;
            if !alive.is_empty() {
                self.post_commit.watch(key_of(claim.mode, claim.resource.as_str(), owner), alive);
            }
        }
        // In a fair queue the one before this one tells it, also by its death: a thousand waiters need not ask each second.
        let told = if is_told { PATIENT_POLL } else { self.poll() };
        let within = [ends, ahead, position, left].into_iter().flatten().fold(told, Duration::min);
        let holder = holds.first().map(|hold| hold.owner.clone());
        Ok(Attempt::busy(within.max(LEAST_POLL), holder))
    }

    /// Whether the end of a client is seen here, and its messages come.
    fn will_tell(&self, client: Option<ClientId>, alive: &[(ClientId, File)]) -> bool {
        let is_watched = |client| client == self.me.id || alive.iter().any(|(id, _)| *id == client);
        self.me.present && client.is_some_and(is_watched)
    }

    /// The longest that this client waits without asking.
    pub(super) fn poll(&self) -> Duration {
        if self.me.present { POLL } else { BLIND_POLL }
    }
}
