//! Work that serves all who asked before it began.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{Mutex, MutexGuard, oneshot};

/// Rounds of the same work, one at a time. Whoever asks while a round is under way shares the next one with all others
/// who came meanwhile: however many ask, each waits for two rounds at most.
#[derive(Debug, Default)]
pub(super) struct Rounds<T> {
    begun: AtomicU64,
    /// The last round that ended well, and what came of it.
    last: Mutex<(u64, T)>,
}

impl<T: Clone + Send + 'static> Rounds<T> {
    /// What came of a round that began after this call. To be run by itself, for one who waits for the `answer`: a round that has begun is
    /// others' too. Who has left by then begins none, or they would pile up while each takes long and fails.
    pub(super) async fn share<E>(&self, mut answer: oneshot::Sender<Result<T, E>>, work: impl Future<Output = Result<T, E>>) {
        let before = self.begun.load(Ordering::Acquire);
        let last = tokio::select! {
            biased;
            () = answer.closed() => return,
            last = self.last.lock() => last,
        };
        // Nobody to hear it may be left: the round was for all.
        drop(answer.send(self.after(before, last, work).await));
    }

    async fn after<E>(
        &self,
        before: u64,
        mut last: MutexGuard<'_, (u64, T)>,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        if last.0 > before {
            return Ok(last.1.clone());
        }
        let round = self.begun.fetch_add(1, Ordering::AcqRel) + 1;
        *last = (round, work.await?);
        Ok(last.1.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn those_who_come_during_a_round_share_the_next() {
        let (rounds, runs) = (Arc::new(Rounds::<u32>::default()), Arc::new(AtomicU32::new(0)));
        let ask = |fails: bool| {
            let (rounds, runs) = (Arc::clone(&rounds), Arc::clone(&runs));
            let (answer, answered) = oneshot::channel();
            tokio::spawn(async move {
                let work = async {
                    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
                    let run = runs.fetch_add(1, Ordering::SeqCst) + 1;
                    if fails { Err(run) } else { Ok(run) }
                };
                rounds.share(answer, work).await;
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
