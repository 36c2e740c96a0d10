//! What opening a store gives.

use std::fmt;
use std::sync::Arc;

use super::{Backend, Layer, Layered, Losses, NodeState, Voter};
use crate::lifeline::Lifeline;

/// The nodes of a store that is made of several.
pub trait Nodes: fmt::Debug + Send + Sync {
    /// The nodes, and how they are now. Known without I/O.
    fn nodes(&self) -> Vec<NodeState>;
}

/// An open store: the backend, and what only some stores have besides.
#[derive(Debug, Clone)]
pub struct Opened {
    backend: Arc<dyn Backend>,
    voter: Option<Arc<dyn Voter>>,
    nodes: Option<Arc<dyn Nodes>>,
    losses: Option<Losses>,
    pub(crate) lifeline: Lifeline,
}

impl Opened {
    /// A store that is only a backend.
    #[must_use]
    pub fn new(backend: Arc<dyn Backend>) -> Self {
        Self { backend, voter: None, nodes: None, losses: None, lifeline: Lifeline::default() }
    }

    /// A store that can be a node of a quorum.
    #[must_use]
    pub fn of_voter(voter: Arc<dyn Voter>) -> Self {
        Self { voter: Some(Arc::clone(&voter)), ..Self::new(voter) }
    }

    /// With its nodes.
    #[must_use]
    pub fn with_nodes(self, nodes: Arc<dyn Nodes>) -> Self {
        Self { nodes: Some(nodes), ..self }
    }

    /// With the [`Losses`] by which it tells that holds may be gone.
    #[must_use]
    pub fn with_losses(self, losses: Losses) -> Self {
        Self { losses: Some(losses), ..self }
    }

    /// With what tells others that this client lives.
    #[cfg(feature = "sqlite")]
    pub(crate) fn with_lifeline(self, lifeline: Lifeline) -> Self {
        Self { lifeline, ..self }
    }

    /// Puts a layer over it.
    #[must_use]
    pub fn layered<L: Layer>(self, layer: L) -> Self {
        let Self { backend, voter, nodes, losses, lifeline } = self;
        let over = match voter {
            Some(voter) => Self::of_voter(Arc::new(Layered::new(layer, voter))),
            None => Self::new(Arc::new(Layered::new(layer, backend))),
        };
        Self { nodes, losses, lifeline, ..over }
    }

    /// The store as the engine asks it.
    #[must_use]
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    /// The store as a quorum asks it, if it can be a node of one.
    #[must_use]
    pub fn voter(&self) -> Option<&Arc<dyn Voter>> {
        self.voter.as_ref()
    }

    /// By what it tells that holds may be gone, if it does.
    #[must_use]
    pub fn losses(&self) -> Option<&Losses> {
        self.losses.as_ref()
    }

    /// Its nodes, if it is made of several.
    #[must_use]
    pub fn nodes(&self) -> Option<&Arc<dyn Nodes>> {
        self.nodes.as_ref()
    }
}

impl From<Arc<dyn Backend>> for Opened {
    fn from(backend: Arc<dyn Backend>) -> Self {
        Self::new(backend)
    }
}

impl From<Arc<dyn Voter>> for Opened {
    fn from(voter: Arc<dyn Voter>) -> Self {
        Self::of_voter(voter)
    }
}

impl<L: Layer, B: Backend + ?Sized> From<Arc<Layered<L, B>>> for Opened {
    fn from(layered: Arc<Layered<L, B>>) -> Self {
        Self::new(layered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Client, Standing};
    use crate::backends::memory::Memory;
    use crate::backends::prefixed::Prefixed;
    use crate::clock::Clock;
    use crate::name::ClientId;

    #[derive(Debug)]
    struct One;

    impl Nodes for One {
        fn nodes(&self) -> Vec<NodeState> {
            vec![NodeState { name: "one".to_owned(), standing: Standing::Counts, clock_ahead_ms: None }]
        }
    }

    #[test]
    fn a_layer_takes_nothing_from_a_store() {
        let client = Client { id: ClientId::random().expect("random bits"), about: "a test".into() };
        let memory = Arc::new(Memory::new(client, Clock::for_tests()));
        let over = |opened: Opened| opened.with_nodes(Arc::new(One)).layered(Prefixed::new("p:".to_owned()).expect("a prefix"));
        let voter = over(Arc::clone(&memory).into());
        assert!(voter.voter().is_some() && voter.nodes().is_some_and(|nodes| nodes.nodes().len() == 1));
        // Nor does it give it anything.
        let backend = over(Opened::new(memory));
        assert!(backend.voter().is_none() && backend.nodes().is_some());
        assert_eq!(backend.backend().capabilities(), voter.backend().capabilities());
    }
}
