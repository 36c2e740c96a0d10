//! Waiting for a condition, by polling.

use std::time::{Duration, Instant};

/// Waits until something is true; panics after a long time.
#[track_caller]
pub fn eventually(what: &str, mut check: impl FnMut() -> bool) {
    until(what, || check().then_some(()));
}

/// Waits until something is there; panics after a long time.
#[track_caller]
pub fn until<T>(what: &str, check: impl FnMut() -> Option<T>) -> T {
    within(Duration::from_secs(30), check).unwrap_or_else(|| panic!("never came true: {what}"))
}

/// Waits for a while until something is there.
pub fn within<T>(limit: Duration, mut check: impl FnMut() -> Option<T>) -> Option<T> {
    let give_up = Instant::now() + limit;
    loop {
        let found = check();
        if found.is_some() || Instant::now() >= give_up {
            return found;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
