//! The locks that users see, each a thin layer over the engine. None of them names a store.

pub(crate) mod any;
mod changes;
pub(crate) mod election;
pub(crate) mod latch;
pub(crate) mod multi;
pub(crate) mod mutex;
pub(crate) mod partitions;
mod request;
pub(crate) mod rwlock;
pub(crate) mod semaphore;
pub(crate) mod serial;
pub(crate) mod striped;
