//! Why a story could not be played to its end.

use std::fmt;

use serde::{Deserialize, Serialize};
use tenure::{Error, Fault};

pub(crate) type Played<T> = Result<T, Upset>;

/// What was tried, and what came instead.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Upset {
    what: String,
    pub(crate) trouble: Trouble,
}

/// What stories tell apart of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Trouble {
    /// Fewer replicas have confirmed than were asked for.
    TooFewReplicas,
    /// A node of a quorum may have forgotten locks.
    Forgetful,
    Other,
}

impl Upset {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), trouble: Trouble::Other }
    }

    /// For `map_err`: what was being done when the error came.
    pub(crate) fn while_doing<E: fmt::Display>(what: &str) -> impl FnOnce(E) -> Self {
        move |error| Self::new(format!("{what}: {error}"))
    }
}

impl fmt::Display for Upset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl From<redis::RedisError> for Upset {
    fn from(error: redis::RedisError) -> Self {
        Self::new(format!("Redis: {error}"))
    }
}

impl From<rusqlite::Error> for Upset {
    fn from(error: rusqlite::Error) -> Self {
        Self::new(format!("the shop: {error}"))
    }
}

impl From<std::io::Error> for Upset {
    fn from(error: std::io::Error) -> Self {
        Self::new(error.to_string())
    }
}

impl From<Error> for Upset {
    fn from(error: Error) -> Self {
        let trouble = match &error {
            Error::TooFewNodes(few) if few.nodes.iter().any(|node| node.fault == Some(Fault::Quarantine)) => Trouble::Forgetful,
            error if error.fault() == Some(Fault::Replicas) => Trouble::TooFewReplicas,
            _ => Trouble::Other,
        };
        Self { what: error.to_string(), trouble }
    }
}
