//! The members of a group, as the store keeps them.

use std::sync::Arc;

use crate::backend::Mode;
use crate::engine::acquire::Patience;
use crate::engine::guard::Guard;
use crate::error::{Error, Result};
use crate::name::Resource;
use crate::primitives::partitions::Partitions;
use crate::primitives::request::LockRequest;

/// The members of a group: the readers of `name/members`.
#[derive(Debug)]
pub(super) struct Members {
    request: LockRequest,
    pub(super) name: Resource,
}

impl Members {
    pub(super) fn new(group: &Partitions) -> Result<Self> {
        let name = group.resource("members")?;
        let mut request = LockRequest::new(Arc::clone(&group.engine), Ok(name.clone()));
        request.lease = group.lease;
        request.note.clone_from(&group.note);
        Ok(Self { request, name })
    }

    /// Becomes a member; the guard's owner is its name.
    pub(super) async fn join(&self) -> Result<Guard> {
        self.request.acquire_anew(Mode::Read, Patience::Endless).await?.ok_or(Error::Closed)
    }

    /// The owners of all seats, in the order that every member sees.
    pub(super) async fn list(&self) -> Result<Vec<String>> {
        let state = self.request.clone().inspect().await?;
        let mut owners: Vec<String> = state.holders.into_iter().map(|holder| holder.owner).collect();
        owners.sort_unstable();
        Ok(owners)
    }
}
