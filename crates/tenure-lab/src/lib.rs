//! The failures of distributed locks, played on real servers. What is claimed of each way to lock is checked.
//!
//! A [`Story`] is one failure. Each of its [`Way`]s runs on a testbed of its own: Redis servers, a shop, and *actors*, which are
//! processes. The story tells the actors what to do, step by step, so that the failure occurs every time.
//!
//! The command `tenure lab` is the user of this crate. The tests of Tenure start their servers with [`redis_server`], [`clock`],
//! [`process`] and [`resources`].

mod actions;
mod actor;
mod actor_process;
pub mod clock;
mod crowd;
mod crowd_client;
mod error;
mod holder_probe;
mod html;
mod launcher;
mod locks;
mod naive_clients;
mod password;
pub mod process;
mod protocol;
pub mod redis_server;
mod redlock;
mod request_counter;
pub mod resources;
mod seller;
mod server;
mod setnx_lock;
mod shop;
mod stories;
mod story;
mod svg;
mod testbed;
mod timeline;
mod virtual_address;

use std::time::Duration;

pub use actor_process::{ACTOR_SUBCOMMAND, run_actor};
pub use error::{LabError, Result};
pub use html::page;
pub use launcher::Launcher;
pub use stories::STORIES;
pub use story::{Kind, Report, Row, Story, Way};

/// Whole milliseconds.
pub(crate) fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}
