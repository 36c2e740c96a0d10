//! Who takes part: the one place that knows how members are kept in the store.

use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::name::Resource;
use crate::primitives::partitions::Partitions;

/// How many can take part.
const SEATS: u32 = 64;

/// The members of a group: each one holds a seat `name/members/k`.
#[derive(Debug)]
pub(super) struct Members {
    group: Partitions,
    /// The seats that were taken when last looked at.
    seen: Vec<Resource>,
}

impl Members {
    pub(super) fn new(group: Partitions) -> Self {
        Self { group, seen: Vec::new() }
    }

    /// Becomes a member; the guard's owner is its name.
    pub(super) async fn join(&self) -> Result<Guard> {
        for seat in 0..SEATS {
            let mutex = self.group.mutex(&format!("members/{seat}"));
            if let Some(guard) = mutex.try_lock().await? {
                return Ok(guard);
            }
        }
        Err(Error::config(format!("the group {:?}", self.group.name), "is full", format!("up to {SEATS} members")))
    }

    /// The owners of all seats, in the order that every member sees.
    pub(super) async fn list(&mut self) -> Result<Vec<String>> {
        let states = self.group.locker.list(&format!("{}/members/", self.group.name)).await?;
        self.seen = states.iter().map(|state| state.resource.clone()).collect();
        let mut owners: Vec<String> = states.into_iter().flat_map(|state| state.holders).map(|holder| holder.owner).collect();
        owners.sort_unstable();
        Ok(owners)
    }

    /// What to listen to for news of them.
    pub(super) fn names(&self) -> Vec<Resource> {
        self.seen.clone()
    }
}
