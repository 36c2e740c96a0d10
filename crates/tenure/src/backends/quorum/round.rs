//! Asks all nodes at once, until a majority has granted and the token stands on it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant as Timeout;
use tracing::debug;

use super::ballot::{Ballot, NodeOwner};
use super::detached::Replies;
use super::rules::{Tally, Vote, in_time, tally};
use super::view::as_engine_knows;
use super::{Inner, NAME, later, silent};
use crate::backend::{Attempt, Claim, Queue, Retry};
use crate::clock::Instant;
use crate::error::{Error, Fault, Result};
use crate::name::{OwnerId, Token};
use crate::retry::jitter;

/// The least and the most that owners wait after a collision.
const PAUSE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(1));

/// What becomes of the votes of a ballot.
enum Votes {
    Kept,
    /// Given back unless the ballot is asked again soon.
    KeptForNow,
    /// Given back. With `queues`, positions in the nodes' queues stay until the next ballot has asked.
    GivenBack {
        queues: bool,
    },
}

/// One ballot while its votes come in.
struct Round<'a> {
    inner: &'a Arc<Inner>,
    ballot: Arc<Ballot>,
    /// As the nodes are asked.
    claim: Claim,
    sender: mpsc::UnboundedSender<(usize, Result<Vote>)>,
    replies: Replies<Result<Vote>>,
    votes: Vec<Vote>,
    errors: Vec<Option<Error>>,
    /// Until it is known what becomes of the votes, a caller that goes away gives those of a new ballot back.
    kept: bool,
}

impl Round<'_> {
    /// Asks some nodes for their votes.
    fn ask(&self, nodes: impl IntoIterator<Item = usize>, at_least: Option<Token>) {
        let vote = |node| (node, Arc::clone(self.inner).vote(node, Arc::clone(&self.ballot), self.claim.clone(), at_least));
        self.inner.detached.ask_into(self.sender.clone(), nodes.into_iter().map(vote));
    }

    /// Whether this is another ballot of the same owner.
    fn is_me(&self, holder: &str) -> bool {
        holder.parse::<OwnerId>().is_ok_and(|holder| NodeOwner::from(holder).owner == self.ballot.owner.owner)
    }

    /// Takes in the next reply; false if none comes any more.
    async fn hear(&mut self, until: Timeout) -> bool {
        if !self.votes.contains(&Vote::Pending) {
            return false;
        }
        let Ok(Some((node, answer))) = tokio::time::timeout_at(until, self.replies.recv()).await else { return false };
        let vote = match answer {
            Ok(Vote::No { holder: Some(holder), .. }) if self.is_me(&holder) => {
                let detail = "an earlier attempt is still being undone";
                Err(Error::unavailable(NAME, "acquiring", Fault::StoreBusy, detail))
            }
            answer => answer,
        };
        self.votes[node] = vote.unwrap_or_else(|e| {
            self.errors[node] = Some(e);
            Vote::Unknown
        });
        true
    }

    /// The nodes that have not answered are not waited for any more.
    fn close(&mut self) {
        let within = self.inner.node_timeout(self.claim.lease);
        for node in (0..self.votes.len()).filter(|node| self.votes[*node] == Vote::Pending).collect::<Vec<_>>() {
            self.inner.nodes[node].is_slow(within);
            (self.votes[node], self.errors[node]) = (Vote::Unknown, Some(silent("acquiring", within)));
        }
    }

    /// Writes a token to the nodes that have a smaller one.
    fn raise(&mut self, to: Token) {
        let is_behind = |vote: &Vote| matches!(vote, Vote::Yes { token, .. } if *token < to);
        let behind: Vec<usize> = (0..self.votes.len()).filter(|node| is_behind(&self.votes[*node])).collect();
        behind.iter().for_each(|node| self.votes[*node] = Vote::Pending);
        self.ask(behind, Some(to));
    }

    /// What each node said, for a caller that learns that it was not enough.
    fn said(&self) -> Vec<Option<Error>> {
        let told = |(vote, error): (&Vote, &Option<Error>)| match vote {
            Vote::No { holder, .. } => {
                let holder = holder.as_deref().map_or_else(|| "others".to_owned(), as_engine_knows);
                Some(Error::unavailable(NAME, "acquiring", Fault::StoreBusy, format!("held by {holder}")))
            }
            _ => error.clone(),
        };
        self.votes.iter().zip(&self.errors).map(told).collect()
    }

    /// The nodes that said no, as bits.
    fn blocked_by(&self) -> u64 {
        bits(self.votes.iter().map(|vote| matches!(vote, Vote::No { .. })))
    }

    /// The nodes that cannot be reached, as bits.
    fn cut_off(&self) -> u64 {
        bits(self.errors.iter().map(|error| error.as_ref().is_some_and(|e| e.fault() == Some(Fault::Connection))))
    }

    /// The owner that most nodes name.
    fn holder(&self) -> Option<String> {
        let named =
            || self.votes.iter().filter_map(|vote| if let Vote::No { holder, .. } = vote { holder.as_ref() } else { None });
        named().max_by_key(|one| named().filter(|other| other == one).count()).map(|holder| as_engine_knows(holder))
    }
}

