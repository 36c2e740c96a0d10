//! What follows from the answers of the nodes. Pure, so that a model tries every order of events on the code that ships.

use std::time::Duration;

use crate::backend::{InUse, Renewal};
use crate::clock::{Drift, Instant, deadline};
use crate::name::Token;

/// How many of `n` nodes any two majorities share at least one of.
pub(crate) const fn majority(n: usize) -> usize {
    n / 2 + 1
}

/// What a node has said to a claim.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Vote {
    /// Nothing yet.
    Pending,
    /// Granted.
    Yes {
        /// The (first) token there.
        token: Token,
        /// Counted from before the claim was sent.
        valid_for: Duration,
    },
    /// Granted by a node that may have forgotten another holder.
    Uncounted,
    /// Another owner holds it.
    No {
        /// When that may have changed.
        poll_within: Duration,
        /// The holder, as the node writes it.
        holder: Option<String>,
    },
    /// An error, or silence: it may have granted or not.
    Unknown,
}

/// What the votes come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Tally {
    /// More may come.
    Wait,
    /// A majority granted under several tokens: the largest has to stand on a majority first.
    Raise(Token),
    Granted {
        token: Token,
        valid_for: Duration,
    },
    /// Another owner holds it.
    Busy {
        poll_within: Duration,
    },
    /// Several owners have votes, and none has enough.
    Collided,
    /// Too few have answered to know.
    Failed,
}

/// Counts votes. `target` is the token that is being raised to, once that has begun. A larger token does not stand for it: that node
/// has granted to others since, and may have given them this one.
pub(crate) fn tally(votes: &[Vote], target: Option<Token>) -> Tally {
    let (n, enough) = (votes.len(), majority(votes.len()));
    let count = |kind: fn(&Vote) -> bool| votes.iter().filter(|vote| kind(vote)).count();
    let yes = count(|vote| matches!(vote, Vote::Yes { .. }));
    let no = count(|vote| matches!(vote, Vote::No { .. }));
    let pending = count(|vote| matches!(vote, Vote::Pending));
    let granted =
        || votes.iter().filter_map(|v| if let Vote::Yes { token, valid_for } = v { Some((*token, *valid_for)) } else { None });
    if yes >= enough
        && let Some(target) = target.or_else(|| granted().map(|(token, _)| token).max())
    {
        let standing = granted().filter(|(token, _)| *token == target).map(|(_, valid_for)| valid_for);
        return match lasts(standing, enough) {
            Some(valid_for) => Tally::Granted { token: target, valid_for },
            None => Tally::Raise(target),
        };
    }
    if yes + pending >= enough {
        return Tally::Wait;
    }
    if no <= n - enough {
        // A silent node may have granted it; a pending one may still say that another owner holds it.
        return if pending > 0 && no + pending > n - enough { Tally::Wait } else { Tally::Failed };
    }
    if yes > 0 && !one_has_majority(votes) {
        return Tally::Collided;
    }
    let mut polls: Vec<Duration> =
        votes.iter().filter_map(|v| if let Vote::No { poll_within, .. } = v { Some(*poll_within) } else { None }).collect();
    polls.sort_unstable();
    // So many have to come free.
    let missing = enough - yes;
    Tally::Busy { poll_within: polls.get(missing - 1).or(polls.last()).copied().unwrap_or_default() }
}

/// How long a majority of votes lasts: those that last longest make it, and it ends with the first of them.
fn lasts(votes: impl Iterator<Item = Duration>, enough: usize) -> Option<Duration> {
    let mut votes: Vec<Duration> = votes.collect();
    votes.sort_unstable_by(|a, b| b.cmp(a));
    votes.get(enough - 1).copied()
}

fn one_has_majority(votes: &[Vote]) -> bool {
    let holders = || votes.iter().filter_map(|v| if let Vote::No { holder: Some(holder), .. } = v { Some(holder) } else { None });
    holders().any(|one| holders().filter(|other| *other == one).count() >= majority(votes.len()))
}

/// Whether a grant still leaves time: on the caller's own clock, from before the claims were sent.
pub(crate) fn in_time(sent: Instant, valid_for: Duration, drift: Drift, now: Instant) -> bool {
    deadline(sent, valid_for, drift) > now
}

