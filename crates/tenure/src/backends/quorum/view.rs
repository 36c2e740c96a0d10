//! What the nodes say of a name, side by side and put together; and breaking its holds on all of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use super::Inner;
use super::attempts::engines_own;
use super::rules::majority;
use crate::backend::{Backend, Broken, Holder, Scope, State, Verdict};
use crate::error::{Error, Result};
use crate::name::{OwnerId, Resource, Token};

/// How much longer than for a vote is waited for what only people read.
const PATIENCE: u32 = 10;
/// How often a node is told to break a hold before that counts as failed.
const BREAK_TRIES: u32 = 5;

/// An owner as the engine knows it, if it is one of ours.
pub(super) fn as_engine_knows(owner: &str) -> String {
    owner.parse::<OwnerId>().map_or_else(|_| owner.to_owned(), |owner| engines_own(owner).to_string())
}

/// Those who hold at a majority of the nodes.
fn with_majority(nodes: usize, found: &[&Vec<Holder>]) -> Vec<Holder> {
    let mut by_owner = BTreeMap::<&str, Vec<&Holder>>::new();
    for holder in found.iter().copied().flatten() {
        by_owner.entry(&holder.owner).or_default().push(holder);
    }
    let enough = majority(nodes);
    let mut holders: Vec<Holder> = Vec::new();
    for mut votes in by_owner.into_values().filter(|votes| votes.len() >= enough) {
        // It lasts as long as a majority of its votes does.
        votes.sort_by(|a, b| b.expires_in.cmp(&a.expires_in));
        let last = votes[enough - 1];
        let mut tokens: Vec<Option<Token>> = votes.iter().map(|vote| vote.token).collect();
        tokens.sort_unstable_by(|a, b| b.cmp(a));
        holders.push(Holder {
            owner: as_engine_knows(&last.owner),
            // Single nodes may have a larger or a smaller one, of no meaning.
            token: tokens[enough - 1],
            note: votes.iter().find_map(|vote| vote.note.clone()),
            since: votes.iter().filter_map(|vote| vote.since).min(),
            ..last.clone()
        });
    }
    holders.sort_by_key(|holder| holder.token);
    holders
}

/// What a majority sees at least: one node alone may have kept what others have forgotten.
fn most_say(nodes: usize, mut counts: Vec<u32>) -> Option<u32> {
    counts.sort_unstable_by(|a, b| b.cmp(a));
    counts.get(majority(nodes) - 1).or(counts.last()).copied()
}

impl Inner {
    async fn each<'a, T, F>(&'a self, doing: &'a str, ask: impl Fn(Arc<dyn Backend>) -> F) -> Vec<Result<T>>
    where
        F: Future<Output = Result<T>> + 'a,
    {
        let within = self.patience();
        let asked = self.nodes.iter().map(|node| tokio::time::timeout(within, node.call(doing, &ask)));
        let answers = join_all(asked).await.into_iter();
        answers.map(|answer| answer.unwrap_or_else(|_| Err(super::silent(doing, within)))).collect()
    }

    fn patience(&self) -> Duration {
        (self.vote_within * PATIENCE).min(self.common.timeout)
    }

    pub(super) async fn inspect(self: &Arc<Self>, scope: Scope<'_>) -> Result<Vec<State>> {
        self.introduce_all(self.patience()).await;
        let answers = self.each("inspecting", |backend| async move { backend.inspect(scope).await }).await;
        self.enough("inspecting", &answers)?;
        match scope {
            Scope::One(name) => Ok(vec![self.together(name, &answers)]),
            Scope::Prefix(_) => {
                let mut names: Vec<&Resource> = answers.iter().flatten().flatten().map(|state| &state.resource).collect();
                names.sort_unstable();
                names.dedup();
                let states = names.into_iter().map(|name| self.together(name, &answers));
                Ok(states.filter(|state| !state.holders.is_empty()).collect())
            }
        }
    }

    fn together(&self, name: &Resource, answers: &[Result<Vec<State>>]) -> State {
        let of = |states: &Vec<State>| states.iter().find(|state| state.resource == *name).cloned();
        let states: Vec<Result<State, String>> = answers
            .iter()
            .map(|answer| {
                answer.as_ref().map_err(ToString::to_string).map(|s| of(s).unwrap_or_else(|| State::free(name.clone())))
            })
            .collect();
        let found: Vec<&State> = states.iter().flatten().collect();
        let holders = with_majority(self.nodes.len(), &found.iter().map(|state| &state.holders).collect::<Vec<_>>());
        let verdicts = self.nodes.iter().zip(&states);
        State {
            holders,
            waiting: most_say(self.nodes.len(), found.iter().filter_map(|state| state.waiting).collect()),
            fence: found.iter().filter_map(|state| state.fence).max(),
            verdicts: verdicts
                .map(|(node, state)| Verdict { member: node.member(), holders: state.clone().map(|state| state.holders) })
                .collect(),
            ..State::free(name.clone())
        }
    }

    pub(super) async fn break_hold(self: &Arc<Self>, name: &Resource, at_least: Option<Token>) -> Result<Option<Broken>> {
        // One number for all nodes, larger than any of theirs.
        let state = self.inspect(Scope::One(name)).await?.remove(0);
        let above = state.fence.map(|fence| fence.plus(1).unwrap_or(fence));
        let fence = above.max(self.common.proposal()).max(at_least);
        let answers = self.each("breaking", |backend| async move {
            let mut answer = backend.break_hold(name, fence).await;
            for _ in 1..BREAK_TRIES {
                // Half broken would look like not held to the next who tries.
                match &answer {
                    Err(e) if e.is_transient() => answer = backend.break_hold(name, fence).await,
                    _ => break,
                }
            }
            answer
        });
        let answers = answers.await;
        self.enough("breaking", &answers)?;
        let raised = answers.iter().flatten().flatten().map(|broken| broken.fence).max().max(fence);
        let holders = state.holders;
        Ok(raised.filter(|_| !holders.is_empty()).map(|fence| Broken { holders, fence }))
    }

    /// Refuses if fewer than a majority have answered.
    fn enough<T>(&self, doing: &str, answers: &[Result<T>]) -> Result<()> {
        if answers.iter().flatten().count() >= majority(self.nodes.len()) {
            return Ok(());
        }
        let errors: Vec<Option<Error>> = answers.iter().map(|answer| answer.as_ref().err().cloned()).collect();
        Err(self.too_few(doing, &errors))
    }
}
