//! A store made of another one. What a layer does not change goes through.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::{Attempt, Backend, Broken, Capabilities, Claim, Released, Renewal, Scope, Server, State, Voter};
use crate::error::Result;
use crate::name::{Resource, Token};
use crate::signal::Signal;

/// A call on its way to the store below.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Call<'a> {
    /// [`Backend::acquire`], or [`Voter::vote`].
    Acquire(&'a Claim),
    /// [`Backend::renew`].
    Renew(&'a [Claim]),
    /// [`Backend::release`].
    Release(&'a Claim),
    /// [`Backend::watch`].
    Watch(&'a Claim),
    /// [`Backend::inspect`].
    Inspect(Scope<'a>),
    /// [`Backend::break_hold`], or [`Voter::break_above`].
    Break(&'a Resource),
    /// [`Voter::identify`].
    Identify,
    /// [`Backend::close`].
    Close,
}

impl Call<'_> {
    /// What is being done, as errors say it.
    #[must_use]
    pub const fn doing(&self) -> &'static str {
        match self {
            Self::Acquire(_) => "acquiring",
            Self::Renew(_) => "renewing",
            Self::Release(_) => "releasing",
            Self::Watch(_) => "watching",
            Self::Inspect(_) => "inspecting",
            Self::Break(_) => "breaking",
            Self::Identify => "identifying",
            Self::Close => "closing",
        }
    }
}

/// A call of the store below that resolves to its answer: any future of a [`Result`] that can be sent.
pub trait Reply<T>: Future<Output = Result<T>> + Send {}

impl<T, F: Future<Output = Result<T>> + Send> Reply<T> for F {}

/// What a [`Layered`] store changes of the one below. A default changes nothing.
///
/// Claims have the names from above. `inner` is the call of the store below. A layer that drops it has not asked the store; one that
/// awaits it may delay or change the answer.
///
/// ```
/// use tenure::backend::{Call, Layer, Reply};
/// use tenure::Result;
///
/// /// Says which calls take long.
/// #[derive(Debug)]
/// struct Timed;
///
/// impl Layer for Timed {
///     async fn around<T: Send>(&self, call: Call<'_>, inner: impl Reply<T>) -> Result<T> {
///         let begun = std::time::Instant::now();
///         let answer = inner.await;
///         println!("{} took {:?}", call.doing(), begun.elapsed());
///         answer
///     }
/// }
/// ```
pub trait Layer: fmt::Debug + Send + Sync + 'static {
    /// What the store made of both can promise. Asked for once.
    fn capabilities(&self, inner: &Capabilities) -> Capabilities {
        inner.clone()
    }

    /// The part of the store that keeps a name.
    fn partition(&self, _name: &Resource, inner: u32) -> u32 {
        inner
    }

    /// The name that the store below has for a name. `None`: it stays as it is.
    fn rename(&self, _name: &Resource) -> Result<Option<Resource>> {
        Ok(None)
    }

    /// The prefix below, of a prefix above.
    fn rename_prefix(&self, prefix: &str) -> String {
        prefix.to_owned()
    }

    /// The name above, of a name that [`Backend::inspect`] shows. `None`: it is left out.
    fn unname(&self, name: Resource) -> Result<Option<Resource>> {
        Ok(Some(name))
    }

    /// Every call, unless its own method says otherwise.
    fn around<T: Send>(&self, call: Call<'_>, inner: impl Reply<T>) -> impl Reply<T> {
        let _ = call;
        inner
    }

    /// [`Backend::acquire`] and [`Voter::vote`].
    fn acquire(&self, claim: &Claim, inner: impl Reply<Attempt>) -> impl Reply<Attempt> {
        self.around(Call::Acquire(claim), inner)
    }

    /// [`Backend::renew`].
    fn renew(&self, claims: &[Claim], inner: impl Reply<Vec<Renewal>>) -> impl Reply<Vec<Renewal>> {
        self.around(Call::Renew(claims), inner)
    }

    /// [`Backend::release`].
    fn release(&self, claim: &Claim, inner: impl Reply<Released>) -> impl Reply<Released> {
        self.around(Call::Release(claim), inner)
    }

    /// [`Backend::watch`].
    fn watch(&self, claim: &Claim, inner: impl Reply<Signal>) -> impl Reply<Signal> {
        self.around(Call::Watch(claim), inner)
    }

    /// [`Voter::identify`].
    fn identify(&self, _longest: Duration, inner: impl Reply<Server>) -> impl Reply<Server> {
        self.around(Call::Identify, inner)
    }

    /// [`Voter::connection`].
    fn connection(&self, inner: u64) -> u64 {
        inner
    }

    /// [`Backend::close`].
    fn close(&self, inner: impl Reply<()>) -> impl Reply<()> {
        self.around(Call::Close, inner)
    }
}

/// A store under a [`Layer`]: a backend, and a voter if the store below is one.
#[derive(Debug)]
pub struct Layered<L, B: ?Sized> {
    layer: Arc<L>,
    inner: Arc<B>,
    capabilities: Capabilities,
}

impl<L: Layer, B: Backend + ?Sized> Layered<L, B> {
    /// Puts a layer over a store.
    pub fn new(layer: L, inner: Arc<B>) -> Self {
        let capabilities = layer.capabilities(inner.capabilities());
        Self { layer: Arc::new(layer), inner, capabilities }
    }

    /// The layer.
    pub fn layer(&self) -> &Arc<L> {
        &self.layer
    }

    /// The store below.
    pub fn inner(&self) -> &Arc<B> {
        &self.inner
    }

    fn name<'a>(&self, name: &'a Resource) -> Result<Cow<'a, Resource>> {
        Ok(self.layer.rename(name)?.map_or(Cow::Borrowed(name), Cow::Owned))
    }

    fn claim<'a>(&self, claim: &'a Claim) -> Result<Cow<'a, Claim>> {
        Ok(match self.layer.rename(&claim.resource)? {
            Some(resource) => Cow::Owned(Claim { resource, ..claim.clone() }),
            None => Cow::Borrowed(claim),
        })
    }

    fn claims<'a>(&self, claims: &'a [Claim]) -> Result<Cow<'a, [Claim]>> {
        let below: Vec<Cow<'_, Claim>> = claims.iter().map(|claim| self.claim(claim)).collect::<Result<_>>()?;
        if below.iter().all(|claim| matches!(claim, Cow::Borrowed(_))) {
            return Ok(Cow::Borrowed(claims));
        }
        Ok(Cow::Owned(below.into_iter().map(Cow::into_owned).collect()))
    }
}

