//! Calls to the nodes, which go on after the caller has been answered, or has gone away.
//!
//! They run where the quorum was made: connections and timers belong to a runtime, and a caller's may end before them.

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};

/// A call to one node, with the node's place in the list.
pub(super) type Call<T> = BoxFuture<'static, (usize, T)>;
pub(super) type Answers<T> = mpsc::UnboundedReceiver<(usize, T)>;

#[derive(Debug)]
pub(super) struct Errands {
    runtime: Handle,
    under_way: watch::Sender<usize>,
}

/// Counts an errand for as long as it is under way.
struct UnderWay(watch::Sender<usize>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.send_modify(|n| *n -= 1);
    }
}

impl Errands {
    /// They will run on the current runtime.
    pub(super) fn here() -> Self {
        Self { runtime: Handle::current(), under_way: watch::Sender::new(0) }
    }

    pub(super) fn run(&self, errand: impl Future<Output = ()> + Send + 'static) {
        self.under_way.send_modify(|n| *n += 1);
        let under_way = UnderWay(self.under_way.clone());
        self.runtime.spawn(async move {
            errand.await;
            drop(under_way);
        });
    }

    /// Asks all at once. The answers come as they are given.
    pub(super) fn ask<T: Send + 'static>(&self, calls: impl IntoIterator<Item = Call<T>>) -> Answers<T> {
        let (sender, answers) = mpsc::unbounded_channel();
        let mut calls: FuturesUnordered<Call<T>> = calls.into_iter().collect();
        self.run(async move {
            while let Some(answer) = calls.next().await {
                // Nobody may be waiting any more; the calls are seen to their end all the same.
                drop(sender.send(answer));
            }
        });
        answers
    }

    /// Waits until nothing is under way.
    pub(super) async fn idle(&self) {
        drop(self.under_way.subscribe().wait_for(|n| *n == 0).await);
    }
}
