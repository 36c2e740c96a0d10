//! The holders, waiters and numbers of a name.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures_util::future::join_all;
use redis::{Value, cmd};

use super::Redis;
use super::fault::NAME;
use super::keys::{self, Layout};
use super::question::{Question, ScriptCall};
use super::reply::{array, int, text, token_of, unexpected};
use super::shared::lock;
use super::wire;
use crate::backend::{Broken, Holder, Mode, Permits, State};
use crate::error::{Error, Fault, Result};
use crate::name::{ClientId, OwnerId, Resource, Token};

/// How long an answer is believed: a client's words do not change.
const BELIEVED: Duration = Duration::from_secs(60);
/// How many are remembered.
const MOST: usize = 4096;

/// What other clients have said of themselves.
#[derive(Debug, Default)]
pub(super) struct KnownClients(Mutex<HashMap<ClientId, (Instant, String)>>);

impl KnownClients {
    pub(super) fn get(&self, client: ClientId) -> Option<String> {
        let known = lock(&self.0);
        known.get(&client).filter(|(since, _)| since.elapsed() < BELIEVED).map(|(_, about)| about.clone())
    }

    pub(super) fn note(&self, client: ClientId, about: &str) {
        let mut known = lock(&self.0);
        if known.len() >= MOST {
            known.retain(|_, (since, _)| since.elapsed() < BELIEVED);
        }
        if known.len() < MOST {
            known.insert(client, (Instant::now(), about.to_owned()));
        }
    }
}

/// A holder as a script tells of it.
struct Told<'a> {
    owner: &'a str,
    left: &'a Value,
    how: &'a str,
    /// Only of shared holds.
    token: Option<Token>,
    note: Option<&'a str>,
}

impl<'a> Told<'a> {
    fn read(value: &'a Value) -> Option<Self> {
        let Value::Array(items) = value else { return None };
        let [owner, left, how, note] = &**items else { return None };
        let (token, note) = text(note).and_then(|note| note.split_once(' ')).unzip();
        let how = text(how)?;
        // Behind the token, the owner of permits has the id of its first.
        let note = note.map(|note| if how == "owner" { note.split_once(' ').map_or("", |(_, note)| note) } else { note });
        let note = note.filter(|note| !note.is_empty());
        Some(Self { owner: text(owner)?, left, how, token: token.and_then(|t| t.parse().ok()), note })
    }

    fn expires_in(&self) -> Option<Duration> {
        int(self.left).and_then(|ms| u64::try_from(ms).ok()).map(Duration::from_millis)
    }
}

impl Redis {
    fn described(&self, name: &Resource) -> Vec<String> {
        let mut keys = vec![name.as_str().to_owned(), self.layout.token(name).to_string(), keys::note(name)];
        if self.layout == Layout::Redisson {
            let [queue, ..] = keys::queue(name);
            keys.extend([keys::notes(name), queue, keys::held_permits(name, self.counters)]);
        }
        keys
    }

    pub(super) async fn state(&self, name: &Resource) -> Result<State> {
        let slot = self.router.slot(name)?;
        let mut subscribers = cmd("PUBSUB");
        let sharded = self.router.shared.sharded.load(Ordering::Relaxed);
        subscribers.arg(if sharded { "SHARDNUMSUB" } else { "NUMSUB" });
        // In a cluster the channel of a latch may be at another server.
        let channels = self.layout.channels_of_key(name.as_str());
        subscribers.arg(channels.iter().filter(|c| self.router.slot_of_key(c) == slot).collect::<Vec<_>>());
        let (answer, subscribed) = tokio::join!(
            self.describe(slot, name),
            self.router.ask(slot, Question::command("counting subscribers", &subscribers))
        );
        let mut state = self.read(name, &answer?).await?;
        // Only subscribed processes are seen, and a server may not tell.
        let subscribed = subscribed.ok().and_then(|answer| {
            let counts: Option<Vec<i64>> = match answer.value {
                Value::Array(pairs) => pairs.chunks_exact(2).map(|pair| int(&pair[1])).collect(),
                Value::Map(pairs) => pairs.iter().map(|(_, n)| int(n)).collect(),
                _ => None,
            };
            counts.and_then(|counts| u32::try_from(counts.iter().fold(0_i64, |sum, n| sum.saturating_add(*n))).ok())
        });
        let queued = u32::try_from(state.queue.len()).unwrap_or(u32::MAX);
        state.waiting = subscribed.map(|n| n.saturating_add(queued));
        Ok(state)
    }

