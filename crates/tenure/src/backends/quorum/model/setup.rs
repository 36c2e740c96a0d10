//! The set-up of a model: how much happens, what goes wrong, which rule is left out.

use std::time::Duration;

use super::world::NODES;

/// What the model is of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setup {
    /// Each of a client of its own.
    pub(super) ballots: usize,
    pub(super) ticks: u8,
    /// In ticks.
    pub(super) lease: u8,
    /// The largest token that each node has handed out before.
    pub(super) counters: [Option<u64>; NODES],
    /// How often a node loses all it knows.
    pub(super) losses: u8,
    /// How often a node's clock jumps.
    pub(super) jumps: u8,
    pub(super) jump: Jump,
    /// Whether the clients have not known the nodes before, so that they take a node's word for how long it has been up.
    pub(super) newcomers: bool,
    /// How often the first to begin may renew its hold.
    pub(super) renewals: u8,
    pub(super) mistake: Option<Mistake>,
    /// The only property that is looked at: the search ends when it is found broken.
    pub(super) only: Option<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Jump {
    Ahead,
    Back,
}

/// One rule that is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mistake {
    /// A majority is enough, whatever tokens it gave.
    NoWriteBack,
    /// Tokens count grants, and follow no clock.
    PlainCounter,
    NoQuarantine,
    /// The lease is counted from when the answer was heard.
    DeadlineFromReply,
    /// A node that gives a larger token than the one that is being raised to counts as if it gave that one.
    LargerStands,
}

impl Setup {
    pub(super) fn lease(&self) -> Duration {
        Duration::from_secs(self.lease.into())
    }

    pub(super) fn mistaken(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }
}
