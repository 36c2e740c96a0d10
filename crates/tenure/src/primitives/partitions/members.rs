//! Who takes part: the one place that knows how members are kept in the store.

use std::sync::Arc;

use crate::backend::Mode;
use crate::engine::acquire::Patience;
use crate::engine::guard::Guard;
use crate::error::{Error, Result};
use crate::name::Resource;
use crate::primitives::partitions::Partitions;
use crate::primitives::wanted::Wanted;

/// The members of a group: all who read `name/members`.
#[derive(Debug)]
pub(super) struct Members {
    wanted: Wanted,
    pub(super) name: Resource,
}

impl Members {
    pub(super) fn new(group: &Partitions) -> Result<Self> {
        let name = group.resource("members")?;
        let mut wanted = Wanted::new(Arc::clone(&group.engine), Ok(name.clone()));
        wanted.lease = group.lease;
        wanted.note.clone_from(&group.note);
        Ok(Self { wanted, name })
    }

    /// Becomes a member; the guard's owner is its name.
    pub(super) async fn join(&self) -> Result<Guard> {
        self.wanted.acquire_anew(Mode::Read, Patience::Endless).await?.ok_or(Error::Closed)
    }

    /// The owners of all seats, in the order that every member sees.
    pub(super) async fn list(&self) -> Result<Vec<String>> {
        let state = self.wanted.clone().inspect().await?;
        let mut owners: Vec<String> = state.holders.into_iter().map(|holder| holder.owner).collect();
        owners.sort_unstable();
        Ok(owners)
    }
}
