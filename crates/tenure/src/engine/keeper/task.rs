//! The keeper's loop: one timer, one inbox, and the calls under way.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tracing::{debug, warn};

use super::release::release;
use super::window::Window;
use super::{Ack, Keeper, Msg};
use crate::backend::{Claim, Mode, Renewal};
use crate::clock::{Instant, deadline};
use crate::engine::Settings;
use crate::engine::call::bounded;
use crate::engine::guard::Held;
use crate::engine::hold::Hold;
use crate::engine::turnstile::Turn;
use crate::error::Result;
use crate::lost::{Lost, LostReason};
use crate::retry::jitter;

/// Leases within a factor of two: they are renewed together, apart from shorter and longer ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Urgency(u32);

impl Urgency {
    fn of(lease: Duration) -> Self {
        Self(u64::try_from(lease.as_millis()).unwrap_or(u64::MAX).checked_ilog2().unwrap_or(0))
    }
}

struct Entry {
    hold: Arc<Hold>,
    /// Kept by those who hold alone, so that nobody else of this process asks.
    turn: Option<Turn>,
    /// As in the hold, but readable after the hold was given back.
    until: Instant,
    due: Instant,
    renewing: bool,
    failures: u32,
    spare_tokens: u32,
    /// Hand-overs inside the process end then, so that other processes are not starved.
    hand_over_until: Instant,
}

impl Entry {
    fn max_until(&self) -> Option<Instant> {
        self.hold.terms.max_hold.map(|d| self.hold.since.after(d))
    }

    fn urgency(&self) -> Urgency {
        Urgency::of(self.hold.terms.lease)
    }

    fn ends(&self) -> Instant {
        self.max_until().map_or(self.until, |max| max.min(self.until))
    }
}

struct Renewed {
    /// With the mode that was renewed: a writer's answer says nothing of the reader that it has become.
    owners: Vec<(u64, Mode)>,
    sent: Instant,
    result: Result<Vec<Renewal>>,
}

pub(super) struct Task {
    settings: Settings,
    keeper: mpsc::WeakUnboundedSender<Msg>,
    inbox: mpsc::UnboundedReceiver<Msg>,
    /// By the owner's number, which is unique in a locker.
    entries: HashMap<u64, Entry>,
    schedule: BTreeSet<(Instant, u64)>,
    calls: JoinSet<Option<Renewed>>,
    renewals: HashMap<(Urgency, u32), Window>,
    releases: Window,
}

impl Task {
    pub(super) fn new(settings: Settings, keeper: mpsc::WeakUnboundedSender<Msg>, inbox: mpsc::UnboundedReceiver<Msg>) -> Self {
        Self {
            settings,
            keeper,
            inbox,
            entries: HashMap::new(),
            schedule: BTreeSet::new(),
            calls: JoinSet::new(),
            renewals: HashMap::new(),
            releases: Window::of_releases(),
        }
    }

    pub(super) async fn run(mut self) {
        let mut timer = self.settings.clock.timer();
        loop {
            let next = self.schedule.first().map(|(when, _)| *when);
            tokio::select! {
                msg = self.inbox.recv() => match msg {
                    Some(Msg::Close(done)) => {
                        self.close().await;
                        let _told = done.send(());
                        return;
                    }
                    Some(msg) => self.handle(msg),
                    None => return self.finish_calls().await,
                },
                () = timer.until(next.unwrap_or(Instant::from_nanos(u64::MAX))), if next.is_some() => self.on_time(),
                Some(done) = self.calls.join_next(), if !self.calls.is_empty() => {
                    if let Ok(Some(renewed)) = done {
                        self.on_renewed(renewed);
                    }
                }
            }
        }
    }

