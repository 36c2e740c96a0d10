//! Calls to the nodes that go on after the caller was answered, or has gone.
//!
//! They run on the runtime that the quorum was made on: connections and timers belong to it, and a caller's runtime may end first.

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};

/// What the nodes reply, each with its number in the list.
pub(super) type Replies<T> = mpsc::UnboundedReceiver<(usize, T)>;

#[derive(Debug)]
pub(super) struct DetachedCalls {
    runtime: Handle,
    under_way: watch::Sender<usize>,
}

/// Counts a call while it is under way.
struct UnderWay(watch::Sender<usize>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.send_modify(|n| *n -= 1);
    }
}

impl DetachedCalls {
    /// They will run on the current runtime.
    pub(super) fn here() -> Self {
        Self { runtime: Handle::current(), under_way: watch::Sender::new(0) }
    }

    pub(super) fn run(&self, call: impl Future<Output = ()> + Send + 'static) {
        self.under_way.send_modify(|n| *n += 1);
        let under_way = UnderWay(self.under_way.clone());
        self.runtime.spawn(async move {
            call.await;
            drop(under_way);
        });
    }

    /// Calls several nodes at once. The replies come in the order in which they are given.
    pub(super) fn ask<T, F>(&self, calls: impl IntoIterator<Item = (usize, F)>) -> Replies<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let (sender, replies) = mpsc::unbounded_channel();
        self.ask_into(sender, calls);
        replies
    }

    pub(super) fn ask_into<T, F>(&self, sender: mpsc::UnboundedSender<(usize, T)>, calls: impl IntoIterator<Item = (usize, F)>)
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let calls = calls.into_iter().map(|(node, call)| async move { (node, call.await) });
        let mut calls: FuturesUnordered<_> = calls.collect();
        self.run(async move {
            while let Some(reply) = calls.next().await {
                // The caller may have gone. The calls are seen to their end all the same.
                drop(sender.send(reply));
            }
        });
    }

    /// Waits until nothing is under way.
    pub(super) async fn idle(&self) {
        drop(self.under_way.subscribe().wait_for(|n| *n == 0).await);
    }
}
