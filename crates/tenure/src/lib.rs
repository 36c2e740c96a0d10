//! stub

pub mod backend;
pub mod backends;
#[cfg(feature = "blocking")]
pub mod blocking;
pub mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod connect;
pub mod duration;
mod error;
mod guard;
mod hold;
mod keeper;
mod locker;
mod name;
mod owner;
mod primitives;
mod retry;
mod runtime;
pub mod signal;
mod stats;
mod turnstile;
mod wait;

pub use error::{Error, Fault, Result};
pub use guard::{Guard, Lost, LostReason, State, Watcher};
pub use locker::{Builder, Locker};
pub use name::{ClientId, OwnerId, OwnerIds, Resource, Token};
pub use owner::Owner;
pub use primitives::mutex::Mutex;
pub use retry::RetryPolicy;
pub use stats::{Histogram, Stats};