fn bits(set: impl Iterator<Item = bool>) -> u64 {
    set.enumerate().fold(0, |mask, (node, is_set)| mask | u64::from(is_set) << node)
}

impl Drop for Round<'_> {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        self.ballot.give_up();
        for (node, vote) in self.votes.iter().enumerate() {
            // A call under way gives its vote back itself, unless the vote has come and was not counted any more.
            let pending = *vote == Vote::Pending && !self.ballot.has_heard(node);
            if !pending && !matches!(vote, Vote::No { .. }) {
                self.inner.give_back(node, self.claim.clone());
            }
        }
    }
}

impl Inner {
    /// Asks one node. A vote that is no longer wanted when it comes is given back.
    async fn vote(self: Arc<Self>, node: usize, ballot: Arc<Ballot>, claim: Claim, at_least: Option<Token>) -> Result<Vote> {
        let mut answer = self.nodes[node].vote(&claim, at_least).await;
        if let Ok(Vote::Yes { token, .. }) = &mut answer {
            *token = ballot.hears(node, *token);
        }
        let queues = claim.queue == Queue::Allowed && claim.mode.keeps_position();
        if !ballot.is_wanted_of(node) && (queues || !matches!(answer, Ok(Vote::No { .. }))) {
            self.give_back(node, claim);
        }
        answer
    }

    /// Gives a vote of a hold that goes on to a node that does not have it.
    pub(super) fn give_again(self: &Arc<Self>, node: usize, ballot: &Arc<Ballot>, claim: &Claim) {
        let claim = Claim { queue: Queue::Never, ..claim.clone() };
        let call = Arc::clone(self).vote(node, Arc::clone(ballot), claim, ballot.token());
        self.detached.run(async move { drop(call.await) });
    }

    pub(super) async fn acquire(self: &Arc<Self>, claim: &Claim) -> Result<Attempt> {
        let sent = self.common.clock.now();
        self.lengthen(claim.lease).await;
        self.keep_in_touch().await;
        let (ballot, lapsed) = self.ballots.of(claim, sent);
        lapsed.into_iter().for_each(|owner| self.give_back_all(&owner.claim(claim)));
        let n = self.nodes.len();
        let (sender, replies) = mpsc::unbounded_channel();
        let (votes, errors) = (vec![Vote::Pending; n], vec![None; n]);
        // What is held goes on until it is known to be gone.
        let kept = ballot.token().is_some();
        let mut round = Round { inner: self, claim: ballot.owner.claim(claim), ballot, sender, replies, votes, errors, kept };
        round.ask(0..n, round.ballot.token().or_else(|| self.common.roster.proposal()));
        let mut target = None;
        let mut until = later(self.node_timeout(claim.lease));
        let mut outcome = loop {
            match tally(&round.votes, target) {
                Tally::Wait => {}
                Tally::Raise(to) if target.is_none() => {
                    debug!(name = ?claim.resource, token = %to, "the nodes' tokens differ: one more round");
                    target = Some(to);
                    round.raise(to);
                    until = later(self.node_timeout(claim.lease));
                }
                Tally::Raise(_) if round.votes.contains(&Vote::Pending) => {}
                decided => break decided,
            }
            if !round.hear(until).await {
                round.close();
                break tally(&round.votes, target);
            }
        };
        if matches!(outcome, Tally::Busy { .. } | Tally::Collided) {
            // A little longer for the rest: then it is known what there is to undo.
            let rest = Timeout::now() + self.common.clock.now().since(sent).min(self.node_timeout(claim.lease));
            while round.hear(rest).await {}
            outcome = tally(&round.votes, target);
        }
        self.conclude(claim, round, outcome, sent)
    }

