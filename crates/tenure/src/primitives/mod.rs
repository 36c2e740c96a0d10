//! The locks that users see: thin readers of the engine. None of them names a store.

pub(crate) mod mutex;
