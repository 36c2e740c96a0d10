//! What may happen next. The decisions are those of `rules`; what is written here is who asks, and that answers take their time.

use std::time::Duration;

use stateright::{Model, Property};

use super::promises;
use super::setup::{Jump, Mistake, Setup};
use super::world::{Attempt, Call, Heard, Line, MOST, NODES, Node, Phase, World, Write, instant};
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
        attempt: usize,
    },
    ReachesNode {
        attempt: usize,
        node: usize,
    },
    /// Some nodes' answers are heard, a bit each.
    Hears {
        attempt: usize,
        nodes: u8,
    },
    /// An attempt is given up, or a hold given back.
    Ends {
        attempt: usize,
    },
    /// A release reaches a node.
    IsReleased {
        node: usize,
    },
    Renews {
        attempt: usize,
    },
    ReachesStore {
        attempt: usize,
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

fn vote(line: &Line, lease: Duration) -> Vote {
    match line.heard {
        Heard::Granted(token) => Vote::Yes { token, valid_for: lease },
        Heard::Uncounted => Vote::Uncounted,
        Heard::Busy => Vote::No { poll_within: lease, holder: None },
        Heard::Nothing | Heard::Extended | Heard::Gone => Vote::Pending,
    }
}

fn renewal(line: &Line, lease: Duration) -> Option<Renewal> {
    match line.heard {
        Heard::Extended => Some(Renewal::Extended { valid_for: lease }),
        Heard::Gone => Some(Renewal::Gone),
        Heard::Uncounted => Some(Renewal::Unknown(Fault::Quarantine)),
        Heard::Nothing | Heard::Granted(_) | Heard::Busy => None,
    }
}

impl Setup {
    fn begin(&self, world: &mut World, attempt: usize) {
        let mut clocks = world.nodes.map(|node| node.clock_micros(world.now));
        let at_least = rules::proposal(&mut clocks).filter(|_| !self.mistaken(Mistake::PlainCounter));
        let after = world.granted();
        let one = &mut world.attempts[attempt];
        (one.after, one.phase) = (after, Phase::Asking { sent: world.now, target: None });
        world.nodes.iter_mut().for_each(|node| node.lines[attempt].call = Call::Claims { at_least });
    }

    fn reach_node(&self, world: &mut World, attempt: usize, place: usize) {
        let node = &mut world.nodes[place];
        let ends = node.clock(world.now) + i16::from(self.lease);
        let next = if self.mistaken(Mistake::PlainCounter) { plain_counter } else { by_the_clock };
        let (answer, listens) = match (node.lines[attempt].call, world.attempts[attempt].phase) {
            (Call::Claims { at_least }, phase) => {
                (node.claim(attempt, at_least, ends, next), matches!(phase, Phase::Asking { .. }))
            }
            (Call::Renews, phase) => (node.renew(attempt, ends), matches!(phase, Phase::Holding { renewing: Some(_), .. })),
            (Call::None | Call::Says { .. }, _) => return,
        };
        let restarted = node.restarted;
        node.lines[attempt].call = if listens { Call::Says { answer, restarted } } else { Call::None };
        if answer == Heard::Busy {
            // It can only end the attempt, which may end at any time anyway.
            self.hear(world, attempt, 1 << place);
        }
    }

    /// Whether an answer is of a node that may have forgotten somebody.
    pub(super) fn is_doubtful(&self, answer: Heard, restarted: Option<i16>, now: u8) -> bool {
        let Some(restarted) = restarted.filter(|_| !self.mistaken(Mistake::NoQuarantine)) else { return false };
        let up = u64::try_from(i16::from(now) - restarted).expect("it is not from the future");
        let quarantined = rules::quarantine_left(Duration::from_secs(up), self.lease()).is_some();
        quarantined && matches!(answer, Heard::Granted(_) | Heard::Extended)
    }

    /// Takes in what some nodes have said.
    fn hear(&self, world: &mut World, attempt: usize, nodes: u8) {
        for node in (0..NODES).filter(|node| nodes & (1 << node) != 0) {
            let line = &mut world.nodes[node].lines[attempt];
            if let Call::Says { answer, restarted } = line.call {
                let counts = !self.is_doubtful(answer, restarted, world.now);
                *line = Line { call: Call::None, heard: if counts { answer } else { Heard::Uncounted } };
            }
        }
        match world.attempts[attempt].phase {
            Phase::Asking { sent, target } => self.count(world, attempt, sent, target),
            Phase::Holding { renewing: Some(sent), .. } => self.count_renewals(world, attempt, sent),
            Phase::NotYet | Phase::Holding { .. } | Phase::Over => {}
        }
    }

    /// What the loop of an attempt (`round`) does with its votes.
    fn count(&self, world: &mut World, attempt: usize, sent: u8, target: Option<Token>) {
        let mut votes = world.nodes.map(|node| vote(&node.lines[attempt], self.lease()));
        if let Some(target) = target.filter(|_| self.mistaken(Mistake::LargerStands)) {
            for vote in &mut votes {
                if let Vote::Yes { token, .. } = vote {
                    *token = target.min(*token);
                }
            }
        }
        match rules::tally(&votes, target) {
            Tally::Wait => {}
            Tally::Raise(token) if self.mistaken(Mistake::NoWriteBack) => {
                self.conclude(world, attempt, sent, token, self.lease())
            }
            Tally::Raise(to) if target.is_none() => {
                world.attempts[attempt].phase = Phase::Asking { sent, target: Some(to) };
                for line in world.nodes.iter_mut().map(|node| &mut node.lines[attempt]) {
                    if matches!(line.heard, Heard::Granted(token) if token < to) {
                        *line = Line { call: Call::Claims { at_least: Some(to) }, heard: Heard::Nothing };
                    }
                }
            }
            Tally::Raise(_) if votes.contains(&Vote::Pending) => {}
            Tally::Granted { token, valid_for } => self.conclude(world, attempt, sent, token, valid_for),
            Tally::Raise(_) | Tally::Busy { .. } | Tally::Collided | Tally::Failed => world.end(attempt),
        }
    }

    fn counted_from(&self, sent: u8, now: u8) -> Instant {
        instant(if self.mistaken(Mistake::DeadlineFromReply) { now } else { sent })
    }

    fn conclude(&self, world: &mut World, attempt: usize, sent: u8, token: Token, valid_for: Duration) {
        let from = self.counted_from(sent, world.now);
        if !rules::in_time(from, valid_for, NO_DRIFT, instant(world.now)) {
            return world.end(attempt);
        }
        let one = &mut world.attempts[attempt];
        (one.token, one.write) = (Some(token), Write::UnderWay);
        one.phase = Phase::Holding { until: deadline(from, valid_for, NO_DRIFT), renewing: None };
        world.stop_listening(attempt);
    }

    fn renew(&self, world: &mut World, attempt: usize) {
        let one = &mut world.attempts[attempt];
        let Phase::Holding { renewing, .. } = &mut one.phase else { return };
        *renewing = Some(world.now);
        one.renewals_left -= 1;
        // One whose first answer is still awaited is as good as one that does not answer.
        let lines = world.nodes.iter_mut().map(|node| &mut node.lines[attempt]);
        lines.filter(|line| line.call == Call::None).for_each(|line| line.call = Call::Renews);
    }

    fn count_renewals(&self, world: &mut World, attempt: usize, sent: u8) {
        let one = &mut world.attempts[attempt];
        let Phase::Holding { until, renewing } = &mut one.phase else { return };
        match rules::renewed(&world.nodes.map(|node| renewal(&node.lines[attempt], self.lease()))) {
            None => return,
            Some(Renewal::Extended { valid_for }) => {
                *until = deadline(self.counted_from(sent, world.now), valid_for, NO_DRIFT).max(*until);
                one.renewed = true;
            }
            Some(Renewal::Gone) => return world.end(attempt),
            Some(Renewal::Unknown(_)) => {}
        }
        *renewing = None;
        world.stop_listening(attempt);
    }
}

fn tick(world: &mut World) {
    world.now += 1;
    let now = world.now;
    world.nodes.iter_mut().for_each(|node| node.expire(now));
    for attempt in 0..MOST {
        if matches!(world.attempts[attempt].phase, Phase::Holding { .. }) && !world.believes(attempt) {
            world.end(attempt);
        }
    }
}

fn reach_store(world: &mut World, attempt: usize) {
    let token = world.attempts[attempt].token;
    let taken = token >= world.store;
    if taken {
        let newer = |other: &Attempt| other.write == Write::Taken && other.after & (1 << attempt) != 0;
        world.older_after_newer |= world.attempts.iter().any(newer);
        world.store = token;
    }
    world.attempts[attempt].write = if taken { Write::Taken } else { Write::Refused };
}

impl Model for Setup {
    type State = World;
    type Action = Move;

    fn init_states(&self) -> Vec<World> {
        let mut nodes = self.counters.map(|counter| Node::new(counter.map(Token::new)));
        nodes.sort_unstable();
        let attempts = std::array::from_fn(|attempt| Attempt::new(if attempt == 0 { self.renewals } else { 0 }));
        let (losses_left, jumps_left) = (self.losses, self.jumps);
        vec![World { now: 0, nodes, attempts, store: None, older_after_newer: false, losses_left, jumps_left }]
    }

    fn actions(&self, world: &World, moves: &mut Vec<Move>) {
        // Before the first has begun, one time is like another.
        if world.now < self.ticks && world.attempts[0].phase != Phase::NotYet {
            moves.push(Move::Tick);
        }
        // They are all alike: the first to begin is the first.
        moves.extend(
            (0..self.attempts).find(|one| world.attempts[*one].phase == Phase::NotYet).map(|attempt| Move::Begins { attempt }),
        );
        for (attempt, one) in world.attempts.iter().enumerate() {
            match one.phase {
                Phase::Asking { .. } => moves.push(Move::Ends { attempt }),
                Phase::Holding { renewing, .. } => {
                    moves.push(Move::Ends { attempt });
                    if one.renewals_left > 0 && renewing.is_none() {
                        moves.push(Move::Renews { attempt });
                    }
                }
                Phase::NotYet | Phase::Over => {}
            }
            let says = |node: &usize| matches!(world.nodes[*node].lines[attempt].call, Call::Says { .. });
            for node in (0..NODES).filter(says) {
                moves.push(Move::Hears { attempt, nodes: 1 << node });
                moves.extend((0..node).filter(says).map(|other| Move::Hears { attempt, nodes: 1 << node | 1 << other }));
            }
            if one.write == Write::UnderWay {
                moves.push(Move::ReachesStore { attempt });
            }
        }
        for (node, one) in world.nodes.iter().enumerate() {
            for (attempt, line) in one.lines.iter().enumerate() {
                match line.call {
                    Call::None | Call::Says { .. } => {}
                    Call::Claims { .. } | Call::Renews => moves.push(Move::ReachesNode { attempt, node }),
                }
            }
            if one.hold.is_some_and(|hold| world.attempts[hold.attempt].phase == Phase::Over) {
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
            Move::Begins { attempt } => self.begin(&mut world, attempt),
            Move::ReachesNode { attempt, node } => self.reach_node(&mut world, attempt, node),
            Move::Hears { attempt, nodes } => {
                let one = world.attempts[attempt];
                self.hear(&mut world, attempt, nodes);
                // An answer that changes nothing is heard with the one that does.
                if world.attempts[attempt] == one {
                    return None;
                }
            }
            Move::Ends { attempt } => world.end(attempt),
            Move::IsReleased { node } => world.nodes[node].hold = None,
            Move::Renews { attempt } => self.renew(&mut world, attempt),
            Move::ReachesStore { attempt } => reach_store(&mut world, attempt),
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
