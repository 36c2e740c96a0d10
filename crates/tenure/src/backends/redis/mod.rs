//! Redis on its own: Redisson's lock layout, or the plain string lock, over one connection.
//!
//! Each verb is one script, so taking a free lock is one round trip and giving it back another.

mod fault;
mod inspect;
mod keys;
mod link;
mod open;
mod reply;
mod scripts;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use redis::{Value, cmd};
use tracing::warn;

use self::fault::NAME;
use self::keys::Layout;
use self::link::{Link, Wake};
pub(crate) use self::open::open;
use self::reply::{array, is_redisson_field, text, token_of, unexpected};
use self::scripts::Scripts;
use crate::backend::{
    Attempt, Backend, Broken, Capabilities, Claim, Client, Queue, Reach, Released, Renewal, Safety, Scope, State, Survival,
};
use crate::clock::{Clock, Instant};
use crate::error::{Error, Fault, Result};
use crate::name::{Resource, Token};
use crate::signal::Signal;

/// How long the client's own record lives at least. It is written anew before it can end under a hold.
const RECORD_LIFE: Duration = Duration::from_secs(600);

#[derive(Debug)]
struct Redis {
    link: Arc<Link>,
    layout: Layout,
    scripts: &'static Scripts,
    /// In milliseconds; zero: for ever.
    token_idle: String,
    client: Client,
    clock: Clock,
    timeout: Duration,
    /// Until when the client's record lives, and over which connection it was written.
    record: Mutex<(Instant, u64)>,
    wake: Wake,
}

impl Redis {
    /// Writes who we are, if the record would end before a hold of this lease does, or if the server may have lost it
    /// since. Nobody waits for it alone.
    async fn keep_record(&self, lease: Duration) {
        let now = self.clock.now();
        let life = RECORD_LIFE.max(lease * 2);
        {
            let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
            let connection = self.link.connections();
            if record.0 >= now.after(lease) && record.1 == connection {
                return;
            }
            *record = (now.after(life), connection);
        }
        let mut set = cmd("SET");
        set.arg(keys::client(self.client.id)).arg(&*self.client.about).arg("PX").arg(life.as_millis().to_string());
        // Only for those who ask who holds a lock: a lock does not fail for want of it.
        drop(self.link.command("writing the client's record", &set).await);
    }
}

