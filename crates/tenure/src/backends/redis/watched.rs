//! Holds that the server watches for us: it pushes when another client changes or deletes their keys.
//!
//! Only keys are watched that their holder alone writes: the key of a lock, and a reader's own share. A renewal writes them, too, and
//! the server pushes that like any other write. So they are read, and thereby watched again, after each renewal. A push before the answer
//! may come from the renewal, so the keys are read once more.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use redis::{Pipeline, RedisResult, Value, pipe};
use tracing::debug;

use super::connection::Connection;
use super::keys::{self, Layout};
use super::link::{Link, Live};
use super::reply::text;
use super::shared::{Wake, lock};
use crate::backend::{Claim, Losses, Mode};
use crate::name::OwnerId;

/// How often keys are read again because of an early push.
const TRIES: usize = 4;

/// Who holds by which key.
#[derive(Debug, Default)]
pub(super) struct Watched {
    holds: Mutex<HashMap<String, Hold>>,
    /// How many there are, readable without the lock.
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

/// A hold that is to be watched.
#[derive(Debug)]
struct Watch {
    key: String,
    owner: OwnerId,
    /// What says that the key is this owner's, and not already the next one's.
    proof: Proof,
}

#[derive(Debug)]
enum Proof {
    /// A field of the hash.
    Field(String),
    /// The value itself.
    Value(String),
    /// The key itself: it has the owner in its name.
    Key,
}

impl Watch {
    fn of(claim: &Claim, layout: Layout) -> Option<Self> {
        let proof = match (claim.mode, layout) {
            (Mode::Read | Mode::Downgrade, _) => Proof::Key,
            (_, Layout::Plain) => Proof::Value(claim.owner.to_string()),
            (Mode::Write, Layout::Redisson) => Proof::Field(format!("{}:write", claim.owner)),
            (_, Layout::Redisson) => Proof::Field(claim.owner.to_string()),
        };
        Some(Self { key: key_of(claim)?, owner: claim.owner, proof })
    }

    fn ask(&self, pipe: &mut Pipeline) {
        match &self.proof {
            Proof::Field(field) => pipe.cmd("HEXISTS").arg(&self.key).arg(field),
            Proof::Value(_) => pipe.cmd("GET").arg(&self.key),
            Proof::Key => pipe.cmd("EXISTS").arg(&self.key),
        };
    }

    fn is_there(&self, answer: RedisResult<Value>) -> bool {
        match (answer, &self.proof) {
            (Ok(answer), Proof::Field(_) | Proof::Key) => answer == Value::Int(1),
            (Ok(answer), Proof::Value(value)) => text(&answer) == Some(value),
            // Something else is there now. Any other refusal says nothing of the hold.
            (Err(e), _) => e.code() != Some("WRONGTYPE"),
        }
    }
}

impl Watched {
    /// A key was written. The next renewal says whether that was a loss.
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

    /// It is released or renewed: pushes from now on are of our own write.
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

    /// The connection is another one, or the database was emptied: every hold may be gone.
    pub(super) fn lost_sight(&self) {
        let mut holds = lock(&self.holds);
        holds.clear();
        self.count.store(0, Ordering::Release);
        drop(holds);
        self.losses.suspect_all();
    }

    fn expect(&self, watches: &[Watch]) {
        let mut holds = lock(&self.holds);
        for Watch { key, owner, .. } in watches {
            holds.insert(key.clone(), Hold { owner: *owner, is_new: true, heard: false });
        }
        self.count.store(holds.len(), Ordering::Release);
    }

    /// The server watches these. Returns those with a push before its answer, which are to be read again.
    fn is_watched(&self, keys: Vec<Watch>) -> Vec<Watch> {
        let mut holds = lock(&self.holds);
        let heard = |Watch { key, owner, .. }: &Watch| match holds.get_mut(key) {
            Some(hold) if hold.owner == *owner => {
                hold.is_new = false;
                hold.heard
            }
            // Given back meanwhile.
            _ => false,
        };
        keys.into_iter().filter(heard).collect()
    }

    fn give_up(&self, keys: &[Watch]) {
        let mut holds = lock(&self.holds);
        for Watch { key, owner, .. } in keys {
            if holds.get(key).is_some_and(|hold| hold.owner == *owner) {
                self.forget(&mut holds, key);
            }
        }
    }
}

impl Live {
    /// Has the server watch holds that were renewed over this connection. Spawned: no renewal waits for this.
    pub(super) fn watch<'a>(&self, claims: impl Iterator<Item = &'a Claim>) {
        let Some(link) = self.link.upgrade().filter(|_| self.wake == Wake::Tracking) else { return };
        let keys: Vec<_> = claims.filter_map(|claim| Watch::of(claim, link.shared.layout)).collect();
        if !keys.is_empty() {
            let runtime = link.shared.runtime.clone();
            drop(runtime.spawn(async move { link.watch(keys).await }));
        }
    }
}

impl Link {
    async fn watch(self: Arc<Self>, mut keys: Vec<Watch>) {
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
                    gone.iter().for_each(|gone| watched.losses.suspect(gone.owner));
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

/// Reads keys so that the server tracks them, and then whose they are: an earlier change is seen, a later one is pushed.
async fn read(connection: &Connection, keys: &[Watch]) -> RedisResult<Vec<bool>> {
    let mut all = pipe();
    all.cmd("CLIENT").arg("CACHING").arg("YES").cmd("EXISTS");
    for watch in keys {
        all.arg(&watch.key);
    }
    keys.iter().for_each(|watch| watch.ask(&mut all));
    let mut answers = connection.send_all(&all, 0, 2 + keys.len()).await?.into_iter().map(Value::extract_error);
    for _ in 0..2 {
        answers.next().unwrap_or(Ok(Value::Nil))?;
    }
    Ok(keys.iter().zip(answers).map(|(watch, answer)| watch.is_there(answer)).collect())
}
