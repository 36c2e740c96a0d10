//! The commands.

pub(crate) mod bench;
pub(crate) mod break_;
pub(crate) mod docs;
pub(crate) mod fence;
pub(crate) mod lab;
pub(crate) mod ls;
pub(crate) mod resize;
pub(crate) mod run;
pub(crate) mod who;

use tenure::backend::Leases;
use tenure::{Builder, Locker};

use crate::exit::Failure;
use crate::plan::Store;

/// Connects for a command that locks nothing. A quorum is told of no lease but the URL's: a longer one than others use would
/// keep the votes of nodes that have restarted from counting for longer.
async fn look(store: &Store) -> tenure::Result<Locker> {
    looker().connect(&store.url).await
}

fn looker() -> Builder {
    Locker::builder().lease(Leases::ANY.shortest)
}

/// Ends a command that only asked: what it has learned matters more than how the connection closes.
async fn done<T>(locker: &Locker, answer: tenure::Result<T>) -> Result<T, Failure> {
    drop(locker.close().await);
    Ok(answer?)
}
