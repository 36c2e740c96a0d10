//! Which names are held. There is no index: a script looks through all keys, and returns only those that may be locks.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::join_all;
use redis::{Value, cmd};

use super::Redis;
use super::fault::NAME;
use super::keys::{self, Layout};
use super::link::Link;
use super::question::{Question, ScriptCall};
use super::reply::{array, text, unexpected};
use crate::backend::{Holder, Mode, State};
use crate::error::{Error, Fault, Result};
use crate::name::{OwnerId, Resource};

/// How many keys a script looks at: a millisecond of the server's time.
const KEYS_A_ROUND: &str = "1000";
/// After so many rounds a server would have a hundred million keys, or a cursor that leads nowhere.
const MOST_ROUNDS: u32 = 100_000;
/// How many names are listed at most.
const MOST_NAMES: usize = 100_000;
/// How many names are inspected at once.
const AT_ONCE: usize = 64;

const DOING: &str = "listing";

impl Redis {
    /// What is held under a prefix.
    pub(super) async fn list(&self, prefix: &str) -> Result<Vec<State>> {
        let names = self.names(prefix).await?;
        let mut states = Vec::new();
        for names in names.into_iter().collect::<Vec<_>>().chunks(AT_ONCE) {
            let found = self.bounded(DOING, async { Ok(join_all(names.iter().map(|n| self.state(n))).await) });
            for state in found.await? {
                match state {
                    Ok(state) if self.is_lock(&state) => states.push(state),
                    // A key that vanished or changed in between, or that this user may not look at, is none of ours.
                    Ok(_) => {}
                    Err(e) if matches!(e.fault(), Some(Fault::WrongType | Fault::ForeignFormat | Fault::Denied)) => {}
                    // A list without it would say that it is free.
                    Err(e) => return Err(e),
                }
            }
        }
        Ok(states)
    }

    /// The names that may be held. A server may tell a key twice, and so may two while it moves.
    async fn names(&self, prefix: &str) -> Result<BTreeSet<Resource>> {
        let mut names = BTreeSet::new();
        for link in self.router.masters().await? {
            let mut cursor = "0".to_owned();
            for round in 0.. {
                let (next, keys) = self.look_through(&link, &cursor, prefix).await?;
                names.extend(keys.iter().filter_map(|key| self.name_of(key, prefix)));
                if names.len() > MOST_NAMES {
                    let asked = format!("a list of what is held under {prefix:?}");
                    let problem = format!("would have more than {MOST_NAMES} names");
                    return Err(Error::config(asked, problem, "a longer prefix"));
                }
                if next == "0" {
                    break;
                }
                if next == cursor || round == MOST_ROUNDS {
                    let detail = format!("the cursor of SCAN comes to no end ({next:?} after {round} rounds)");
                    return Err(Error::backend(NAME, DOING, Fault::Protocol, detail));
                }
                cursor = next;
            }
        }
        Ok(names)
    }

    /// Looks through some keys of one server: the next cursor, and those keys that may be of locks.
    async fn look_through(&self, link: &Arc<Link>, cursor: &str, prefix: &str) -> Result<(String, Vec<String>)> {
        let args = [cursor, KEYS_A_ROUND, prefix, if self.counters { "1" } else { "0" }];
        let call = ScriptCall::new(&self.scripts.list, &[""; 0], &args);
        let mut scan = cmd("SCAN");
        // What is not held is found out one by one.
        scan.arg(cursor).arg("MATCH").arg(format!("{}:*", self.layout.token_prefix())).arg("COUNT").arg(KEYS_A_ROUND);
        let question = if self.has_no_scripts() { Question::command(DOING, &scan) } else { Question::script(DOING, &call) };
        let ask = async {
            match link.ask(question, false).await {
                Err(e) if self.goes_without_scripts(&e.error) => {
                    Ok(link.ask(Question::command(DOING, &scan), false).await?.value)
                }
                answer => Ok(answer?.value),
            }
        };
        let answer = array(self.bounded(DOING, ask).await?, DOING)?;
        let [next, Value::Array(keys)] = &*answer else { return Err(unexpected(DOING)) };
        let next = text(next).ok_or_else(|| unexpected(DOING))?;
        Ok((next.to_owned(), keys.iter().filter_map(text).map(str::to_owned).collect()))
    }

    /// The name that a key is one of. What cannot be a lock here is none.
    fn name_of(&self, key: &str, prefix: &str) -> Option<Resource> {
        let name = match self.layout {
            Layout::Plain => keys::unprefixed(self.layout.token_prefix(), key)?,
            Layout::Redisson => keys::name_of_permits(key, self.counters).unwrap_or(key),
        };
        let name = Resource::new(name).ok().filter(|_| name.starts_with(prefix))?;
        self.router.slot(&name).is_ok().then_some(name)
    }

    fn is_lock(&self, state: &State) -> bool {
        let known = |h: &Holder| matches!(h.mode, Mode::Permits { .. }) || h.owner.parse::<OwnerId>().is_ok();
        !state.holders.is_empty()
            && state.holders.iter().all(|h| h.expires_in.is_some())
            && (self.layout == Layout::Plain || state.holders.iter().all(known))
    }
}
