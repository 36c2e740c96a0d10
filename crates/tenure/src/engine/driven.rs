//! [`Driven`]: work that its caller drives, and that goes on in the background when the caller leaves it half-way. And calls of a
//! backend: bounded in time; the outcome of a panic is unknown.
//!
//! The caller's own task takes each step, so nothing changes threads. The work answers at its [`Desk`]. What is left to do then, or
//! when the caller has gone, the locker's runtime does.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::FutureExt;

use super::background::Background;
use crate::backend::Backend;
use crate::error::{Error, Fault, Result};

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Where the work answers, and sees whether its caller waits.
pub(crate) struct Desk<T>(Arc<Shared<T>>);

struct Shared<T> {
    /// The caller has gone, or has its answer.
    left: AtomicBool,
    slot: Mutex<Slot<T>>,
}

struct Slot<T> {
    answer: Option<T>,
    /// Of the caller, while the work is done elsewhere.
    waker: Option<Waker>,
    /// The work has ended, or was dropped.
    closed: bool,
}

impl<T> Shared<T> {
    fn slot(&self) -> MutexGuard<'_, Slot<T>> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Desk<T> {
    /// Whether the caller waits for the answer.
    pub(crate) fn is_open(&self) -> bool {
        !self.0.left.load(Ordering::Acquire)
    }

    /// Answers once. Without a caller the answer comes back.
    pub(crate) fn answer(&self, answer: T) -> Option<T> {
        if self.0.left.swap(true, Ordering::AcqRel) {
            return Some(answer);
        }
        let waker = {
            let mut slot = self.0.slot();
            slot.answer = Some(answer);
            slot.waker.take()
        };
        waker.into_iter().for_each(Waker::wake);
        None
    }
}

impl<T> Drop for Desk<T> {
    fn drop(&mut self) {
        let waker = {
            let mut slot = self.0.slot();
            slot.closed = true;
            slot.waker.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }
}

/// Work under way. `None`: it came to no answer, because its runtime has ended.
#[must_use = "work does nothing unless it is awaited"]
pub(crate) struct Driven<T> {
    work: Option<Work>,
    shared: Arc<Shared<T>>,
    background: Background,
}

impl<T: Send + 'static> Driven<T> {
    pub(crate) fn new<F>(background: &Background, work: impl FnOnce(Desk<T>) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let slot = Mutex::new(Slot { answer: None, waker: None, closed: false });
        let shared = Arc::new(Shared { left: AtomicBool::new(false), slot });
        let work = Box::pin(work(Desk(Arc::clone(&shared))));
        Self { work: Some(work), shared, background: background.clone() }
    }
}

impl<T> Driven<T> {
    /// Takes a step of the work on this thread, if that can be.
    fn step(&mut self, cx: &mut Context<'_>) {
        let Some(mut work) = self.work.take() else { return };
        if self.background.has_ended() {
            return;
        }
        match self.background.enter() {
            Some(_entered) => {
                if work.as_mut().poll(cx).is_pending() {
                    self.background.begin_wait();
                    self.work = Some(work);
                }
            }
            // A thread in its last moment has no timers.
            None => self.background.spawn(work),
        }
    }
}

impl<T> Future for Driven<T> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let this = &mut *self;
        this.step(cx);
        let mut slot = this.shared.slot();
        if slot.answer.is_some() || slot.closed {
            let answer = slot.answer.take();
            drop(slot);
            if let Some(rest) = this.work.take() {
                this.background.spawn(rest);
            }
            return Poll::Ready(answer);
        }
        if this.work.is_none() {
            slot.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}

impl<T> Drop for Driven<T> {
    fn drop(&mut self) {
        self.shared.left.store(true, Ordering::Release);
        if let Some(work) = self.work.take() {
            self.background.spawn(work);
        }
        // An answer that the caller did not take is dropped after the work.
        let unclaimed = self.shared.slot().answer.take();
        drop(unclaimed);
    }
}

/// A call as a backend returns it.
pub(crate) type BackendCall<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// The answer of a call that has it at once, before there is anything to wait for or to bound.
pub(crate) async fn at_once<T>(backend: &dyn Backend, doing: &str, call: &mut BackendCall<'_, T>) -> Option<Result<T>> {
    std::future::poll_fn(|cx| {
        Poll::Ready(match poll_call(backend, doing, call, cx) {
            Poll::Ready(answer) => Some(answer),
            Poll::Pending => None,
        })
    })
    .await
}

/// Takes a step of a call.
pub(crate) fn poll_call<T>(
    backend: &dyn Backend,
    doing: &str,
    call: &mut BackendCall<'_, T>,
    cx: &mut Context<'_>,
) -> Poll<Result<T>> {
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

/// An answer, or the claims of a call that panicked would never be heard of again.
fn panicked(backend: &dyn Backend, doing: &str) -> Error {
    Error::unavailable(backend.capabilities().backend, doing, Fault::Protocol, "the backend has panicked")
}
