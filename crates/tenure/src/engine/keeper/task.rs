//! The keeper's own task: one timer, and the renewals under way. It never waits for a backend inside its loop.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use tokio::sync::Notify;
use tokio::task::JoinSet;
use tracing::{debug, warn};

use super::book::{Due, Urgency};
use super::window::Window;
use super::{Keeper, Shared};
use crate::backend::{Mode, Renewal};
use crate::clock::{Instant, deadline};
use crate::engine::Settings;
use crate::engine::driven::bounded;
use crate::error::Result;
use crate::lost::LostReason;
use crate::retry::jitter;

/// What came of a renewal.
struct Renewed {
    owners: Vec<(u64, Mode)>,
    sent: Instant,
    result: Result<Vec<Renewal>>,
}

pub(super) struct Task {
    settings: Settings,
    /// Weak: the task ends with the last keeper.
    keeper: Weak<Shared>,
    wake: Arc<Notify>,
    calls: JoinSet<Renewed>,
    windows: HashMap<(Urgency, u32), Window>,
}

impl Task {
    pub(super) fn new(keeper: &Arc<Shared>) -> Self {
        let (settings, wake) = (keeper.settings.clone(), Arc::clone(&keeper.wake));
        Self { settings, keeper: Arc::downgrade(keeper), wake, calls: JoinSet::new(), windows: HashMap::new() }
    }

    fn keeper(&self) -> Option<Keeper> {
        self.keeper.upgrade().map(Keeper)
    }

    pub(super) async fn run(mut self) {
        let mut timer = self.settings.clock.timer();
        loop {
            let next = {
                let Some(keeper) = self.keeper() else { return };
                let mut book = keeper.0.book();
                if book.closed {
                    drop(book);
                    // Renewals under way are not cut off: that could cost the releases their connection.
                    return self.calls.detach_all();
                }
                book.next_look()
            };
            tokio::select! {
                () = self.wake.notified() => {}
                () = timer.until(next.unwrap_or(Instant::from_nanos(u64::MAX))), if next.is_some() => {}
                Some(done) = self.calls.join_next(), if !self.calls.is_empty() => {
                    if let (Ok(renewed), Some(keeper)) = (done, self.keeper()) {
                        self.on_renewed(&keeper, renewed);
                    }
                }
            }
            if let Some(keeper) = self.keeper() {
                self.on_time(&keeper);
            }
        }
    }

    fn on_time(&mut self, keeper: &Keeper) {
        let now = self.settings.clock.now();
        let backend = &self.settings.backend;
        let mut book = keeper.0.book();
        let Due { ended, renew, idle } = book.due(now);
        let parts = book.by_part(renew, |claim| backend.partition(&claim.resource));
        drop(book);
        ended.iter().for_each(|(hold, reason)| keeper.lose(hold, *reason));
        idle.iter().for_each(|owner| keeper.end_idle(*owner));
        self.windows.retain(|_, window| window.is_in_use());
        let batch = self.settings.backend.capabilities().batch.max(1);
        for (part, owners) in parts {
            owners.chunks(batch).for_each(|chunk| self.renew(keeper, part, chunk));
        }
    }

    fn renew(&mut self, keeper: &Keeper, part: (Urgency, u32), owners: &[u64]) {
        let now = self.settings.clock.now();
        let batch = keeper.0.book().begin_renewal(owners, self.settings.timeout, now);
        if batch.claims.is_empty() {
            return;
        }
        let window = self.windows.entry(part).or_insert_with(Window::of_renewals).clone();
        let Settings { backend, clock, .. } = self.settings.clone();
        self.calls.spawn(async move {
            let call = async {
                let sent = clock.now();
                (sent, bounded(batch.timeout, &*backend, "renewing", backend.renew(&batch.claims)).await)
            };
            let (sent, result) = window.pass(call).await;
            Renewed { owners: batch.owners, sent, result }
        });
    }

