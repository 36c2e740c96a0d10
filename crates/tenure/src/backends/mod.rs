//! The stores, and layers that make one of another.

#[cfg(feature = "conformance")]
pub mod faulty;
pub mod memory;
pub mod prefixed;
pub mod quorum;
#[cfg(feature = "redis")]
pub(crate) mod redis;
#[cfg(feature = "sqlite")]
pub(crate) mod sqlite;
pub(crate) mod verdict;
