//! [`Losses`]: how a store tells that a hold may be gone, before the next renewal would.

use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::name::OwnerId;

/// What may be gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Suspect {
    One(OwnerId),
    All,
    /// Not gone: another client waits for it.
    Wanted(OwnerId),
}

type Listener = dyn Fn(Suspect) + Send + Sync;

/// By this a store tells that a hold of its client may be gone: deleted by an operator, broken by force, lost with the server.
///
/// The engine renews the hold at once, and the answer decides. So a needless push does no harm, and after a lost one the next renewal
/// notices. A store hands its `Losses` over with [`Opened::with_losses`](super::Opened::with_losses), and declares
/// [`Capabilities::pushes_losses`](super::Capabilities). Clones are the same.
#[derive(Clone, Default)]
pub struct Losses(Arc<OnceLock<Box<Listener>>>);

impl Losses {
    /// The hold of this owner may be gone. Has no effect for an owner of another client, or without a hold.
    pub fn suspect(&self, owner: OwnerId) {
        self.tell(Suspect::One(owner));
    }

    /// Every hold may be gone: the store was emptied, or was not connected for a while.
    pub fn suspect_all(&self) {
        self.tell(Suspect::All);
    }

    /// Another client waits for the hold of this owner, which [may linger](OwnerId::lingers): it is given back as soon as no task has it.
    pub fn wanted(&self, owner: OwnerId) {
        self.tell(Suspect::Wanted(owner));
    }

    fn tell(&self, suspect: Suspect) {
        if let Some(listener) = self.0.get() {
            listener(suspect);
        }
    }

    /// Sets the listener. The first one stays.
    pub(crate) fn listen(&self, listener: impl Fn(Suspect) + Send + Sync + 'static) {
        let _first = self.0.set(Box::new(listener));
    }
}

impl fmt::Debug for Losses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Losses").field("heard", &self.0.get().is_some()).finish()
    }
}