    fn handle(&mut self, msg: Msg) {
        match msg {
            Msg::Keep { hold, turn, until, spare_tokens } => {
                let now = self.settings.clock.now();
                let owner = hold.claim.owner.number;
                let hand_over_until = hold.since.after(hold.terms.lease);
                self.settings.counters.holding.up();
                let entry = Entry { hold, turn, until, due: until, renewing: false, failures: 0, spare_tokens, hand_over_until };
                let due = if entry.hold.terms.fixed { entry.ends() } else { now.after(until.since(now) / 3).min(entry.ends()) };
                // A writer that has become a reader.
                drop(self.remove(owner));
                self.entries.insert(owner, entry);
                self.schedule_at(owner, due);
            }
            Msg::GiveBack { hold, ack } => self.give_back(&hold, ack),
            Msg::Forget { claim } => self.release(claim, None, None),
            Msg::Ended { hold } => {
                let owner = hold.claim.owner.number;
                if self.entries.get(&owner).is_some_and(|entry| Arc::ptr_eq(&entry.hold, &hold)) {
                    self.lose(owner, LostReason::Revoked);
                }
            }
            Msg::Close(_) => {}
        }
    }

    fn schedule_at(&mut self, owner: u64, due: Instant) {
        if let Some(entry) = self.entries.get_mut(&owner) {
            self.schedule.remove(&(entry.due, owner));
            entry.due = due;
            self.schedule.insert((due, owner));
        }
    }

    fn remove(&mut self, owner: u64) -> Option<Entry> {
        let entry = self.entries.remove(&owner)?;
        self.schedule.remove(&(entry.due, owner));
        self.settings.counters.holding.down();
        entry.turn.iter().for_each(Turn::over);
        Some(entry)
    }

    fn give_back(&mut self, hold: &Arc<Hold>, ack: Option<Ack>) {
        let owner = hold.claim.owner.number;
        // Another hold under this owner: it was handed over to a waiter that left in that moment.
        if !self.entries.get(&owner).is_some_and(|entry| Arc::ptr_eq(&entry.hold, hold)) {
            return;
        }
        let held_for = self.settings.clock.now().since(hold.since);
        self.settings.counters.held(held_for);
        self.settings.counters.released.up();
        debug!(name = ?hold.claim.resource, token = %hold.token, ?held_for, "released");
        if self.hand_over(owner) {
            if let Some(ack) = ack {
                drop(ack.send(Ok(())));
            }
        } else if let Some(entry) = self.remove(owner) {
            let ack = ack.map(|to| (to, hold.loss(LostReason::Revoked)));
            self.release(entry.hold.claim.clone(), entry.turn, ack);
        }
    }

    /// Passes a hold to the next task in line under the next reserved token, without a round trip.
    fn hand_over(&mut self, owner: u64) -> bool {
        let now = self.settings.clock.now();
        let Some(messages) = self.keeper.upgrade() else { return false };
        let Some(entry) = self.entries.get_mut(&owner) else { return false };
        if entry.spare_tokens == 0 || now >= entry.until || now >= entry.hand_over_until {
            return false;
        }
        let Entry { hold, turn: Some(turn), spare_tokens, until, .. } = entry else { return false };
        let old_terms = hold.terms.clone();
        let handed = turn.hand_over(&old_terms, spare_tokens, |terms| {
            // In range: the store has reserved it.
            let token = hold.token.plus(1).unwrap_or(hold.token);
            *hold = Arc::new(Hold::new(hold.claim.clone(), token, terms, hold.clock.clone(), now, *until));
            Held::new(Arc::clone(hold), Keeper { messages: messages.clone(), counters: Arc::clone(&self.settings.counters) })
        });
        let due = entry.due.min(entry.ends());
        if handed {
            self.settings.counters.handed_over.up();
            self.schedule_at(owner, due);
        }
        handed
    }

