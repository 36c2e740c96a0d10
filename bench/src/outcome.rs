//! The line that a driver prints after a round.

use serde::{Deserialize, Serialize};

use crate::histogram::Histogram;

/// What one process did in one round. What a scenario or a language does not have is left out.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Outcome {
    /// Cycles that ended in time.
    pub cycles: u64,
    /// All cycles, with those that ended after the time.
    pub total: u64,
    /// By task, those that ended in time.
    pub tasks: Vec<u64>,
    /// How long each call waited for its lock.
    pub waits: Histogram,
    pub longest_wait_us: f64,
    /// From before a release to after the grant to another task of the same process.
    pub handed: Histogram,
    /// The same between processes.
    pub crossed: Histogram,
    /// Somebody was inside who must not be.
    pub intruders: u64,
    /// Tokens that were not larger than the one before; `None` if the contender has none.
    pub stale_tokens: Option<u64>,
    /// Tasks that still waited long after the end.
    pub stuck: u64,
    pub cpu_us: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocations: Option<u64>,
    /// Memory that it had more of, with all locks held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grown_kib: Option<i64>,
    /// How long the whole took, where the end is not a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub took_us: Option<f64>,
    /// On the shared clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub granted_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub round_trip_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub push_us: Option<f64>,
    /// Why there is nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What a driver says instead of `ready` if its library cannot do this.
#[derive(Debug, Serialize, Deserialize)]
pub struct Unsupported {
    pub unsupported: String,
}
