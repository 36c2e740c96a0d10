//! [`TooFewNodes`]: what each node of a quorum said when that was not enough.

use std::error::Error as StdError;
use std::fmt;

use super::{Fault, Source};

/// Too few nodes of a quorum agree, and what each of them said.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TooFewNodes {
    /// The store that is made of them.
    pub backend: &'static str,
    /// What was being done.
    pub doing: String,
    /// How many have to agree.
    pub needed: usize,
    /// How many there are.
    pub of: usize,
    /// The kind of trouble that one of them has.
    pub fault: Fault,
    /// Whether asking again will not help: so many refuse that the others are too few.
    pub lasting: bool,
    /// All of them, in the order of the URL.
    pub nodes: Vec<NodeTrouble>,
    /// The first error of that kind.
    pub(crate) source: Option<Source>,
}

/// What one node said.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeTrouble {
    /// Its address, without credentials.
    pub node: String,
    /// What was wrong, in few words.
    pub said: String,
    /// The kind of trouble; `None` if it has answered, or is not to be asked.
    pub fault: Option<Fault>,
}

impl NodeTrouble {
    /// A node that has said this.
    #[must_use]
    pub fn new(node: impl Into<String>, said: impl Into<String>, fault: Option<Fault>) -> Self {
        Self { node: node.into(), said: said.into(), fault }
    }
}

impl TooFewNodes {
    /// The text without what each node said.
    #[must_use]
    pub fn headline(&self) -> String {
        let Self { backend, doing, needed, of, fault, lasting, .. } = self;
        let how = if *lasting { "refused" } else { "is unavailable while" };
        format!("{backend} {how} {doing}: {fault}: {needed} of {of} nodes have to agree, and too few count")
    }
}

impl fmt::Display for TooFewNodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.headline())?;
        for (i, node) in self.nodes.iter().enumerate() {
            write!(f, "{} {node}", if i == 0 { ":" } else { ";" })?;
        }
        Ok(())
    }
}

impl fmt::Display for NodeTrouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.node, self.said)
    }
}

impl StdError for TooFewNodes {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| -> &(dyn StdError + 'static) { source })
    }
}
