//! Which threads are the library's own: what is due in time runs there, so nothing may hold them up.

use std::cell::Cell;

thread_local! {
    static IS_OWN: Cell<bool> = const { Cell::new(false) };
}

/// From now on this thread is one of them.
pub(crate) fn mark() {
    IS_OWN.set(true);
}

/// Whether this thread is one of them.
#[cfg(feature = "sqlite")]
pub(crate) fn is_here() -> bool {
    IS_OWN.try_with(Cell::get).unwrap_or(true)
}