#[async_trait]
impl Backend for Redis {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            backend: NAME,
            reach: Reach::Network,
            token_blocks: true,
            queues: false,
            watch_first: self.wake == Wake::Tracking,
            // A lock is as durable as the server's memory; tokens follow the clock and so outlive it.
            safety: Safety {
                holder_pause: Survival::FenceOnly,
                store_restart: Survival::FenceOnly,
                power_loss: Survival::FenceOnly,
                clock_jump: Survival::FenceOnly,
            },
        }
    }

    async fn acquire(&self, claim: &Claim) -> Result<Attempt> {
        let name = &claim.resource;
        let (token, note) = (self.layout.token(name), keys::note(name));
        let (owner, lease, tokens) = (claim.owner.to_string(), claim.lease_millis().to_string(), claim.tokens.to_string());
        let keys = [name.as_str(), &token, &note];
        let args = [&*owner, &*lease, &*tokens, &*self.token_idle, claim.note.as_deref().unwrap_or_default()];
        let without_note = usize::from(claim.note.is_none());
        let (keys, args) = (&keys[..3 - without_note], &args[..5 - without_note]);
        let ask = self.link.eval("acquiring", &self.scripts.acquire, keys, args);
        let (answer, ()) = tokio::join!(ask, self.keep_record(claim.lease));
        let answer = array(answer?, "acquiring")?;
        match &*answer {
            [Value::Int(1), top] => {
                let top = token_of(top).ok_or_else(|| unexpected("acquiring"))?;
                let first = top.get().checked_sub(u64::from(claim.tokens) - 1).ok_or_else(|| unexpected("acquiring"))?;
                Ok(Attempt::Granted { token: Token::new(first), valid_for: claim.lease })
            }
            [Value::Int(0), Value::Int(left), holder] => {
                let holder = text(holder).map(str::to_owned);
                let foreign = |what: &str| Error::backend(NAME, format!("acquiring {name:?}"), Fault::ForeignFormat, what);
                let Ok(left) = u64::try_from(*left) else { return Err(foreign("the key has no expiry and is not a lock")) };
                if self.layout == Layout::Redisson && !holder.as_deref().is_some_and(is_redisson_field) {
                    return Err(foreign("the key is a hash, but its fields are not owners of a lock"));
                }
                let mut poll_within = Duration::from_millis(left + 1);
                if claim.queue == Queue::Allowed {
                    poll_within = poll_within.min(self.link.waits(name, claim.owner));
                    if self.wake == Wake::PubSub && self.layout == Layout::Plain {
                        // Other libraries of this layout publish nothing.
                        poll_within = poll_within.min(Duration::from_millis(200));
                    }
                }
                Ok(Attempt::Busy { poll_within, holder })
            }
            _ => Err(unexpected("acquiring")),
        }
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Renewal>> {
        let notes: Vec<String> = claims.iter().map(|c| keys::note(&c.resource)).collect();
        let owners: Vec<[String; 2]> = claims.iter().map(|c| [c.owner.to_string(), c.lease_millis().to_string()]).collect();
        let mut keys = Vec::with_capacity(claims.len());
        let mut args = Vec::with_capacity(3 * claims.len());
        for ((claim, note), [owner, lease]) in claims.iter().zip(&notes).zip(&owners) {
            keys.push(claim.resource.as_str());
            args.extend([&**owner, &**lease, if claim.note.is_some() { "1" } else { "0" }]);
            if claim.note.is_some() {
                keys.push(note);
            }
        }
        let longest = claims.iter().map(|c| c.lease).max().unwrap_or_default();
        let ask = self.link.eval("renewing", &self.scripts.renew, &keys, &args);
        let (answer, ()) = tokio::join!(ask, self.keep_record(longest));
        let answers = array(answer?, "renewing")?;
        let renewal = |(answer, claim): (&Value, &Claim)| match answer {
            Value::Int(1) => Renewal::Extended { valid_for: claim.lease },
            _ => Renewal::Gone,
        };
        Ok(answers.iter().zip(claims).map(renewal).collect())
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        let name = &claim.resource;
        let note = keys::note(name);
        let keys = [name.as_str(), &note];
        let keys = &keys[..2 - usize::from(claim.note.is_none())];
        let (owner, channel) = (claim.owner.to_string(), self.layout.channel(name));
        match self.link.eval("releasing", &self.scripts.release, keys, &[&owner, &channel]).await? {
            Value::Int(0) => Ok(Released::NotHeld),
            Value::Int(told) => {
                if told == 2 {
                    warn!(?name, channel, "released, but this user may not publish: clients that listen are not woken");
                }
                self.link.wake(name);
                Ok(Released::Yes)
            }
            _ => Err(unexpected("releasing")),
        }
    }

    async fn watch(&self, claim: &Claim) -> Result<Signal> {
        self.link.listen(&claim.resource).await
    }

    async fn inspect(&self, scope: Scope<'_>) -> Result<Vec<State>> {
        match scope {
            Scope::One(name) => Ok(vec![self.state(name).await?]),
            Scope::Prefix(prefix) => {
                let mut states = Vec::new();
                for names in self.names(prefix).await?.chunks(64) {
                    // A key that vanished or changed in between is none of ours.
                    let found = self.bounded("listing", async { Ok(join_all(names.iter().map(|n| self.state(n))).await) });
                    states.extend(found.await?.into_iter().flatten().filter(|s| self.is_lock(s)));
                }
                Ok(states)
            }
        }
    }

    async fn break_hold(&self, name: &Resource) -> Result<Option<Broken>> {
        let keys = [name.as_str(), &self.layout.token(name), &keys::note(name)];
        let args = [&*self.layout.channel(name), &*self.token_idle];
        let answer = self.link.eval("breaking", &self.scripts.break_hold, &keys, &args).await?;
        if answer == Value::Nil {
            return Ok(None);
        }
        let answer = array(answer, "breaking")?;
        let [fence, left, old, note, holders @ ..] = &*answer else { return Err(unexpected("breaking")) };
        let fence = token_of(fence).ok_or_else(|| unexpected("breaking"))?;
        self.link.wake(name);
        Ok(Some(Broken { holders: self.holders(left, token_of(old), note, holders).await, fence }))
    }

    async fn close(&self) -> Result<()> {
        let mut del = cmd("DEL");
        del.arg(keys::client(self.client.id));
        // The record ends by itself if this does not reach the server.
        drop(self.link.command("removing the client's record", &del).await);
        self.link.close();
        Ok(())
    }
}
