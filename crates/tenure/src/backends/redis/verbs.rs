//! The verbs of the contract, and the first of them: acquiring.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use redis::{Value, cmd};

use super::calls::Answer;
use super::fault::NAME;
use super::keys::{self, Layout};
use super::question::{Question, Tracking};
use super::reply::{is_redisson_field, text, token_of, unexpected};
use super::reserved::refuse_all_tag;
use super::shared::Wake;
use super::{Redis, written};
use crate::backend::{
    Attempt, Backend, Broken, Capabilities, Claim, Mode, Queue, Released, Renewal, Retry, Scope, Server, State, Voter,
};
use crate::clock::Instant;
use crate::error::{Error, Fault, Result};
use crate::name::{Resource, Token};
use crate::signal::Signal;

/// How soon a waiter asks again that no push will wake: other libraries of the plain layout publish nothing, and a server that has yet
/// to take over a slot tracks nothing.
const UNTOLD: Duration = Duration::from_millis(200);

impl Redis {
    /// A free lock costs one question. A caller that is told "busy" and will wait asks again at once, with its keys tracked: so the
    /// server tracks nothing for callers that get the lock.
    async fn ask(&self, claim: &Claim, at_least: Option<Token>) -> Result<Attempt> {
        // A quorum may find a node of another layout after it has said what it carries.
        self.capabilities.refuse(claim.mode)?;
        let slot = self.router.slot(&claim.resource)?;
        refuse_all_tag(&claim.resource, claim.mode)?;
        if claim.mode == Mode::Fair {
            return Box::pin(self.ask_in_line(slot, claim, at_least)).await;
        }
        self.listen_for_claims(claim);
        let (attempt, mut answer) = self.ask_once(slot, claim, at_least, &[]).await?;
        let Attempt::Busy { retry: Retry::OnSignal { mut within }, mut holder } = attempt else { return Ok(attempt) };
        if claim.queue == Queue::Never {
            return Ok(Attempt::busy(within, holder));
        }
        let shared = &self.router.shared;
        let channel = self.layout.channel_of(claim);
        // Readers also wait for writers in the queue.
        let (name, writers) = (claim.resource.as_str(), keys::writers(&claim.resource));
        let tracked = [name, &*writers];
        let tracked = &tracked[..1 + usize::from(claim.mode == Mode::Read)];
        // Before the question: a push during the call may be of a change after its read.
        let heard = shared.hub.version(&channel).filter(|_| answer.live.wake == Wake::Tracking);
        if let Some(heard) = heard
            && !shared.is_told(&channel, tracked, answer.live.session(), heard)
        {
            let (again, second) = Box::pin(self.ask_once(slot, claim, at_least, tracked)).await?;
            let Attempt::Busy { retry: Retry::OnSignal { within: next }, holder: present } = again else { return Ok(again) };
            (answer, within, holder) = (second, next, present);
            if answer.tracking == Tracking::Yes {
                shared.will_be_told(&channel, tracked, answer.live.id, heard);
            } else {
                within = within.min(UNTOLD);
            }
        }
        self.tell_holder(holder.as_deref());
        if let Some(link) = answer.live.link.upgrade() {
            within = within.min(link.waits(&channel, claim, answer.live.wake));
        }
        if answer.live.wake == Wake::PubSub && self.layout == Layout::Plain {
            within = within.min(UNTOLD);
        }
        Ok(Attempt::busy(within, holder))
    }

    /// Whether calls may go over another connection than that of the link. `WAIT` is about what its own connection has written. A node
    /// of a quorum is known by its connection, and a vote must not be overtaken by its undoing.
    pub(super) fn may_be_near(&self) -> bool {
        self.sync.is_none() && !self.is_voter.load(Ordering::Relaxed)
    }

