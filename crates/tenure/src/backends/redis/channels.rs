//! The subscriptions of a link: they wake waiters where there is no tracking, and show the waiters to `inspect`.
//!
//! Plain channels share the connection of commands. Channels of a cluster's shards must not: when a slot moves away, the server sends
//! an unasked `sunsubscribe`. redis-rs takes it for the answer to the oldest call under way, and every later answer would go to
//! the wrong call. On a connection of their own it costs one subscription, which is made again.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::{PushInfo, PushKind, RedisResult, Value, cmd};

use super::connection::Connection;
use super::fault::{Failure, NAME, is_broken};
use super::keys::{is_of_client, is_owned};
use super::link::Link;
use super::places::Word;
use super::reply::text;
use super::shared::Wake;
use crate::backend::Claim;
use crate::error::{Error, Fault, Result};

/// A wait that lasts longer than this becomes visible to others through a subscription.
const VISIBLE_AFTER: Duration = Duration::from_millis(500);

/// What a connection is subscribed to.
#[derive(Default)]
pub(super) struct Channels {
    /// Which connection knows of them; zero: none.
    id: u64,
    channels: HashSet<String>,
    /// Those to which nobody listens at the moment, and which are left soon.
    leaving: HashSet<String>,
    /// The connection for a shard's channels, while there are any.
    own: Option<Connection>,
    /// The connection for commands when that was made. Nothing is sent over the own one that could show that it is dead; but if the other
    /// one died, so did this.
    beside: u64,
}

impl Link {
    pub(super) fn on_push(&self, id: u64, push: &PushInfo) {
        let hub = &self.shared.hub;
        match push.kind {
            PushKind::Invalidate => match push.data.first() {
                Some(Value::Array(keys)) => {
                    keys.iter().filter_map(text).for_each(|key| self.shared.watched.changed(key));
                    let channels = keys.iter().filter_map(text).flat_map(|key| self.shared.layout.channels_of_key(key));
                    channels.for_each(|channel| hub.fire(&channel));
                }
                // The whole database was emptied.
                _ => {
                    hub.fire_all();
                    self.shared.watched.lost_sight();
                }
            },
            PushKind::Message | PushKind::SMessage => {
                let channel = push.data.first().and_then(text);
                let words = push.data.get(1).and_then(text);
                if let (Some(claims), Some(channel), Some(number)) = (self.shared.claims.get(), channel, words)
                    && let Some(owner) = claims.wanted(channel, number)
                {
                    return self.shared.watched.losses.wanted(owner);
                }
                if let (Some(channel), Some(word)) = (channel, words.and_then(Word::read)) {
                    return self.on_word(id, channel, &word);
                }
                // With tracking the same release was pushed already, and a subscription only makes us visible. Not so for a channel of
                // one owner.
                let news = |channel: &&str| self.wake() == Some(Wake::PubSub) || is_owned(channel);
                channel.filter(news).into_iter().for_each(|channel| hub.fire(channel));
            }
            PushKind::Disconnection => {
                self.discard(id);
                // With all the time that it takes: a renewal of a short lease has less.
                self.lost_touch();
                // Waiters ask again, and so connect again, each with its own back-off.
                hub.fire_all();
            }
            _ => {}
        }
    }

    /// An owner of this client that waits in line has been called, or has the lock.
    fn on_word(&self, id: u64, channel: &str, word: &Word<'_>) {
        let (Word::Call { owner } | Word::Grant { owner, .. }) = word;
        let channel = format!("{channel}:{owner}");
        if let Word::Grant { token, ends, .. } = word {
            // Channels of shards come over a connection beside that of commands, and live and die with that.
            let session = if self.is_sharded() { self.session() } else { id };
            self.shared.places.granted(&channel, *token, ends, session);
        }
        self.shared.hub.fire(&channel);
    }

