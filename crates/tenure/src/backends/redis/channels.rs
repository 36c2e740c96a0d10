//! The subscriptions of a link: to be woken where there is no tracking, and to be seen by those who ask who waits.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::{PushInfo, PushKind, Value, cmd};

use super::fault::{Failure, NAME};
use super::link::{Link, Live};
use super::reply::text;
use super::shared::{Wake, lock};
use crate::error::{Error, Fault, Result};
use crate::name::{OwnerId, Resource};

/// A wait that lasts longer than this becomes visible to others through a subscription.
const VISIBLE_AFTER: Duration = Duration::from_millis(500);

impl Link {
    pub(super) fn on_push(&self, id: u64, push: &PushInfo) {
        let hub = &self.shared.hub;
        match push.kind {
            PushKind::Invalidate => match push.data.first() {
                Some(Value::Array(keys)) => keys.iter().filter_map(text).for_each(|name| hub.fire(name)),
                // The whole database was emptied.
                _ => hub.fire_all(),
            },
            PushKind::Message | PushKind::SMessage => {
                // With tracking the same release has been told already; a subscription there only makes us visible.
                let listens = self.live().as_ref().is_some_and(|live| live.wake == Wake::PubSub);
                let names = push.data.first().and_then(text).and_then(|channel| self.shared.layout.names_of_channel(channel));
                if let (true, Some(names)) = (listens, names) {
                    names.iter().for_each(|name| hub.fire(name));
                }
            }
            PushKind::SUnsubscribe => {
                let channel = push.data.first().and_then(text).unwrap_or_default();
                // A slot that moved away takes its channels along, and redis-rs takes that news for the answer to
                // whatever was asked last: nothing that comes over this connection can be believed any more.
                if !lock(&self.leaving).remove(channel) {
                    self.abandon(id);
                    hub.fire_all();
                }
            }
            PushKind::Disconnection => {
                self.discard(id);
                // Those who wait ask again, and so connect again, each with its own back-off.
                hub.fire_all();
            }
            _ => {}
        }
    }

    /// Subscribes to the channel of a name that somebody listens to. True if it was not before.
    pub(super) async fn subscribe(&self, name: &Resource) -> Result<bool> {
        let mut subscribed = self.subscribed.lock().await;
        if !self.shared.hub.listens(name.as_str()) {
            return Ok(false);
        }
        let Some(mut live) = self.live().clone() else {
            return Err(Error::unavailable(NAME, "subscribing", Fault::Connection, "the connection broke"));
        };
        // A new connection knows nothing of the old one's subscriptions.
        if subscribed.0 != live.id {
            *subscribed = (live.id, Default::default());
        }
        if subscribed.1.contains(name.as_str()) {
            return Ok(false);
        }
        let channel = self.shared.layout.channel(name);
        let answer = if self.shared.sharded.load(Ordering::Relaxed) {
            cmd("SSUBSCRIBE").arg(channel).query_async::<Value>(&mut live.connection).await.map(drop)
        } else {
            live.connection.subscribe(channel).await
        };
        answer.map_err(|e| Failure::of("subscribing", &e).error)?;
        subscribed.1.insert(name.as_str().to_owned());
        Ok(true)
    }

    async fn unsubscribe(&self, live: &mut Live, name: &Resource) {
        let channel = self.shared.layout.channel(name);
        // Whatever comes of it: who is not told goes on to be told what it does not need.
        if self.shared.sharded.load(Ordering::Relaxed) {
            lock(&self.leaving).insert(channel.clone());
            drop(cmd("SUNSUBSCRIBE").arg(channel).query_async::<Value>(&mut live.connection).await);
        } else {
            drop(live.connection.unsubscribe(channel).await);
        }
    }

    /// Notes that an owner was told "busy" here and will wait; says how long it may do so before it asks again.
    pub(super) fn waits(self: &Arc<Self>, name: &Resource, owner: OwnerId, wake: Wake) -> Duration {
        let soon = 2 * VISIBLE_AFTER;
        // Who does not listen has nothing that would forget it again.
        if !self.shared.hub.listens(name.as_str()) {
            return soon;
        }
        let lasts = self.shared.waits_since(name.as_str(), owner) >= VISIBLE_AFTER;
        let there = self.subscribed.try_lock().is_ok_and(|subscribed| subscribed.1.contains(name.as_str()));
        if !there && (lasts || wake == Wake::PubSub) {
            let (link, name) = (Arc::clone(self), name.clone());
            // Nobody needs to wait for this.
            self.shared.runtime.spawn(async move {
                let subscribed = tokio::time::timeout(link.shared.timeout, link.subscribe(&name)).await;
                if wake == Wake::PubSub && matches!(subscribed, Ok(Ok(true))) {
                    // It was not listening here when it asked: the name may have moved to this server.
                    link.shared.hub.fire(name.as_str());
                }
            });
        }
        if lasts { 10 * VISIBLE_AFTER } else { soon }
    }

    /// The last one who listened to a name has gone.
    pub(super) fn stopped_listening(&self, name: &str) {
        let might_be = self.subscribed.try_lock().map_or(true, |subscribed| subscribed.1.contains(name));
        let (true, Some(link), Ok(name)) = (might_be, self.me.upgrade(), Resource::new(name)) else { return };
        self.shared.runtime.spawn(async move {
            let mut subscribed = link.subscribed.lock().await;
            // Somebody may have begun to listen again.
            if link.shared.hub.listens(name.as_str()) || !subscribed.1.remove(name.as_str()) {
                return;
            }
            let live = link.live().clone().filter(|live| live.id == subscribed.0);
            if let Some(mut live) = live {
                drop(tokio::time::timeout(link.shared.timeout, link.unsubscribe(&mut live, &name)).await);
            }
        });
    }
}