    fn on_renewed(&mut self, keeper: &Keeper, renewed: Renewed) {
        let Renewed { owners, sent, result } = renewed;
        let answers = match result {
            Ok(answers) if answers.len() == owners.len() => answers,
            Ok(_) => return self.failed(keeper, &owners, "the backend answered for another number of claims"),
            Err(e) => return self.failed(keeper, &owners, &e.to_string()),
        };
        for (renewed, answer) in owners.into_iter().zip(answers) {
            match answer {
                Renewal::Extended { valid_for } => {
                    let until = deadline(sent, valid_for, self.settings.drift);
                    self.extended(keeper, renewed, until, sent.after(valid_for / 3));
                }
                Renewal::Gone => self.gone(keeper, renewed),
                Renewal::Unknown(fault) => self.failed(keeper, &[renewed], &fault.to_string()),
            }
        }
    }

    fn extended(&self, keeper: &Keeper, (owner, mode): (u64, Mode), until: Instant, due: Instant) {
        if keeper.0.book().end_renewal(owner, mode).is_none() {
            return;
        }
        let now = self.settings.clock.now();
        // As often as it was handed over meanwhile.
        loop {
            let Some(hold) = keeper.0.book().hold(owner) else { return };
            // A fixed lease was only looked at. A hold that was given back meanwhile has its release under way; only a loss is an
            // end here. Not under the lock of the book, as in [`Keeper::lose`].
            let is_fixed = hold.terms.fixed;
            let goes_on = if is_fixed { hold.is_valid() } else { hold.extend(until) };
            if !goes_on && !hold.is_released() {
                return keeper.lose(&hold, hold.expiry_reason());
            }
            let mut book = keeper.0.book();
            let Some(entry) = book.of(&hold) else { continue };
            if !is_fixed {
                entry.until = entry.until.max(until);
            }
            entry.failures = 0;
            self.settings.counters.renewed.up();
            debug!(name = ?hold.claim.resource, token = %hold.token, "renewed");
            return book.after_renewal(owner, now, due);
        }
    }

    fn gone(&self, keeper: &Keeper, (owner, mode): (u64, Mode)) {
        let gone = keeper.0.book().end_revoked(owner, mode);
        gone.iter().for_each(|hold| keeper.lose(hold, LostReason::Revoked));
    }

    fn failed(&self, keeper: &Keeper, owners: &[(u64, Mode)], error: &str) {
        let now = self.settings.clock.now();
        let mut book = keeper.0.book();
        for (owner, mode) in owners {
            let Some(entry) = book.end_renewal(*owner, *mode) else { continue };
            entry.failures += 1;
            if entry.hold.terms.fixed {
                // It was only looked at, and is to be looked at again.
                entry.is_to_be_watched();
            } else {
                entry.hold.mark_overdue();
            }
            self.settings.counters.renewal_failures.up();
            let left = entry.until.since(now);
            warn!(name = ?entry.hold.claim.resource, token = %entry.hold.token, error, ?left, "renewal failed");
            let pause = self.settings.retry.pause(entry.failures).min(entry.hold.terms.lease / 10);
            let due = now.after(pause / 2 + jitter(pause / 2)).min(entry.ends());
            book.schedule_at(*owner, due);
        }
    }
}

impl Drop for Task {
    /// The runtime has ended under the keeper, or a panic has ended the task: no hold is renewed, or declared lost at its deadline.
    fn drop(&mut self) {
        let Some(keeper) = self.keeper() else { return };
        let mut book = keeper.0.book();
        if std::mem::replace(&mut book.closed, true) {
            return;
        }
        let left = book.drain();
        drop(book);
        // Before the turns go on to waiters: they have no timers left to wait with.
        keeper.0.background.end();
        for entry in left {
            entry.hold.lose(LostReason::Closed);
            if entry.idle.is_none() {
                self.settings.counters.holding.down();
            }
        }
    }
}
