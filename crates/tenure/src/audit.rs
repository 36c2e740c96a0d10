//! Audit events of breaks, under the target `tenure::audit`.

use tracing::{info, warn};

use crate::backend::{Broken, Client};
use crate::error::Result;
use crate::name::Resource;

/// A client broke a hold: which client, which name, and the outcome.
pub(crate) fn break_hold(by: &Client, name: &Resource, outcome: &Result<Option<Broken>>) {
    let (client, about, name) = (by.id, &*by.about, name.as_str());
    match outcome {
        Ok(Some(broken)) => {
            let owners: Vec<&str> = broken.holders.iter().map(|holder| &*holder.owner).collect();
            let notes: Vec<&str> = broken.holders.iter().map(|holder| holder.note.as_deref().unwrap_or_default()).collect();
            let tokens: Vec<u64> = broken.holders.iter().filter_map(|holder| holder.token).map(|token| token.get()).collect();
            let fence = broken.fence.get();
            warn!(target: "tenure::audit", %client, ?about, ?name, ?owners, ?notes, ?tokens, fence, "a hold was broken");
        }
        Ok(None) => info!(target: "tenure::audit", %client, ?about, ?name, "the lock to be broken was free"),
        // It may have been carried out nevertheless.
        Err(error) => warn!(target: "tenure::audit", %client, ?about, ?name, %error, "a break has no known outcome"),
    }
}