    fn on_time(&mut self) {
        let now = self.settings.clock.now();
        let mut batch = Vec::new();
        while let Some(&(when, owner)) = self.schedule.first()
            && when <= now
        {
            self.schedule.pop_first();
            let Some(entry) = self.entries.get(&owner) else { continue };
            if now >= entry.until || entry.hold.is_lost() {
                let reason = entry.hold.expiry_reason();
                self.lose(owner, reason);
            } else if entry.max_until().is_some_and(|max| now >= max) {
                self.lose(owner, LostReason::MaxHold);
            } else if entry.renewing || entry.hold.terms.fixed {
                let ends = entry.ends();
                self.schedule_at(owner, ends);
            } else {
                batch.push(owner);
            }
        }
        if batch.is_empty() {
            return;
        }
        self.add_nearly_due(&mut batch, now);
        // The most urgent first.
        let mut parts = BTreeMap::<(Urgency, u32), Vec<u64>>::new();
        for owner in batch {
            let Some(entry) = self.entries.get(&owner) else { continue };
            let partition = self.settings.backend.partition(&entry.hold.claim.resource);
            parts.entry((entry.urgency(), partition)).or_default().push(owner);
        }
        self.renewals.retain(|_, window| window.is_in_use());
        let batch = self.settings.backend.capabilities().batch.max(1);
        for (part, owners) in parts {
            owners.chunks(batch).for_each(|chunk| self.renew(part, chunk));
        }
    }

    /// Holds of the same urgency that would be renewed a moment later ride along.
    fn add_nearly_due(&self, batch: &mut Vec<u64>, now: Instant) {
        let due: BTreeSet<Urgency> = batch.iter().filter_map(|o| self.entries.get(o)).map(Entry::urgency).collect();
        let longest = batch.iter().filter_map(|o| self.entries.get(o)).map(|e| e.hold.terms.lease).max();
        let soon = now.after(longest.unwrap_or_default() / 10);
        for (when, owner) in self.schedule.range(..=(soon, u64::MAX)) {
            let rides = self.entries.get(owner).is_some_and(|e| {
                let renewable = !e.renewing && !e.hold.terms.fixed && e.ends() > e.due;
                renewable && due.contains(&e.urgency()) && *when <= now.after(e.hold.terms.lease / 10)
            });
            if rides {
                batch.push(*owner);
            }
        }
    }

    fn renew(&mut self, part: (Urgency, u32), owners: &[u64]) {
        let mut claims = Vec::with_capacity(owners.len());
        let mut renewing = Vec::with_capacity(owners.len());
        let mut timeout = self.settings.timeout;
        for owner in owners {
            let Some(entry) = self.entries.get_mut(owner) else { continue };
            entry.renewing = true;
            claims.push(entry.hold.claim.clone());
            renewing.push((*owner, entry.hold.claim.mode));
            // Short enough to leave time for another try before the deadline. Not shorter for one that is late: the others have time.
            timeout = timeout.min(entry.hold.terms.lease / 3);
            let ends = entry.ends();
            self.schedule_at(*owner, ends);
        }
        let window = self.renewals.entry(part).or_insert_with(Window::of_renewals).clone();
        let Settings { backend, clock, .. } = self.settings.clone();
        self.calls.spawn(async move {
            let call = async {
                let sent = clock.now();
                (sent, bounded(timeout, &*backend, "renewing", backend.renew(&claims)).await)
            };
            let (sent, result) = window.pass(call).await;
            Some(Renewed { owners: renewing, sent, result })
        });
    }

    fn on_renewed(&mut self, renewed: Renewed) {
        let Renewed { owners, sent, result } = renewed;
        let now = self.settings.clock.now();
        let answers = match result {
            Ok(answers) if answers.len() == owners.len() => answers,
            Ok(_) => return self.renewal_failed(&owners, now, "the backend answered for another number of claims"),
            Err(e) => return self.renewal_failed(&owners, now, &e.to_string()),
        };
        for ((owner, mode), answer) in owners.into_iter().zip(answers) {
            let Some(entry) = renewing(&mut self.entries, owner, mode) else { continue };
            entry.renewing = false;
            match answer {
                Renewal::Extended { valid_for } => {
                    let until = deadline(sent, valid_for, self.settings.drift);
                    // A hold that was given back meanwhile has its message under way; only a loss is an end here.
                    if !entry.hold.extend(until) && !entry.hold.is_released() {
                        let reason = entry.hold.expiry_reason();
                        self.lose(owner, reason);
                        continue;
                    }
                    entry.until = entry.until.max(until);
                    entry.failures = 0;
                    let due = sent.after(valid_for / 3).min(entry.ends());
                    self.settings.counters.renewed.up();
                    debug!(name = ?entry.hold.claim.resource, token = %entry.hold.token, "renewed");
                    self.schedule_at(owner, due);
                }
                Renewal::Gone => self.lose(owner, LostReason::Revoked),
                Renewal::Unknown(fault) => self.renewal_failed(&[(owner, mode)], now, &fault.to_string()),
            }
        }
    }