    fn conclude(self: &Arc<Self>, claim: &Claim, mut round: Round<'_>, outcome: Tally, sent: Instant) -> Result<Attempt> {
        let now = self.common.clock.now();
        if round.votes.contains(&Vote::Uncounted) {
            self.refresh_early();
        }
        let queues = claim.queue == Queue::Allowed && (claim.mode.keeps_position() || self.queues());
        let given_back = Votes::GivenBack { queues };
        let (votes, answer) = match outcome {
            Tally::Granted { token, valid_for }
                if in_time(sent, valid_for, self.drift, now) && round.ballot.granted(token, sent.after(valid_for)) =>
            {
                // Not while it waits: that would wake other waiters, and itself.
                self.ballots.take_queued(claim).into_iter().for_each(|owner| self.give_back_all(&owner.claim(claim)));
                (Votes::Kept, Ok(Attempt::Granted { token, valid_for }))
            }
            Tally::Granted { .. } => {
                let detail = "a majority granted it, but too late";
                (given_back, Err(Error::unavailable(NAME, "acquiring", Fault::Timeout, detail)))
            }
            Tally::Busy { poll_within } => {
                self.ballots.refused(claim, now, round.blocked_by(), false);
                // With nothing to undo the ballot stays as it is, and so do its positions.
                let nothing = round.ballot.token().is_none() && round.votes.iter().all(|vote| matches!(vote, Vote::No { .. }));
                if nothing && claim.queue == Queue::Never {
                    self.ballots.forget(claim.owner);
                }
                (if nothing { Votes::Kept } else { given_back }, Ok(Attempt::busy(poll_within, round.holder())))
            }
            Tally::Collided if !claim.mode.waits() => (Votes::GivenBack { queues: false }, Ok(Attempt::busy(PAUSE.1, None))),
            Tally::Collided => {
                let times = self.ballots.refused(claim, now, u64::MAX, true);
                let took = now.since(sent).clamp(PAUSE.0, PAUSE.1);
                let pause = took / 2 + jitter((took * 2_u32.pow(times.min(8))).min(PAUSE.1));
                debug!(name = ?claim.resource, ?pause, times, "several asked at once");
                (given_back, Ok(Attempt::Busy { retry: Retry::After(pause), holder: None }))
            }
            Tally::Wait | Tally::Raise(_) | Tally::Failed => {
                let error = self.too_few("acquiring", &round.said());
                (if round.kept { Votes::Kept } else { self.undecided(claim, &round, now, given_back) }, Err(error))
            }
        };
        match votes {
            Votes::Kept => round.kept = true,
            Votes::KeptForNow => {
                round.kept = true;
                self.undo_later(&round.ballot, &round.claim);
            }
            Votes::GivenBack { queues } => {
                round.kept = false;
                self.ballots.give_up(claim, now, &round.ballot, queues);
            }
        }
        answer
    }

    /// Too few have answered, and nothing was held before.
    fn undecided(&self, claim: &Claim, round: &Round<'_>, now: Instant, given_back: Votes) -> Votes {
        // A vote that is given back must not wake the owner that gave it; a node that can be reached again shall.
        self.ballots.refused(claim, now, round.blocked_by() | round.cut_off(), false);
        // No other owner asks: the next question finds the votes of this one.
        if round.blocked_by() == 0 { Votes::KeptForNow } else { given_back }
    }

    /// Gives all votes of a ballot back, unless it is asked again soon.
    fn undo_later(self: &Arc<Self>, ballot: &Arc<Ballot>, claim: &Claim) {
        let (inner, ballot, claim, asked) = (Arc::clone(self), Arc::clone(ballot), claim.clone(), ballot.asked());
        self.detached.run(async move {
            tokio::time::sleep(inner.node_timeout(claim.lease) * 2).await;
            if ballot.give_up_if_still(asked) {
                inner.give_back_all(&claim);
            }
        });
    }
}
