//! One call of a backend: bounded in time, and a panic of it is an answer that nobody knows.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;

use crate::backend::Backend;
use crate::error::{Error, Fault, Result};

/// A call as a backend returns it.
pub(crate) type Call<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// The answer of a call that has it at once, before there is anything to wait for or to bound.
pub(crate) async fn at_once<T>(backend: &dyn Backend, doing: &str, call: &mut Call<'_, T>) -> Option<Result<T>> {
    std::future::poll_fn(|cx| {
        Poll::Ready(match poll_call(backend, doing, call, cx) {
            Poll::Ready(answer) => Some(answer),
            Poll::Pending => None,
        })
    })
    .await
}

/// Takes a step of a call.
pub(crate) fn poll_call<T>(backend: &dyn Backend, doing: &str, call: &mut Call<'_, T>, cx: &mut Context<'_>) -> Poll<Result<T>> {
    catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(cx))).unwrap_or_else(|_| Poll::Ready(Err(panicked(backend, doing))))
}

/// Bounds one call of a backend. The outcome of a call that was cut off, or panicked, is unknown.
pub(crate) async fn bounded<T>(
    timeout: Duration,
    backend: &dyn Backend,
    doing: &str,
    call: impl Future<Output = Result<T>>,
) -> Result<T> {
    match tokio::time::timeout(timeout, AssertUnwindSafe(call).catch_unwind()).await {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => Err(panicked(backend, doing)),
        Err(_) => Err(unanswered(backend, doing, timeout)),
    }
}

/// A call was cut off.
pub(crate) fn unanswered(backend: &dyn Backend, doing: &str, timeout: Duration) -> Error {
    Error::unavailable(backend.capabilities().backend, doing, Fault::Timeout, format!("no answer within {timeout:?}"))
}

/// Of many claims in one call nobody would hear any more if this were not an answer.
fn panicked(backend: &dyn Backend, doing: &str) -> Error {
    Error::unavailable(backend.capabilities().backend, doing, Fault::Protocol, "the backend has panicked")
}
