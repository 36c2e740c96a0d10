//! The errors of the lab: why a story could not be played to its end.

use std::fmt;

use serde::{Deserialize, Serialize};
use tenure::{Error, Fault};

/// The result of what the lab does.
pub type Result<T, E = LabError> = std::result::Result<T, E>;

/// What failed, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabError {
    what: String,
    pub(crate) cause: Cause,
}

/// The causes that stories tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Cause {
    /// Fewer replicas have confirmed than were asked for.
    TooFewReplicas,
    /// A node of a quorum may have forgotten locks.
    Forgetful,
    Other,
}

impl LabError {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), cause: Cause::Other }
    }

    /// For `map_err`: adds what was being done.
    pub(crate) fn while_doing<E: fmt::Display>(what: &str) -> impl FnOnce(E) -> Self {
        move |error| Self::new(format!("{what}: {error}"))
    }
}

impl fmt::Display for LabError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for LabError {}

impl From<redis::RedisError> for LabError {
    fn from(error: redis::RedisError) -> Self {
        Self::new(format!("Redis: {error}"))
    }
}

impl From<rusqlite::Error> for LabError {
    fn from(error: rusqlite::Error) -> Self {
        Self::new(format!("the shop: {error}"))
    }
}

impl From<std::io::Error> for LabError {
    fn from(error: std::io::Error) -> Self {
        Self::new(error.to_string())
    }
}

impl From<Error> for LabError {
    fn from(error: Error) -> Self {
        let cause = match &error {
            Error::TooFewNodes(few) if few.nodes.iter().any(|node| node.fault == Some(Fault::Quarantine)) => Cause::Forgetful,
            error if error.fault() == Some(Fault::Replicas) => Cause::TooFewReplicas,
            _ => Cause::Other,
        };
        Self { what: error.to_string(), cause }
    }
}
