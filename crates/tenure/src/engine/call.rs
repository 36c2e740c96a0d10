//! One call of a backend: bounded in time, and a panic of it is an answer that nobody knows.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;

use crate::backend::Backend;
use crate::error::{Error, Fault, Result};

/// Bounds one call of a backend. The outcome of a call that was cut off, or panicked, is unknown.
pub(crate) async fn bounded<T>(
    timeout: Duration,
    backend: &dyn Backend,
    doing: &str,
    call: impl Future<Output = Result<T>>,
) -> Result<T> {
    let (fault, detail) = match tokio::time::timeout(timeout, AssertUnwindSafe(call).catch_unwind()).await {
        Ok(Ok(result)) => return result,
        // Of many claims in one call nobody would hear any more.
        Ok(Err(_)) => (Fault::Protocol, "the backend has panicked".to_owned()),
        Err(_) => (Fault::Timeout, format!("no answer within {timeout:?}")),
    };
    Err(Error::unavailable(backend.capabilities().backend, doing, fault, detail))
}
