//! Renewing and giving back at all nodes, and staying in touch with them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant as Timeout;

use super::ballot::Ballot;
use super::rules::{Return, majority, renewed, returned};
use super::{Inner, later, silent};
use crate::backend::{Claim, Released, Renewal};
use crate::clock::Instant;
use crate::error::{Error, Fault, Result};

/// How often the nodes are identified, while they are asked for locks.
const REFRESH: Duration = Duration::from_secs(5);
/// The least time between two identifications.
const AT_MOST_EVERY: Duration = Duration::from_millis(200);
/// After so long without an answer, what is known of the nodes' clocks is void.
const OUT_OF_TOUCH: Duration = Duration::from_secs(600);
/// The pauses between tries to give a vote back.
const GIVE_BACK: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1));

/// A renewal while its answers come in. Answers that come after the caller's are for the nodes' sake.
struct Renewing {
    inner: Arc<Inner>,
    ballots: Vec<Arc<Ballot>>,
    claims: Arc<[Claim]>,
    /// By claim, by node.
    answers: Vec<Vec<Option<Renewal>>>,
    /// By claim.
    outcome: Vec<Option<Renewal>>,
}

impl Renewing {
    fn hear(&mut self, node: usize, said: &[Renewal]) {
        for (claim, answers) in self.answers.iter_mut().enumerate() {
            answers[node] = Some(said.get(claim).copied().unwrap_or(Renewal::Unknown(Fault::Connection)));
            let before = self.outcome[claim];
            let after = before.filter(|outcome| !matches!(outcome, Renewal::Unknown(_))).or_else(|| renewed(answers));
            self.outcome[claim] = after;
            // A hold that goes on is given to the nodes that lack it: all so far when that is decided, then each that says so.
            let lacking = match (before, after) {
                (None, Some(Renewal::Extended { .. })) => 0..answers.len(),
                (Some(Renewal::Extended { .. }), _) => node..node + 1,
                _ => 0..0,
            };
            for node in lacking.filter(|node| answers[*node] == Some(Renewal::Gone)) {
                self.inner.give_again(node, &self.ballots[claim], &self.claims[claim]);
            }
        }
    }

    fn is_decided(&self) -> bool {
        self.outcome.iter().all(Option::is_some)
    }
}

impl Inner {
    pub(super) async fn renew(self: &Arc<Self>, claims: &[Claim]) -> Result<Vec<Renewal>> {
        self.refresh();
        let now = self.common.clock.now();
        let n = self.nodes.len();
        let ballots: Vec<Arc<Ballot>> = claims.iter().map(|claim| self.ballots.held(claim, now)).collect();
        let at_nodes: Arc<[Claim]> = claims.iter().zip(&ballots).map(|(claim, ballot)| ballot.owner.claim(claim)).collect();
        let (answers, outcome) = (vec![vec![None; n]; claims.len()], vec![None; claims.len()]);
        let mut renewing = Renewing { inner: Arc::clone(self), ballots, claims: Arc::clone(&at_nodes), answers, outcome };
        let mut replies = self.ask_all(|node| node.renew(Arc::clone(&at_nodes)));
        let mut errors = vec![None; n];
        let shortest = claims.iter().map(|claim| claim.lease).min().unwrap_or_default();
        let until = later(self.node_timeout(shortest));
        while !renewing.is_decided() {
            let Ok(Some((node, said))) = tokio::time::timeout_at(until, replies.recv()).await else { break };
            renewing.hear(node, said.as_deref().unwrap_or_default());
            errors[node] = said.err();
        }
        let outcome: Vec<Renewal> =
            renewing.outcome.iter().map(|outcome| outcome.unwrap_or(Renewal::Unknown(Fault::Timeout))).collect();
        for ((claim, outcome), ballot) in claims.iter().zip(&outcome).zip(&renewing.ballots) {
            match outcome {
                Renewal::Extended { valid_for } => ballot.extended(now.after(*valid_for)),
                Renewal::Gone if ballot.is_alive() => {
                    // The engine will neither give it back nor ask for it: the votes that are left would block other owners.
                    ballot.give_up();
                    self.ballots.forget(claim.owner);
                    self.give_back_all(&ballot.owner.claim(claim));
                }
                Renewal::Gone | Renewal::Unknown(_) => {}
            }
        }
        self.detached.run(async move {
            while let Some((node, said)) = replies.recv().await {
                renewing.hear(node, said.as_deref().unwrap_or_default());
            }
        });
        if !outcome.is_empty() && outcome.iter().all(|one| matches!(one, Renewal::Unknown(_))) {
            return Err(self.too_few("renewing", &errors));
        }
        Ok(outcome)
    }

