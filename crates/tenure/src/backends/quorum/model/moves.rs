//! What may happen next. `rules` makes the decisions; here are the questions, and the time that answers take.

use std::time::Duration;

use stateright::{Model, Property};

use super::promises;
use super::setup::{Jump, Mistake, Setup};
use super::world::{Ballot, Heard, InFlight, MOST, NODES, Node, Phase, Wire, World, Write, instant};
use crate::backend::Renewal;
use crate::backends::quorum::rules::{self, Tally, Vote};
use crate::clock::{Drift, Instant, deadline};
use crate::error::Fault;
use crate::name::Token;

/// The clocks of the model run at one rate.
const NO_DRIFT: Drift = Drift { per_mille: 0, fixed: Duration::ZERO };

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Move {
    Tick,
    Begins {
        ballot: usize,
    },
    ReachesNode {
        ballot: usize,
        node: usize,
    },
    /// Some nodes' answers are heard, a bit each.
    Hears {
        ballot: usize,
        nodes: u8,
    },
    /// A ballot is given up, or a hold given back.
    Ends {
        ballot: usize,
    },
    /// A release reaches a node.
    IsReleased {
        node: usize,
    },
    Renews {
        ballot: usize,
    },
    ReachesStore {
        ballot: usize,
    },
    LosesState {
        node: usize,
    },
    ClockJumps {
        node: usize,
    },
}

fn by_the_clock(last: Option<Token>, at_least: Option<Token>) -> Token {
    assert!(at_least.is_some(), "there is always a proposal");
    Token::next(last, at_least).expect("tokens are small")
}

fn plain_counter(last: Option<Token>, at_least: Option<Token>) -> Token {
    last.unwrap_or(Token::new(0)).plus(1).expect("tokens are small").raised(at_least)
}

fn vote(wire: &Wire, lease: Duration) -> Vote {
    match wire.heard {
        Heard::Granted(token) => Vote::Yes { token, valid_for: lease },
        Heard::Uncounted => Vote::Uncounted,
        Heard::Busy => Vote::No { poll_within: lease, holder: None },
        Heard::Nothing | Heard::Extended | Heard::Gone => Vote::Pending,
    }
}

fn renewal(wire: &Wire, lease: Duration) -> Option<Renewal> {
    match wire.heard {
        Heard::Extended => Some(Renewal::Extended { valid_for: lease }),
        Heard::Gone => Some(Renewal::Gone),
        Heard::Uncounted => Some(Renewal::Unknown(Fault::Quarantine)),
        Heard::Nothing | Heard::Granted(_) | Heard::Busy => None,
    }
}

impl Setup {
    fn begin(&self, world: &mut World, ballot: usize) {
        let mut clocks = world.nodes.map(|node| node.clock_micros(world.now));
        let at_least = rules::proposal(&mut clocks).filter(|_| !self.mistaken(Mistake::PlainCounter));
        let after = world.granted();
        let one = &mut world.ballots[ballot];
        (one.after, one.phase) = (after, Phase::Asking { sent: world.now, target: None });
        world.nodes.iter_mut().for_each(|node| node.wires[ballot].call = InFlight::Claims { at_least });
    }

    fn reach_node(&self, world: &mut World, ballot: usize, place: usize) {
        let node = &mut world.nodes[place];
        let ends = node.clock(world.now) + i16::from(self.lease);
        let next = if self.mistaken(Mistake::PlainCounter) { plain_counter } else { by_the_clock };
        let (answer, listens) = match (node.wires[ballot].call, world.ballots[ballot].phase) {
            (InFlight::Claims { at_least }, phase) => {
                (node.claim(ballot, at_least, ends, next), matches!(phase, Phase::Asking { .. }))
            }
            (InFlight::Renews, phase) => (node.renew(ballot, ends), matches!(phase, Phase::Holding { renewing: Some(_), .. })),
            (InFlight::None | InFlight::Says { .. }, _) => return,
        };
        let restarted = node.restarted;
        node.wires[ballot].call = if listens { InFlight::Says { answer, restarted } } else { InFlight::None };
        if answer == Heard::Busy {
            // It can only end the ballot, which may end at any time anyway.
            self.hear(world, ballot, 1 << place);
        }
    }

    /// Whether an answer is of a node that may have forgotten a hold.
    pub(super) fn is_doubtful(&self, answer: Heard, restarted: Option<i16>, now: u8) -> bool {
        let Some(restarted) = restarted.filter(|_| !self.mistaken(Mistake::NoQuarantine)) else { return false };
        let up = u64::try_from(i16::from(now) - restarted).expect("it is not from the future");
        let quarantined = rules::quarantine_left(Duration::from_secs(up), self.lease()).is_some();
        quarantined && matches!(answer, Heard::Granted(_) | Heard::Extended)
    }