    /// Subscribes to a channel that has listeners. True if it was not before. To be spawned: a caller that leaves half-way would leave an
    /// unknown subscription.
    pub(super) async fn subscribe(&self, channel: &str) -> Result<bool> {
        let mut channels = self.channels.lock().await;
        if !self.shared.hub.listens(channel) {
            return Ok(false);
        }
        let connection = self.connection_of(&mut channels).await?;
        if channels.channels.contains(channel) {
            return Ok(false);
        }
        let ask = async {
            if self.is_sharded() { shard("SSUBSCRIBE", channel, &connection).await } else { connection.subscribe(channel).await }
        };
        match tokio::time::timeout(self.shared.timeout, ask).await {
            Ok(Ok(())) => {}
            // A refusal says nothing of the other channels.
            Ok(Err(e)) if !is_broken(&e) => return Err(Failure::of("subscribing", &e).error),
            Ok(Err(e)) => {
                self.start_afresh(&mut channels);
                return Err(Failure::of("subscribing", &e).error);
            }
            Err(_) => {
                self.start_afresh(&mut channels);
                return Err(Error::unavailable(NAME, "subscribing", Fault::Timeout, "no answer"));
            }
        }
        channels.channels.insert(channel.to_owned());
        Ok(true)
    }

    /// The subscriptions of this connection are unknown: with its end the server forgets them.
    fn start_afresh(&self, channels: &mut Channels) {
        if channels.own.is_none() {
            self.discard(channels.id);
        }
        self.lost_touch();
        self.forget(channels);
    }

    /// The listeners of these channels ask again, and so subscribe again.
    fn forget(&self, channels: &mut Channels) {
        let lost = std::mem::take(channels);
        lost.channels.iter().for_each(|channel| self.shared.hub.fire(channel));
    }

    fn is_sharded(&self) -> bool {
        self.shared.sharded.load(Ordering::Relaxed)
    }

    /// The connection for channels. A new one knows nothing of the old one's.
    async fn connection_of(&self, channels: &mut Channels) -> Result<Connection> {
        let Some(live) = self.live().clone() else {
            return Err(Error::unavailable(NAME, "subscribing", Fault::Connection, "the connection broke"));
        };
        if self.is_sharded() {
            if let Some(own) = channels.own.clone().filter(|_| channels.beside == live.id) {
                return Ok(own);
            }
            self.forget(channels);
            let (me, id) = (Weak::clone(&self.me), self.shared.next_id());
            let on_push = move |push: PushInfo| {
                if let Some(link) = me.upgrade() {
                    link.on_shard_push(id, push);
                }
                Ok::<(), ()>(())
            };
            let (connection, _) = self.dial(on_push).await?;
            *channels = Channels { id, own: Some(connection.clone()), beside: live.id, ..Channels::default() };
            return Ok(connection);
        }
        if channels.id != live.id {
            *channels = Channels { id: live.id, ..Channels::default() };
        }
        Ok(live.connection.clone())
    }

    /// What comes over the connection for a shard's channels.
    fn on_shard_push(&self, id: u64, push: PushInfo) {
        if push.kind == PushKind::SMessage {
            return self.on_push(id, &push);
        }
        let (true, Some(link)) = (matches!(push.kind, PushKind::SUnsubscribe | PushKind::Disconnection), self.me.upgrade())
        else {
            return;
        };
        self.shared.runtime.spawn(async move {
            let mut channels = link.channels.lock().await;
            let gone = match push.kind {
                PushKind::SUnsubscribe => push.data.first().and_then(text).is_some_and(|c| channels.channels.contains(c)),
                _ => true,
            };
            // One that we have left ourselves is not among them any more.
            if channels.id == id && gone {
                link.forget(&mut channels);
            }
        });
    }

    /// Notes that an owner was told "busy" here and will wait; says how long it may do so before it asks again.
    pub(super) fn waits(self: &Arc<Self>, channel: &str, claim: &Claim, wake: Wake) -> Duration {
        let soon = 2 * VISIBLE_AFTER;
        // Without a listener the wait would never be removed.
        if !self.shared.hub.listens(channel) {
            return soon;
        }
        let lasts = self.shared.waits_since(channel, claim.owner) >= VISIBLE_AFTER;
        let by_message = wake == Wake::PubSub;
        let subscribed = self.is_subscribed(channel);
        if !subscribed && (lasts || by_message) {
            let (link, channel) = (Arc::clone(self), channel.to_owned());
            // Spawned: no caller waits for this.
            self.shared.runtime.spawn(async move {
                match link.subscribe(&channel).await {
                    // It was not listening here when it asked: the connection is new, or the name has moved to this server.
                    Ok(true) if by_message => {}
                    // It does not listen yet, and asks again to try once more.
                    Err(e) if by_message && e.is_transient() => tokio::time::sleep(VISIBLE_AFTER / 2).await,
                    _ => return,
                }
                link.shared.hub.fire(&channel);
            });
        }
        // A waiter for messages hears nothing until it is subscribed.
        let told = subscribed || !by_message;
        if told && lasts { 10 * VISIBLE_AFTER } else { soon }
    }

