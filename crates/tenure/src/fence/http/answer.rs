//! The answer to a refused request, and how its sender reads it.

use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use serde::{Deserialize, Serialize};

use crate::fence::{Pass, Stale};
use crate::name::{Resource, Token};

const STALE: &str = "stale_token";

/// Why a request is not let in.
#[derive(Debug)]
pub(super) enum Refusal {
    Stale(Stale),
    Missing {
        resource: String,
    },
    Bad {
        problem: &'static str,
    },
    /// Further ahead of the clock than the layer allows.
    Ahead {
        resource: String,
        token: Token,
        allowed: Duration,
    },
    /// No name that a mark can have.
    Resource {
        bytes: usize,
    },
    /// The store's own words are for the log: they may name what is not the sender's business.
    Store {
        transient: bool,
    },
    /// There is no room for a mark.
    Full,
}

#[derive(Serialize)]
struct Body<'a> {
    error: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seen: Option<String>,
    message: String,
}

#[derive(Deserialize)]
struct Told {
    error: String,
    resource: String,
    token: String,
    seen: String,
}

impl Refusal {
    pub(super) fn answer<B: From<String>>(&self) -> Response<B> {
        let (status, body) = self.parts();
        let mut answer = Response::new(serde_json::to_string(&body).unwrap_or_default().into());
        *answer.status_mut() = status;
        answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        answer
    }

    fn parts(&self) -> (StatusCode, Body<'_>) {
        let plain = |error, message: String| Body { error, resource: None, token: None, seen: None, message };
        match self {
            Self::Stale(stale) => (StatusCode::PRECONDITION_FAILED, Body::stale(stale)),
            Self::Missing { resource } => {
                let message = format!("a request for {resource:?} has no header tenure-token; allowed: one with a token");
                let body = plain("missing_token", message);
                (StatusCode::PRECONDITION_REQUIRED, Body { resource: Some(resource), ..body })
            }
            Self::Bad { problem } => {
                let message = format!("the header tenure-token {problem}; allowed: one number, 0 to 9223372036854775807");
                (StatusCode::BAD_REQUEST, plain("bad_token", message))
            }
            Self::Ahead { resource, token, allowed } => {
                let message = format!("the token {token} is too far ahead of the clock here; allowed: up to {allowed:?}");
                let body = plain("token_ahead", message);
                (StatusCode::BAD_REQUEST, Body { resource: Some(resource), token: Some(token.to_string()), ..body })
            }
            Self::Resource { bytes } => {
                let message =
                    format!("what the request is about has a name of {bytes} bytes; allowed: 1 to {}", Resource::MAX_BYTES);
                (StatusCode::BAD_REQUEST, plain("bad_resource", message))
            }
            Self::Full => {
                let message = "there is no room for the mark of this resource";
                (StatusCode::SERVICE_UNAVAILABLE, plain("fence_full", message.to_owned()))
            }
            Self::Store { transient: true } => {
                let message = "whether the token is too old cannot be found out now; ask again later".to_owned();
                (StatusCode::SERVICE_UNAVAILABLE, plain("fence_unavailable", message))
            }
            Self::Store { transient: false } => {
                let message = "whether the token is too old cannot be found out; the service's log says why".to_owned();
                (StatusCode::INTERNAL_SERVER_ERROR, plain("fence_failed", message))
            }
        }
    }
}

impl<'a> Body<'a> {
    fn stale(stale: &'a Stale) -> Self {
        let Stale { resource, token, seen } = stale;
        Self {
            error: STALE,
            resource: Some(resource),
            token: Some(token.to_string()),
            seen: Some(seen.to_string()),
            message: stale.to_string(),
        }
    }
}

/// The answer to a request that came too late: for handlers whose own storage says so.
#[must_use]
pub fn refusal<B: From<String>>(stale: &Stale) -> Response<B> {
    Refusal::Stale(stale.clone()).answer()
}

/// Reads an answer: whether the request came too late with this pass, which hears of it.
///
/// `None` for every other answer, also for one about the token of another hold.
#[must_use]
pub fn stale(status: StatusCode, body: &[u8], pass: &dyn Pass) -> Option<Stale> {
    if status != StatusCode::PRECONDITION_FAILED {
        return None;
    }
    let told: Told = serde_json::from_slice(body).ok().filter(|told: &Told| told.error == STALE)?;
    let (token, seen) = (told.token.parse::<Token>().ok()?, told.seen.parse::<Token>().ok()?);
    if token != pass.token() || seen <= token {
        return None;
    }
    pass.refused();
    Some(Stale { resource: told.resource, token, seen })
}
