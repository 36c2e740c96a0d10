//! `sync=k`: what is written counts only once k replicas have it.

use std::time::Duration;

use redis::{Cmd, cmd};

use super::fault::NAME;
use crate::error::{Error, Fault, Result};

/// How many replicas must have a grant, and how long they may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sync {
    pub(super) replicas: u32,
    pub(super) within: Duration,
}

impl Sync {
    /// How long replicas may take unless told otherwise.
    pub(super) const WITHIN: Duration = Duration::from_millis(500);

    pub(super) fn wait(self) -> Cmd {
        let mut wait = cmd("WAIT");
        wait.arg(self.replicas).arg(u64::try_from(self.within.as_millis()).unwrap_or(u64::MAX));
        wait
    }

    pub(super) fn check(self, doing: &str, acknowledged: u32) -> Result<()> {
        if acknowledged >= self.replicas {
            return Ok(());
        }
        let detail = format!("{acknowledged} of {} acknowledged within {:?}", self.replicas, self.within);
        Err(Error::unavailable(NAME, doing, Fault::Replicas, detail))
    }
}