    /// As [`waits`](Self::waits), for a place in the line of a fair lock, which is told by messages alone: those of ours on a channel of
    /// the client, those of Redisson on one of the owner. It listens to that if one of them will wake it, and after a while in any
    /// case: somebody may break the lock from there.
    pub(super) fn waits_in_line(self: &Arc<Self>, own: &str, claim: &Claim, by_theirs: bool) -> Duration {
        let (soon, hub) = (2 * VISIBLE_AFTER, &self.shared.hub);
        // Without a listener the wait would never be removed.
        if !hub.listens(own) {
            return soon;
        }
        let lasts = self.shared.waits_since(own, claim.owner) >= VISIBLE_AFTER;
        let of_client = self.shared.layout.line_channel(claim);
        let own_too = (by_theirs || lasts).then(|| own.to_owned());
        let missing: Vec<_> = [Some(of_client), own_too].into_iter().flatten().filter(|c| !self.is_subscribed(c)).collect();
        if missing.is_empty() {
            return if lasts { 10 * VISIBLE_AFTER } else { soon };
        }
        let (link, own) = (Arc::clone(self), own.to_owned());
        let was_deaf = by_theirs || missing[0] != own;
        // Spawned: no caller waits for this.
        self.shared.runtime.spawn(async move {
            for channel in missing {
                match link.subscribe(&channel).await {
                    Ok(_) => {}
                    // It does not listen yet, and asks again to try once more.
                    Err(e) if e.is_transient() => tokio::time::sleep(VISIBLE_AFTER / 2).await,
                    Err(_) => return,
                }
            }
            // It was not listening when it asked.
            if was_deaf {
                link.shared.hub.fire(&own);
            }
        });
        soon
    }

    pub(super) fn is_subscribed(&self, channel: &str) -> bool {
        let Ok(channels) = self.channels.try_lock() else { return false };
        let current = self.session() == if self.is_sharded() { channels.beside } else { channels.id };
        current && channels.channels.contains(channel)
    }

    /// The last listener of a channel has gone.
    pub(super) fn stopped_listening(&self, channel: &str) {
        // The next of this client may come in a moment, and need not subscribe then.
        let later = is_of_client(channel);
        let might_be = self.channels.try_lock().map_or(true, |mut channels| {
            channels.channels.contains(channel) && (!later || channels.leaving.insert(channel.to_owned()))
        });
        let (true, Some(link)) = (might_be, self.me.upgrade()) else { return };
        let channel = channel.to_owned();
        self.shared.runtime.spawn(async move {
            if later {
                tokio::time::sleep(VISIBLE_AFTER).await;
            }
            let mut channels = link.channels.lock().await;
            channels.leaving.remove(&channel);
            // There may be a listener again.
            if link.shared.hub.listens(&channel) || !channels.channels.remove(&channel) {
                return;
            }
            let left = tokio::time::timeout(link.shared.timeout, link.leave(&mut channels, &channel)).await;
            if !matches!(left, Ok(Ok(()))) {
                link.start_afresh(&mut channels);
            }
        });
    }

    async fn leave(&self, channels: &mut Channels, channel: &str) -> RedisResult<()> {
        if channels.channels.is_empty() {
            channels.own = None;
        }
        if let Some(own) = &mut channels.own {
            return shard("SUNSUBSCRIBE", channel, own).await;
        }
        let live = self.live().clone().filter(|live| live.id == channels.id);
        match live {
            Some(live) => live.connection.unsubscribe(channel).await,
            None => Ok(()),
        }
    }
}

/// Subscribes to one channel of a shard or leaves it: answered by one push.
async fn shard(verb: &str, channel: &str, connection: &Connection) -> RedisResult<()> {
    connection.send(cmd(verb).arg(channel)).await?.extract_error().map(drop)
}