    async fn describe(&self, slot: u16, name: &Resource) -> Result<Value> {
        let doing = "inspecting";
        if self.has_no_scripts() {
            return self.describe_by_commands(doing, slot, name).await;
        }
        let call = ScriptCall::new(&self.scripts.inspect, &self.described(name), &[keys::shares(name)]);
        match self.eval(doing, slot, &call).await {
            Err(e) if self.goes_without_scripts(&e) => self.describe_by_commands(doing, slot, name).await,
            answer => Ok(answer?.value),
        }
    }

    /// Reads what a script says of a name.
    async fn read(&self, name: &Resource, answer: &Value) -> Result<State> {
        let strange = || unexpected("inspecting");
        let Value::Array(items) = answer else { return Err(strange()) };
        let [_, token, note, Value::Array(queue), free, count, Value::Array(told)] = &**items else { return Err(strange()) };
        let fence = token_of(token);
        let told: Vec<Told<'_>> = told.iter().filter_map(Told::read).collect();
        let note = text(note).and_then(|n| n.split_once(' '));
        let taken: i64 = told.iter().filter(|t| t.how == "permit").map(|_| 1).sum();
        let abouts = self.abouts(name, &told).await;
        let holders = if int(free).is_some() { permit_holders(&told, &abouts) } else { holders(&told, &abouts, fence, note) };
        Ok(State {
            resource: name.clone(),
            holders,
            waiting: None,
            queue: queue.iter().filter_map(text).map(str::to_owned).collect(),
            permits: int(free).map(|free| Permits { of: free.saturating_add(taken), free }),
            count: int(count).and_then(|n| u64::try_from(n).ok()),
            fence,
            nodes: Vec::new(),
        })
    }

