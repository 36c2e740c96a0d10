//! Work that many callers share: one run serves all callers that came before it began.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{Mutex, oneshot};

/// Runs of the same work, one at a time. Calls during a run share the next one, so each waits for two runs at most.
#[derive(Debug, Default)]
pub(super) struct SingleFlight<T> {
    begun: AtomicU64,
    /// The last run that succeeded, and its result.
    last: Mutex<(u64, T)>,
}

impl<T: Clone + Send + 'static> SingleFlight<T> {
    /// Answers with a run that began after this call. To be spawned: a run serves others, too, and must not stop with its caller.
    /// A caller that has left begins none: runs that take long and fail would pile up.
    pub(super) async fn share<E>(&self, mut answer: oneshot::Sender<Result<T, E>>, work: impl Future<Output = Result<T, E>>) {
        let before = self.begun.load(Ordering::Acquire);
        let mut last = tokio::select! {
            biased;
            () = answer.closed() => return,
            last = self.last.lock() => last,
        };
        if last.0 <= before {
            let run = self.begun.fetch_add(1, Ordering::AcqRel) + 1;
            match work.await {
                Ok(result) => *last = (run, result),
                Err(e) => return drop(answer.send(Err(e))),
            }
        }
        drop(answer.send(Ok(last.1.clone())));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn those_who_come_during_a_round_share_the_next() {
        let (flights, runs) = (Arc::new(SingleFlight::<u32>::default()), Arc::new(AtomicU32::new(0)));
        let ask = |fails: bool| {
            let (flights, runs) = (Arc::clone(&flights), Arc::clone(&runs));
            let (answer, answered) = oneshot::channel();
            tokio::spawn(async move {
                let work = async {
                    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
                    let run = runs.fetch_add(1, Ordering::SeqCst) + 1;
                    if fails { Err(run) } else { Ok(run) }
                };
                flights.share(answer, work).await;
            });
            answered
        };
        let first = ask(false);
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        let others: Vec<_> = (0..50).map(|_| ask(false)).collect();
        assert_eq!(first.await.expect("no panic"), Ok(1));
        for other in others {
            assert_eq!(other.await.expect("no panic"), Ok(2), "a round that began before it was asked proves nothing");
        }
        assert_eq!(ask(true).await.expect("no panic"), Err(3));
        assert_eq!(ask(false).await.expect("no panic"), Ok(4), "what failed is shared with nobody");

        let fails = ask(true);
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        drop((0..50).map(|_| ask(true)).collect::<Vec<_>>());
        assert_eq!(fails.await.expect("no panic"), Err(5));
        assert_eq!(ask(false).await.expect("no panic"), Ok(6), "those who left have begun nothing");
    }
}