    pub(super) async fn release(self: &Arc<Self>, claim: &Claim) -> Result<Released> {
        let (ballot, queued) = self.ballots.giving_back(claim, self.common.clock.now());
        let n = self.nodes.len();
        // The hold last: its answer is the one that counts.
        let at_nodes: Arc<[Claim]> = queued.into_iter().chain([ballot.owner]).map(|owner| owner.claim(claim)).collect();
        let mut errors = vec![None; n];
        let calls = (0..n).map(|node| (node, Arc::clone(self).release_at(node, Arc::clone(&at_nodes))));
        let mut replies = self.detached.ask(calls);
        let mut pending = n;
        let until = later(self.node_timeout(claim.lease));
        loop {
            let said = self.ballots.returned(claim);
            let no = said.iter().filter(|said| **said == Released::NotHeld).count();
            let released = match returned(n, said.len() - no, no, pending) {
                Return::Wait => None,
                Return::Yes => Some(Released::Yes { others_wait: said.contains(&Released::Yes { others_wait: true }) }),
                Return::NotHeld => Some(Released::NotHeld),
                Return::Unknown => return Err(self.too_few("releasing", &errors)),
            };
            if let Some(released) = released {
                self.ballots.forget(claim.owner);
                return Ok(released);
            }
            match tokio::time::timeout_at(until, replies.recv()).await {
                Ok(Some((node, answer))) => {
                    pending -= 1;
                    match answer {
                        Ok(said) => self.ballots.note_returned(claim, node, said),
                        Err(e) => errors[node] = Some(e),
                    }
                }
                Ok(None) | Err(_) => pending = 0,
            }
        }
    }

    /// Releases claims at one node, and says what became of the last one.
    async fn release_at(self: Arc<Self>, node: usize, claims: Arc<[Claim]>) -> Result<Released> {
        let mut last = Ok(Released::NotHeld);
        for claim in &*claims {
            last = self.nodes[node].release(claim).await;
            if last.is_err() {
                self.give_back(node, claim.clone());
            }
        }
        last
    }

    /// Gives a vote back in the background. Tries until the node has understood, or the lease must have ended.
    pub(super) fn give_back(self: &Arc<Self>, node: usize, claim: Claim) {
        // Where very many are not understood, their leases end them.
        let Some(one_of_few) = self.nodes[node].gives_back() else { return };
        let inner = Arc::clone(self);
        self.detached.run(async move {
            let give_up = inner.common.clock.now().after(claim.lease);
            let mut pause = GIVE_BACK.0;
            while let Err(e) = inner.nodes[node].release(&claim).await {
                let is_over = inner.common.clock.now() >= give_up || inner.is_closed.load(Ordering::Relaxed);
                if is_over || !e.is_transient() {
                    break;
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(GIVE_BACK.1);
            }
            drop(one_of_few);
        });
    }

    /// Gives back the votes and the positions in queues of one owner, at all nodes.
    pub(super) fn give_back_all(self: &Arc<Self>, claim: &Claim) {
        (0..self.nodes.len()).for_each(|node| self.give_back(node, claim.clone()));
    }

    /// Identifies the nodes, if that is due.
    pub(super) fn refresh(self: &Arc<Self>) {
        let now = self.common.clock.now();
        let due = self.refresh_at.load(Ordering::Relaxed);
        let next = now.after(REFRESH).as_nanos();
        if now.as_nanos() < due || self.refresh_at.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return;
        }
        let inner = Arc::clone(self);
        self.detached.run(async move { drop(inner.identify_all(inner.patience()).await) });
    }

    /// Identifies the nodes, unless that was done just now.
    pub(super) fn refresh_early(self: &Arc<Self>) {
        let due = Instant::from_nanos(self.refresh_at.load(Ordering::Relaxed));
        if due.since(self.common.clock.now()) < REFRESH - AT_MOST_EVERY {
            self.refresh_at.store(0, Ordering::Relaxed);
            self.refresh();
        }
    }

    /// Waits for the nodes to identify themselves, if that was long ago.
    pub(super) async fn keep_in_touch(self: &Arc<Self>) {
        let due = Instant::from_nanos(self.refresh_at.load(Ordering::Relaxed));
        if self.common.clock.now().since(due) > OUT_OF_TOUCH {
            self.identify_all(self.vote_within).await;
        }
        self.refresh();
    }

    /// Makes a longer lease known to the nodes before anything is asked for under it.
    pub(super) async fn lengthen(self: &Arc<Self>, lease: Duration) {
        if lease > self.common.roster.longest() {
            self.common.roster.lengthen(lease);
            self.identify_all(self.node_timeout(lease)).await;
        }
    }

    /// Identifies all nodes, and waits for those that answer in time.
    pub(super) async fn identify_all(self: &Arc<Self>, within: Duration) -> Vec<Option<Error>> {
        let mut errors = vec![None; self.nodes.len()];
        let begun = self.common.clock.now();
        let mut replies = self.ask_all(|node| async move { node.identify().await });
        let all_the_time = later(self.common.timeout);
        let mut until = later(within);
        let (mut answered, mut identified) = (vec![false; self.nodes.len()], 0);
        while let Ok(Some((node, answer))) = tokio::time::timeout_at(until, replies.recv()).await {
            (answered[node], errors[node]) = (true, answer.err());
            identified += usize::from(errors[node].is_none());
            if identified >= majority(self.nodes.len()) {
                // A node that hangs costs a moment only, unless it may know what a restarted one forgot.
                let rest = self.vote_within.max(self.common.clock.now().since(begun));
                until = if self.common.roster.is_undecided() { all_the_time } else { until.min(later(rest)) };
            }
        }
        for (node, error) in errors.iter_mut().enumerate().filter(|(node, _)| !answered[*node]) {
            let waited = self.common.clock.now().since(begun);
            *error = Some(silent("identifying", waited));
            self.nodes[node].is_slow(waited);
        }
        let had_all_the_time = Timeout::now() >= all_the_time;
        let may_know: Vec<bool> = answered.iter().map(|answered| !answered && !had_all_the_time).collect();
        self.common.roster.asked_around(begun, &may_know);
        self.refresh_at.fetch_max(begun.after(REFRESH).as_nanos(), Ordering::Relaxed);
        errors
    }
}
