//! Why a story could not be played to its end.

use std::fmt;

pub(crate) type Played<T> = Result<T, Upset>;

/// What was tried, and what came instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Upset(String);

impl Upset {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }

    /// For `map_err`: what was being done when the error came.
    pub(crate) fn while_doing<E: fmt::Display>(what: &str) -> impl FnOnce(E) -> Self {
        move |error| Self(format!("{what}: {error}"))
    }
}

impl fmt::Display for Upset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<redis::RedisError> for Upset {
    fn from(error: redis::RedisError) -> Self {
        Self(format!("Redis: {error}"))
    }
}

impl From<rusqlite::Error> for Upset {
    fn from(error: rusqlite::Error) -> Self {
        Self(format!("the shop: {error}"))
    }
}

impl From<std::io::Error> for Upset {
    fn from(error: std::io::Error) -> Self {
        Self(error.to_string())
    }
}

impl From<tenure::Error> for Upset {
    fn from(error: tenure::Error) -> Self {
        Self(error.to_string())
    }
}
