//! What the nodes say of a name, side by side and merged; and breaking its holds at all nodes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::ballot::NodeOwner;
use super::node::Node;
use super::rules::majority;
use super::{Inner, NAME, later, silent};
use crate::backend::{Broken, Holder, NodeReport, Scope, State, Voter};
use crate::error::{Error, Fault, NodeTrouble, Result};
use crate::name::{OwnerId, Resource, Token};

/// How much longer than for a vote an inspection waits.
const PATIENCE: u32 = 10;
/// How long a node may take to list all that is held: many round trips, each bounded by itself.
const LISTING: Duration = Duration::from_secs(60);
/// How often a node is asked, if its answers are lost.
const TRIES: u32 = 5;

/// An owner as the engine knows it, if it is one of ours.
pub(super) fn as_engine_knows(owner: &str) -> String {
    owner.parse::<OwnerId>().map_or_else(|_| owner.to_owned(), |owner| NodeOwner::from(owner).owner.to_string())
}

/// Owners as they are shown. The holder at a majority looks the same everywhere; another attempt of the same owner does not, because its
/// votes do not count with those.
struct Names {
    /// As the nodes know them.
    all: Vec<String>,
    merged: Vec<String>,
}

impl Names {
    fn of(&self, owner: &str) -> String {
        let own = as_engine_knows(owner);
        let has_others = || self.all.iter().any(|other| other != owner && as_engine_knows(other) == own);
        if self.merged.iter().any(|merged| merged == owner) || !has_others() {
            return own;
        }
        let tried = owner.parse().map_or(0, |owner: OwnerId| NodeOwner::from(owner).attempt);
        format!("{own} (try {tried})")
    }

    fn put_on(&self, holders: &[Holder]) -> Vec<Holder> {
        holders.iter().map(|holder| Holder { owner: self.of(&holder.owner), ..holder.clone() }).collect()
    }
}

