//! The layer around a service, and what it does with a request.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::request::Parts;
use http::{HeaderMap, Request, Response};
use tower_layer::Layer;
use tower_service::Service;

use super::answer::Refusal;
use super::{Fenced, TOKEN, path};
use crate::error::{Error, Fault};
use crate::fence::marks::Marks;
use crate::fence::{FenceCounters, FenceStats};
use crate::name::{Resource, Token};

/// Names what a request is about.
type Chooser = Arc<dyn Fn(&Parts) -> Option<String> + Send + Sync>;

/// Lets requests in whose token is not smaller than the largest that the marks have seen for their resource.
///
/// The body of the inner service's answers must be made from a `String`, as axum's is. Clones count together.
#[derive(Clone)]
pub struct FenceLayer {
    marks: Arc<dyn Marks>,
    resource: Chooser,
    optional: bool,
    ahead: Option<Duration>,
    counters: FenceCounters,
}

impl FenceLayer {
    /// The resource of a request is its [path](super::path), and every request needs a token.
    pub fn new(marks: Arc<dyn Marks>) -> Self {
        let resource = Arc::new(|request: &Parts| Some(path(request)));
        Self { marks, resource, optional: false, ahead: None, counters: FenceCounters::default() }
    }

    /// What a request is about: requests about the same thing must give the same name. `None` lets it in without a look at its token.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use ::http::Method;
    /// # use tenure::fence::http::{self, FenceLayer};
    /// # let marks = Arc::new(tenure::fence::marks::MemoryMarks::default());
    /// // A request that only reads needs no token.
    /// let layer = FenceLayer::new(marks).resource(|request| (request.method != Method::GET).then(|| http::path(request)));
    /// ```
    #[must_use]
    pub fn resource(self, of: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static) -> Self {
        Self { resource: Arc::new(of), ..self }
    }

    /// Lets requests without a token in: for as long as not all senders stamp theirs. **They are not fenced.**
    #[must_use]
    pub fn optional(self) -> Self {
        Self { optional: true, ..self }
    }

    /// Refuses tokens that are further ahead of this machine's clock: those of locks are microseconds since 1970, and one far in the
    /// future, by mistake or by malice, would close its resource to all requests before that time. A resource can still be closed for
    /// this long.
    ///
    /// Not bounded by itself, because tokens only grow: a store whose clock was ahead once gives out tokens that are ahead until the
    /// time has caught up, and a bound below that refuses every request meanwhile. Use an hour or a day, where not all senders are trusted and
    /// all clocks are kept in step. Not for tokens of other locks that are no such times.
    #[must_use]
    pub fn ahead(self, allowed: Duration) -> Self {
        Self { ahead: Some(allowed), ..self }
    }

    /// What it has let through and refused. Requests without a token are in neither number.
    #[must_use]
    pub fn stats(&self) -> FenceStats {
        self.counters.stats()
    }

    /// Whether a request may come in, and with what. `None`: it is not fenced.
    async fn admit(&self, request: &Parts) -> Result<Option<Fenced>, Refusal> {
        let Some(resource) = (self.resource)(request) else { return Ok(None) };
        let token = match token_in(&request.headers)? {
            Some(token) => token,
            None if self.optional => return Ok(None),
            None => return Err(Refusal::Missing { resource }),
        };
        if !(1..=Resource::MAX_BYTES).contains(&resource.len()) {
            return Err(Refusal::Resource { bytes: resource.len() });
        }
        if let Some(allowed) = self.ahead.filter(|allowed| token > latest(*allowed)) {
            tracing::warn!(resource, %token, "a request was refused, because its token is too far ahead of the clock");
            return Err(Refusal::Ahead { resource, token, allowed });
        }
        let seen = self.marks.raise(&resource, token).await.map_err(|error| {
            tracing::error!(resource, %token, %error, "a request was refused, because its mark could not be raised");
            match error {
                Error::Unavailable { fault: Fault::OutOfMemory, .. } => Refusal::Full,
                error => Refusal::Store { transient: error.is_transient() },
            }
        })?;
        self.counters.check(&resource, &token, seen).map_err(Refusal::Stale)?;
        Ok(Some(Fenced { resource, token }))
    }
}

/// The token of so long after now.
fn latest(ahead: Duration) -> Token {
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Token::new(micros(now).saturating_add(micros(ahead)))
}

/// The one token of a request. Two are an error: one of them would have to be believed.
fn token_in(headers: &HeaderMap) -> Result<Option<Token>, Refusal> {
    let mut values = headers.get_all(TOKEN).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Refusal::Bad { problem: "is there more than once" });
    }
    let token = value.to_str().ok().and_then(|text| text.parse::<Token>().ok().filter(|token| token.to_string() == text));
    token.map(Some).ok_or(Refusal::Bad { problem: "is no token" })
}

impl fmt::Debug for FenceLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { marks, optional, ahead, counters, .. } = self;
        f.debug_struct("FenceLayer")
            .field("marks", marks)
            .field("optional", optional)
            .field("ahead", ahead)
            .field("counters", counters)
            .finish_non_exhaustive()
    }
}

impl<S> Layer<S> for FenceLayer {
    type Service = Fence<S>;

    fn layer(&self, inner: S) -> Fence<S> {
        Fence { inner, layer: self.clone() }
    }
}

/// A service behind a [`FenceLayer`].
#[derive(Debug, Clone)]
pub struct Fence<S> {
    inner: S,
    layer: FenceLayer,
}

impl<S, B, R> Service<Request<B>> for Fence<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    B: Send + 'static,
    R: From<String>,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<R>, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The one that was found ready is called; a clone of it may not be ready.
        let fresh = self.inner.clone();
        let mut ready = std::mem::replace(&mut self.inner, fresh);
        let layer = self.layer.clone();
        Box::pin(async move {
            let (mut parts, body) = request.into_parts();
            match layer.admit(&parts).await {
                Ok(fenced) => {
                    fenced.map(|fenced| parts.extensions.insert(fenced));
                    ready.call(Request::from_parts(parts, body)).await
                }
                Err(refusal) => Ok(refusal.answer()),
            }
        })
    }
}