    /// Takes in what some nodes have said.
    fn hear(&self, world: &mut World, ballot: usize, nodes: u8) {
        for node in (0..NODES).filter(|node| nodes & (1 << node) != 0) {
            let wire = &mut world.nodes[node].wires[ballot];
            if let InFlight::Says { answer, restarted } = wire.call {
                let counts = !self.is_doubtful(answer, restarted, world.now);
                *wire = Wire { call: InFlight::None, heard: if counts { answer } else { Heard::Uncounted } };
            }
        }
        match world.ballots[ballot].phase {
            Phase::Asking { sent, target } => self.count(world, ballot, sent, target),
            Phase::Holding { renewing: Some(sent), .. } => self.count_renewals(world, ballot, sent),
            Phase::NotYet | Phase::Holding { .. } | Phase::Over => {}
        }
    }

    /// What the loop of a ballot (`round`) does with its votes.
    fn count(&self, world: &mut World, ballot: usize, sent: u8, target: Option<Token>) {
        let mut votes = world.nodes.map(|node| vote(&node.wires[ballot], self.lease()));
        if let Some(target) = target.filter(|_| self.mistaken(Mistake::LargerStands)) {
            for vote in &mut votes {
                if let Vote::Yes { token, .. } = vote {
                    *token = target.min(*token);
                }
            }
        }
        match rules::tally(&votes, target) {
            Tally::Wait => {}
            Tally::Raise(token) if self.mistaken(Mistake::NoWriteBack) => self.conclude(world, ballot, sent, token, self.lease()),
            Tally::Raise(to) if target.is_none() => {
                world.ballots[ballot].phase = Phase::Asking { sent, target: Some(to) };
                for wire in world.nodes.iter_mut().map(|node| &mut node.wires[ballot]) {
                    if matches!(wire.heard, Heard::Granted(token) if token < to) {
                        *wire = Wire { call: InFlight::Claims { at_least: Some(to) }, heard: Heard::Nothing };
                    }
                }
            }
            Tally::Raise(_) if votes.contains(&Vote::Pending) => {}
            Tally::Granted { token, valid_for } => self.conclude(world, ballot, sent, token, valid_for),
            Tally::Raise(_) | Tally::Busy { .. } | Tally::Collided | Tally::Failed => world.end(ballot),
        }
    }

    fn counted_from(&self, sent: u8, now: u8) -> Instant {
        instant(if self.mistaken(Mistake::DeadlineFromReply) { now } else { sent })
    }

    fn conclude(&self, world: &mut World, ballot: usize, sent: u8, token: Token, valid_for: Duration) {
        let from = self.counted_from(sent, world.now);
        if !rules::in_time(from, valid_for, NO_DRIFT, instant(world.now)) {
            return world.end(ballot);
        }
        let one = &mut world.ballots[ballot];
        (one.token, one.write) = (Some(token), Write::UnderWay);
        one.phase = Phase::Holding { until: deadline(from, valid_for, NO_DRIFT), renewing: None };
        world.stop_listening(ballot);
    }

    fn renew(&self, world: &mut World, ballot: usize) {
        let one = &mut world.ballots[ballot];
        let Phase::Holding { renewing, .. } = &mut one.phase else { return };
        *renewing = Some(world.now);
        one.renewals_left -= 1;
        // One whose first answer is still awaited is as good as one that does not answer.
        let wires = world.nodes.iter_mut().map(|node| &mut node.wires[ballot]);
        wires.filter(|wire| wire.call == InFlight::None).for_each(|wire| wire.call = InFlight::Renews);
    }

    fn count_renewals(&self, world: &mut World, ballot: usize, sent: u8) {
        let one = &mut world.ballots[ballot];
        let Phase::Holding { until, renewing } = &mut one.phase else { return };
        match rules::renewed(&world.nodes.map(|node| renewal(&node.wires[ballot], self.lease()))) {
            None => return,
            Some(Renewal::Extended { valid_for }) => {
                *until = deadline(self.counted_from(sent, world.now), valid_for, NO_DRIFT).max(*until);
                one.renewed = true;
            }
            Some(Renewal::Gone) => return world.end(ballot),
            Some(Renewal::Unknown(_)) => {}
        }
        *renewing = None;
        world.stop_listening(ballot);
    }
}

fn tick(world: &mut World) {
    world.now += 1;
    let now = world.now;
    world.nodes.iter_mut().for_each(|node| node.expire(now));
    for ballot in 0..MOST {
        if matches!(world.ballots[ballot].phase, Phase::Holding { .. }) && !world.believes(ballot) {
            world.end(ballot);
        }
    }
}

