//! How long records are kept, and how often old ones are deleted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::error::{Error, Result};

/// A week.
pub(super) const KEEP: Duration = Duration::from_secs(7 * 24 * 60 * 60);

const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// Of so many that begin, one sweeps.
const SWEEP_EVERY: u32 = 64;

/// The time in whole milliseconds. Refuses what no record can be kept for.
pub(super) fn millis(keep: Duration) -> Result<i64> {
    match i64::try_from(keep.as_millis()) {
        Ok(millis @ 1..) if keep <= LONGEST => Ok(millis),
        _ => Err(Error::config(format!("to keep records for {keep:?}"), "is out of range", "1ms to 100 years")),
    }
}

/// Whose turn it is to sweep.
#[derive(Debug, Clone, Default)]
pub(super) struct Turns(Arc<AtomicU32>);

impl Turns {
    /// The first one does, because a process may begin but one thing.
    pub(super) fn sweeps(&self) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed).is_multiple_of(SWEEP_EVERY)
    }
}
