//! Asking all nodes at once, until a majority has granted and the token stands on it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant as Timeout;
use tracing::debug;

use super::attempts::{Attempt, engines_own};
use super::errands::{Answers, Call};
use super::rules::{Tally, Vote, in_time, tally};
use super::view::as_engine_knows;
use super::{Inner, NAME, later, silent};
use crate::backend::{self, Claim, Queue, Retry};
use crate::clock::Instant;
use crate::error::{Error, Fault, Result};
use crate::name::{OwnerId, Token};
use crate::retry::jitter;

/// The least and the most that those who collided wait for each other.
const PAUSE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(1));

/// One attempt while its votes come in.
struct Round<'a> {
    inner: &'a Arc<Inner>,
    attempt: Arc<Attempt>,
    /// As the nodes are asked.
    claim: Claim,
    /// Of the first question, and of the one that raises the token.
    answers: [Option<Answers<Result<Vote>>>; 2],
    votes: Vec<Vote>,
    errors: Vec<Option<Error>>,
    /// Whether the votes are to be kept. Until that is known they are not, also when the caller goes away.
    kept: bool,
}

impl Round<'_> {
    /// Whether this is the same claim, as it was asked before.
    fn is_me(&self, holder: &str) -> bool {
        holder.parse::<OwnerId>().is_ok_and(|holder| engines_own(holder) == engines_own(self.claim.owner))
    }

    /// Takes in the next answer; false if none comes any more.
    async fn hear(&mut self, until: Timeout) -> bool {
        if !self.votes.contains(&Vote::Pending) {
            return false;
        }
        let [first, second] = &mut self.answers;
        let next = async {
            tokio::select! {
                Some(answer) = async { first.as_mut()?.recv().await } => answer,
                Some(answer) = async { second.as_mut()?.recv().await } => answer,
                else => std::future::pending().await,
            }
        };
        let Ok((node, answer)) = tokio::time::timeout_at(until, next).await else { return false };
        self.votes[node] = match answer {
            Ok(Vote::No { holder: Some(holder), .. }) if self.is_me(&holder) => {
                let detail = "an earlier attempt is still being undone";
                self.errors[node] = Some(Error::unavailable(NAME, "acquiring", Fault::StoreBusy, detail));
                Vote::Unknown
            }
            Ok(vote) => vote,
            Err(e) => {
                self.errors[node] = Some(e);
                Vote::Unknown
            }
        };
        true
    }

    /// Those that have not answered are not waited for.
    fn close(&mut self) {
        let Self { inner, votes, errors, .. } = self;
        let pending = votes.iter_mut().zip(errors).enumerate().filter(|(_, (vote, _))| **vote == Vote::Pending);
        for (node, (vote, error)) in pending {
            *vote = Vote::Unknown;
            let within = inner.node_timeout(self.claim.lease);
            inner.nodes[node].is_slow(within);
            *error = Some(silent("acquiring", within));
        }
    }

    /// Writes a token to those that have a smaller one.
    fn raise(&mut self, to: Token) {
        let behind = self.votes.iter_mut().enumerate().filter(|(_, vote)| matches!(vote, Vote::Yes { token, .. } if *token < to));
        let calls = behind.map(|(node, vote)| {
            *vote = Vote::Pending;
            self.inner.vote(node, &self.attempt, self.claim.clone(), Some(to))
        });
        self.answers[1] = Some(self.inner.errands.ask(calls));
    }

    /// Waits a little for the rest: with all answers there is nothing to undo, or it is known what.
    async fn hear_the_rest(&mut self, grace: Duration) {
        let until = Timeout::now() + grace;
        while self.hear(until).await {}
    }

    /// What each node said, for the one who has to be told that it was not enough.
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
        let no = self.votes.iter().enumerate().filter(|(_, vote)| matches!(vote, Vote::No { .. }));
        no.fold(0, |mask, (node, _)| mask | 1 << node)
    }

    /// The nodes that cannot be reached, as bits.
    fn cut_off(&self) -> u64 {
        let away = |error: &Option<Error>| error.as_ref().is_some_and(|e| e.fault() == Some(Fault::Connection));
        let away = self.errors.iter().enumerate().filter(|(_, error)| away(error));
        away.fold(0, |mask, (node, _)| mask | 1 << node)
    }
}

