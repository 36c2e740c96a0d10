//! [`Losses`]: how a store tells that a hold may be gone, before the next renewal would.

use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::name::OwnerId;

/// What may be gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Suspect {
    One(OwnerId),
    All,
}

type Listener = dyn Fn(Suspect) + Send + Sync;

/// Where a store says that a hold of its client may be gone: deleted by an operator, broken by force, lost with the server.
///
/// The engine renews the hold at once, and the answer decides. So it may be said needlessly, and a word that gets lost costs
/// what it costs without one: the loss is noticed by the next renewal. A store hands its `Losses` over with
/// [`Opened::with_losses`](super::Opened::with_losses) and says in [`Capabilities::pushes_losses`](super::Capabilities) when
/// it will use them. Clones are the same.
#[derive(Clone, Default)]
pub struct Losses(Arc<OnceLock<Box<Listener>>>);

impl Losses {
    /// The hold of this owner may be gone. Of an owner of somebody else, or one that holds nothing, this says nothing.
    pub fn suspect(&self, owner: OwnerId) {
        self.tell(Suspect::One(owner));
    }

    /// Every hold may be gone: the store was emptied, or nobody knows what was missed while there was no connection.
    pub fn suspect_all(&self) {
        self.tell(Suspect::All);
    }

    fn tell(&self, suspect: Suspect) {
        if let Some(listener) = self.0.get() {
            listener(suspect);
        }
    }

    /// Who hears it. The first one stays.
    pub(crate) fn listen(&self, listener: impl Fn(Suspect) + Send + Sync + 'static) {
        let _first = self.0.set(Box::new(listener));
    }
}

impl fmt::Debug for Losses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Losses").field("heard", &self.0.get().is_some()).finish()
    }
}
