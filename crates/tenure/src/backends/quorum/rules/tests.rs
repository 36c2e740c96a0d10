//! Each rule as a table.

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
        let report = |(up, leases): &Told<'_>| LeaseReport {
            up: up.map(s),
            leases: leases.iter().map(|(lease, for_long)| InUse { lease: s(*lease), for_long: s(*for_long) }).collect(),
        };
        let others: Vec<LeaseReport> = others.iter().map(report).collect();
        RestartEvidence { up: s(up), nodes: 3, others: others.iter().collect(), silent, slack }.may_have_forgotten(s(30))
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
