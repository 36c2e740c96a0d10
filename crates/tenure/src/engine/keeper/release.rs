//! Giving a hold back, however long the store takes to understand.

use tracing::debug;

use super::Ack;
use super::window::Window;
use crate::backend::{Claim, Released};
use crate::engine::Settings;
use crate::engine::call::bounded;
use crate::engine::turnstile::Turn;
use crate::error::Result;
use crate::lost::Lost;

/// Tells the store until it has understood, or the lease must have ended.
///
/// The next task of this process asks after the first try, whatever came of it: a store that cannot be reached is for
/// it to see, and must not look like a lock that somebody holds.
pub(super) async fn release(
    settings: &Settings,
    window: &Window,
    claim: &Claim,
    mut turn: Option<Turn>,
    ack: Option<(Ack, Lost)>,
) {
    let Settings { backend, clock, timeout, retry, .. } = settings;
    let give_up = clock.now().after(claim.lease);
    let answer_by = clock.now().after(*timeout);
    let (mut ack, lost) = ack.unzip();
    let mut answer = |result: Result<()>| {
        if let Some(ack) = ack.take() {
            drop(ack.send(result));
        }
    };
    let mut failures = 0;
    loop {
        // The wait for a place counts, too: however many there are, a try takes no longer than a call may.
        match bounded(*timeout, &**backend, "releasing", window.pass(backend.release(claim))).await {
            Ok(released) => {
                let others_wait = matches!(released, Released::Yes { others_wait: true });
                // Before the answer: who asks then must not find the turn of the hold that it has given back.
                if let Some(turn) = turn.take() {
                    turn.given_back(others_wait);
                }
                // After a lost reply "not held" may be the echo of our own release.
                let gone = released == Released::NotHeld && failures == 0;
                return answer(lost.filter(|_| gone).map_or(Ok(()), |lost| Err(lost.into())));
            }
            Err(e) => {
                failures += 1;
                drop(turn.take());
                let now = clock.now();
                debug!(name = ?claim.resource, error = %e, "release failed");
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