    fn renewal_failed(&mut self, owners: &[(u64, Mode)], now: Instant, error: &str) {
        for (owner, mode) in owners {
            let Some(entry) = renewing(&mut self.entries, *owner, *mode) else { continue };
            entry.renewing = false;
            entry.failures += 1;
            entry.hold.mark_overdue();
            self.settings.counters.renewal_failures.up();
            let left = entry.until.since(now);
            warn!(name = ?entry.hold.claim.resource, token = %entry.hold.token, error, ?left, "renewal failed");
            let pause = self.settings.retry.pause(entry.failures).min(entry.hold.terms.lease / 10);
            let due = now.after(pause / 2 + jitter(pause / 2)).min(entry.ends());
            self.schedule_at(*owner, due);
        }
    }

    fn lose(&mut self, owner: u64, reason: LostReason) {
        let Some(entry) = self.entries.get_mut(&owner) else { return };
        // False if the guard has read the clock first, or was given back in this moment.
        entry.hold.lose(reason);
        let given_back = entry.hold.is_released();
        if given_back && reason != LostReason::Closed {
            // Its message is on the way, and knows who waits for the answer. What is gone must not be handed over.
            if reason == LostReason::Revoked {
                entry.spare_tokens = 0;
            }
            return;
        }
        let Some(entry) = self.remove(owner) else { return };
        if given_back {
            self.release(entry.hold.claim.clone(), entry.turn, None);
            return;
        }
        entry.turn.iter().for_each(Turn::lost);
        let held_for = self.settings.clock.now().since(entry.hold.since);
        self.settings.counters.lost.up();
        self.settings.counters.held(held_for);
        warn!(name = ?entry.hold.claim.resource, token = %entry.hold.token, %reason, ?held_for, "lost");
        if reason == LostReason::Revoked {
            return;
        }
        // Nobody waits for it, but those in line at the store need not sit out what is left of the lease.
        self.release(entry.hold.claim.clone(), entry.turn, None);
    }

    fn release(&mut self, claim: Claim, turn: Option<Turn>, ack: Option<(Ack, Lost)>) {
        let (settings, window) = (self.settings.clone(), self.releases.clone());
        self.calls.spawn(async move {
            release(&settings, &window, &claim, turn, ack).await;
            None
        });
    }

    async fn close(&mut self) {
        self.inbox.close();
        while let Some(msg) = self.inbox.recv().await {
            self.handle(msg);
        }
        let owners: Vec<u64> = self.entries.keys().copied().collect();
        for owner in owners {
            self.lose(owner, LostReason::Closed);
        }
        self.finish_calls().await;
    }

    /// Waits for calls under way, for as long as one call may take. What is left then ends with its lease.
    async fn finish_calls(&mut self) {
        // Nothing is renewed any more that releases could be in the way of.
        self.releases.open();
        let all = async { while self.calls.join_next().await.is_some() {} };
        drop(tokio::time::timeout(self.settings.timeout, all).await);
    }
}

/// The hold that a renewal was about, if it still is that hold.
fn renewing(entries: &mut HashMap<u64, Entry>, owner: u64, mode: Mode) -> Option<&mut Entry> {
    entries.get_mut(&owner).filter(|entry| entry.hold.claim.mode == mode)
}

impl Drop for Task {
    /// The runtime has ended under the keeper, or a panic has: nobody will renew, nor be there to tell at the deadline.
    fn drop(&mut self) {
        self.inbox.close();
        while let Ok(msg) = self.inbox.try_recv() {
            if let Msg::Keep { hold, .. } = msg {
                hold.lose(LostReason::Closed);
            }
        }
        for entry in self.entries.values() {
            entry.hold.lose(LostReason::Closed);
        }
    }
}