#[async_trait]
impl<L: Layer, B: Backend + ?Sized> Backend for Layered<L, B> {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn partition(&self, resource: &Resource) -> u32 {
        // A name that cannot be one below is never held.
        let inner = self.name(resource).map_or(0, |name| self.inner.partition(&name));
        self.layer.partition(resource, inner)
    }

    async fn acquire(&self, claim: &Claim) -> Result<Attempt> {
        let below = self.claim(claim)?;
        self.layer.acquire(claim, self.inner.acquire(&below)).await
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Renewal>> {
        let below = self.claims(claims)?;
        self.layer.renew(claims, self.inner.renew(&below)).await
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        let below = self.claim(claim)?;
        self.layer.release(claim, self.inner.release(&below)).await
    }

    async fn watch(&self, claim: &Claim) -> Result<Signal> {
        let below = self.claim(claim)?;
        self.layer.watch(claim, self.inner.watch(&below)).await
    }

    async fn inspect(&self, scope: Scope<'_>) -> Result<Vec<State>> {
        let call = Call::Inspect(scope);
        let states = match scope {
            Scope::One(resource) => {
                let name = self.name(resource)?;
                self.layer.around(call, self.inner.inspect(Scope::One(&name))).await?
            }
            Scope::Prefix(prefix) => {
                let prefix = self.layer.rename_prefix(prefix);
                self.layer.around(call, self.inner.inspect(Scope::Prefix(&prefix))).await?
            }
        };
        let unname = |state: State| {
            let name = self.layer.unname(state.resource)?;
            Ok(name.map(|resource| State { resource, ..state }))
        };
        states.into_iter().filter_map(|state| unname(state).transpose()).collect()
    }

    async fn break_hold(&self, resource: &Resource) -> Result<Option<Broken>> {
        let name = self.name(resource)?;
        self.layer.around(Call::Break(resource), self.inner.break_hold(&name)).await
    }

    async fn close(&self) -> Result<()> {
        self.layer.close(self.inner.close()).await
    }
}

#[async_trait]
impl<L: Layer, B: Voter + ?Sized> Voter for Layered<L, B> {
    async fn vote(&self, claim: &Claim, at_least: Option<Token>) -> Result<Attempt> {
        let below = self.claim(claim)?;
        self.layer.acquire(claim, self.inner.vote(&below, at_least)).await
    }

    async fn break_above(&self, resource: &Resource, at_least: Token) -> Result<Option<Broken>> {
        let name = self.name(resource)?;
        self.layer.around(Call::Break(resource), self.inner.break_above(&name, at_least)).await
    }

    async fn identify(&self, longest: Duration) -> Result<Server> {
        self.layer.identify(longest, self.inner.identify(longest)).await
    }

    fn connection(&self) -> u64 {
        self.layer.connection(self.inner.connection())
    }
}