/// The token to propose: the time of the median clock. No single node moves it, and no client does.
pub(crate) fn proposal(clocks_micros: &mut [u64]) -> Option<Token> {
    clocks_micros.sort_unstable();
    // Of two the one behind: a token that is ahead of the time stays ahead.
    clocks_micros.get(clocks_micros.len().saturating_sub(1) / 2).and_then(|micros| Token::new(0).plus(*micros))
}

/// The shortest quarantine: after it, tokens are larger by any clock that is not far off.
const LEAST_QUARANTINE: Duration = Duration::from_secs(1);

/// For how long a node does not count yet: a lock that it has forgotten may still be held.
pub(crate) fn quarantine_left(up: Duration, longest_lease: Duration) -> Option<Duration> {
    longest_lease.max(LEAST_QUARANTINE).checked_sub(up).filter(|left| !left.is_zero())
}

/// A node that has been up for so long counts although some do not answer, unless one that does tells of a longer lease.
pub(crate) const MATURE: Duration = Duration::from_secs(3600);

/// What another node knows of the leases that clients use.
#[derive(Debug, Clone)]
pub(crate) struct LeaseReport {
    /// For how long it has forgotten nothing; `None`: it never does.
    pub(crate) up: Option<Duration>,
    pub(crate) leases: Vec<InUse>,
}

/// What is known of a node that may have restarted.
#[derive(Debug)]
pub(crate) struct RestartEvidence<'a> {
    /// For how long it has been up.
    pub(crate) up: Duration,
    /// How many nodes there are in all.
    pub(crate) nodes: usize,
    /// What the others say.
    pub(crate) others: Vec<&'a LeaseReport>,
    /// How many of the others have not answered yet.
    pub(crate) silent: usize,
    /// How long it may take to tell two nodes of a lease.
    pub(crate) slack: Duration,
}

impl RestartEvidence<'_> {
    /// The longest lease of a lock that the node may have forgotten. `None` while that is not known.
    ///
    /// A lease that came into use later was told to the node itself before a lock of that lease counted there. The holder of a
    /// forgotten vote had votes of a majority. So a majority that was up for a whole lease before the restart knows that lease. With
    /// too few of them the `usual` lease is assumed, once all that may know have answered.
    pub(crate) fn may_have_forgotten(&self, usual: Duration) -> Option<Duration> {
        let Self { up, nodes, silent, slack, ref others } = *self;
        let before = others.iter().flat_map(|other| &other.leases).filter(|in_use| in_use.for_long + slack >= up);
        let longest = before.map(|in_use| in_use.lease).max().unwrap_or_default();
        let remembers = up + slack + longest.max(usual);
        let know = others.iter().filter(|other| other.up.is_none_or(|other| other >= remembers)).count();
        if know >= majority(nodes) {
            return Some(longest);
        }
        (silent == 0 || up >= MATURE).then_some(longest.max(usual))
    }
}

/// What the nodes' answers to a renewal come to; `None` while more may come. A node that has not answered is `None`, one that
/// cannot tell or does not count is [`Renewal::Unknown`].
pub(crate) fn renewed(answers: &[Option<Renewal>]) -> Option<Renewal> {
    let (n, enough) = (answers.len(), majority(answers.len()));
    let extended =
        answers.iter().filter_map(|a| if let Some(Renewal::Extended { valid_for }) = a { Some(*valid_for) } else { None });
    if let Some(valid_for) = lasts(extended, enough) {
        return Some(Renewal::Extended { valid_for });
    }
    if answers.iter().filter(|a| matches!(a, Some(Renewal::Gone))).count() > n - enough {
        return Some(Renewal::Gone);
    }
    let all = answers.iter().copied().collect::<Option<Vec<Renewal>>>()?;
    // Were all of them definite, so would be the outcome.
    all.into_iter().find(|one| matches!(one, Renewal::Unknown(_)))
}

/// How the nodes' answers to a release stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Return {
    Wait,
    /// A majority had it until now, or may have had it.
    Yes,
    NotHeld,
    /// A majority may still have it.
    Unknown,
}

/// Counts the nodes that gave a vote back (`yes`), those that had none to give (`no`) and those that may still answer.
pub(crate) fn returned(n: usize, yes: usize, no: usize, pending: usize) -> Return {
    let enough = majority(n);
    if yes >= enough {
        Return::Yes
    } else if n - no < enough {
        Return::NotHeld
    } else if pending > 0 {
        Return::Wait
    } else if yes + no >= enough {
        Return::Yes
    } else {
        Return::Unknown
    }
}

#[cfg(test)]
mod tests;