    /// One question for a fair lock, unless the release before has handed it over. Its line is told by messages, and nothing is tracked.
    async fn ask_in_line(&self, slot: u16, claim: &Claim, at_least: Option<Token>) -> Result<Attempt> {
        let (places, channel) = (&self.router.shared.places, self.layout.channel_of(claim));
        if places.has_grants()
            && let Some((token, since)) = places.take(&channel, self.router.session_of(slot))
            && let Some(valid_for) = self.valid_if_handed_over(claim, since).filter(|_| at_least.is_none())
        {
            return Ok(Attempt::Granted { token, valid_for });
        }
        let asked = self.clock.now();
        let (attempt, answer) = self.ask_once(slot, claim, at_least, &[]).await?;
        let Attempt::Busy { retry: Retry::OnSignal { mut within }, holder } = attempt else { return Ok(attempt) };
        if claim.queue == Queue::Never {
            return Ok(Attempt::busy(within, holder));
        }
        let Value::Array(items) = &answer.value else { return Err(unexpected("acquiring")) };
        if let Some(ends) = items.get(3).and_then(text)
            && self.router.shared.hub.listens(&channel)
        {
            places.keep(&channel, asked, ends);
        }
        self.tell_holder(holder.as_deref());
        if let Some(link) = answer.live.link.upgrade() {
            within = within.min(link.waits_in_line(&channel, claim, items.get(4) != Some(&Value::Int(0))));
        }
        Ok(Attempt::busy(within, holder))
    }

    /// How long a hold is valid that was handed to a place in line: as long as the place, and not longer than its lease. Nothing where
    /// the store must be asked: most of a longer lease would be missing, a note is not written yet, and replicas have not confirmed.
    fn valid_if_handed_over(&self, claim: &Claim, since: Instant) -> Option<Duration> {
        let valid = claim.position_lease().saturating_sub(self.clock.now().since(since)).min(claim.lease);
        let asks = claim.tokens > 1 || claim.note.is_some() || self.sync.is_some() || valid < claim.lease - claim.lease / 10;
        (!asks).then_some(valid)
    }

    /// One question. A grant counts once enough replicas have it.
    async fn ask_once(&self, slot: u16, claim: &Claim, at_least: Option<Token>, tracked: &[&str]) -> Result<(Attempt, Answer)> {
        if self.has_no_scripts() && at_least.is_none() {
            return Box::pin(self.ask_by_commands(slot, claim, tracked)).await;
        }
        let call = self.to_acquire(claim, at_least)?;
        let record = self.keep_record(claim.lease);
        // A fair position is told by messages over the link's own connection: they must not overtake the answer.
        let near = self.may_be_near() && claim.mode != Mode::Fair;
        let answer = self.router.ask(slot, Question::script("acquiring", &call).tracking(tracked).near(near)).await;
        if let Some(record) = record {
            Box::pin(written(record)).await;
        }
        let answer = match answer {
            Err(e) if at_least.is_none() && self.goes_without_scripts(&e) => {
                return Box::pin(self.ask_by_commands(slot, claim, tracked)).await;
            }
            answer => answer?,
        };
        let Value::Array(items) = &answer.value else { return Err(unexpected("acquiring")) };
        Ok((self.confirmed(claim, items, &answer).await?, answer))
    }

    async fn ask_by_commands(&self, slot: u16, claim: &Claim, tracked: &[&str]) -> Result<(Attempt, Answer)> {
        let (items, answer) = self.acquire_by_commands(slot, claim, tracked).await?;
        Ok((self.confirmed(claim, &items, &answer).await?, answer))
    }

    /// What the answer says, once enough replicas have it.
    async fn confirmed(&self, claim: &Claim, items: &[Value], answer: &Answer) -> Result<Attempt> {
        if let ([Value::Int(1 | 2), ..], Some(sync)) = (items, self.sync)
            && let Err(e) = Box::pin(answer.live.synced("acquiring", sync)).await
        {
            // An unconfirmed grant is given back; if that does not arrive either, the engine repeats it. A conversion stays: its holder
            // relies on the hold that was confirmed before, and asks again.
            if claim.mode.holds() && claim.mode != Mode::Downgrade {
                drop(Box::pin(self.send_release(claim)).await);
            }
            return Err(e);
        }
        self.attempt(claim, items)
    }

