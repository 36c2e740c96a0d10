//! The stores, and layers over them.

pub(crate) mod decision;
#[cfg(feature = "conformance")]
pub mod faulty;
pub mod memory;
pub mod prefixed;
pub mod quorum;
#[cfg(feature = "redis")]
pub(crate) mod redis;
#[cfg(feature = "sqlite")]
pub(crate) mod sqlite;
