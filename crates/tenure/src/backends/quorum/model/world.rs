//! The whole state at one moment: the nodes and the messages to them, the ballots, the store that the lock protects.

use crate::clock::Instant;
use crate::name::Token;

pub(super) const NODES: usize = 3;
/// Ballots that there is room for.
pub(super) const MOST: usize = 3;
/// What the nodes' clocks show at first, in ticks: there is room to jump back.
const CLOCKS_START: i16 = 100;

/// A tick is a second.
pub(super) fn instant(tick: u8) -> Instant {
    Instant::from_nanos((u64::from(tick) + 1) * 1_000_000_000)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct World {
    pub(super) now: u8,
    /// Sorted: nodes have no names, so that worlds that differ only by them are one.
    pub(super) nodes: [Node; NODES],
    pub(super) ballots: [Ballot; MOST],
    /// The largest token that the store has seen.
    pub(super) store: Option<Token>,
    /// Whether the store took a write of a grant after one of a ballot that began when that grant had been made.
    pub(super) older_after_newer: bool,
    pub(super) losses_left: u8,
    pub(super) jumps_left: u8,
}

/// A node, and everything between it and the ballots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Node {
    pub(super) hold: Option<NodeHold>,
    /// The largest token handed out.
    pub(super) counter: Option<Token>,
    /// When it last lost all it knew.
    pub(super) restarted: Option<i16>,
    /// Its clock, against the true time, in ticks.
    pub(super) ahead: i16,
    pub(super) wires: [Wire; MOST],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct NodeHold {
    pub(super) ballot: usize,
    pub(super) token: Token,
    /// On the node's own clock.
    pub(super) until: i16,
}

/// What is between one ballot and one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Wire {
    /// At most one call is under way. It may take forever, which is how messages are lost.
    pub(super) call: InFlight,
    pub(super) heard: Heard,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum InFlight {
    None,
    Claims { at_least: Option<Token> },
    Says { answer: Heard, restarted: Option<i16> },
    Renews,
}

/// What a ballot knows of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Heard {
    Nothing,
    Granted(Token),
    Uncounted,
    Busy,
    Extended,
    Gone,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Ballot {
    pub(super) phase: Phase,
    /// Those that had been granted when this one began, a bit each.
    pub(super) after: u8,
    /// What it was granted with.
    pub(super) token: Option<Token>,
    pub(super) write: Write,
    pub(super) renewals_left: u8,
    pub(super) renewed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    NotYet,
    Asking {
        sent: u8,
        /// The token that is being raised to.
        target: Option<Token>,
    },
    Holding {
        until: Instant,
        /// When a renewal was sent whose outcome is open.
        renewing: Option<u8>,
    },
    Over,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Write {
    None,
    /// Since the grant: one that is sent later comes no later than one that takes its time.
    UnderWay,
    Taken,
    Refused,
}

/// The rule for a new token, by the largest so far and what is asked for.
pub(super) type NextToken = fn(Option<Token>, Option<Token>) -> Token;

impl Node {
    pub(super) fn new(counter: Option<Token>) -> Self {
        let wires = [Wire { call: InFlight::None, heard: Heard::Nothing }; MOST];
        Self { hold: None, counter, restarted: None, ahead: 0, wires }
    }

    pub(super) fn clock(&self, now: u8) -> i16 {
        i16::from(now) + self.ahead
    }

    pub(super) fn clock_micros(&self, now: u8) -> u64 {
        u64::try_from(CLOCKS_START + self.clock(now)).expect("clocks start late enough") * 1_000_000
    }

    pub(super) fn expire(&mut self, now: u8) {
        let clock = self.clock(now);
        self.hold = self.hold.filter(|hold| hold.until > clock);
    }

    /// Grants, raises or refuses, as every store does. `next` is the rule for a new token.
    pub(super) fn claim(&mut self, ballot: usize, at_least: Option<Token>, ends: i16, next: NextToken) -> Heard {
        let token = match self.hold {
            Some(hold) if hold.ballot == ballot => hold.token.raised(at_least),
            Some(_) => return Heard::Busy,
            None => next(self.counter, at_least),
        };
        self.counter = self.counter.max(Some(token));
        self.hold = Some(NodeHold { ballot, token, until: ends });
        Heard::Granted(token)
    }

    pub(super) fn renew(&mut self, ballot: usize, ends: i16) -> Heard {
        match &mut self.hold {
            Some(hold) if hold.ballot == ballot => {
                hold.until = ends;
                Heard::Extended
            }
            _ => Heard::Gone,
        }
    }

    pub(super) fn forget(&mut self, now: u8) {
        (self.hold, self.counter, self.restarted) = (None, None, Some(i16::from(now)));
    }
}

impl Ballot {
    pub(super) fn new(renewals_left: u8) -> Self {
        Self { phase: Phase::NotYet, after: 0, token: None, write: Write::None, renewals_left, renewed: false }
    }
}

impl World {
    /// Who has been granted so far, a bit each.
    pub(super) fn granted(&self) -> u8 {
        (0..MOST).filter(|one| self.ballots[*one].token.is_some()).fold(0, |bits, one| bits | 1 << one)
    }

    /// Ends a ballot or a hold: answers of the nodes are ignored from then on. Earlier questions may still reach them.
    pub(super) fn end(&mut self, ballot: usize) {
        self.ballots[ballot].phase = Phase::Over;
        self.stop_listening(ballot);
    }

    pub(super) fn stop_listening(&mut self, ballot: usize) {
        for node in &mut self.nodes {
            let wire = &mut node.wires[ballot];
            wire.heard = Heard::Nothing;
            if matches!(wire.call, InFlight::Says { .. }) {
                wire.call = InFlight::None;
            }
        }
    }

    pub(super) fn believes(&self, ballot: usize) -> bool {
        matches!(self.ballots[ballot].phase, Phase::Holding { until, .. } if until > instant(self.now))
    }
}
