//! Texts about nodes, and about what a quorum cannot do.

use super::NAME;
use crate::error::Error;
use crate::mode::{Modes, Support};

/// What was wrong with one node, short enough to stand beside its name.
pub(super) fn message(error: &Error) -> String {
    match error {
        Error::Unavailable { backend: NAME, detail, .. } | Error::Backend { backend: NAME, detail, .. } => detail.clone(),
        error => error.to_string(),
    }
}

/// The modes that a majority can decide on, and why not the others.
pub(super) const fn modes(shared: bool) -> Modes {
    Modes {
        fair: Support::No("each node has a queue of its own, and the order may differ; one store alone keeps one queue"),
        shared: if shared { Support::Yes } else { Support::No("not all of its nodes carry them") },
        // One at the nodes 1 and 2, one at 2 and 3, one at 1 and 3.
        permits: Support::No(
            "three could win two permits, each of them at another majority of the nodes; one store alone counts them right",
        ),
        latch: Support::No("a node that has missed a step counts differently from then on; one store alone has one count"),
    }
}
