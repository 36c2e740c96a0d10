//! Who holds what.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::join_all;
use redis::{Value, cmd};

use super::Redis;
use super::fault::NAME;
use super::keys::{self, Layout};
use super::link::Link;
use super::question::Question;
use super::reply::{array, int, text, token_of, unexpected};
use crate::backend::{Holder, Mode, State};
use crate::error::{Error, Fault, Result};
use crate::name::{OwnerId, Resource, Token};

impl Redis {
    pub(super) async fn state(&self, name: &Resource) -> Result<State> {
        let slot = self.router.slot(name)?;
        let keys = [name.as_str(), &self.layout.token(name), &keys::note(name)];
        let mut subscribers = cmd("PUBSUB");
        let sharded = self.router.shared.sharded.load(Ordering::Relaxed);
        subscribers.arg(if sharded { "SHARDNUMSUB" } else { "NUMSUB" }).arg(self.layout.channel(name));
        let (answer, waiting) = tokio::join!(
            self.eval("inspecting", slot, &self.scripts.inspect, &keys, &[]),
            self.router.ask("counting subscribers", slot, Question::Command(&subscribers))
        );
        let answer = array(answer?.value, "inspecting")?;
        let [left, token, note, holders @ ..] = &*answer else { return Err(unexpected("inspecting")) };
        let fence = token_of(token);
        let holders = self.holders(left, fence, note, holders).await;
        // Only subscribed processes are seen, and a server may not tell.
        let waiting = waiting.ok().and_then(|answer| match answer.value {
            Value::Array(pair) => pair.get(1).and_then(int).and_then(|n| u32::try_from(n).ok()),
            Value::Map(pairs) => pairs.first().and_then(|(_, n)| int(n)).and_then(|n| u32::try_from(n).ok()),
            _ => None,
        });
        Ok(State { holders, waiting, fence, ..State::free(name.clone()) })
    }

    pub(super) async fn holders(&self, left: &Value, token: Option<Token>, note: &Value, holders: &[Value]) -> Vec<Holder> {
        let expires_in = int(left).and_then(|ms| u64::try_from(ms).ok()).map(Duration::from_millis);
        let note = text(note).and_then(|n| n.split_once(' '));
        join_all(holders.iter().filter_map(text).map(|owner| async move {
            let about = self.about(owner).await;
            // Whoever has no record here (Java, for one) has not taken its lock under the token that stands there.
            let token = about.as_ref().and(token);
            let since = token.and_then(|t| UNIX_EPOCH.checked_add(Duration::from_micros(t.get())));
            let own_note = note.filter(|(whose, _)| *whose == owner).map(|(_, note)| note.to_owned());
            Holder {
                owner: owner.to_owned(),
                mode: Mode::Exclusive,
                token,
                since: since.filter(|s| *s <= SystemTime::now() + Duration::from_secs(3600)),
                expires_in,
                note: own_note.or(about),
            }
        }))
        .await
    }

    /// What the client of an owner said of itself.
    async fn about(&self, owner: &str) -> Option<String> {
        let owner: OwnerId = owner.parse().ok()?;
        let key = keys::client(owner.client);
        let mut get = cmd("GET");
        get.arg(&key);
        let ask = self.router.ask("reading a client's record", self.router.slot_of_key(&key), Question::Command(&get));
        // It may be at another server than the lock, which may be down.
        let answer = tokio::time::timeout(self.timeout / 3, ask).await.ok()?;
        text(&answer.ok()?.value).map(str::to_owned)
    }

    /// The names of held locks under a prefix: those that look like one. There is no index; this reads all key names.
    pub(super) async fn names(&self, prefix: &str) -> Result<Vec<Resource>> {
        let (pattern, kind) = match self.layout {
            Layout::Redisson => (keys::glob(prefix), "hash"),
            // Any string could be a plain lock: only those with a token of ours are listed.
            Layout::Plain => (keys::glob(&format!("{}:", self.layout.token_prefix())), "string"),
        };
        let mut names = Vec::new();
        for link in self.router.masters().await? {
            for key in self.scan(&link, &pattern, kind).await? {
                let name = match self.layout {
                    Layout::Redisson => Some(&*key),
                    Layout::Plain => keys::unprefixed(self.layout.token_prefix(), &key).filter(|n| n.starts_with(prefix)),
                };
                // What cannot be a lock here is none.
                names.extend(name.and_then(|n| Resource::new(n).ok()).filter(|n| self.router.slot(n).is_ok()));
            }
        }
        names.sort();
        // SCAN may tell a key twice, and so may two servers while it moves.
        names.dedup();
        Ok(names)
    }

    /// All keys of one server that match.
    async fn scan(&self, link: &Arc<Link>, pattern: &str, kind: &str) -> Result<Vec<String>> {
        let mut keys = Vec::new();
        let mut cursor = "0".to_owned();
        loop {
            let mut scan = cmd("SCAN");
            scan.arg(&cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(1000).arg("TYPE").arg(kind);
            let ask = async { Ok(link.ask("listing", Question::Command(&scan), false).await?.value) };
            let answer = array(self.bounded("listing", ask).await?, "listing")?;
            let [next, Value::Array(found)] = &*answer else { return Err(unexpected("listing")) };
            keys.extend(found.iter().filter_map(text).map(str::to_owned));
            match text(next) {
                Some("0") => return Ok(keys),
                Some(next) => next.clone_into(&mut cursor),
                None => return Err(unexpected("listing")),
            }
        }
    }

    /// Bounds one of many round trips.
    pub(super) async fn bounded<T>(&self, doing: &str, call: impl Future<Output = Result<T>>) -> Result<T> {
        let late = || Error::unavailable(NAME, doing, Fault::Timeout, format!("no answer within {:?}", self.timeout));
        tokio::time::timeout(self.timeout, call).await.unwrap_or_else(|_| Err(late()))
    }

    pub(super) fn is_lock(&self, state: &State) -> bool {
        !state.holders.is_empty()
            && state.holders.iter().all(|h| h.expires_in.is_some())
            && (self.layout == Layout::Plain || state.holders.iter().all(|h| h.owner.parse::<OwnerId>().is_ok()))
    }
}
