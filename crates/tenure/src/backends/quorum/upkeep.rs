//! Renewing and giving back, on all nodes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant as Timeout;

use super::attempts::Attempt;
use super::errands::Call;
use super::node::Node;
use super::rules::{Return, majority, renewed, returned};
use super::{Inner, later, silent};
use crate::backend::{Claim, Released, Renewal};
use crate::clock::Instant;
use crate::error::{Error, Fault, Result};

/// How often the nodes are asked who they are, while they are asked for locks.
const REFRESH: Duration = Duration::from_secs(5);
/// However much they differ from what is known.
const AT_MOST_EVERY: Duration = Duration::from_millis(200);
/// After so long without a word the clocks of the nodes may be others than are known.
const OUT_OF_TOUCH: Duration = Duration::from_secs(600);
/// The pauses between tries to give a vote back.
const GIVE_BACK: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1));

/// A renewal while its answers come in. What comes after the caller was answered counts for the nodes' sake.
struct Renewing {
    inner: Arc<Inner>,
    attempts: Vec<Arc<Attempt>>,
    claims: Arc<[Claim]>,
    /// By claim, by node.
    answers: Vec<Vec<Option<Renewal>>>,
    /// What has come of each claim.
    outcome: Vec<Option<Renewal>>,
}

impl Renewing {
    fn hear(&mut self, node: usize, said: &[Renewal]) {
        for (claim, answers) in self.answers.iter_mut().enumerate() {
            answers[node] = Some(said.get(claim).copied().unwrap_or(Renewal::Unknown(Fault::Connection)));
            let before = self.outcome[claim];
            let after = before.filter(|outcome| !matches!(outcome, Renewal::Unknown(_))).or_else(|| renewed(answers));
            self.outcome[claim] = after;
            match (before, after) {
                (None, Some(Renewal::Extended { .. })) => {
                    // All that have said so far that they do not have it.
                    for (node, answer) in answers.iter().enumerate() {
                        if *answer == Some(Renewal::Gone) {
                            self.inner.give_again(node, &self.attempts[claim], &self.claims[claim]);
                        }
                    }
                }
                (Some(Renewal::Extended { .. }), _) if answers[node] == Some(Renewal::Gone) => {
                    self.inner.give_again(node, &self.attempts[claim], &self.claims[claim]);
                }
                _ => {}
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
        let attempts: Vec<Arc<Attempt>> = claims.iter().map(|claim| self.attempts.held(claim, now)).collect();
        let at_nodes: Arc<[Claim]> =
            claims.iter().zip(&attempts).map(|(claim, attempt)| Claim { owner: attempt.owner, ..claim.clone() }).collect();
        let (answers, outcome) = (vec![vec![None; n]; claims.len()], vec![None; claims.len()]);
        let mut renewing = Renewing { inner: Arc::clone(self), attempts, claims: Arc::clone(&at_nodes), answers, outcome };
        let mut calls = self.errands.ask((0..n).map(|node| self.renew_at(node, Arc::clone(&at_nodes))));
        let mut errors = vec![None; n];
        let shortest = claims.iter().map(|claim| claim.lease).min().unwrap_or_default();
        let until = later(self.node_timeout(shortest));
        while !renewing.is_decided() {
            match tokio::time::timeout_at(until, calls.recv()).await {
                Ok(Some((node, said))) => {
                    renewing.hear(node, said.as_deref().unwrap_or_default());
                    errors[node] = said.err();
                }
                Ok(None) | Err(_) => break,
            }
        }
        let outcome: Vec<Renewal> =
            renewing.outcome.iter().map(|outcome| outcome.unwrap_or(Renewal::Unknown(Fault::Timeout))).collect();
        for ((claim, outcome), attempt) in claims.iter().zip(&outcome).zip(&renewing.attempts) {
            match outcome {
                Renewal::Extended { valid_for } => attempt.extended(now.after(*valid_for)),
                Renewal::Gone if attempt.is_alive() => {
                    // The engine will not give it back any more, nor ask for it: what is left would keep others waiting.
                    attempt.give_up();
                    self.attempts.forget(claim.owner);
                    (0..n).for_each(|node| self.give_back(node, Claim { owner: attempt.owner, ..claim.clone() }));
                }
                Renewal::Gone | Renewal::Unknown(_) => {}
            }
        }
        self.errands.run(async move {
            while let Some((node, said)) = calls.recv().await {
                renewing.hear(node, said.as_deref().unwrap_or_default());
            }
        });
        if !outcome.is_empty() && outcome.iter().all(|one| matches!(one, Renewal::Unknown(_))) {
            return Err(self.too_few("renewing", &errors));
        }
        Ok(outcome)
    }

    fn renew_at(self: &Arc<Self>, node: usize, claims: Arc<[Claim]>) -> Call<Result<Vec<Renewal>>> {
        let inner = Arc::clone(self);
        Box::pin(async move {
            let (asked, claims) = (&inner.nodes[node], &claims);
            let mut said = match asked.call("renewing", |store| async move { store.renew(claims).await }).await {
                Ok(said) => said,
                Err(e) => return (node, Err(e)),
            };
            if said.iter().any(|one| matches!(one, Renewal::Extended { .. })) {
                // From another server than the one that is known it means nothing yet.
                let known = asked.is_current() || asked.identify().await.is_ok();
                if !known || asked.objection().is_some() {
                    let extended = said.iter_mut().filter(|one| matches!(one, Renewal::Extended { .. }));
                    extended.for_each(|one| *one = Renewal::Unknown(Fault::Quarantine));
                }
            }
            (node, Ok(said))
        })
    }

    pub(super) async fn release(self: &Arc<Self>, claim: &Claim) -> Result<Released> {
        let now = self.common.clock.now();
        let (attempt, places) = self.attempts.giving_back(claim, now);
        let n = self.nodes.len();
        let at_nodes = Claim { owner: attempt.owner, ..claim.clone() };
        let places: Arc<[Claim]> = places.into_iter().map(|owner| Claim { owner, ..claim.clone() }).collect();
        let mut errors = vec![None; n];
        let mut calls = self.errands.ask((0..n).map(|node| self.release_at(node, at_nodes.clone(), Arc::clone(&places))));
        let mut pending = n;
        let until = later(self.node_timeout(claim.lease));
        let outcome = loop {
            let (yes, no) = self.attempts.count_returned(claim);
            match returned(n, yes, no, pending) {
                Return::Wait => {}
                decided => break decided,
            }
            match tokio::time::timeout_at(until, calls.recv()).await {
                Ok(Some((node, answer))) => {
                    pending -= 1;
                    match answer {
                        Ok(said) => self.attempts.returned(claim, node, said),
                        Err(e) => errors[node] = Some(e),
                    }
                }
                Ok(None) | Err(_) => pending = 0,
            }
        };
        match outcome {
            Return::Yes | Return::NotHeld => {
                let others_wait = self.attempts.others_wait(claim);
                self.attempts.forget(claim.owner);
                Ok(if outcome == Return::Yes { Released::Yes { others_wait } } else { Released::NotHeld })
            }
            Return::Wait | Return::Unknown => Err(self.too_few("releasing", &errors)),
        }
    }

    fn release_at(self: &Arc<Self>, node: usize, claim: Claim, places: Arc<[Claim]>) -> Call<Result<Released>> {
        let inner = Arc::clone(self);
        Box::pin(async move {
            let (asked, claim) = (&inner.nodes[node], &claim);
            for place in &*places {
                if asked.call("releasing", |store| async move { store.release(place).await }).await.is_err() {
                    inner.give_back(node, place.clone());
                }
            }
            let released = asked.call("releasing", |store| async move { store.release(claim).await }).await;
            if released.is_err() {
                inner.give_back(node, claim.clone());
            }
            (node, released)
        })
    }

    /// Gives a vote back in the background, however long the node takes to understand, until its lease must have ended.
    pub(super) fn give_back(self: &Arc<Self>, node: usize, claim: Claim) {
        // Where very many are not understood, their leases end them.
        let Some(one_of_few) = self.nodes[node].gives_back() else { return };
        let inner = Arc::clone(self);
        self.errands.run(async move {
            let give_up = inner.common.clock.now().after(claim.lease);
            let mut pause = GIVE_BACK.0;
            let claim = &claim;
            while let Err(e) = inner.nodes[node].call("releasing", |store| async move { store.release(claim).await }).await {
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

    /// Leaves all places in line of an attempt.
    pub(super) fn leave(self: &Arc<Self>, claim: Claim) {
        (0..self.nodes.len()).for_each(|node| self.give_back(node, claim.clone()));
    }

    /// Asks the nodes who they are, if that is due.
    pub(super) fn refresh(self: &Arc<Self>) {
        let now = self.common.clock.now();
        let due = self.refresh_at.load(Ordering::Relaxed);
        let next = now.after(REFRESH).as_nanos();
        if now.as_nanos() < due || self.refresh_at.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return;
        }
        let inner = Arc::clone(self);
        self.errands.run(async move { drop(inner.identify_all(inner.patience()).await) });
    }

    /// Asks the nodes who they are, unless that was done just now.
    pub(super) fn refresh_early(self: &Arc<Self>) {
        let due = Instant::from_nanos(self.refresh_at.load(Ordering::Relaxed));
        if due.since(self.common.clock.now()) < REFRESH - AT_MOST_EVERY {
            self.refresh_at.store(0, Ordering::Relaxed);
            self.refresh();
        }
    }

    /// Waits for what the nodes say of themselves, if nothing has been heard of them for long.
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

    /// Asks all nodes who they are, and waits for those that answer in time.
    pub(super) async fn identify_all(self: &Arc<Self>, within: Duration) -> Vec<Option<Error>> {
        let mut errors = vec![None; self.nodes.len()];
        let begun = self.common.clock.now();
        let identify = |(place, node): (usize, &Arc<Node>)| -> Call<Result<()>> {
            let node = Arc::clone(node);
            Box::pin(async move { (place, node.identify().await) })
        };
        let mut calls = self.errands.ask(self.nodes.iter().enumerate().map(identify));
        let all_the_time = later(self.common.timeout);
        let mut until = later(within);
        let (mut answered, mut met) = (vec![false; self.nodes.len()], 0);
        while let Ok(Some((node, answer))) = tokio::time::timeout_at(until, calls.recv()).await {
            (answered[node], errors[node]) = (true, answer.err());
            met += usize::from(errors[node].is_none());
            if met >= majority(self.nodes.len()) {
                // One that hangs costs a moment, and not all the time that there is; unless it may know what a young one forgot.
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
