//! What [`inspect`](super::Backend::inspect) shows.

use std::time::{Duration, SystemTime};

use super::Mode;
use crate::error::NodeTrouble;
use crate::name::{Resource, Token};

/// What a store knows of one resource.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct State {
    /// The resource.
    pub resource: Resource,
    /// The holders; empty if it is free.
    pub holders: Vec<Holder>,
    /// How many wait, as far as the store sees: owners or client processes. `None` if it does not.
    pub waiting: Option<u32>,
    /// The queue of a fair lock, as the store writes its owners, the next one first.
    pub queue: Vec<String>,
    /// The permits, if there is a number of them.
    pub permits: Option<Permits>,
    /// The count of a latch, if there is one.
    pub count: Option<u64>,
    /// At least the last token of the name, also of earlier holders: the next one will be larger.
    pub fence: Option<Token>,
    /// What each node says, where a store is made of several.
    pub nodes: Vec<NodeReport>,
}

impl State {
    /// A resource of which nothing is known.
    #[must_use]
    pub fn free(resource: Resource) -> Self {
        Self {
            resource,
            holders: Vec::new(),
            waiting: None,
            queue: Vec::new(),
            permits: None,
            count: None,
            fence: None,
            nodes: Vec::new(),
        }
    }
}

/// What one of several stores says of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeReport {
    /// The store.
    pub node: NodeState,
    /// The holders there, or why they are not known.
    pub holders: Result<Vec<Holder>, NodeTrouble>,
}

/// One of the stores that make one lock.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeState {
    /// Its address, without credentials.
    pub name: String,
    /// Whether its vote counts.
    pub standing: Standing,
    /// How far its clock is ahead of the others' in milliseconds, or behind them if negative; `None` while unknown.
    pub clock_ahead_ms: Option<i64>,
}

/// Whether the vote of a store counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It does.
    Counts,
    /// Not yet: it has restarted, and a lock that it may have forgotten may still be held.
    Quarantined {
        /// For how long.
        left: Duration,
    },
    /// Not now.
    Away {
        /// What was wrong when it was last asked.
        why: String,
    },
    /// It should not be in the list.
    Refused {
        /// Why.
        why: String,
    },
}

/// How many permits a name has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permits {
    /// In all.
    pub of: i64,
    /// How many are free; negative when the number was lowered under the holders.
    pub free: i64,
}

/// One holder of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The owner as the store writes it; other libraries on the same store have forms of their own.
    pub owner: String,
    /// How it holds.
    pub mode: Mode,
    /// The token; the largest one reserved, if several were. `None` for holders that have none.
    pub token: Option<Token>,
    /// Since when, where the store keeps that.
    pub since: Option<SystemTime>,
    /// How long it will hold if it is not renewed.
    pub expires_in: Option<Duration>,
    /// The holder's note, or else what its client said of itself.
    pub note: Option<String>,
}

impl Holder {
    /// A holder of which nothing else is known.
    #[must_use]
    pub fn new(owner: impl Into<String>, mode: Mode) -> Self {
        Self { owner: owner.into(), mode, token: None, since: None, expires_in: None, note: None }
    }
}

impl NodeReport {
    /// What a node says.
    #[must_use]
    pub fn new(node: NodeState, holders: Result<Vec<Holder>, NodeTrouble>) -> Self {
        Self { node, holders }
    }
}

impl NodeState {
    /// A node whose clock is not known.
    #[must_use]
    pub fn new(name: impl Into<String>, standing: Standing) -> Self {
        Self { name: name.into(), standing, clock_ahead_ms: None }
    }
}
