//! `tenure ls`: the locks that are held.

use super::{done, look};
use crate::exit::Failure;
use crate::output;
use crate::plan::Store;
use crate::states::{self, StateJson};

pub(crate) async fn ls(store: &Store, prefix: &str, json: bool) -> Result<u8, Failure> {
    let locker = look(store).await?;
    let mut states = done(&locker, locker.list(prefix).await).await?;
    states.sort_by(|a, b| a.resource.cmp(&b.resource));
    if json {
        output::print_json(&states.iter().map(StateJson::new).collect::<Vec<_>>())?;
    } else if states.is_empty() {
        output::say("no locks are held");
    } else {
        output::print(&states::table(&states))?;
    }
    Ok(0)
}
