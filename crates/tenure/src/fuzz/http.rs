//! Requests to the layer of a service, and its answers.

use std::convert::Infallible;
use std::sync::Arc;

use futures_util::FutureExt;
use http::{HeaderValue, Request, Response, StatusCode, Uri};
use tower_layer::Layer;
use tower_service::Service;

use crate::fence::http::{FenceLayer, Fenced, TOKEN, path, refusal, stale};
use crate::fence::marks::MemoryMarks;
use crate::fence::{Pass, Stale};
use crate::name::Token;

/// A handler that says with which token it was reached.
#[derive(Clone)]
struct Handler;

impl Service<Request<()>> for Handler {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        let fenced = request.extensions().get::<Fenced>().expect("only with a token");
        std::future::ready(Ok(Response::new(format!("{} {}", fenced.token, fenced.resource))))
    }
}

/// The path in the first line, then a header `tenure-token` per line.
pub(super) fn door(data: &[u8]) {
    let mut lines = data.split(|byte| *byte == b'\n');
    let Ok(uri) = Uri::try_from(lines.next().unwrap_or_default()) else { return };
    let mut service = FenceLayer::new(Arc::new(MemoryMarks::default())).layer(Handler);
    let mut largest = None;
    for headers in lines {
        let mut request = Request::new(());
        *request.uri_mut() = uri.clone();
        for value in headers.split(|byte| *byte == b'\t') {
            let Ok(value) = HeaderValue::from_bytes(value) else { continue };
            request.headers_mut().append(TOKEN, value);
        }
        let values: Vec<_> = request.headers().get_all(TOKEN).iter().map(|value| value.as_bytes().to_owned()).collect();
        let answer = service.call(request).now_or_never().expect("marks in memory do not wait").unwrap_or_else(|e| match e {});
        match answer.status() {
            StatusCode::OK => {
                let (token, resource) = answer.body().split_once(' ').expect("what the handler says");
                assert_eq!([token.as_bytes()], *values, "one header, as the token is written");
                assert_eq!(resource, path(&Request::get(uri.clone()).body(()).expect("a request").into_parts().0));
                let token = token.parse::<Token>().expect("a token of 63 bits");
                assert!(largest.is_none_or(|largest| largest <= token), "let in behind {largest:?}");
                largest = Some(token);
            }
            StatusCode::PRECONDITION_FAILED => {
                let token: Token = str::from_utf8(&values[0]).expect("digits").parse().expect("a token");
                let told = stale(answer.status(), answer.body().as_bytes(), &token).expect("the sender understands it");
                assert_eq!((told.token, Some(told.seen)), (token, largest));
            }
            StatusCode::BAD_REQUEST => assert!(!values.is_empty()),
            StatusCode::PRECONDITION_REQUIRED => assert!(values.is_empty()),
            other => panic!("an answer {other}"),
        }
    }
}

/// What claims to be a refusal counts only if it is about this token and a larger one, and reads as it was written.
pub(super) fn answer(data: &[u8]) {
    let pass = Token::new(7);
    for status in [StatusCode::PRECONDITION_FAILED, StatusCode::OK] {
        let Some(told) = stale(status, data, &pass) else { continue };
        assert_eq!(status, StatusCode::PRECONDITION_FAILED);
        assert!(told.token == pass.token() && told.seen > told.token && i64::try_from(told.seen.get()).is_ok());
        let again: Response<String> = refusal(&Stale { ..told.clone() });
        let again = stale(again.status(), again.body().as_bytes(), &pass).expect("our own words");
        assert_eq!((again.resource, again.seen), (told.resource, told.seen));
    }
}
