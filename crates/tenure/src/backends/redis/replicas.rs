//! `sync=k`: what is written counts only once k replicas have it.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, cmd};
use tokio::sync::oneshot;

use super::calls::{InFlightCall, given_up};
use super::fault::{Failure, NAME};
use super::link::Live;
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

    fn wait(self) -> Cmd {
        let mut wait = cmd("WAIT");
        wait.arg(self.replicas).arg(u64::try_from(self.within.as_millis()).unwrap_or(u64::MAX));
        wait
    }

    fn check(self, doing: &str, acknowledged: u32) -> Result<()> {
        if acknowledged >= self.replicas {
            return Ok(());
        }
        let detail = format!("{acknowledged} of {} acknowledged within {:?}", self.replicas, self.within);
        Err(Error::unavailable(NAME, doing, Fault::Replicas, detail))
    }
}

impl Live {
    /// Makes sure that enough replicas have what was written. `WAIT` speaks of what its own connection has written, and blocks what
    /// is sent after it. So one serves all writes before it, and replicas that hang cost one wait for all.
    pub(super) async fn synced(self: &Arc<Self>, doing: &str, sync: Sync) -> Result<()> {
        let (live, about) = (Arc::clone(self), doing.to_owned());
        let Some(link) = live.link.upgrade() else { return Err(given_up(doing).error) };
        // Spawned: others share the run, and must not wait for a caller that stands still.
        let (answer, confirmed) = oneshot::channel();
        link.shared.runtime.spawn(async move { live.waits.share(answer, live.wait(&about, sync)).await });
        sync.check(doing, confirmed.await.unwrap_or_else(|_| Err(given_up(doing)))?)
    }

    /// How many replicas have what was written over this connection.
    async fn wait(&self, doing: &str, sync: Sync) -> Result<u32, Failure> {
        let Some(link) = self.link.upgrade() else { return Err(given_up(doing)) };
        let (mut connection, wait) = (self.connection.clone(), sync.wait());
        let call = InFlightCall::new(&link, self.id);
        // Bounded here: the callers may be gone.
        let limit = link.shared.timeout.max(sync.within.saturating_mul(2));
        let answer = tokio::time::timeout(limit, wait.query_async(&mut connection)).await;
        let Ok(answer) = answer else { return Err(given_up(doing)) };
        call.complete();
        if self.aborted.is_set() {
            return Err(given_up(doing));
        }
        answer.map_err(|e| link.broken(doing, self.id, &e))
    }
}
