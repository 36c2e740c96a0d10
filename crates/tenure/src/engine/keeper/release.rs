//! Giving a hold back, however long the store takes to understand.

use tracing::debug;

use super::{Keeper, Place};
use crate::backend::{Claim, Released};
use crate::clock::Instant;
use crate::engine::Settings;
use crate::engine::driven::Desk;
use crate::engine::driven::{at_once, bounded};
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
    /// What is told to the one who waits if the store knows of no such hold.
    lost: Option<Lost>,
    since: Instant,
}

/// Who drives a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Caller,
    /// Which sees it to its end.
    Background,
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
        let (mut release, by) = (self, if desk.is_some() { By::Caller } else { By::Background });
        // Borrowed by what it does, and so not moved once it has begun.
        async move {
            let answer = |result| drop(desk.as_ref().and_then(|desk| desk.answer(result)));
            release.tell(&counted.0, by, &answer).await;
        }
    }

    async fn tell(&mut self, keeper: &Keeper, by: By, answer: &(dyn Fn(Result<()>) + Send + Sync)) {
        let place = match by {
            By::Caller => keeper.calls().try_enter(self.since),
            By::Background => None,
        };
        let failed = match place {
            None => None,
            Some(place) => match self.begin(keeper, place).await {
                Ok(released) => return answer(self.told(released, true)),
                failed => failed.err(),
            },
        };
        // Apart, so that the way of most is short.
        Box::pin(self.go_on_telling(keeper, by, failed, answer)).await;
    }

    /// The first try.
    async fn begin(&self, keeper: &Keeper, _place: Place<'_>) -> Result<Released> {
        let Settings { backend, timeout, .. } = keeper.settings();
        let mut call = backend.release(&self.claim);
        match at_once(&**backend, DOING, &mut call).await {
            Some(released) => released,
            None => bounded(*timeout, &**backend, DOING, call).await,
        }
    }

    /// One try, when it has a place.
    async fn call(&self, keeper: &Keeper, by: By) -> Result<Released> {
        let Settings { backend, clock, .. } = keeper.settings();
        match by {
            By::Background => keeper.0.releases.pass(backend.release(&self.claim)).await,
            By::Caller => {
                let _place = keeper.calls().wait(|| clock.now()).await;
                backend.release(&self.claim).await
            }
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
        by: By,
        mut failed: Option<Error>,
        answer: &(dyn Fn(Result<()>) + Send + Sync),
    ) {
        let Settings { backend, clock, timeout, retry, .. } = keeper.settings();
        let (give_up, answer_by) = (self.since.after(self.claim.lease), self.since.after(*timeout));
        let mut failures = 0;
        loop {
            let released = match failed.take() {
                Some(e) => Err(e),
                // The wait for a place counts, too: however many there are, a try takes no longer than a call may.
                None => bounded(*timeout, &**backend, DOING, self.call(keeper, by)).await,
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
