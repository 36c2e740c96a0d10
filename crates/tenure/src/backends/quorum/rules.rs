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

/// Counts votes. `target` is the token that is being raised to, once that has begun. A larger one that comes later does not stand
/// for it: that node has given tokens to others since, and may have given them this one.
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
        let mut standing: Vec<Duration> = granted().filter(|(token, _)| *token == target).map(|(_, valid)| valid).collect();
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
        // Those that said nothing may have granted it; those that have yet to say something may tell that others have it.
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
    // Of two the one behind: tokens that are ahead of the time stay so.
    clocks_micros.get(clocks_micros.len().saturating_sub(1) / 2).and_then(|micros| Token::new(0).plus(*micros))
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

/// A node that has been up for so long is not asked after with those who do not answer: it counts, unless one who does tells of a
/// longer lease.
pub(crate) const MATURE: Duration = Duration::from_secs(3600);

/// What the others say of a node that was started of late.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Youth {
    /// For how long it has been up.
    pub(crate) up: Duration,
    /// How many nodes there are in all.
    pub(crate) nodes: usize,
    /// How many of the others have not answered yet.
    pub(crate) silent: usize,
    /// How long telling two nodes of a lease may take.
    pub(crate) slack: Duration,
}

/// The longest lease of a lock that a node may have forgotten, by what the others say. `None` while that is not known.
///
/// A lease that came into use later was told to the node itself before any lock of that lease counted there. Who held a vote of it
/// had others of most nodes; so enough of those who were there a whole lease before it know. With too few of them the `usual`
/// lease was in use, unless one who may know has yet to answer.
pub(crate) fn may_have_forgotten<'a>(
    young: Youth,
    others: impl Iterator<Item = &'a Witness> + Clone,
    usual: Duration,
) -> Option<Duration> {
    let Youth { up, nodes, silent, slack } = young;
    let before = others.clone().flat_map(|other| &other.leases).filter(|in_use| in_use.for_long + slack >= up);
    let longest = before.map(|in_use| in_use.lease).max().unwrap_or_default();
    let remembers = up + slack + longest.max(usual);
    let know = others.filter(|other| other.up.is_none_or(|other| other >= remembers)).count();
    if know >= majority(nodes) {
        return Some(longest);
    }
    (silent == 0 || up >= MATURE).then_some(longest.max(usual))
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
mod tests {
    use super::*;
    use crate::error::Fault;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn yes(token: u64, seconds: u64) -> Vote {
        Vote::Yes { token: Token::new(token), valid_for: s(seconds) }
    }

    fn no(holder: &str, seconds: u64) -> Vote {
        Vote::No { poll_within: s(seconds), holder: Some(holder.to_owned()) }
    }

    fn granted(token: u64, seconds: u64) -> Tally {
        Tally::Granted { token: Token::new(token), valid_for: s(seconds) }
    }

    fn busy(seconds: u64) -> Tally {
        Tally::Busy { poll_within: s(seconds) }
    }

    #[test]
    fn what_a_node_may_have_forgotten_is_told_by_those_who_were_there() {
        let slack = s(4);
        // Up for so long, with leases that have been in use for so long.
        type Told<'a> = (Option<u64>, &'a [(u64, u64)]);
        let of = |up, silent, others: &[Told<'_>]| {
            let witness = |(up, leases): &Told<'_>| Witness {
                up: up.map(s),
                leases: leases.iter().map(|(lease, for_long)| InUse { lease: s(*lease), for_long: s(*for_long) }).collect(),
            };
            let others: Vec<Witness> = others.iter().map(witness).collect();
            may_have_forgotten(Youth { up: s(up), nodes: 3, silent, slack }, others.iter(), s(30))
        };
        let day = Some(86_400);
        // A set that is new: the usual lease.
        assert_eq!(of(5, 0, &[(Some(5), &[]), (Some(5), &[])]), Some(s(30)));
        // Both others were there, and know of nothing before it, or of a long lease.
        assert_eq!(of(100, 0, &[(day, &[(600, 50)]), (day, &[])]), Some(s(0)));
        assert_eq!(of(100, 0, &[(day, &[(600, 150)]), (day, &[])]), Some(s(600)));
        // A lease that was told at about the time of the start may have been in use before it.
        assert_eq!(of(100, 0, &[(day, &[(600, 97)]), (day, &[])]), Some(s(600)));
        // One has been there for long, but not a whole lease before.
        assert_eq!(of(100, 0, &[(day, &[]), (Some(120), &[])]), Some(s(30)));
        assert_eq!(of(100, 0, &[(day, &[]), (Some(140), &[])]), Some(s(0)));
        assert_eq!(of(100, 0, &[(None, &[]), (None, &[])]), Some(s(0)));
        // One that may know says nothing.
        assert_eq!(of(100, 1, &[(day, &[])]), None);
        assert_eq!(of(3600, 1, &[(day, &[])]), Some(s(30)));
        assert_eq!(of(100, 0, &[(day, &[])]), Some(s(30)));
    }

    #[test]
    fn any_two_majorities_meet() {
        for n in [1, 3, 5, 7] {
            assert!(2 * majority(n) > n && 2 * (majority(n) - 1) < n, "{n}");
        }
    }

    #[test]
    fn votes_are_counted() {
        use Vote::{Pending, Uncounted, Unknown};
        let to = |token| Some(Token::new(token));
        let raise = |token| Tally::Raise(Token::new(token));
        let rows: &[(&[Vote], Option<Token>, Tally)] = &[
            (&[Pending, Pending, Pending], None, Tally::Wait),
            (&[yes(5, 9), Pending, Unknown], None, Tally::Wait),
            (&[no("b", 1), no("b", 1), Pending], None, busy(1)),
            // The one that is missing may say no too.
            (&[no("b", 1), Unknown, Pending], None, Tally::Wait),
            (&[no("b", 1), Uncounted, Pending], None, Tally::Wait),
            (&[yes(5, 9), Unknown, Unknown], None, Tally::Failed),
            // In one round: as long as the majority that lasts longest.
            (&[yes(5, 9), yes(5, 8), Pending], None, granted(5, 8)),
            (&[yes(5, 9), yes(5, 7), yes(5, 8)], None, granted(5, 8)),
            (&[yes(5, 9), yes(5, 7), yes(4, 8)], None, granted(5, 7)),
            // In two.
            (&[yes(5, 9), yes(7, 9), Pending], None, raise(7)),
            (&[Pending, yes(7, 9), Pending], to(7), Tally::Wait),
            (&[yes(7, 9), yes(7, 8), Pending], to(7), granted(7, 8)),
            (&[Pending, yes(7, 9), yes(5, 9)], to(7), raise(7)),
            (&[Unknown, yes(7, 9), yes(5, 9)], to(7), raise(7)),
            // A larger one is not the one that is raised to.
            (&[Unknown, yes(7, 9), yes(9, 9)], to(7), raise(7)),
            (&[yes(7, 8), yes(7, 9), yes(9, 9)], to(7), granted(7, 8)),
            // Somebody has a majority, or may have.
            (&[yes(5, 9), no("b", 3), no("b", 2)], None, busy(2)),
            (&[Unknown, no("b", 3), no("c", 2)], None, busy(3)),
            (&[yes(5, 9), no("b", 3), no("c", 2)], None, Tally::Collided),
            (&[yes(5, 9), no("b", 3), Vote::No { poll_within: s(2), holder: None }], None, Tally::Collided),
            // Too few count.
            (&[yes(5, 9), Unknown, Unknown], None, Tally::Failed),
            (&[yes(5, 9), Uncounted, Unknown], None, Tally::Failed),
            (&[no("b", 1), Unknown, Uncounted], None, Tally::Failed),
            (&[yes(5, 9), Uncounted, no("b", 1)], None, Tally::Failed),
            (&[yes(5, 9), Uncounted, Pending], None, Tally::Wait),
            (&[yes(5, 9), yes(5, 9), yes(5, 9), no("b", 1), Unknown], None, granted(5, 9)),
            (&[yes(5, 9), yes(5, 9), no("b", 1), no("b", 4), no("b", 3)], None, busy(1)),
            (&[yes(5, 9), yes(5, 9), no("b", 1), no("b", 4), no("c", 3)], None, Tally::Collided),
        ];
        for (votes, target, expected) in rows {
            assert_eq!(tally(votes, *target), *expected, "{votes:?} {target:?}");
        }
    }

    #[test]
    fn a_grant_is_late_at_its_deadline() {
        let sent = Instant::from_nanos(1_000_000_000);
        let drift = Drift { per_mille: 100, fixed: s(1) };
        assert!(in_time(sent, s(10), drift, sent.after(s(8)).before(Duration::from_nanos(1))));
        assert!(!in_time(sent, s(10), drift, sent.after(s(8))));
    }

    #[test]
    fn no_single_clock_moves_the_proposal() {
        let of = |clocks: &mut [u64]| proposal(clocks).map(Token::get);
        assert_eq!(of(&mut [102, 100, 101]), Some(101));
        assert_eq!(of(&mut [u64::MAX, 100, 101]), Some(101));
        assert_eq!(of(&mut [0, 100, 101]), Some(100));
        assert_eq!(of(&mut [100]), Some(100));
        assert_eq!(of(&mut []), None);
        assert_eq!(of(&mut [u64::MAX, u64::MAX, 1]), None, "no token is that large");
    }

    #[test]
    fn a_quarantine_lasts_as_long_as_the_longest_lease() {
        assert_eq!(quarantine_left(s(0), s(30)), Some(s(30)));
        assert_eq!(quarantine_left(s(29), s(30)), Some(s(1)));
        assert_eq!(quarantine_left(s(30), s(30)), None);
        assert_eq!(quarantine_left(s(31), s(30)), None);
        assert_eq!(quarantine_left(Duration::ZERO, Duration::from_millis(10)), Some(LEAST_QUARANTINE));
    }

    #[test]
    fn renewals_are_counted() {
        const GONE: Option<Renewal> = Some(Renewal::Gone);
        const UNKNOWN: Option<Renewal> = Some(Renewal::Unknown(Fault::Connection));
        let extended = |seconds| Some(Renewal::Extended { valid_for: s(seconds) });
        let rows = [
            ([None, None, None], None),
            ([extended(9), None, GONE], None),
            ([extended(9), extended(8), None], extended(8)),
            ([extended(9), extended(7), extended(8)], extended(8)),
            ([extended(9), GONE, extended(8)], extended(8)),
            ([GONE, None, GONE], GONE),
            ([extended(9), GONE, GONE], GONE),
            ([extended(9), UNKNOWN, None], None),
            ([extended(9), UNKNOWN, GONE], UNKNOWN),
            ([UNKNOWN, UNKNOWN, UNKNOWN], UNKNOWN),
        ];
        for (answers, expected) in rows {
            assert_eq!(renewed(&answers), expected, "{answers:?}");
        }
    }

    #[test]
    fn releases_are_counted() {
        // Of three nodes: those that gave a vote back, those that had none, those that may still answer.
        let rows = [
            ((0, 0, 3), Return::Wait),
            ((1, 1, 1), Return::Wait),
            ((2, 0, 1), Return::Yes),
            ((0, 2, 1), Return::NotHeld),
            ((1, 2, 0), Return::NotHeld),
            ((1, 1, 0), Return::Yes),
            ((1, 0, 0), Return::Unknown),
            ((0, 1, 0), Return::Unknown),
            ((0, 0, 0), Return::Unknown),
        ];
        for ((yes, no, pending), expected) in rows {
            assert_eq!(returned(3, yes, no, pending), expected, "{yes} {no} {pending}");
        }
    }
}
