//! Which rows are of this run of the machine. The lease clock starts anew with the next one, so the others are void.
//!
//! A container may have a boot id of its own and share a file with its host (`systemd-nspawn` does that), though both have one
//! kernel and one clock. A client whose pipe has a writer lives, and none outlives a restart: so its boot is this one, whatever its id.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rusqlite::Connection;
use rusqlite::functions::{Context, FunctionFlags};

use super::peers::{Life, Peers};
use crate::name::{ClientId, OwnerId};

/// The boot ids that are known to be those of this run.
#[derive(Debug, Clone)]
pub(super) struct Boots(Arc<Mutex<KnownBoots>>);

#[derive(Debug)]
struct KnownBoots {
    mine: String,
    /// Proven once, true for as long as this process lives.
    others: HashSet<String>,
    /// Clients of other boots that do not live, as far as this transaction has seen: they may have very many rows.
    void: HashSet<String>,
    peers: Option<Arc<Peers>>,
}

impl Boots {
    pub(super) fn new(mine: String) -> Self {
        Self(Arc::new(Mutex::new(KnownBoots { mine, others: HashSet::new(), void: HashSet::new(), peers: None })))
    }

    /// From now on these peers are asked whether a client lives.
    pub(super) fn ask(&self, peers: &Arc<Peers>) {
        self.lock().peers = Some(Arc::clone(peers));
    }

    /// A transaction begins: a client may have made its pipe since.
    pub(super) fn look_again(&self) {
        self.lock().void.clear();
    }

    /// Gives SQL the function `of_this_boot(boot, client)`, which also takes an owner. One of SQL, so that it is asked of the
    /// rows that a statement comes by, and of no others.
    pub(super) fn define(&self, conn: &Connection) -> rusqlite::Result<()> {
        let boots = self.clone();
        // Nothing in the file may call it.
        let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DIRECTONLY;
        conn.create_scalar_function("of_this_boot", 2, flags, move |row: &Context<'_>| {
            let (boot, client) = (row.get_raw(0).as_str(), row.get_raw(1).as_str());
            Ok(boot.is_ok_and(|boot| boots.lock().has(boot, client.unwrap_or_default())))
        })
    }

    fn lock(&self) -> MutexGuard<'_, KnownBoots> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KnownBoots {
    fn has(&mut self, boot: &str, client: &str) -> bool {
        if boot == self.mine || self.others.contains(boot) {
            return true;
        }
        if self.void.contains(client) {
            return false;
        }
        let id: Option<ClientId> = client.parse().ok().or_else(|| client.parse().ok().map(|owner: OwnerId| owner.client));
        let life = self.peers.as_ref().zip(id).map(|(peers, id)| (peers.look(id), peers, id));
        match life {
            Some((Life::Alive(_), ..)) => self.others.insert(boot.to_owned()),
            // A client that cannot look must not take the lock.
            Some((Life::Unknown, peers, id)) if peers.is_blinded(id) => true,
            _ => !self.void.insert(client.to_owned()),
        }
    }
}
