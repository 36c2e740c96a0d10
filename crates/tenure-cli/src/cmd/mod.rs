//! The commands.

pub(crate) mod break_;
pub(crate) mod docs;
pub(crate) mod ls;
pub(crate) mod resize;
pub(crate) mod run;
pub(crate) mod who;

use tenure::Locker;

use crate::exit::Failure;

/// Ends a command that only asked: what it has learned matters more than how the connection closes.
async fn done<T>(locker: &Locker, answer: tenure::Result<T>) -> Result<T, Failure> {
    drop(locker.close().await);
    Ok(answer?)
}
