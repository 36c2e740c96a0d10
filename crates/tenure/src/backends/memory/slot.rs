//! One name of the reference store: its holds, its queue and its numbers.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::NAME;
use crate::backend::{Attempt, Claim, Mode, Queue};
use crate::backends::decision::{self, Decision, Turn, decide, has_writer};
use crate::clock::Instant;
use crate::error::{Error, Fault, Result};
use crate::name::{OwnerId, Token};

/// How long a latch remembers what an owner has done, so that asking again does it once.
const REMEMBER: Duration = Duration::from_secs(600);
/// What a lost notification costs where nothing expires.
const POLL: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) holds: Vec<Hold>,
    /// Owners that were told "busy" and may come back, first come first.
    pub(super) queue: Vec<Waiter>,
    /// Whose turn it is when readers and writers wait for it.
    turn: Turn,
    /// The largest token handed out. Never removed: a token must not come back.
    pub(super) fence: Option<Token>,
    /// How many permits there are.
    pub(super) permits: Option<u32>,
    pub(super) count: Option<u64>,
    /// The owners that have set the count, counted down or removed it, and until when that is remembered.
    counted: Vec<(OwnerId, Instant)>,
}

#[derive(Debug)]
pub(super) struct Hold {
    pub(super) owner: OwnerId,
    pub(super) mode: Mode,
    pub(super) token: Token,
    pub(super) reserved_to: Token,
    pub(super) since: SystemTime,
    pub(super) until: Instant,
    pub(super) note: Option<Arc<str>>,
}

#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) owner: OwnerId,
    pub(super) mode: Mode,
    until: Instant,
}

/// Which waiters a change wakes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wake {
    None,
    /// The first in the queue of a fair lock, and all that wait for the name in another mode.
    Next,
}

impl Slot {
    /// Removes what has lapsed, which may bring a waiter to its turn.
    pub(super) fn expire(&mut self, now: Instant) -> Wake {
        let before = self.queue.len();
        self.holds.retain(|hold| hold.until > now);
        self.queue.retain(|waiter| waiter.until > now || !waiter.mode.keeps_position());
        if self.queue.len() == before { Wake::None } else { Wake::Next }
    }

    /// The first in the queue of a fair lock.
    pub(super) fn first_queued(&self) -> Option<OwnerId> {
        decision::first_queued(&self.waiters()).copied()
    }

    pub(super) fn waiters(&self) -> Vec<(OwnerId, Mode)> {
        self.queue.iter().map(|w| (w.owner, w.mode)).collect()
    }

    fn holders(&self) -> Vec<(OwnerId, Mode)> {
        self.holds.iter().map(|h| (h.owner, h.mode)).collect()
    }

    /// Permits that are free; negative when the number was lowered.
    pub(super) fn free(&self) -> i64 {
        i64::from(self.permits.unwrap_or(0)) - i64::try_from(decision::held(&self.holders())).unwrap_or(i64::MAX)
    }

    pub(super) fn acquire(&mut self, claim: &Claim, at_least: Option<Token>, now: Instant) -> Result<(Attempt, Wake)> {
        let woken = self.expire(now);
        match claim.mode {
            Mode::Resize { of } => {
                self.permits = Some(of);
                return Ok((Attempt::Done { left: u64::try_from(self.free()).unwrap_or(0) }, Wake::Next));
            }
            Mode::SetCount { .. } | Mode::CountDown | Mode::CountZero | Mode::RemoveCount => return Ok(self.latch(claim, now)),
            Mode::Permits { of, .. } if of > 0 => {
                self.permits.get_or_insert(of);
            }
            _ => {}
        }
        let until = now.after(claim.lease);
        let number = self.permits.unwrap_or(0);
        if !self.queue.iter().any(|waiter| waiter.mode == Mode::Write) {
            self.turn = Turn::Open;
        }
        let (queue, left) = (self.waiters(), self.turn.left_to_writers(now));
        match decide(&claim.owner, claim.mode, &self.holders(), &queue, number, left.is_some()) {
            Decision::Again(mine) => {
                let token = self.raise(mine, claim, at_least)?;
                self.holds[mine].until = until;
                Ok((Attempt::Granted { token, valid_for: claim.lease }, woken))
            }
            Decision::Change(mine) => {
                let token = self.raise(mine, claim, at_least)?;
                (self.holds[mine].until, self.holds[mine].mode) = (until, claim.mode.held_as());
                Ok((Attempt::Granted { token, valid_for: claim.lease }, Wake::Next))
            }
            Decision::Grant => {
                let (token, reserved_to) = self.next_tokens(claim.tokens, at_least)?;
                self.leave(claim.owner);
                match claim.mode {
                    Mode::Write => self.turn = Turn::Open,
                    Mode::Read if has_writer(&claim.owner, &queue) => self.turn = Turn::Writers,
                    _ => {}
                }
                let (owner, mode, note) = (claim.owner, claim.mode, claim.note.clone());
                self.holds.push(Hold { owner, mode, token, reserved_to, since: SystemTime::now(), until, note });
                Ok((Attempt::Granted { token, valid_for: claim.lease }, Wake::None))
            }
            Decision::Busy => Ok((self.busy(claim, now), woken)),
        }
    }