fn reach_store(world: &mut World, ballot: usize) {
    let token = world.ballots[ballot].token;
    let taken = token >= world.store;
    if taken {
        let newer = |other: &Ballot| other.write == Write::Taken && other.after & (1 << ballot) != 0;
        world.older_after_newer |= world.ballots.iter().any(newer);
        world.store = token;
    }
    world.ballots[ballot].write = if taken { Write::Taken } else { Write::Refused };
}

impl Model for Setup {
    type State = World;
    type Action = Move;

    fn init_states(&self) -> Vec<World> {
        let mut nodes = self.counters.map(|counter| Node::new(counter.map(Token::new)));
        nodes.sort_unstable();
        let ballots = std::array::from_fn(|ballot| Ballot::new(if ballot == 0 { self.renewals } else { 0 }));
        let (losses_left, jumps_left) = (self.losses, self.jumps);
        vec![World { now: 0, nodes, ballots, store: None, older_after_newer: false, losses_left, jumps_left }]
    }

    fn actions(&self, world: &World, moves: &mut Vec<Move>) {
        // Before the first has begun, one time is like another.
        if world.now < self.ticks && world.ballots[0].phase != Phase::NotYet {
            moves.push(Move::Tick);
        }
        // They are all alike: the first to begin is the first.
        moves.extend(
            (0..self.ballots).find(|one| world.ballots[*one].phase == Phase::NotYet).map(|ballot| Move::Begins { ballot }),
        );
        for (ballot, one) in world.ballots.iter().enumerate() {
            match one.phase {
                Phase::Asking { .. } => moves.push(Move::Ends { ballot }),
                Phase::Holding { renewing, .. } => {
                    moves.push(Move::Ends { ballot });
                    if one.renewals_left > 0 && renewing.is_none() {
                        moves.push(Move::Renews { ballot });
                    }
                }
                Phase::NotYet | Phase::Over => {}
            }
            let says = |node: &usize| matches!(world.nodes[*node].wires[ballot].call, InFlight::Says { .. });
            for node in (0..NODES).filter(says) {
                moves.push(Move::Hears { ballot, nodes: 1 << node });
                moves.extend((0..node).filter(says).map(|other| Move::Hears { ballot, nodes: 1 << node | 1 << other }));
            }
            if one.write == Write::UnderWay {
                moves.push(Move::ReachesStore { ballot });
            }
        }
        for (node, one) in world.nodes.iter().enumerate() {
            for (ballot, wire) in one.wires.iter().enumerate() {
                match wire.call {
                    InFlight::None | InFlight::Says { .. } => {}
                    InFlight::Claims { .. } | InFlight::Renews => moves.push(Move::ReachesNode { ballot, node }),
                }
            }
            if one.hold.is_some_and(|hold| world.ballots[hold.ballot].phase == Phase::Over) {
                moves.push(Move::IsReleased { node });
            }
            if world.losses_left > 0 && one.counter.is_some() {
                moves.push(Move::LosesState { node });
            }
            // All that hangs on one clock is when a hold ends there, and what newcomers think of the node's age.
            if world.jumps_left > 0 && (one.hold.is_some() || self.newcomers) {
                moves.push(Move::ClockJumps { node });
            }
        }
    }

    fn next_state(&self, before: &World, chosen: Move) -> Option<World> {
        let mut world = *before;
        match chosen {
            Move::Tick => tick(&mut world),
            Move::Begins { ballot } => self.begin(&mut world, ballot),
            Move::ReachesNode { ballot, node } => self.reach_node(&mut world, ballot, node),
            Move::Hears { ballot, nodes } => {
                let one = world.ballots[ballot];
                self.hear(&mut world, ballot, nodes);
                // An answer that changes nothing is heard with the one that does.
                if world.ballots[ballot] == one {
                    return None;
                }
            }
            Move::Ends { ballot } => world.end(ballot),
            Move::IsReleased { node } => world.nodes[node].hold = None,
            Move::Renews { ballot } => self.renew(&mut world, ballot),
            Move::ReachesStore { ballot } => reach_store(&mut world, ballot),
            Move::LosesState { node } => {
                world.losses_left -= 1;
                world.nodes[node].forget(world.now);
            }
            Move::ClockJumps { node } => {
                world.jumps_left -= 1;
                let by = (i16::from(self.lease) + 1) * if self.jump == Jump::Ahead { 1 } else { -1 };
                let node = &mut world.nodes[node];
                node.ahead += by;
                node.expire(world.now);
                if self.newcomers {
                    // What a node says of its age follows its clock.
                    node.restarted = node.restarted.map(|restarted| restarted - by);
                }
            }
        }
        world.nodes.sort_unstable();
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        promises::all().into_iter().filter(|one| self.only.is_none_or(|only| one.name == only)).collect()
    }
}