    /// What the clients of all these said of themselves; each is looked for once, however much it holds.
    async fn abouts(&self, name: &Resource, told: &[Told<'_>]) -> Abouts {
        let clients: HashSet<ClientId> = told.iter().filter_map(|t| Some(t.owner.parse::<OwnerId>().ok()?.client)).collect();
        let found = clients.into_iter().map(async |client| Some((client, self.about(name, client).await?)));
        join_all(found).await.into_iter().flatten().collect()
    }

    async fn about(&self, name: &Resource, client: ClientId) -> Option<String> {
        if let Some(known) = self.known_clients.get(client) {
            return Some(known);
        }
        let mut prefixes = keys::prefixes_of(&self.prefix, name.as_str()).map(|prefix| self.record_of(prefix, client));
        let about = match prefixes.next()?.await {
            // Its names may begin with more than ours do.
            None => join_all(prefixes).await.into_iter().flatten().next()?,
            Some(about) => about,
        };
        self.known_clients.note(client, &about);
        Some(about)
    }

    async fn record_of(&self, prefix: &str, client: ClientId) -> Option<String> {
        let key = keys::client(prefix, client);
        let mut get = cmd("GET");
        get.arg(&key);
        let ask = self.router.ask(self.router.slot_of_key(&key), Question::command("reading a client's record", &get));
        // It may be at another server than the lock, which may be down.
        let answer = tokio::time::timeout(self.timeout / 3, ask).await.ok()?;
        text(&answer.ok()?.value).map(str::to_owned)
    }

    pub(super) async fn break_all(&self, name: &Resource, at_least: Option<Token>) -> Result<Option<Broken>> {
        let slot = self.router.slot(name)?;
        let (channels, shares) = (self.layout.channels_of_key(name.as_str()), keys::shares(name));
        let least = wire::least(at_least, 1)?;
        let mut args = vec![&*shares, &*self.token_idle, self.publish(), &*least];
        args.extend(channels.iter().map(String::as_str));
        if self.layout == Layout::Plain {
            args = vec![&*channels[0], &*self.token_idle, self.publish(), &*least];
        }
        let call = ScriptCall::new(&self.scripts.break_hold, &self.described(name), &args);
        let answer = match self.eval("breaking", slot, &call).await {
            Err(e) if self.goes_without_scripts(&e) => self.break_by_commands("breaking", slot, name, at_least).await?,
            answer => answer?.value,
        };
        if answer == Value::Nil {
            return Ok(None);
        }
        let answer = array(answer, "breaking")?;
        let [fence, was] = &*answer else { return Err(unexpected("breaking")) };
        let fence = token_of(fence).ok_or_else(|| unexpected("breaking"))?;
        let broken = Broken { holders: self.read(name, was).await?.holders, fence };
        channels.iter().for_each(|channel| self.router.shared.hub.fire(channel));
        Ok(Some(broken))
    }

    /// Bounds one of many round trips.
    pub(super) async fn bounded<T>(&self, doing: &str, call: impl Future<Output = Result<T>>) -> Result<T> {
        let late = || Error::unavailable(NAME, doing, Fault::Timeout, format!("no answer within {:?}", self.timeout));
        tokio::time::timeout(self.timeout, call).await.unwrap_or_else(|_| Err(late()))
    }
}

/// What clients said of themselves.
type Abouts = HashMap<ClientId, String>;

fn holders(told: &[Told<'_>], abouts: &Abouts, token: Option<Token>, note: Option<(&str, &str)>) -> Vec<Holder> {
    let one = |told: &Told<'_>| {
        let own_note = note.filter(|(whose, _)| *whose == told.owner).map(|(_, note)| note);
        let mode = match told.how {
            "read" => Mode::Read,
            "write" => Mode::Write,
            _ => Mode::Exclusive,
        };
        holder(told.owner, abouts, mode, (told.token, token), told.expires_in(), told.note.or(own_note))
    };
    told.iter().map(one).collect()
}

/// The holders of permits: ours by owner, others by the id of each permit.
fn permit_holders(told: &[Told<'_>], abouts: &Abouts) -> Vec<Holder> {
    let mut ids: HashMap<&str, &Told<'_>> = told.iter().filter(|t| t.how == "permit").map(|t| (t.owner, t)).collect();
    let mut holders = Vec::new();
    for owner in told.iter().filter(|t| t.how == "owner") {
        let Ok(id) = owner.owner.parse::<OwnerId>() else { continue };
        let own: Vec<_> = keys::permit_ids(id, u32::from(u16::MAX)).map_while(|id| ids.remove(&*id)).collect();
        let (Some(first), Ok(take)) = (own.first(), u32::try_from(own.len())) else { continue };
        let mode = Mode::Permits { take, of: 0 };
        holders.push(holder(owner.owner, abouts, mode, (owner.token, None), first.expires_in(), owner.note));
    }
    let others = ids.into_iter();
    let others = others.map(|(id, t)| holder(id, abouts, Mode::Permits { take: 1, of: 0 }, (None, None), t.expires_in(), None));
    holders.extend(others);
    holders
}

fn holder(
    owner: &str,
    abouts: &Abouts,
    mode: Mode,
    (own, last): (Option<Token>, Option<Token>),
    expires_in: Option<Duration>,
    note: Option<&str>,
) -> Holder {
    let about = owner.parse::<OwnerId>().ok().and_then(|owner| abouts.get(&owner.client));
    // A holder without a record (as Java) has not taken its lock under the last token of the name.
    let token = own.or(about.and(last));
    let since = token.and_then(|t| UNIX_EPOCH.checked_add(Duration::from_micros(t.get())));
    Holder {
        owner: owner.to_owned(),
        mode,
        token,
        since: since.filter(|s| *s <= SystemTime::now() + Duration::from_secs(3600)),
        expires_in,
        note: note.or(about.map(String::as_str)).map(str::to_owned),
    }
}
