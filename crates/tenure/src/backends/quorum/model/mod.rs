//! A bounded model: every order of events, of a few ballots on three nodes, within a few ticks.
//!
//! It uses the rules that ship (`rules`, `Token`, `deadline`), not copies of them. Messages take any time, and those that
//! take forever are lost. A client that is not scheduled while time passes is paused. Nodes tell the ballots of one client apart
//! like those of several, so each ballot has a client of its own. Every hold writes once to a store that refuses smaller
//! tokens than it has seen, and the write takes any time too.

mod moves;
mod promises;
mod setup;
mod world;

use std::collections::BTreeSet;
use std::time::Instant;

use stateright::{Checker, Model};

use self::promises::{GROWTH, LATE_WRITE, ONE_HOLDER, ORDER, QUARANTINE, RENEWED, SECOND_ROUND, TWO_GRANTS, UNIQUE};
use self::setup::{Jump, Mistake, Setup};
use self::world::NODES;

/// A counter that no clock comes near to.
const FAR: Option<u64> = Some(1_000_000_000_000);
const ONE_FAR: [Option<u64>; NODES] = [FAR, None, None];
const TWO_FAR: [Option<u64>; NODES] = [FAR, FAR, None];

/// Leases that overlap by half.
const LONG: Setup = Setup {
    ballots: 2,
    ticks: 3,
    lease: 2,
    counters: [None; NODES],
    losses: 0,
    jumps: 0,
    jump: Jump::Ahead,
    newcomers: false,
    renewals: 0,
    mistake: None,
    only: None,
};
/// Leases of one tick: the least in which they end.
const SHORT: Setup = Setup { ticks: 2, lease: 1, ..LONG };
/// What is seen in every model.
const USUAL: [&str; 3] = [TWO_GRANTS, LATE_WRITE, SECOND_ROUND];

/// Tries everything, and says which properties that must hold are broken and which events are seen. With fewer than `least`
/// states the model would be too small to say much.
#[track_caller]
fn explore(name: &str, setup: Setup, least: usize) -> BTreeSet<&'static str> {
    let began = Instant::now();
    let checker = setup.checker().spawn_bfs().join();
    let (states, took) = (checker.unique_state_count(), began.elapsed());
    let found: BTreeSet<&str> = checker.discoveries().into_keys().collect();
    println!("{name}: {states} states in {took:.1?}, found {found:?}");
    assert!(states >= least, "{name}: only {states} states");
    found
}

#[track_caller]
fn seen(names: &[&'static str]) -> BTreeSet<&'static str> {
    names.iter().chain(&USUAL).copied().collect()
}

/// Looks for the shortest way to break a property.
#[track_caller]
fn breaks(name: &str, setup: Setup, property: &'static str) {
    let checker = Setup { only: Some(property), ..setup }.checker().spawn_bfs().join();
    let states = checker.unique_state_count();
    let path = checker.discovery(property).unwrap_or_else(|| panic!("{name}: {states} states, and it is not noticed"));
    let moves = path.into_actions();
    println!("{name}: broken in {} moves, {states} states: {property}: {moves:?}", moves.len());
}

#[test]
fn counters_in_sync() {
    assert_eq!(explore("in sync", LONG, 90_000), seen(&[]));
}

#[test]
fn counters_out_of_sync() {
    assert_eq!(explore("out of sync", Setup { counters: ONE_FAR, ticks: 3, ..SHORT }, 200_000), seen(&[]));
}

#[test]
fn a_node_loses_its_state() {
    assert_eq!(explore("loss", Setup { losses: 1, ticks: 3, ..SHORT }, 300_000), seen(&[QUARANTINE]));
}

#[test]
fn a_clock_jumps_ahead() {
    // Two may believe that they hold the lock, and the token keeps them apart.
    assert_eq!(explore("jump", Setup { jumps: 1, ..SHORT }, 100_000), seen(&[ONE_HOLDER]));
    assert_eq!(explore("jump, out of sync", Setup { jumps: 1, counters: TWO_FAR, ..SHORT }, 400_000), seen(&[ONE_HOLDER]));
}

#[test]
fn a_clock_jumps_back() {
    assert_eq!(explore("jump back", Setup { jumps: 1, jump: Jump::Back, ..SHORT }, 100_000), seen(&[]));
}

#[test]
fn a_node_loses_its_state_and_a_clock_jumps() {
    assert_eq!(explore("loss and jump", Setup { losses: 1, jumps: 1, ..SHORT }, 500_000), seen(&[ONE_HOLDER, QUARANTINE]));
}

#[test]
fn a_hold_is_renewed() {
    assert_eq!(explore("renewal", Setup { renewals: 1, ..LONG }, 100_000), seen(&[RENEWED]));
}

#[test]
#[ignore = "takes minutes unless optimised: cargo test --release -p tenure --lib model -- --ignored"]
fn larger_models() {
    assert_eq!(explore("three", Setup { ballots: 3, ticks: 1, ..SHORT }, 1_000_000), seen(&[]));
    assert_eq!(explore("longer loss", Setup { losses: 1, ..LONG }, 500_000), seen(&[QUARANTINE]));
    assert_eq!(explore("renewal, loss", Setup { renewals: 1, losses: 1, ..LONG }, 1_000_000), seen(&[QUARANTINE, RENEWED]));
    let jump = Setup { jumps: 1, counters: TWO_FAR, ..LONG };
    assert_eq!(explore("longer jump, out of sync", jump, 1_000_000), seen(&[ONE_HOLDER]));
}

/// What no rule covers: where counters are lost, only the clocks keep tokens apart.
#[test]
fn limits() {
    let ahead = Setup { losses: 1, counters: ONE_FAR, ..SHORT };
    breaks("a token ahead of all clocks, and one of two nodes loses it", ahead, GROWTH);
    let newcomers = Setup { losses: 1, jumps: 1, newcomers: true, ..SHORT };
    breaks("a node loses its state, and says it is older by a jump of its clock", newcomers, UNIQUE);
}

#[test]
fn without_write_back() {
    let setup = Setup { mistake: Some(Mistake::NoWriteBack), counters: ONE_FAR, ..SHORT };
    breaks("no write-back", setup, GROWTH);
    breaks("no write-back", setup, ORDER);
}

#[test]
fn with_plain_counters() {
    let setup = Setup { mistake: Some(Mistake::PlainCounter), losses: 1, ..SHORT };
    breaks("plain counters", setup, GROWTH);
    breaks("plain counters", setup, UNIQUE);
}

#[test]
fn without_quarantine() {
    breaks("no quarantine", Setup { mistake: Some(Mistake::NoQuarantine), losses: 1, ..SHORT }, ONE_HOLDER);
}

#[test]
fn with_the_deadline_from_the_reply() {
    breaks("deadline from the reply", Setup { mistake: Some(Mistake::DeadlineFromReply), ..SHORT }, ONE_HOLDER);
}

/// Found by this model: the first node's clock jumps, another ballot gets the token there and gives it back.
#[test]
fn with_a_larger_token_that_stands_for_the_raised_one() {
    let setup = Setup { mistake: Some(Mistake::LargerStands), jumps: 1, counters: TWO_FAR, ..SHORT };
    breaks("a larger token stands", setup, UNIQUE);
}
