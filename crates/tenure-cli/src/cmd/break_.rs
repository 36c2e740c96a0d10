//! `tenure break`: the end of a hold, by force.

use serde::Serialize;
use tenure::Resource;
use tenure::backend::Broken;

use super::{done, looker};
use crate::exit::{self, Failure};
use crate::output;
use crate::plan::Store;
use crate::states::{self, HolderJson};

/// What was broken, in JSON.
#[derive(Serialize)]
struct BrokenJson<'a> {
    name: &'a str,
    broken: bool,
    /// Those whose holds were ended.
    holders: Vec<HolderJson<'a>>,
    fence: Option<String>,
    by: ByJson<'a>,
}

/// Who broke it, in JSON.
#[derive(Serialize)]
struct ByJson<'a> {
    client: String,
    /// Host, process id, program and user.
    about: &'a str,
}

pub(crate) async fn break_hold(store: &Store, name: &Resource, json: bool) -> Result<u8, Failure> {
    let locker = looker().about(about()).connect(&store.url).await?;
    let broken = done(&locker, locker.mutex(name.as_str()).break_hold().await).await?;
    if json {
        let holders = broken.iter().flat_map(|b| &b.holders).map(HolderJson::new).collect();
        let fence = broken.as_ref().map(|b| b.fence.to_string());
        let by = ByJson { client: locker.client_id().to_string(), about: locker.about() };
        output::print_json(&BrokenJson { name: name.as_str(), broken: broken.is_some(), holders, fence, by })?;
    }
    let Some(broken) = broken else {
        return Err(Failure::new(exit::FAILED, format!("{name} is free")));
    };
    if !json {
        output::print(&told(name, &broken))?;
    }
    Ok(0)
}

/// What is kept of who broke a hold.
fn about() -> String {
    let (uname, user) = (rustix::system::uname(), rustix::process::getuid().as_raw());
    format!("{} {} tenure break, user {user}", uname.nodename().to_string_lossy(), std::process::id())
}

fn told(name: &Resource, broken: &Broken) -> String {
    let name = output::printable(name.as_str());
    let mut text = String::new();
    for holder in &broken.holders {
        let held = states::held_for(holder).map(|d| format!(", for {}", output::seconds(d))).unwrap_or_default();
        let token = holder.token.map(|t| format!(" (token {t})")).unwrap_or_default();
        text.push_str(&format!("broke {name}: it was held by {}{token}{held}\n", states::who(holder)));
    }
    text.push_str(&format!("tokens up to {} are out of date\n", broken.fence));
    text
}