impl Drop for Round<'_> {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        self.attempt.give_up();
        for (node, vote) in self.votes.iter().enumerate() {
            // Those that are under way are given back when they come, but for one that has come and was not counted any more.
            let pending = *vote == Vote::Pending && !self.attempt.has_heard(node);
            if !pending && !matches!(vote, Vote::No { .. }) {
                self.inner.give_back(node, self.claim.clone());
            }
        }
    }
}

impl Inner {
    /// Asks one node. If its vote is no longer wanted when it comes, it is given back.
    fn vote(self: &Arc<Self>, node: usize, attempt: &Arc<Attempt>, claim: Claim, at_least: Option<Token>) -> Call<Result<Vote>> {
        let (inner, attempt) = (Arc::clone(self), Arc::clone(attempt));
        Box::pin(async move {
            let mut answer = inner.nodes[node].vote(&claim, at_least).await;
            if let Ok(Vote::Yes { token, .. }) = &mut answer {
                *token = attempt.hears(node, *token);
            }
            let in_line = claim.queue == Queue::Allowed && claim.mode.keeps_place();
            if !attempt.is_wanted_of(node) && (in_line || !matches!(answer, Ok(Vote::No { .. }))) {
                inner.give_back(node, claim);
            }
            (node, answer)
        })
    }

    /// Gives a vote of a hold that goes on to a node that does not have it.
    pub(super) fn give_again(self: &Arc<Self>, node: usize, attempt: &Arc<Attempt>, claim: &Claim) {
        let claim = Claim { queue: Queue::Never, ..claim.clone() };
        let call = self.vote(node, attempt, claim, attempt.token());
        self.errands.run(async move { drop(call.await) });
    }

