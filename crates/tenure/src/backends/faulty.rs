//! A decorator that breaks things on purpose: lost requests, lost replies, delays, missed notifications.
//!
//! A backend that passes the suite through it has idempotent verbs; an engine that does never takes "unknown" for an
//! answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;

use crate::backend::{Attempt, Backend, Broken, Capabilities, Claim, Member, Mode, Released, Renewal, Scope, Server, State};
use crate::error::{Error, Fault, Result};
use crate::name::{Resource, Token};
use crate::signal::{Hub, Signal};

/// What goes wrong, and how often. Counted, not random: a run can be repeated.
#[derive(Debug, Clone, Copy, Default)]
pub struct Plan {
    /// Every n-th call is done, but its answer is lost. Zero: never.
    pub lose_reply: u64,
    /// Every n-th call never reaches the store. Zero: never.
    pub lose_request: u64,
    /// Every n-th call is answered late by [`delay`](Self::delay). Zero: never.
    pub delay_every: u64,
    /// How late.
    pub delay: Duration,
    /// How long every question is under way to the store, but for those that watch.
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

/// A backend under a [`Plan`].
#[derive(Debug)]
pub struct Faulty {
    inner: Arc<dyn Backend>,
    plan: Plan,
    calls: AtomicU64,
    silence: Hub,
}

impl Faulty {
    /// Wraps a backend.
    #[must_use]
    pub fn new(inner: Arc<dyn Backend>, plan: Plan) -> Self {
        Self { inner, plan, calls: AtomicU64::new(0), silence: Hub::default() }
    }

    async fn through<T>(&self, doing: &str, call: impl Future<Output = Result<T>>) -> Result<T> {
        let n = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let due = |every: u64| every != 0 && n.is_multiple_of(every);
        let broken = |what: &str| Error::unavailable("faulty", doing, Fault::Connection, what);
        if due(self.plan.lose_request) {
            return Err(broken("the request was lost"));
        }
        if !self.plan.way.is_zero() && doing != "watching" {
            tokio::time::sleep(self.plan.way).await;
        }
        let answer = call.await;
        if due(self.plan.delay_every) {
            tokio::time::sleep(self.plan.delay).await;
        }
        if due(self.plan.lose_reply) { Err(broken("the reply was lost")) } else { answer }
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Backend for Faulty {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn partition(&self, resource: &Resource) -> u32 {
        self.inner.partition(resource)
    }

    async fn acquire(&self, claim: &Claim) -> Result<Attempt> {
        self.through("acquiring", self.inner.acquire(claim)).await
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Renewal>> {
        self.through("renewing", self.inner.renew(claims)).await
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        self.through("releasing", self.inner.release(claim)).await
    }

    async fn watch(&self, claim: &Claim) -> Result<Signal> {
        if self.plan.deaf {
            return Ok(self.silence.listen(claim.resource.as_str()).0);
        }
        self.through("watching", self.inner.watch(claim)).await
    }

    async fn inspect(&self, scope: Scope<'_>) -> Result<Vec<State>> {
        self.through("inspecting", self.inner.inspect(scope)).await
    }

    async fn break_hold(&self, resource: &Resource, at_least: Option<Token>) -> Result<Option<Broken>> {
        self.through("breaking", self.inner.break_hold(resource, at_least)).await
    }

    async fn introduce(&self, longest: Duration) -> Result<Server> {
        self.through("introducing", self.inner.introduce(longest)).await
    }

    fn session(&self) -> u64 {
        self.inner.session()
    }

    fn members(&self) -> Vec<Member> {
        self.inner.members()
    }

    fn refusal(&self, mode: Mode) -> Error {
        self.inner.refusal(mode)
    }

    async fn close(&self) -> Result<()> {
        self.inner.close().await
    }
}
