//! `tenure resize`: how many permits a name has.

use tenure::{Locker, Resource};

use super::done;
use crate::exit::Failure;
use crate::output;
use crate::plan::Store;
use crate::states::{self, StateJson};

pub(crate) async fn resize(store: &Store, name: &Resource, permits: u32, json: bool) -> Result<u8, Failure> {
    let locker = Locker::connect(&store.url).await?;
    let semaphore = locker.semaphore(name.as_str(), permits);
    let resized = async {
        semaphore.resize(permits).await?;
        semaphore.inspect().await
    };
    let state = done(&locker, resized.await).await?;
    if json {
        output::print_json(&StateJson::new(&state))?;
    } else {
        output::print(&states::numbered(&state))?;
    }
    Ok(0)
}
