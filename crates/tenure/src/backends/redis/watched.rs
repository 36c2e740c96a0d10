//! Holds that the server watches for us: it tells when somebody else changes or deletes their keys.
//!
//! Only keys are watched that nobody but their holder writes to: the key of a lock, and a reader's own share. A renewal writes
//! to them too, and the server tells of that as of any other write. So they are watched anew after each renewal, by reading
//! them, which changes nothing: what is heard before the answer may be of the renewal, and is asked after once more.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use redis::{RedisResult, Value, pipe};
use tracing::debug;

use super::connection::Connection;
use super::keys;
use super::link::Link;
use super::question::Answer;
use super::shared::{Wake, lock};
use crate::backend::{Claim, Losses, Mode};
use crate::name::OwnerId;

/// How often what was heard too early is asked after.
const TRIES: usize = 4;

/// Who holds by which key.
#[derive(Debug, Default)]
pub(super) struct Watched {
    holds: Mutex<HashMap<String, Hold>>,
    /// How many there are, for those who only want to know whether there are any.
    count: AtomicUsize,
    pub(super) losses: Losses,
}

#[derive(Debug)]
struct Hold {
    owner: OwnerId,
    /// Until the server has answered that it watches.
    is_new: bool,
    /// Whether something was heard before that.
    heard: bool,
}

/// The key that is written to by the holder alone. `None` where there is none: permits share theirs.
fn key_of(claim: &Claim) -> Option<String> {
    match claim.mode {
        Mode::Exclusive | Mode::Fair | Mode::Write => Some(claim.resource.as_str().to_owned()),
        Mode::Read | Mode::Downgrade => Some(keys::share(&claim.resource, claim.owner)),
        _ => None,
    }
}

impl Watched {
    /// Somebody has written to a key. Whether that was a loss, the next renewal will say.
    pub(super) fn changed(&self, key: &str) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut holds = lock(&self.holds);
        let Some(hold) = holds.get_mut(key) else { return };
        if hold.is_new {
            hold.heard = true;
            return;
        }
        let owner = hold.owner;
        self.forget(&mut holds, key);
        drop(holds);
        self.losses.suspect(owner);
    }

    /// It is given back, or renewed: what is heard of it from now on is our own doing.
    pub(super) fn leave(&self, claim: &Claim) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        if let Some(key) = key_of(claim) {
            self.forget(&mut lock(&self.holds), &key);
        }
    }

    fn forget(&self, holds: &mut HashMap<String, Hold>, key: &str) {
        holds.remove(key);
        self.count.store(holds.len(), Ordering::Release);
    }

    /// The connection is another one, or the database was emptied: nobody knows what is left of any hold.
    pub(super) fn lost_sight(&self) {
        let mut holds = lock(&self.holds);
        holds.clear();
        self.count.store(0, Ordering::Release);
        drop(holds);
        self.losses.suspect_all();
    }

    fn expect(&self, keys: &[(String, OwnerId)]) {
        let mut holds = lock(&self.holds);
        for (key, owner) in keys {
            holds.insert(key.clone(), Hold { owner: *owner, is_new: true, heard: false });
        }
        self.count.store(holds.len(), Ordering::Release);
    }

    /// The server watches these. Those of which something was heard before it said so are to be asked after.
    fn is_watched(&self, keys: Vec<(String, OwnerId)>) -> Vec<(String, OwnerId)> {
        let mut holds = lock(&self.holds);
        let heard = |(key, owner): &(String, OwnerId)| match holds.get_mut(key) {
            Some(hold) if hold.owner == *owner => {
                hold.is_new = false;
                hold.heard
            }
            // Given back meanwhile.
            _ => false,
        };
        keys.into_iter().filter(heard).collect()
    }

    fn give_up(&self, keys: &[(String, OwnerId)]) {
        let mut holds = lock(&self.holds);
        for (key, owner) in keys {
            if holds.get(key).is_some_and(|hold| hold.owner == *owner) {
                self.forget(&mut holds, key);
            }
        }
    }
}

/// Where holds were renewed.
pub(super) struct Renewed(Option<Arc<Link>>);

impl Renewed {
    pub(super) fn of(answer: &Answer) -> Self {
        Self(if answer.wake() == Wake::Tracking { answer.live.link.upgrade() } else { None })
    }

    /// Has the server watch these holds. By itself: no renewal waits for this.
    pub(super) fn watch<'a>(self, claims: impl Iterator<Item = &'a Claim>) {
        let Some(link) = self.0 else { return };
        let keys: Vec<_> = claims.filter_map(|claim| Some((key_of(claim)?, claim.owner))).collect();
        if !keys.is_empty() {
            let runtime = link.shared.runtime.clone();
            drop(runtime.spawn(async move { link.watch(keys).await }));
        }
    }
}

impl Link {
    async fn watch(self: Arc<Self>, mut keys: Vec<(String, OwnerId)>) {
        let watched = &self.shared.watched;
        for _ in 0..TRIES {
            watched.expect(&keys);
            let Some(live) = self.live().clone() else { return watched.give_up(&keys) };
            match tokio::time::timeout(self.shared.timeout, read(&live.connection, &keys)).await {
                Ok(Ok(there)) => {
                    let mut there = there.into_iter();
                    let (present, gone): (Vec<_>, Vec<_>) = keys.into_iter().partition(|_| there.next().unwrap_or(false));
                    // Lost, or given back meanwhile: the renewals will say.
                    watched.give_up(&gone);
                    gone.iter().for_each(|(_, owner)| watched.losses.suspect(*owner));
                    keys = watched.is_watched(present);
                }
                failed => {
                    debug!(error = ?failed.map(Result::err), "holds are not watched; their loss is noticed by the next renewal");
                    return watched.give_up(&keys);
                }
            }
            if keys.is_empty() {
                return;
            }
        }
        watched.give_up(&keys);
    }
}

/// Has the server remember keys for us by reading them. Which of them there are.
async fn read(connection: &Connection, keys: &[(String, OwnerId)]) -> RedisResult<Vec<bool>> {
    let mut both = pipe();
    both.cmd("CLIENT").arg("CACHING").arg("YES").cmd("EXISTS");
    for (key, _) in keys {
        both.arg(key);
    }
    let answers: RedisResult<Vec<Value>> =
        connection.send_all(&both, 0, 2).await?.into_iter().map(Value::extract_error).collect();
    if answers?.last().and_then(count) == Some(keys.len()) {
        return Ok(vec![true; keys.len()]);
    }
    // One by one. What is deleted from now on is told.
    let mut each = pipe();
    for (key, _) in keys {
        each.cmd("EXISTS").arg(key);
    }
    Ok(connection.send_all(&each, 0, keys.len()).await?.iter().map(|there| count(there) == Some(1)).collect())
}

fn count(answer: &Value) -> Option<usize> {
    match answer {
        Value::Int(count) => usize::try_from(*count).ok(),
        _ => None,
    }
}