    /// What the script says.
    fn attempt(&self, claim: &Claim, items: &[Value]) -> Result<Attempt> {
        match items {
            [Value::Int(1), top, changed @ ..] if claim.mode.holds() => {
                if !changed.is_empty() {
                    self.wake(claim);
                }
                let top = token_of(top).ok_or_else(|| unexpected("acquiring"))?;
                // Zero is below all tokens: a fence would let every later write in.
                let first = top.get().checked_sub(u64::from(claim.tokens) - 1).filter(|first| *first > 0);
                let first = first.ok_or_else(|| unexpected("acquiring"))?;
                Ok(Attempt::Granted { token: Token::new(first), valid_for: claim.lease })
            }
            [Value::Int(2), Value::Int(left)] if !claim.mode.holds() => {
                if claim.mode != Mode::CountZero {
                    self.wake(claim);
                }
                Ok(Attempt::Done { left: u64::try_from(*left).unwrap_or(0) })
            }
            [Value::Int(0), Value::Int(left), holder @ ..] => self.busy(claim, *left, holder.first().and_then(text)),
            _ => Err(unexpected("acquiring")),
        }
    }

    fn busy(&self, claim: &Claim, left: i64, holder: Option<&str>) -> Result<Attempt> {
        let name = &claim.resource;
        let foreign = |what: &str| Error::backend(NAME, format!("acquiring {name:?}"), Fault::ForeignFormat, what);
        let Ok(left) = u64::try_from(left) else { return Err(foreign("the key has no expiry and is not a lock")) };
        let must_have_holder = self.layout == Layout::Redisson && claim.mode == Mode::Exclusive;
        if self.layout == Layout::Redisson && !holder.map_or(!must_have_holder, is_redisson_field) {
            return Err(foreign("the key is a hash, but its fields are not owners of a lock"));
        }
        let holder = holder.filter(|holder| *holder != "mode").map(str::to_owned);
        Ok(Attempt::busy(Duration::from_millis(left.saturating_add(1)), holder))
    }
}

#[async_trait]
impl Backend for Redis {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn partition(&self, resource: &Resource) -> u32 {
        // A refused name is never held.
        self.router.slot(resource).map_or(0, u32::from)
    }

    async fn acquire(&self, claim: &Claim) -> Result<Attempt> {
        self.ask(claim, None).await
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Renewal>> {
        self.extend(claims).await
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        if !claim.mode.holds() {
            return Ok(Released::NotHeld);
        }
        let released = self.send_release(claim).await?;
        // Readers may have waited for a writer that was only in the queue.
        if released != Released::NotHeld || claim.mode == Mode::Write {
            self.wake(claim);
        }
        Ok(released)
    }

    async fn watch(&self, claim: &Claim) -> Result<Signal> {
        let channel = self.layout.channel_of(claim);
        if claim.mode != Mode::Fair {
            return self.router.listen(&claim.resource, &channel).await;
        }
        let (own, _) = self.router.shared.hub.listen(&channel);
        let of_client = self.router.listen(&claim.resource, &self.layout.line_channel(claim)).await?;
        // That of the client fires for all of its owners, when it was deaf for a while.
        Signal::any_of(vec![(0, own), (1, of_client)], Arc::new(AtomicU64::new(u64::MAX))).ok_or(Error::Closed)
    }

    async fn inspect(&self, scope: Scope<'_>) -> Result<Vec<State>> {
        match scope {
            Scope::One(name) => Ok(vec![self.state(name).await?]),
            Scope::Prefix(prefix) => self.list(prefix).await,
        }
    }

    async fn break_hold(&self, name: &Resource) -> Result<Option<Broken>> {
        self.break_all(name, None).await
    }

    async fn close(&self) -> Result<()> {
        let key = keys::client(&self.prefix, self.client.id);
        let mut del = cmd("DEL");
        del.arg(&key);
        // The record ends by itself if this does not reach the server.
        drop(self.router.ask(self.router.slot_of_key(&key), Question::command("removing the client's record", &del)).await);
        self.router.close();
        Ok(())
    }
}

#[async_trait]
impl Voter for Redis {
    async fn vote(&self, claim: &Claim, at_least: Option<Token>) -> Result<Attempt> {
        self.is_voter.store(true, Ordering::Relaxed);
        self.ask(claim, at_least).await
    }

    async fn break_above(&self, name: &Resource, at_least: Token) -> Result<Option<Broken>> {
        self.break_all(name, Some(at_least)).await
    }

    async fn identify(&self, longest: Duration) -> Result<Server> {
        self.is_voter.store(true, Ordering::Relaxed);
        self.who_answers(longest).await
    }

    fn connection(&self) -> u64 {
        self.router.session()
    }
}
