//! [`Driver`]: the task that reads and writes for a connection. It can be ended from any thread, also while its runtime is blocked.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, TryLockError};
use std::task::{Context, Poll, Waker};

use tokio::task::AbortHandle;

use super::shared::lock;

/// Its end tells all calls under way.
#[derive(Clone)]
pub(super) struct Driver {
    work: Arc<Work>,
    task: AbortHandle,
}

struct Work {
    ended: AtomicBool,
    /// How many steps it has taken.
    steps: AtomicU64,
    future: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
    waker: Mutex<Option<Waker>>,
}

impl Work {
    /// Drops what is left. A step that is under way, perhaps further up on this stack, does so when it is over.
    fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
        let left = match self.future.try_lock() {
            Ok(mut future) => future.take(),
            Err(TryLockError::Poisoned(future)) => future.into_inner().take(),
            Err(TryLockError::WouldBlock) => None,
        };
        drop(left);
    }
}

/// The task's own part.
struct Run(Arc<Work>);

impl Future for Run {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.0.steps.fetch_add(1, Ordering::Relaxed);
        let mut waker = lock(&self.0.waker);
        if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
        drop(waker);
        let step = match &mut *lock(&self.0.future) {
            Some(future) => future.as_mut().poll(cx),
            None => Poll::Ready(()),
        };
        // After the lock: one that ends it meanwhile has found it locked.
        if step.is_ready() || self.0.ended.load(Ordering::SeqCst) {
            self.0.end();
            return Poll::Ready(());
        }
        Poll::Pending
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Driver {
    /// Runs on the present runtime.
    pub(super) fn spawn(future: impl Future<Output = ()> + Send + 'static) -> Self {
        let (ended, steps, waker) = (AtomicBool::new(false), AtomicU64::new(0), Mutex::default());
        let work = Arc::new(Work { ended, steps, waker, future: Mutex::new(Some(Box::pin(future))) });
        let task = tokio::spawn(Run(Arc::clone(&work))).abort_handle();
        Self { work, task }
    }

    /// Ends the connection and all calls under way.
    pub(super) fn abort(&self) {
        self.work.end();
        self.task.abort();
    }

    /// Has it take a step, if its runtime lets it. Returns how many it had taken before.
    pub(super) fn nudge(&self) -> u64 {
        let steps = self.work.steps.load(Ordering::Relaxed);
        let waker = lock(&self.work.waker).clone();
        waker.into_iter().for_each(Waker::wake);
        steps
    }

    pub(super) fn is_finished(&self) -> bool {
        self.work.ended.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::runtime::Builder;
    use tokio::sync::oneshot;

    #[test]
    fn a_driver_ends_although_its_runtime_stands_still() {
        let runtime = Builder::new_current_thread().build().expect("a runtime");
        let (call, mut answer) = oneshot::channel::<()>();
        let driver = {
            let _entered = runtime.enter();
            Driver::spawn(async move {
                std::future::pending::<()>().await;
                drop(call);
            })
        };
        driver.abort();
        assert_eq!(answer.try_recv(), Err(oneshot::error::TryRecvError::Closed), "the calls are told");
    }

    #[tokio::test]
    async fn a_driver_can_be_ended_by_its_own_step() {
        let (give, own) = oneshot::channel::<Driver>();
        let (call, answer) = oneshot::channel::<()>();
        let driver = Driver::spawn(async move {
            own.await.expect("itself").abort();
            std::future::pending::<()>().await;
            drop(call);
        });
        drop(give.send(driver));
        assert!(answer.await.is_err(), "it has ended");
    }
}
