//! What goes on after the caller has been answered: late answers, votes to give back. One task for all of it.

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, oneshot};

pub(super) type Errand = BoxFuture<'static, ()>;

enum Msg {
    Run(Errand),
    /// Answered when nothing is under way.
    Idle(oneshot::Sender<()>),
}

/// The way to the task. It ends when all ways to it and its work are gone.
#[derive(Debug, Clone)]
pub(super) struct Errands(mpsc::UnboundedSender<Msg>);

impl Errands {
    /// Starts the task on the current runtime.
    pub(super) fn start() -> Self {
        let (sender, mut inbox) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            let mut under_way = FuturesUnordered::<Errand>::new();
            let mut asking = Vec::<oneshot::Sender<()>>::new();
            loop {
                if under_way.is_empty() {
                    for asker in asking.drain(..) {
                        let _gone = asker.send(());
                    }
                }
                tokio::select! {
                    msg = inbox.recv() => match msg {
                        Some(Msg::Run(errand)) => under_way.push(errand),
                        Some(Msg::Idle(asker)) => asking.push(asker),
                        None => break,
                    },
                    Some(()) = under_way.next(), if !under_way.is_empty() => {}
                }
            }
            while under_way.next().await.is_some() {}
        });
        Self(sender)
    }

    pub(super) fn run(&self, errand: impl Future<Output = ()> + Send + 'static) {
        // The task is gone only with its runtime: leases end what is left.
        drop(self.0.send(Msg::Run(Box::pin(errand))));
    }

    /// Waits until nothing is under way.
    pub(super) async fn idle(&self) {
        let (asker, idle) = oneshot::channel();
        drop(self.0.send(Msg::Idle(asker)));
        drop(idle.await);
    }
}
