//! A decorator: every name gets a prefix, so that programs can share a store without meeting.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::backend::{Attempt, Backend, Broken, Capabilities, Claim, Member, Mode, Released, Renewal, Scope, Server, State};
use crate::error::{Error, Result};
use crate::name::{Resource, Token};
use crate::signal::Signal;

/// A backend under a prefix. `inspect` shows names without it.
#[derive(Debug)]
pub struct Prefixed {
    prefix: String,
    inner: Arc<dyn Backend>,
}

impl Prefixed {
    /// Puts `prefix` before every name.
    pub fn new(prefix: String, inner: Arc<dyn Backend>) -> Result<Self> {
        Resource::new(&prefix)?;
        Ok(Self { prefix, inner })
    }

    fn under(&self, resource: &Resource) -> Result<Resource> {
        Ok(Resource::new(format!("{}{resource}", self.prefix))?)
    }

    fn claim(&self, claim: &Claim) -> Result<Claim> {
        Ok(Claim { resource: self.under(&claim.resource)?, ..claim.clone() })
    }

    fn without(&self, state: State) -> Result<State> {
        let name = state.resource.as_str();
        let bare = name.strip_prefix(&self.prefix).ok_or_else(|| {
            Error::config(format!("the name {name:?}"), format!("is not under {:?}", self.prefix), "names under the prefix")
        })?;
        Ok(State { resource: Resource::new(bare)?, ..state })
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Backend for Prefixed {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn partition(&self, resource: &Resource) -> u32 {
        // A name that is too long with the prefix is held by nobody.
        self.under(resource).map_or(0, |resource| self.inner.partition(&resource))
    }

    async fn acquire(&self, claim: &Claim) -> Result<Attempt> {
        self.inner.acquire(&self.claim(claim)?).await
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Renewal>> {
        let claims: Vec<Claim> = claims.iter().map(|c| self.claim(c)).collect::<Result<_>>()?;
        self.inner.renew(&claims).await
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        self.inner.release(&self.claim(claim)?).await
    }

    async fn watch(&self, claim: &Claim) -> Result<Signal> {
        self.inner.watch(&self.claim(claim)?).await
    }

    async fn inspect(&self, scope: Scope<'_>) -> Result<Vec<State>> {
        let states = match scope {
            Scope::One(resource) => self.inner.inspect(Scope::One(&self.under(resource)?)).await?,
            Scope::Prefix(prefix) => self.inner.inspect(Scope::Prefix(&format!("{}{prefix}", self.prefix))).await?,
        };
        // A name that is the prefix alone is not ours: it has no name left.
        let ours = states.into_iter().filter(|s| s.resource.as_str() != self.prefix);
        ours.map(|s| self.without(s)).collect()
    }

    async fn break_hold(&self, resource: &Resource, at_least: Option<Token>) -> Result<Option<Broken>> {
        self.inner.break_hold(&self.under(resource)?, at_least).await
    }

    async fn introduce(&self, longest: Duration) -> Result<Server> {
        self.inner.introduce(longest).await
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
