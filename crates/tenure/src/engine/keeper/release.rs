//! Giving a hold back, however long the store takes to understand.

use tracing::debug;

use super::Keeper;
use crate::backend::{Claim, Released};
use crate::engine::Settings;
use crate::engine::call::bounded;
use crate::engine::driven::Desk;
use crate::engine::turnstile::Turn;
use crate::error::Result;
use crate::lost::Lost;

/// A claim that the store is to be told to forget.
#[derive(Debug)]
pub(crate) struct Release {
    claim: Claim,
    /// Of the hold. The next task of this process asks when it is dropped.
    turn: Option<Turn>,
    /// What is told to the one who waits if the store knows of no such hold.
    lost: Option<Lost>,
}

/// Counts a release for as long as it is under way.
struct Counted(Keeper);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.releasing.end();
    }
}

impl Release {
    pub(super) fn new(claim: Claim, turn: Option<Turn>) -> Self {
        Self { claim, turn, lost: None }
    }

    /// Says what the one who waits is told if the store knows of no such hold.
    pub(super) fn or_lost(self, lost: Lost) -> Self {
        Self { lost: Some(lost), ..self }
    }

    /// Tells the store until it has understood, or the lease must have ended.
    ///
    /// The next task of this process asks after the first try, whatever came of it: a store that cannot be reached is for
    /// it to see, and must not look like a lock that somebody holds.
    pub(crate) fn run(self, keeper: Keeper, desk: Option<Desk<Result<()>>>) -> impl Future<Output = ()> + Send + 'static {
        keeper.0.releasing.begin();
        let counted = Counted(keeper);
        async move {
            let answer = |result| drop(desk.as_ref().and_then(|desk| desk.answer(result)));
            self.tell(&counted.0, answer).await;
        }
    }

    async fn tell(mut self, keeper: &Keeper, answer: impl Fn(Result<()>)) {
        let Settings { backend, clock, timeout, retry, .. } = keeper.settings();
        let asked = clock.now();
        let (give_up, answer_by) = (asked.after(self.claim.lease), asked.after(*timeout));
        let mut failures = 0;
        loop {
            // The wait for a place counts, too: however many there are, a try takes no longer than a call may.
            let call = keeper.calls().pass(backend.release(&self.claim));
            match bounded(*timeout, &**backend, "releasing", call).await {
                Ok(released) => {
                    let others_wait = matches!(released, Released::Yes { others_wait: true });
                    // Before the answer: who asks then must not find the turn of the hold that it has given back.
                    if let Some(turn) = self.turn.take() {
                        turn.given_back(others_wait);
                    }
                    // After a lost reply "not held" may be the echo of our own release.
                    let gone = released == Released::NotHeld && failures == 0;
                    return answer(self.lost.filter(|_| gone).map_or(Ok(()), |lost| Err(lost.into())));
                }
                Err(e) => {
                    failures += 1;
                    drop(self.turn.take());
                    let now = clock.now();
                    debug!(name = ?self.claim.resource, error = %e, "release failed");
                    if !e.is_transient() || now >= give_up {
                        return answer(Err(e));
                    }
                    if now >= answer_by || failures >= retry.attempts {
                        answer(Err(e));
                    }
                    tokio::time::sleep(retry.pause(failures)).await;
                }
            }
        }
    }
}
