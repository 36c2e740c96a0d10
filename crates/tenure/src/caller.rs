//! The runtime of the caller that drives a call. While it does, the locker's own runtime is lent to its thread, and hides the caller's.

use std::cell::RefCell;

use tokio::runtime::Handle;

thread_local! {
    static RUNTIME: RefCell<Option<Handle>> = const { RefCell::new(None) };
}

/// For as long as a step of a call is taken on this thread.
#[derive(Debug)]
pub(crate) struct Step {
    before: Option<Handle>,
}

/// Notes whose step it is.
pub(crate) fn takes_a_step(runtime: Handle) -> Step {
    Step { before: replace(Some(runtime)) }
}

impl Drop for Step {
    fn drop(&mut self) {
        drop(replace(self.before.take()));
    }
}

fn replace(runtime: Option<Handle>) -> Option<Handle> {
    // A thread in its last moment remembers nothing.
    RUNTIME.try_with(|present| std::mem::replace(&mut *present.borrow_mut(), runtime)).ok().flatten()
}

/// Looks at the runtime of the caller. `None`: the background takes this step, or the caller has an executor of another kind.
#[cfg(feature = "redis")]
pub(crate) fn runtime<T>(look: impl FnOnce(&Handle) -> T) -> Option<T> {
    RUNTIME.try_with(|present| present.borrow().as_ref().map(look)).ok().flatten()
}
