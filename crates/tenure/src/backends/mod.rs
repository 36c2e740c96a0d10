//! The stores, and decorators that are stores themselves.

pub mod memory;
pub mod prefixed;
#[cfg(feature = "redis")]
pub(crate) mod redis;
#[cfg(feature = "sqlite")]
pub(crate) mod sqlite;
