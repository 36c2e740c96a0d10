//! [`Invalid`]: a request that is wrong and stays wrong, in three parts that every such error has.

/// A request that is wrong: what was asked, what is wrong with it, what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{asked} {problem}; allowed: {allowed}")]
#[non_exhaustive]
pub struct Invalid {
    /// What was asked for.
    pub asked: String,
    /// What is wrong with it.
    pub problem: String,
    /// What would be right.
    pub allowed: String,
}

impl Invalid {
    /// A wrong request.
    pub fn new(asked: impl Into<String>, problem: impl Into<String>, allowed: impl Into<String>) -> Self {
        Self { asked: asked.into(), problem: problem.into(), allowed: allowed.into() }
    }
}
