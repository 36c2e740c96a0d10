//! What follows from the answers of the nodes. Pure, so that a model can try every order of events on what ships.

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
    /// Granted, by a node that may have forgotten that somebody else has it.
    Uncounted,
    /// Somebody else has it.
    No {
        /// When that may have changed.
        poll_within: Duration,
        /// Who, as the node writes it.
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
    /// Somebody else has it.
    Busy {
        poll_within: Duration,
    },
    /// Several have some votes, and nobody has enough.
    Collided,
    /// Too few have answered to know.
    Failed,
}

/// Counts votes. `target` is the token that is being raised to, once that has begun: it is larger than any before it, so that
/// larger ones that come later change nothing.
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
        let mut standing: Vec<Duration> = granted().filter(|(token, _)| *token >= target).map(|(_, valid)| valid).collect();
        standing.sort_unstable_by(|a, b| b.cmp(a));
        return match standing.get(enough - 1) {
            // A majority lasts as long as the first of it to end, and those that last longest make it.
            Some(valid_for) => Tally::Granted { token: target, valid_for: *valid_for },
            None => Tally::Raise(target),
        };
    }
    if yes + pending >= enough {
        return Tally::Wait;
    }
    if no <= n - enough {
        // Those that said nothing may have granted it.
        return Tally::Failed;
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

fn one_has_majority(votes: &[Vote]) -> bool {
    let holders = || votes.iter().filter_map(|v| if let Vote::No { holder: Some(holder), .. } = v { Some(holder) } else { None });
    holders().any(|one| holders().filter(|other| *other == one).count() >= majority(votes.len()))
}

/// Whether a grant still leaves time: on the caller's own clock, from before the claims were sent.
pub(crate) fn in_time(sent: Instant, valid_for: Duration, drift: Drift, now: Instant) -> bool {
    deadline(sent, valid_for, drift) > now
}

/// The token to propose: the time, by the clock in the middle. No single clock moves it, and none of the clients' does.
pub(crate) fn proposal(clocks_micros: &mut [u64]) -> Option<Token> {
    clocks_micros.sort_unstable();
    clocks_micros.get(clocks_micros.len() / 2).and_then(|micros| Token::new(0).plus(*micros))
}

/// A quarantine lasts so long at least: the time after which tokens are larger by any clock that is not far off.
const LEAST_QUARANTINE: Duration = Duration::from_secs(1);

/// For how long a node must not count yet, that has been up for so long: a lock that it has forgotten may still be held.
pub(crate) fn quarantine_left(up: Duration, longest_lease: Duration) -> Option<Duration> {
    longest_lease.max(LEAST_QUARANTINE).checked_sub(up).filter(|left| !left.is_zero())
}

/// What a node knows of leases that clients use.
#[derive(Debug, Clone)]
pub(crate) struct Witness {
    /// For how long it has forgotten nothing; `None`: it never does.
    pub(crate) up: Option<Duration>,
    pub(crate) leases: Vec<InUse>,
}

/// The longest lease of a lock that a node may have forgotten, which has been up for so long, by what the others say who have
/// answered. A lease that came into use later was told to the node itself before any lock of that lease counted there. With too
/// few who were there before, the `usual` lease was in use.
pub(crate) fn may_have_forgotten<'a>(
    up: Duration,
    n: usize,
    others: impl IntoIterator<Item = &'a Witness>,
    usual: Duration,
) -> Duration {
    let (mut older, mut longest) = (0, Duration::ZERO);
    for other in others {
        older += usize::from(other.up.is_none_or(|other| other > up));
        let before = other.leases.iter().filter(|in_use| in_use.for_long >= up);
        longest = before.map(|in_use| in_use.lease).fold(longest, Duration::max);
    }
    if older >= majority(n) { longest } else { longest.max(usual) }
}

/// What the nodes' answers to a renewal come to; `None` while more may come. A node that has not answered is `None`, one that
/// cannot tell or does not count is [`Renewal::Unknown`].
pub(crate) fn renewed(answers: &[Option<Renewal>]) -> Option<Renewal> {
    let (n, enough) = (answers.len(), majority(answers.len()));
    let mut extended: Vec<Duration> = answers
        .iter()
        .filter_map(|a| if let Some(Renewal::Extended { valid_for }) = a { Some(*valid_for) } else { None })
        .collect();
    extended.sort_unstable_by(|a, b| b.cmp(a));
    if let Some(valid_for) = extended.get(enough - 1) {
        return Some(Renewal::Extended { valid_for: *valid_for });
    }
    if answers.iter().filter(|a| matches!(a, Some(Renewal::Gone))).count() > n - enough {
        return Some(Renewal::Gone);
    }
    answers.iter().all(Option::is_some).then_some(Renewal::Unknown)
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
