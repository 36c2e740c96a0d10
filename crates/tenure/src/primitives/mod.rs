//! The locks that users see: thin readers of the engine. None of them names a store.

pub(crate) mod latch;
pub(crate) mod mutex;
pub(crate) mod rwlock;
pub(crate) mod semaphore;
mod wanted;
