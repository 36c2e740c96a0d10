//! Giving a hold back, however long the store takes to understand.

use tokio::sync::SemaphorePermit;
use tracing::debug;

use super::Keeper;
use crate::backend::{Claim, Released};
use crate::clock::Instant;
use crate::engine::Settings;
use crate::engine::call::{Call, at_once, bounded};
use crate::engine::driven::Desk;
use crate::engine::turnstile::Turn;
use crate::error::Result;
use crate::lost::Lost;

const DOING: &str = "releasing";

/// A claim that the store is to be told to forget.
#[derive(Debug)]
pub(crate) struct Release {
    claim: Claim,
    /// Of the hold. The next task of this process asks when it is dropped.
    turn: Option<Turn>,
    /// What is told to the one who waits if the store knows of no such hold.
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
        let mut release = self;
        // Borrowed by what it does, and so not moved once it has begun.
        async move {
            let answer = |result| drop(desk.as_ref().and_then(|desk| desk.answer(result)));
            release.tell(&counted.0, &answer).await;
        }
    }

    async fn tell(&mut self, keeper: &Keeper, answer: &(dyn Fn(Result<()>) + Send + Sync)) {
        let backend = &keeper.settings().backend;
        let claim = self.claim.clone();
        let mut call = backend.release(&claim);
        let place = keeper.calls().try_enter();
        let at_once = match &place {
            Some(_) => at_once(&**backend, DOING, &mut call).await,
            None => None,
        };
        match at_once {
            Some(Ok(released)) => answer(self.told(released, true)),
            // Apart, so that the way of most is short.
            first => Box::pin(self.go_on_telling(keeper, (first, call, place), answer)).await,
        }
    }

    /// What the one who waits is told when the store has understood.
    fn told(&mut self, released: Released, first: bool) -> Result<()> {
        // Before the answer: who asks then must not find the turn of the hold that it has given back.
        if let Some(turn) = self.turn.take() {
            turn.given_back(matches!(released, Released::Yes { others_wait: true }));
        }
        // After a lost reply "not held" may be the echo of our own release.
        let gone = released == Released::NotHeld && first;
        self.lost.take().filter(|_| gone).map_or(Ok(()), |lost| Err(lost.into()))
    }

    async fn go_on_telling(
        &mut self,
        keeper: &Keeper,
        (mut first, call, place): (Option<Result<Released>>, Call<'_, Released>, Option<SemaphorePermit<'_>>),
        answer: &(dyn Fn(Result<()>) + Send + Sync),
    ) {
        let Settings { backend, clock, timeout, retry, .. } = keeper.settings();
        let (give_up, answer_by) = (self.since.after(self.claim.lease), self.since.after(*timeout));
        let mut failures = 0;
        let mut begun = Some((call, place));
        loop {
            // The wait for a place counts, too: however many there are, a try takes no longer than a call may.
            let released = match (first.take(), begun.take()) {
                (Some(first), _) => first,
                (None, Some((call, Some(_place)))) => bounded(*timeout, &**backend, DOING, call).await,
                (None, Some((call, None))) => bounded(*timeout, &**backend, DOING, keeper.calls().pass(call)).await,
                (None, None) => {
                    let call = keeper.calls().pass(backend.release(&self.claim));
                    bounded(*timeout, &**backend, DOING, call).await
                }
            };
            match released {
                Ok(released) => return answer(self.told(released, failures == 0)),
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
