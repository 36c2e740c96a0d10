//! The balance: every member takes its share and gives up the rest. The list of members decides on the shares, the lock of each
//! partition on its owner.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::watch;
use tracing::debug;

use super::Partitions;
use super::member::Membership;
use super::members::Members;
use crate::backend::Mode;
use crate::engine::guard::{Guard, Watcher};
use crate::error::Result;
use crate::name::Resource;
use crate::primitives::changes::ChangeWatch;

/// The least time between two looks.
const LEAST_PAUSE: Duration = Duration::from_millis(250);

/// How many of the partitions that others have yet to give up are listened to.
const LISTEN: usize = 8;

/// What one member should have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Share {
    /// Where its own part of all partitions begins.
    offset: u32,
    quota: u32,
    count: u32,
}

impl Share {
    fn new(count: u32, members: u32, rank: u32) -> Self {
        let (each, rest) = (count / members.max(1), count % members.max(1));
        Self { offset: rank * each + rank.min(rest), quota: each + u32::from(rank < rest), count }
    }

    fn is_own(&self, index: u32) -> bool {
        (self.offset..self.offset + self.quota).contains(&index)
    }

    /// All partitions, its own first: members that look for free ones do not meet much.
    fn all(&self) -> impl Iterator<Item = u32> + use<> {
        (self.offset..self.count).chain(0..self.offset)
    }
}

pub(super) struct Balancer {
    group: Partitions,
    state: Arc<watch::Sender<Membership>>,
    members: Members,
    changes: ChangeWatch,
    /// Partitions of its own share that other members still have.
    blocked: Vec<Resource>,
}

impl Balancer {
    pub(super) fn new(group: Partitions, state: Arc<watch::Sender<Membership>>, members: Members) -> Self {
        let changes = ChangeWatch::new(Arc::clone(&group.engine), group.lease);
        Self { group, state, members, changes, blocked: Vec::new() }
    }

    /// Runs until the member leaves, or the store refuses for good.
    pub(super) async fn run(mut self) {
        loop {
            match self.round().await {
                Ok(()) => drop(self.state.send_if_modified(|state| state.trouble.take().is_some())),
                Err(error) if error.is_transient() => {
                    debug!(name = %self.group.name, %error, "balance failed");
                    self.state.send_modify(|state| state.trouble = Some(error));
                }
                Err(error) => return self.state.send_modify(|state| drop(state.end(Some(error)))),
            }
            let members = (self.members.name.clone(), Mode::Read);
            let blocked = self.blocked.iter().map(|name| (name.clone(), Mode::Exclusive));
            let topics: Vec<_> = std::iter::once(members).chain(blocked).collect();
            if self.changes.listen(&topics).await {
                continue;
            }
            // Each renewal of a member touches the list of all members, and must not cause a look each time.
            self.group.engine.pause(LEAST_PAUSE.min(self.group.lease / 12)).await;
            let holds: Vec<Watcher> = self.state.borrow().guards().filter(|guard| guard.is_valid()).map(Guard::watcher).collect();
            let mut lost: FuturesUnordered<_> = holds.iter().map(Watcher::ended).collect();
            tokio::select! {
                () = self.changes.wait() => {}
                Some(_) = lost.next() => {}
            }
        }
    }

    async fn round(&mut self) -> Result<()> {
        self.state.send_if_modified(|state| {
            let before = state.owned.len();
            state.owned.retain(|_, guard| guard.is_valid());
            state.owned.len() != before
        });
        let me = self.seat().await?;
        let members = self.members.list().await?;
        // Not listed: the seat is lost, and will be taken anew.
        let Some(rank) = members.iter().position(|member| *member == me) else { return Ok(()) };
        let size = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let share = Share::new(self.group.count, size(members.len()), size(rank));
        self.give_up(share);
        self.take(share).await
    }

    /// The name under which the others know this member.
    async fn seat(&self) -> Result<String> {
        let seat = self.state.borrow().seat.as_ref().filter(|seat| seat.is_valid()).map(Guard::owner_id);
        if let Some(seat) = seat {
            return Ok(seat.to_string());
        }
        let seat = self.members.join().await?;
        let owner = seat.owner_id().to_string();
        self.state.send_modify(|state| state.sit(seat));
        Ok(owner)
    }

    fn give_up(&self, share: Share) {
        let keep = usize::try_from(share.quota).unwrap_or(usize::MAX);
        self.state.send_if_modified(|state| {
            let mut owned: Vec<u32> = state.owned.keys().copied().collect();
            // Those of its own part stay longest: there the others do not look first.
            owned.sort_by_key(|index| !share.is_own(*index));
            let surplus: BTreeSet<u32> = owned.into_iter().skip(keep).collect();
            // Whatever works on one of them stops now; the lock goes when that has.
            state.owned.retain(|index, _| !surplus.contains(index));
            !surplus.is_empty()
        });
    }

    async fn take(&mut self, share: Share) -> Result<()> {
        let quota = usize::try_from(share.quota).unwrap_or(usize::MAX);
        let missing = |state: &watch::Sender<Membership>| quota.saturating_sub(state.borrow().owned.len());
        let mut free: Vec<u32> = {
            let state = self.state.borrow();
            share.all().filter(|index| !state.owned.contains_key(index)).collect()
        };
        let mut failed = None;
        self.blocked.clear();
        while missing(&self.state) > 0 && !free.is_empty() {
            let rest = free.split_off(missing(&self.state).min(free.len()));
            let asked = std::mem::replace(&mut free, rest);
            let answers = join_all(asked.iter().map(|index| self.group.mutex(&index.to_string()).try_lock())).await;
            let unheard = answers.iter().all(Result::is_err);
            for (index, answer) in asked.into_iter().zip(answers) {
                match answer {
                    Ok(Some(guard)) => self.state.send_modify(|state| state.own(index, guard)),
                    Ok(None) if share.is_own(index) && self.blocked.len() < LISTEN => {
                        self.blocked.push(self.group.resource(&index.to_string())?);
                    }
                    Ok(None) => {}
                    Err(error) => failed = failed.or(Some(error)),
                }
            }
            // The rest would only take as long again.
            if unheard {
                break;
            }
        }
        if missing(&self.state) == 0 {
            self.blocked.clear();
        }
        failed.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::Share;

    #[test]
    fn shares_are_even_and_cover_everything_once() {
        for count in 1..40 {
            for members in 1..50 {
                let shares: Vec<Share> = (0..members).map(|rank| Share::new(count, members, rank)).collect();
                for index in 0..count {
                    assert_eq!(shares.iter().filter(|share| share.is_own(index)).count(), 1, "{index} of {count}");
                }
                let quotas = || shares.iter().map(|share| share.quota);
                assert!(quotas().max() <= quotas().min().map(|least| least + 1));
                assert!(shares.iter().all(|share| share.all().count() == count as usize));
            }
        }
    }
}
