//! A layer that breaks things on purpose: lost requests, lost replies, delays, missed notifications.
//!
//! A backend that passes the suite through it has idempotent verbs. An engine that passes it never takes "unknown" for an answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::backend::{Backend, Call, Claim, Layer, Layered, Reply};
use crate::error::{Error, Fault, Result};
use crate::signal::{Hub, Signal};

/// What goes wrong, and how often. Counted, not random: a run can be repeated.
#[derive(Debug, Clone, Copy, Default)]
pub struct Plan {
    /// Every n-th call is done, but its answer is lost. Zero: never.
    pub lose_reply: u64,
    /// Every n-th call never reaches the store. Zero: never.
    pub lose_request: u64,
    /// Every n-th call is answered [`delay`](Self::delay) later. Zero: never.
    pub delay_every: u64,
    /// How late.
    pub delay: Duration,
    /// How long every call but `watch` is under way to the store.
    pub way: Duration,
    /// No signal ever fires.
    pub deaf: bool,
}

impl Plan {
    /// A bad day: one call in four loses its answer, one in seven its request, one in three is late.
    #[must_use]
    pub fn bad_day(delay: Duration) -> Self {
        Self { lose_reply: 4, lose_request: 7, delay_every: 3, delay, ..Self::default() }
    }
}

/// What happens to calls under a [`Plan`].
#[derive(Debug)]
pub struct Faulty {
    plan: Plan,
    calls: AtomicU64,
    silence: Hub,
}

impl Faulty {
    /// A layer that follows a plan.
    #[must_use]
    pub fn new(plan: Plan) -> Self {
        Self { plan, calls: AtomicU64::new(0), silence: Hub::default() }
    }

    /// A store under a plan.
    #[must_use]
    pub fn over<B: Backend + ?Sized>(inner: Arc<B>, plan: Plan) -> Layered<Self, B> {
        Layered::new(Self::new(plan), inner)
    }
}

impl Layer for Faulty {
    async fn around<T: Send>(&self, call: Call<'_>, inner: impl Reply<T>) -> Result<T> {
        let n = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let due = |every: u64| every != 0 && n.is_multiple_of(every);
        let broken = |what: &str| Error::unavailable("faulty", call.doing(), Fault::Connection, what);
        if due(self.plan.lose_request) {
            return Err(broken("the request was lost"));
        }
        if !self.plan.way.is_zero() && !matches!(call, Call::Watch(_)) {
            tokio::time::sleep(self.plan.way).await;
        }
        let answer = inner.await;
        if due(self.plan.delay_every) {
            tokio::time::sleep(self.plan.delay).await;
        }
        if due(self.plan.lose_reply) { Err(broken("the reply was lost")) } else { answer }
    }

    async fn watch(&self, claim: &Claim, inner: impl Reply<Signal>) -> Result<Signal> {
        if self.plan.deaf {
            return Ok(self.silence.listen(claim.resource.as_str()).0);
        }
        self.around(Call::Watch(claim), inner).await
    }

    async fn close(&self, inner: impl Reply<()>) -> Result<()> {
        inner.await
    }
}