    pub(super) async fn acquire(self: &Arc<Self>, claim: &Claim) -> Result<backend::Attempt> {
        let sent = self.common.clock.now();
        self.lengthen(claim.lease).await;
        self.keep_in_touch().await;
        let (attempt, lapsed) = self.attempts.of(claim, sent);
        lapsed.into_iter().for_each(|owner| self.leave(Claim { owner, ..claim.clone() }));
        let n = self.nodes.len();
        let at_least = attempt.token().or_else(|| self.common.roster.proposal());
        let asked = Claim { owner: attempt.owner, ..claim.clone() };
        let first = self.errands.ask((0..n).map(|node| self.vote(node, &attempt, asked.clone(), at_least)));
        let answers = [Some(first), None];
        let (votes, errors) = (vec![Vote::Pending; n], vec![None; n]);
        // What is held goes on until it is known to be gone.
        let kept = attempt.token().is_some();
        let mut round = Round { inner: self, attempt, claim: asked, answers, votes, errors, kept };
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
            round.hear_the_rest(self.common.clock.now().since(sent).min(self.node_timeout(claim.lease))).await;
            outcome = tally(&round.votes, target);
        }
        self.conclude(claim, round, outcome, sent)
    }

    fn conclude(
        self: &Arc<Self>,
        claim: &Claim,
        mut round: Round<'_>,
        outcome: Tally,
        sent: Instant,
    ) -> Result<backend::Attempt> {
        let now = self.common.clock.now();
        if round.votes.contains(&Vote::Uncounted) {
            self.refresh_early();
        }
        let in_line = claim.queue == Queue::Allowed && (claim.mode.keeps_place() || self.queues());
        match outcome {
            Tally::Granted { token, valid_for }
                if in_time(sent, valid_for, self.drift, now) && round.attempt.granted(token, sent.after(valid_for)) =>
            {
                round.kept = true;
                // Not while it waits: that would wake those who wait for it, and itself among them.
                let places = self.attempts.take_places(claim).into_iter();
                places.for_each(|owner| self.leave(Claim { owner, ..claim.clone() }));
                Ok(backend::Attempt::Granted { token, valid_for })
            }
            Tally::Wait | Tally::Raise(_) | Tally::Failed if round.kept => Err(self.too_few("acquiring", &round.said())),
            Tally::Granted { .. } => {
                round.kept = false;
                self.attempts.give_up(claim, now, &round.attempt, in_line);
                let detail = "a majority granted it, but too late";
                Err(Error::unavailable(NAME, "acquiring", Fault::Timeout, detail))
            }
            Tally::Busy { poll_within } => {
                self.attempts.refused(claim, now, round.blocked_by(), false);
                // With nothing to undo it stays as it is, and so do its places in line.
                if round.attempt.token().is_none() && round.votes.iter().all(|vote| matches!(vote, Vote::No { .. })) {
                    round.kept = true;
                    if claim.queue == Queue::Never {
                        self.attempts.forget(claim.owner);
                    }
                } else {
                    round.kept = false;
                    self.attempts.give_up(claim, now, &round.attempt, in_line);
                }
                Ok(backend::Attempt::busy(poll_within, self.holder(&round.votes)))
            }
            Tally::Collided if !claim.mode.waits() => {
                round.kept = false;
                self.attempts.give_up(claim, now, &round.attempt, false);
                Ok(backend::Attempt::busy(PAUSE.1, None))
            }
            Tally::Collided => {
                round.kept = false;
                let times = self.attempts.refused(claim, now, u64::MAX, true);
                self.attempts.give_up(claim, now, &round.attempt, in_line);
                let took = now.since(sent).clamp(PAUSE.0, PAUSE.1);
                let pause = took / 2 + jitter((took * 2_u32.pow(times.min(8))).min(PAUSE.1));
                debug!(name = ?claim.resource, ?pause, times, "several asked at once");
                Ok(backend::Attempt::Busy { retry: Retry::After(pause), holder: None })
            }
            Tally::Wait | Tally::Raise(_) | Tally::Failed => Err(self.undecided(claim, round, now, in_line)),
        }
    }

    /// Too few have answered.
    fn undecided(self: &Arc<Self>, claim: &Claim, mut round: Round<'_>, now: Instant, in_line: bool) -> Error {
        // What is given back must not wake the one who gave it; a node that can be reached again shall.
        self.attempts.refused(claim, now, round.blocked_by() | round.cut_off(), false);
        if round.blocked_by() == 0 {
            // Nobody else is asking. Who asks again at once finds the votes that it has.
            round.kept = true;
            self.undo_later(&round.attempt, &round.claim);
        } else {
            self.attempts.give_up(claim, now, &round.attempt, in_line);
        }
        self.too_few("acquiring", &round.said())
    }

    /// Gives all votes of an attempt back, unless it is asked again soon.
    fn undo_later(self: &Arc<Self>, attempt: &Arc<Attempt>, claim: &Claim) {
        let (inner, attempt, claim, asked) = (Arc::clone(self), Arc::clone(attempt), claim.clone(), attempt.asked());
        self.errands.run(async move {
            tokio::time::sleep(inner.node_timeout(claim.lease) * 2).await;
            if attempt.give_up_if_still(asked) {
                (0..inner.nodes.len()).for_each(|node| inner.give_back(node, claim.clone()));
            }
        });
    }

    /// The one whom most nodes name.
    fn holder(&self, votes: &[Vote]) -> Option<String> {
        let named = || votes.iter().filter_map(|vote| if let Vote::No { holder, .. } = vote { holder.as_ref() } else { None });
        let most = named().max_by_key(|one| named().filter(|other| other == one).count())?;
        Some(as_engine_knows(most))
    }
}
