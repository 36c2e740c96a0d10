//! One ballot: the votes of one owner, and its identity at the nodes.
//!
//! A failed ballot is undone in the background, and a late release must not hit the next one. So the nodes know each ballot by an
//! owner of its own.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::backend::Claim;
use crate::clock::Instant;
use crate::name::{OwnerId, Token};

/// The number of the attempt stands above this bit, the number of the hold below.
const ATTEMPT_SHIFT: u32 = 40;

/// An owner at the nodes: the owner that the engine knows, and the number of its attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NodeOwner {
    pub(super) owner: OwnerId,
    pub(super) attempt: u64,
}

impl From<OwnerId> for NodeOwner {
    /// Of the form that the nodes have.
    fn from(id: OwnerId) -> Self {
        let owner = OwnerId { number: id.number & ((1 << ATTEMPT_SHIFT) - 1), ..id };
        Self { owner, attempt: id.number >> ATTEMPT_SHIFT }
    }
}

impl NodeOwner {
    fn id(self) -> OwnerId {
        OwnerId { number: self.owner.number | (self.attempt << ATTEMPT_SHIFT), ..self.owner }
    }

    /// A claim as the nodes are asked.
    pub(super) fn claim(self, claim: &Claim) -> Claim {
        Claim { owner: self.id(), ..claim.clone() }
    }
}

/// One ballot, and the hold that came of it. Shared with calls that are still under way.
#[derive(Debug)]
pub(super) struct Ballot {
    pub(super) owner: NodeOwner,
    progress: Mutex<Progress>,
}

#[derive(Debug)]
struct Progress {
    /// Until it is given up: a vote that comes later is given back.
    alive: bool,
    /// How often it was asked.
    asked: u64,
    /// The token that was granted.
    token: Option<Token>,
    /// The end of the grant. Another owner may have held the lock after it.
    until: Instant,
    /// The token at each node.
    at: Vec<Option<Token>>,
    /// The nodes that have answered, as bits.
    answered: u64,
}

impl Ballot {
    pub(super) fn new(owner: OwnerId, attempt: u64, nodes: usize) -> Arc<Self> {
        let (at, until) = (vec![None; nodes], Instant::from_nanos(1));
        let progress = Progress { alive: true, asked: 0, token: None, until, at, answered: 0 };
        Arc::new(Self { owner: NodeOwner { owner, attempt }, progress: Mutex::new(progress) })
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_alive(&self) -> bool {
        self.progress().alive
    }

    /// Notes that a node has answered. False if the answer is not wanted any more: a later `give_up` finds the note.
    pub(super) fn is_wanted_of(&self, node: usize) -> bool {
        let mut progress = self.progress();
        progress.answered |= 1 << node;
        progress.alive
    }

    pub(super) fn has_heard(&self, node: usize) -> bool {
        self.progress().answered >> node & 1 == 1
    }

    pub(super) fn give_up(&self) {
        self.progress().alive = false;
    }

    /// Gives it up if it was not asked again since.
    pub(super) fn give_up_if_still(&self, asked: u64) -> bool {
        let mut progress = self.progress();
        let still = progress.alive && progress.asked == asked && progress.token.is_none();
        progress.alive &= !still;
        still
    }

    /// Notes that it is asked.
    pub(super) fn ask(&self) {
        self.progress().asked += 1;
    }

    /// How often it was asked.
    pub(super) fn asked(&self) -> u64 {
        self.progress().asked
    }

    pub(super) fn token(&self) -> Option<Token> {
        self.progress().token
    }

    /// Notes the grant. False if it was given up meanwhile.
    pub(super) fn granted(&self, token: Token, until: Instant) -> bool {
        let mut progress = self.progress();
        if progress.alive {
            (progress.token, progress.until) = (Some(token), until);
        }
        progress.alive
    }

    pub(super) fn extended(&self, until: Instant) {
        let mut progress = self.progress();
        progress.until = progress.until.max(until);
    }

    /// Whether another owner may have held the lock since the grant.
    pub(super) fn has_lapsed(&self, now: Instant) -> bool {
        let progress = self.progress();
        progress.token.is_some() && progress.until <= now
    }

    /// Notes the token of a node. The token that a node had at the time of the grant stands for the granted one.
    pub(super) fn hears(&self, node: usize, token: Token) -> Token {
        let mut progress = self.progress();
        let granted = progress.token;
        // After the grant, another token of a node means that it has granted to others since.
        if granted.is_none() {
            progress.at[node] = Some(token);
        }
        let stood = progress.at[node] == Some(token);
        granted.filter(|_| stood).unwrap_or(token)
    }
}
