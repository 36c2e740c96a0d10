//! `tenure who`: the holders of one lock, or of all its stripes.

use tenure::backend::State;
use tenure::{Locker, Resource};

use super::{done, look};
use crate::exit::Failure;
use crate::nodes;
use crate::output;
use crate::plan::Store;
use crate::states::{self, StateJson};

/// How many stripes are asked for at the same time.
const AT_ONCE: usize = 64;

pub(crate) async fn who(store: &Store, name: &Resource, json: bool) -> Result<u8, Failure> {
    let locker = look(store).await?;
    let state = done(&locker, locker.mutex(name.as_str()).inspect().await).await?;
    if json {
        output::print_json(&StateJson::new(&state))?;
        return Ok(0);
    }
    let more = states::queue(&state) + &nodes::table(&state);
    let told = if state.holders.is_empty() { states::idle(&state) } else { states::table(&[state]) };
    output::print(&(told + &more))?;
    Ok(0)
}

pub(crate) async fn stripes(store: &Store, name: &Resource, count: u32, json: bool) -> Result<u8, Failure> {
    let locker = look(store).await?;
    let states = done(&locker, all(&locker, name, count).await).await?;
    if json {
        output::print_json(&states.iter().map(StateJson::new).collect::<Vec<_>>())?;
    } else {
        output::print(&states::table(&states))?;
    }
    Ok(0)
}

async fn all(locker: &Locker, name: &Resource, count: u32) -> tenure::Result<Vec<State>> {
    let names: Vec<String> = (0..count).map(|n| format!("{name}#{n}")).collect();
    let mut states = Vec::with_capacity(names.len());
    for some in names.chunks(AT_ONCE) {
        let asked: Vec<_> = some.iter().map(|name| tokio::spawn(locker.mutex(name).inspect())).collect();
        for answer in asked {
            states.push(answer.await.unwrap_or(Err(tenure::Error::Closed))?);
        }
    }
    Ok(states)
}
