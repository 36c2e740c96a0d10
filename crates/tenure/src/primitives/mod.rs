//! The locks that users see: thin readers of the engine. None of them names a store.

pub(crate) mod any;
pub(crate) mod election;
pub(crate) mod latch;
pub(crate) mod multi;
pub(crate) mod mutex;
mod news;
pub(crate) mod partitions;
pub(crate) mod rwlock;
pub(crate) mod semaphore;
pub(crate) mod serial;
pub(crate) mod striped;
mod wanted;
