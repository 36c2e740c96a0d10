//! Fences between services: a header that the sender stamps, and a layer for the receiver that refuses stale requests.
//!
//! The sender:
//!
//! ```
//! use ::http::{HeaderMap, StatusCode};
//! use tenure::fence::http;
//!
//! # fn send(headers: HeaderMap) -> (StatusCode, Vec<u8>) { (StatusCode::OK, headers[http::TOKEN].as_bytes().to_vec()) }
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! # let locker = tenure::Locker::connect("memory:").await?;
//! let guard = locker.mutex("stock:1001").lock().await?;
//! let mut headers = HeaderMap::new();
//! http::stamp(&mut headers, &guard);
//! let (status, body) = send(headers); // with any HTTP client
//! if let Some(stale) = http::stale(status, &body, &guard) {
//!     return Err(stale.into()); // the locker has counted it
//! }
//! # Ok(())
//! # }
//! # tokio::runtime::Runtime::new().unwrap().block_on(example()).unwrap();
//! ```
//!
//! The receiver, here with axum:
//!
//! ```
//! use std::sync::Arc;
//!
//! use axum::response::Response;
//! use axum::routing::put;
//! use axum::{Extension, Router};
//! use tenure::fence::http::{self, FenceLayer, Fenced};
//! use tenure::fence::marks::MemoryMarks;
//! # use tenure::fence::Stale;
//!
//! async fn write(Extension(fenced): Extension<Fenced>) -> Response {
//!     match save(&fenced).await {
//!         Ok(()) => Response::default(),
//!         Err(stale) => http::refusal(&stale), // as the layer would have answered
//!     }
//! }
//!
//! # async fn save(fenced: &Fenced) -> Result<(), Stale> { let _ = fenced; Ok(()) }
//! let marks = Arc::new(MemoryMarks::default()); // several processes share marks in Redis or in a database
//! let app: Router = Router::new().route("/stock/{id}", put(write)).layer(FenceLayer::new(marks));
//! ```
//!
//! # What it can do, and what not
//! **It checks a request, not the write.** A request that was let in can be overtaken before its handler writes: the handler is slow, a later
//! request with a larger token is let in and writes, and then the first one does. So a handler that can must pass the token on to
//! its own storage; therefore it finds [`Fenced`] in the request. The layer alone stops requests that come after a larger token *has been
//! there*: late and repeated requests, and those of a holder that slept. That is most of them, and not all.
//!
//! **Put it behind authentication** (axum: `route_layer`, with authentication outside of it). A sender that reaches the layer can
//! raise a mark: one request with the largest token there is closes a resource to all later ones, and every invented path becomes a
//! mark. A mark that is too high can be corrected only where it is kept, when no client holds the lock. Where senders are not
//! trusted with that, bounds help: [`FenceLayer::ahead`] on how far in the future a token may be; names from a list of yours
//! ([`FenceLayer::resource`]) or a number of marks ([`MemoryMarks::at_most`](super::marks::MemoryMarks::at_most)) on memory. Marks in Redis and in
//! databases are a key or a row per resource, forever: bound them there (`maxmemory` with `noeviction`, which is an answer of 503; **a policy
//! that evicts forgets marks**).
//!
//! # Answers
//! | status | `error` | when |
//! |---|---|---|
//! | 412 | `stale_token` | a larger token has been there; `resource`, `token` and `seen` say it |
//! | 428 | `missing_token` | there is no header, unless the layer is [optional](FenceLayer::optional) |
//! | 400 | `bad_token` | the header is no token, or there are several |
//! | 400 | `token_ahead` | the token is further [ahead](FenceLayer::ahead) of the clock than the layer allows |
//! | 400 | `bad_resource` | what the request is about has a name that no lock can have: not 1 to 512 bytes |
//! | 503 | `fence_unavailable` | the marks cannot be reached; asking again may help |
//! | 503 | `fence_full` | there is no room for the mark of one more resource |
//! | 500 | `fence_failed` | the marks refuse; the log says why |
//!
//! The body is JSON and has a `message`. Tokens in it are strings, because many readers of JSON know no whole numbers above 2^53.

mod answer;
mod layer;

use ::http::request::Parts;
use ::http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;

pub use self::answer::{refusal, stale};
pub use self::layer::{Fence, FenceLayer};
use super::Pass;
use crate::name::Token;

/// The header that carries the token, as a decimal number.
pub const TOKEN: HeaderName = HeaderName::from_static("tenure-token");

/// Puts the token of a hold into the header of a request.
pub fn stamp(headers: &mut HeaderMap, pass: &dyn Pass) {
    headers.insert(TOKEN, HeaderValue::from(pass.token().get()));
}

/// Found in the extensions of a request that was let in: what to show at the handler's own storage.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Fenced {
    /// What the request is about, as the layer sees it.
    pub resource: String,
    /// The token that it came with.
    pub token: Token,
}

impl Pass for Fenced {
    fn token(&self) -> Token {
        self.token
    }

    /// The sender's locker counts it, by way of the answer.
    fn refused(&self) {}
}

/// The resource that a layer takes unless it is told otherwise: the path, decoded, so that two ways to write it are one resource.
///
/// Only what a path means by itself is the same: `/a%2Fb` and `/a/b` are two, and so are `/a` and `/a/`, or `/stock/7` and `/stock/07`,
/// which a handler may take for one: then name the resource by what it is ([`FenceLayer::resource`]). Below `Router::nest` axum
/// hides the part of the path that has been matched.
#[must_use]
pub fn path(request: &Parts) -> String {
    let plain = |part: &str| {
        let mut name = String::new();
        for piece in percent_decode_str(part).collect::<Vec<u8>>().utf8_chunks() {
            name.push_str(&piece.valid().replace('%', "%25").replace('/', "%2F"));
            piece.invalid().iter().for_each(|byte| name.push_str(&format!("%{byte:02X}")));
        }
        name
    };
    request.uri.path().split('/').map(plain).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_ways_to_write_a_path_are_one_resource_also_if_it_is_no_text() {
        let name = |uri: &str| path(&::http::Request::get(uri).body(()).expect(uri).into_parts().0);
        for (one, other) in [("/%61/b", "/a/b"), ("/%ff", "/%FF"), ("/%41%ff", "/A%FF"), ("/%C3%A4", "/%c3%a4")] {
            assert_eq!(name(one), name(other));
        }
        for (one, other) in [("/a%2Fb", "/a/b"), ("/%25FF", "/%FF"), ("/a", "/a/"), ("/7", "/07")] {
            assert_ne!(name(one), name(other));
        }
    }
}