    fn busy(&mut self, claim: &Claim, now: Instant) -> Attempt {
        // The first to end: with permits that may be enough, and otherwise all come to their end.
        let mut ends = self.holds.iter().map(|hold| hold.until.since(now)).min().unwrap_or(POLL);
        if claim.mode == Mode::Read && self.holds.is_empty() {
            // A reader is not told when the writer that it left the lock to does not come.
            self.turn = self.turn.begun(now);
            ends = self.turn.left_to_writers(now).unwrap_or(ends);
        }
        let holder = self.holds.first().map(|hold| hold.owner.to_string());
        if claim.queue == Queue::Never {
            return Attempt::busy(ends, holder);
        }
        let until = now.after(claim.position_lease());
        match self.queue.iter_mut().find(|waiter| waiter.owner == claim.owner) {
            Some(waiter) => waiter.until = until,
            None => {
                if claim.mode == Mode::Write && self.holds.iter().any(|hold| hold.mode == Mode::Read) {
                    self.turn = Turn::Writers;
                }
                self.queue.push(Waiter { owner: claim.owner, mode: claim.mode, until });
            }
        }
        // The waiters before this one may be dead, and its own position needs to be kept.
        let before = self.queue.iter().take_while(|waiter| waiter.owner != claim.owner);
        let ahead = before.filter(|w| w.mode.keeps_position()).map(|waiter| waiter.until.since(now)).min();
        let position = claim.mode.keeps_position().then(|| claim.position_lease() / 3);
        let within = [Some(ends), ahead, position].into_iter().flatten().min().unwrap_or(ends);
        // Those ahead may end microseconds apart: a waiter must not ask for each of them.
        Attempt::busy(within.max(Duration::from_millis(1)), holder)
    }

    fn latch(&mut self, claim: &Claim, now: Instant) -> (Attempt, Wake) {
        self.counted.retain(|(_, until)| *until > now);
        let busy = Attempt::busy(POLL, None);
        let again = self.counted.iter().any(|(owner, _)| *owner == claim.owner);
        match claim.mode {
            Mode::CountZero if self.count.is_some() => return (busy, Wake::None),
            Mode::SetCount { .. } if !again && self.count.is_some() => return (busy, Wake::None),
            Mode::CountZero => {}
            _ if again => {}
            mode => {
                self.counted.push((claim.owner, now.after(REMEMBER)));
                self.count = match mode {
                    Mode::SetCount { of } => Some(of.into()),
                    Mode::CountDown => self.count.and_then(|count| count.checked_sub(1)),
                    _ => None,
                };
                self.count = self.count.filter(|left| *left > 0);
            }
        }
        let wake = if self.count.is_none() { Wake::Next } else { Wake::None };
        (Attempt::Done { left: self.count.unwrap_or(0) }, wake)
    }

    /// Gives up a position. Others may have waited behind it.
    pub(super) fn leave(&mut self, owner: OwnerId) -> Wake {
        let position = self.queue.iter().position(|waiter| waiter.owner == owner);
        match position.map(|position| self.queue.remove(position)) {
            Some(waiter) if waiter.mode.keeps_position() => Wake::Next,
            _ => Wake::None,
        }
    }

    pub(super) fn next_tokens(&mut self, count: u32, at_least: Option<Token>) -> Result<(Token, Token)> {
        let first = Token::next(self.fence, at_least).ok_or_else(exhausted)?;
        let last = first.plus(u64::from(count) - 1).ok_or_else(exhausted)?;
        self.fence = Some(last);
        Ok((first, last))
    }

    /// The token of a hold that goes on, raised if that was asked for.
    fn raise(&mut self, mine: usize, claim: &Claim, at_least: Option<Token>) -> Result<Token> {
        let hold = &mut self.holds[mine];
        let token = hold.token.raised(at_least);
        if token > hold.token {
            let reserved_to = token.plus(u64::from(claim.tokens) - 1).ok_or_else(exhausted)?;
            (hold.token, hold.reserved_to) = (token, reserved_to);
            self.fence = self.fence.max(Some(reserved_to));
        }
        Ok(hold.token)
    }
}

fn exhausted() -> Error {
    Error::backend(NAME, "acquiring", Fault::TokenExhausted, "the next token would not fit 63 bits")
}
