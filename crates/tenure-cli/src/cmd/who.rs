//! `tenure who`: the holder of one lock.

use tenure::{Locker, Resource};

use super::done;
use crate::exit::Failure;
use crate::output::{self, StateJson};
use crate::plan::Store;

pub(crate) async fn who(store: &Store, name: &Resource, json: bool) -> Result<u8, Failure> {
    let locker = Locker::connect(&store.url).await?;
    let state = done(&locker, locker.mutex(name.as_str()).inspect().await).await?;
    if json {
        output::print_json(&StateJson::new(&state))?;
    } else if state.holders.is_empty() {
        let last = state.fence.map(|token| format!("; the last token was {token}")).unwrap_or_default();
        output::print(&format!("{} is free{last}\n", output::printable(name.as_str())))?;
    } else {
        output::print(&output::states_table(&[state]))?;
    }
    Ok(0)
}
