//! Releasing a hold at the store, however long it takes to understand.

use tracing::debug;

use super::Keeper;
use crate::backend::{Claim, Released};
use crate::clock::Instant;
use crate::engine::Settings;
use crate::engine::driven::{Desk, at_once, bounded};
use crate::engine::turnstile::Turn;
use crate::error::{Error, Result};
use crate::lost::Lost;

const DOING: &str = "releasing";

/// A claim that the store is to be told to forget.
#[derive(Debug)]
pub(crate) struct Release {
    claim: Claim,
    /// Of the hold. The next task of this process asks when it is dropped.
    turn: Option<Turn>,
    /// What the caller is told if the store knows of no such hold.
    lost: Option<Lost>,
    since: Instant,
}

/// Counts a release for as long as it is under way.
struct Counted(Keeper);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.releasing.end();
    }
}

impl Release {
    pub(super) fn new(claim: Claim, turn: Option<Turn>, now: Instant) -> Self {
        Self { claim, turn, lost: None, since: now }
    }

    /// Sets what the caller is told if the store knows of no such hold.
    pub(super) fn or_lost(self, lost: Lost) -> Self {
        Self { lost: Some(lost), ..self }
    }

    /// Tells the store until it has understood, or the lease must have ended. Driven by the caller that waits at the desk, or by the
    /// background.
    ///
    /// The next task of this process asks after the first try, whatever came of it: a store that cannot be reached must not look
    /// like a lock that another client holds.
    pub(crate) fn run(self, keeper: Keeper, desk: Option<Desk<Result<()>>>) -> impl Future<Output = ()> + Send + 'static {
        keeper.0.releasing.begin();
        let (mut release, counted) = (self, Counted(keeper));
        async move { release.tell(&counted.0, desk.as_ref()).await }
    }

    async fn tell(&mut self, keeper: &Keeper, desk: Option<&Desk<Result<()>>>) {
        let slot = desk.and_then(|_| keeper.calls().try_enter(self.since));
        let mut failed = None;
        if let Some(slot) = slot {
            let released = self.send(keeper).await;
            drop(slot);
            match released {
                Ok(released) => return answer(desk, self.told(released, true)),
                Err(e) => failed = Some(e),
            }
        }
        // Boxed: the future of most releases stays small.
        Box::pin(self.tell_again(keeper, desk, failed)).await;
    }

    async fn send(&self, keeper: &Keeper) -> Result<Released> {
        let Settings { backend, timeout, .. } = keeper.settings();
        let mut call = backend.release(&self.claim);
        match at_once(&**backend, DOING, &mut call).await {
            Some(released) => released,
            None => bounded(*timeout, &**backend, DOING, call).await,
        }
    }

    /// One try, as soon as the window of the caller or of the background lets it in.
    async fn send_in_turn(&self, keeper: &Keeper, by_caller: bool) -> Result<Released> {
        let Settings { backend, clock, .. } = keeper.settings();
        if !by_caller {
            return keeper.0.releases.pass(backend.release(&self.claim)).await;
        }
        let _slot = keeper.calls().wait(|| clock.now()).await;
        backend.release(&self.claim).await
    }

    /// What the caller is told when the store has understood.
    fn told(&mut self, released: Released, first: bool) -> Result<()> {
        // Before the answer: the caller's next lock() must not find the turn of the hold that it has released.
        if let Some(turn) = self.turn.take() {
            turn.given_back(matches!(released, Released::Yes { others_wait: true }));
        }
        // After a lost reply "not held" may be the echo of our own release.
        let gone = released == Released::NotHeld && first;
        self.lost.take().filter(|_| gone).map_or(Ok(()), |lost| Err(lost.into()))
    }

    async fn tell_again(&mut self, keeper: &Keeper, desk: Option<&Desk<Result<()>>>, mut failed: Option<Error>) {
        let Settings { backend, clock, timeout, retry, .. } = keeper.settings();
        let (give_up, answer_by) = (self.since.after(self.claim.lease), self.since.after(*timeout));
        let mut failures = 0;
        loop {
            let error = match failed.take() {
                Some(e) => e,
                // The wait for the window counts, too: a try takes no longer than a call may.
                None => match bounded(*timeout, &**backend, DOING, self.send_in_turn(keeper, desk.is_some())).await {
                    Ok(released) => return answer(desk, self.told(released, failures == 0)),
                    Err(e) => e,
                },
            };
            failures += 1;
            drop(self.turn.take());
            let now = clock.now();
            debug!(name = ?self.claim.resource, %error, "release failed");
            if !error.is_transient() || now >= give_up {
                return answer(desk, Err(error));
            }
            if now >= answer_by || failures >= retry.attempts {
                answer(desk, Err(error));
            }
            tokio::time::sleep(retry.pause(failures)).await;
        }
    }
}

fn answer(desk: Option<&Desk<Result<()>>>, result: Result<()>) {
    drop(desk.and_then(|desk| desk.answer(result)));
}