/// The holders at a majority of the nodes, as far as the silent ones may complete it. The owners are as the nodes know them.
fn with_majority(nodes: usize, found: &[&Vec<Holder>]) -> Vec<Holder> {
    let mut by_owner = BTreeMap::<&str, Vec<&Holder>>::new();
    for holder in found.iter().copied().flatten() {
        by_owner.entry(&holder.owner).or_default().push(holder);
    }
    let enough = (majority(nodes) - (nodes - found.len()).min(majority(nodes) - 1)).max(1);
    let mut holders: Vec<Holder> = Vec::new();
    for mut votes in by_owner.into_values().filter(|votes| votes.len() >= enough) {
        // It lasts as long as a majority of its votes does.
        votes.sort_by_key(|vote| std::cmp::Reverse(vote.expires_in));
        let last = votes[enough - 1];
        let mut tokens: Vec<Option<Token>> = votes.iter().map(|vote| vote.token).collect();
        tokens.sort_unstable_by(|a, b| b.cmp(a));
        holders.push(Holder {
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

/// Asks again at once if the answer was lost: what is asked here may be asked twice.
async fn again_if_lost<T, F: Future<Output = Result<T>>>(mut ask: impl FnMut() -> F) -> Result<T> {
    let mut answer = ask().await;
    for _ in 1..TRIES {
        match &answer {
            Err(e) if e.is_transient() => answer = ask().await,
            _ => break,
        }
    }
    answer
}

/// What a majority sees at least: one node alone may have kept what others have forgotten.
fn most_say(nodes: usize, mut counts: Vec<u32>) -> Option<u32> {
    counts.sort_unstable_by(|a, b| b.cmp(a));
    counts.get(majority(nodes) - 1).or(counts.last()).copied()
}

impl Inner {
    /// Asks all nodes, and waits for a majority; not for long for the rest.
    async fn each<T, F>(&self, doing: &'static str, within: Duration, ask: impl Fn(Arc<dyn Voter>) -> F) -> Vec<Result<T>>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let mut replies = self.ask_all(|node| {
            // The question is made here, and asked where the node lives.
            let asks = node.opened().map(|store| ask(Arc::clone(store)));
            async move {
                let away = || Error::unavailable(NAME, doing, Fault::Connection, "it has not been reached yet");
                let asks = asks.ok_or_else(away);
                node.call_within(within, doing, |_| async move { asks?.await }).await
            }
        });
        let mut answers: Vec<Result<T>> = self.nodes.iter().map(|_| Err(silent(doing, within))).collect();
        let mut until = later(within);
        while let Ok(Some((node, answer))) = tokio::time::timeout_at(until, replies.recv()).await {
            answers[node] = answer;
            if answers.iter().flatten().count() == majority(self.nodes.len()) {
                until = until.min(later(self.patience()));
            }
        }
        answers
    }

    pub(super) fn patience(&self) -> Duration {
        (self.vote_within * PATIENCE).min(self.common.timeout / 4)
    }

    pub(super) async fn inspect(self: &Arc<Self>, scope: Scope<'_>) -> Result<Vec<State>> {
        self.identify_all(self.patience()).await;
        let owned = match scope {
            Scope::One(name) => Ok(name.clone()),
            Scope::Prefix(prefix) => Err(prefix.to_owned()),
        };
        let inspect = |store: Arc<dyn Voter>| {
            let owned = owned.clone();
            async move {
                let scope = owned.as_ref().map_or_else(|prefix| Scope::Prefix(prefix), Scope::One);
                again_if_lost(|| store.inspect(scope)).await
            }
        };
        let within = if matches!(scope, Scope::Prefix(_)) { LISTING } else { self.patience() };
        let answers = self.each("inspecting", within, inspect).await;
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
        let state = |(node, answer): (&Arc<Node>, &Result<Vec<State>>)| match answer {
            Ok(states) => Ok(of(states).unwrap_or_else(|| State::free(name.clone()))),
            Err(e) => Err(node.said(Some(e))),
        };
        let states: Vec<Result<State, NodeTrouble>> = self.nodes.iter().zip(answers).map(state).collect();
        let found: Vec<&State> = states.iter().flatten().collect();
        let holders = with_majority(self.nodes.len(), &found.iter().map(|state| &state.holders).collect::<Vec<_>>());
        let owners = |holders: &[Holder]| holders.iter().map(|holder| holder.owner.clone()).collect::<Vec<_>>();
        let names = Names { all: found.iter().flat_map(|state| owners(&state.holders)).collect(), merged: owners(&holders) };
        let reports = self.nodes.iter().zip(&states);
        State {
            holders: names.put_on(&holders),
            waiting: most_say(self.nodes.len(), found.iter().filter_map(|state| state.waiting).collect()),
            fence: found.iter().filter_map(|state| state.fence).max(),
            nodes: reports
                .map(|(node, state)| NodeReport {
                    node: node.state(),
                    holders: state.as_ref().map(|state| names.put_on(&state.holders)).map_err(Clone::clone),
                })
                .collect(),
            ..State::free(name.clone())
        }
    }

    pub(super) async fn break_hold(self: &Arc<Self>, name: &Resource) -> Result<Option<Broken>> {
        // One number for all nodes, larger than any of theirs.
        let state = self.inspect(Scope::One(name)).await?.remove(0);
        let above = state.fence.map(|fence| fence.plus(1).unwrap_or(fence));
        let mut fence = above.max(self.common.roster.proposal());
        let mut holders = state.holders;
        for _ in 0..TRIES {
            let break_it = |store: Arc<dyn Voter>| {
                let name = name.clone();
                // Half broken would look like not held to the next try.
                async move {
                    match fence {
                        Some(fence) => again_if_lost(|| store.break_above(&name, fence)).await,
                        None => again_if_lost(|| store.break_hold(&name)).await,
                    }
                }
            };
            let answers = self.each("breaking", self.patience(), break_it).await;
            self.enough("breaking", &answers)?;
            let broken: Vec<&Broken> = answers.iter().flatten().flatten().collect();
            if holders.is_empty() {
                // A holder that came in between.
                let found: Vec<&Vec<Holder>> = broken.iter().map(|broken| &broken.holders).collect();
                holders =
                    if found.len() >= majority(self.nodes.len()) { with_majority(self.nodes.len(), &found) } else { holders };
            }
            // One node may be ahead of what the others were told: they are told that too, or the next token could be smaller.
            match broken.iter().map(|broken| broken.fence).max() {
                Some(ahead) if Some(ahead) > fence => fence = Some(ahead),
                _ => break,
            }
        }
        Ok(fence.filter(|_| !holders.is_empty()).map(|fence| Broken { holders, fence }))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_try_of_an_owner_does_not_look_like_its_hold() {
        let uuid = "1b4e28ba-2fa1-4d2a-883f-0016d3cca427";
        let tried = |n: u64| format!("{uuid}:{}", (n << 40) + 7);
        let own = format!("{uuid}:7");
        let names = Names { all: vec![tried(0), tried(2), tried(2)], merged: vec![tried(2)] };
        assert_eq!((names.of(&tried(2)), names.of(&tried(0))), (own.clone(), format!("{own} (try 0)")));
        let names = Names { all: vec![tried(0), tried(1)], merged: vec![] };
        assert_eq!((names.of(&tried(0)), names.of(&tried(1))), (format!("{own} (try 0)"), format!("{own} (try 1)")));
        let names = Names { all: vec![tried(3), "someone".to_owned()], merged: vec![] };
        assert_eq!((names.of(&tried(3)), names.of("someone")), (own, "someone".to_owned()));
    }
}
