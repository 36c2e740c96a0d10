//! Claims of other clients for holds that linger here, told over a channel of the client. A lost one costs the linger time.

use std::sync::Arc;

use redis::cmd;

use super::Redis;
use super::keys::Layout;
use super::question::Question;
use crate::backend::Claim;
use crate::name::{ClientId, OwnerId};
use crate::signal::Signal;

/// Where a client is told that others want what it has.
#[derive(Debug)]
pub(super) struct Claims {
    client: ClientId,
    channel: String,
    /// For as long as the client lives.
    _listens: Signal,
}

impl Claims {
    /// The hold that a message on a channel is about.
    pub(super) fn wanted(&self, channel: &str, number: &str) -> Option<OwnerId> {
        let number = number.parse().ok().filter(|_| channel == self.channel)?;
        Some(OwnerId { client: self.client, number })
    }
}

/// Under the prefix of names, so that rights can be given by prefix.
fn channel(layout: Layout, prefix: &str, client: ClientId) -> String {
    layout.lock_channel(&format!("{prefix}tenure_client:{client}")).to_string()
}

impl Redis {
    /// Listens for claims of other clients, if this hold may linger.
    pub(super) fn listen_for_claims(&self, claim: &Claim) {
        if !claim.owner.lingers() {
            return;
        }
        let shared = &self.router.shared;
        let claims = shared.claims.get_or_init(|| {
            let channel = channel(self.layout, &self.prefix, self.client.id);
            let (signal, _) = shared.hub.listen(&channel);
            Claims { client: self.client.id, channel, _listens: signal }
        });
        let link = self.router.known_link(self.router.slot_of_key(&claims.channel));
        let Some(link) = link.filter(|link| !link.is_subscribed(&claims.channel)) else { return };
        let channel = claims.channel.clone();
        // Spawned: no caller waits for this.
        shared.runtime.spawn(async move { drop(link.subscribe(&channel).await) });
    }

    /// Tells a holder that another client waits, if it keeps what it does not use.
    pub(super) fn tell_holder(&self, holder: Option<&str>) {
        let lingers = holder.and_then(|holder| holder.parse::<OwnerId>().ok()).filter(|owner| owner.lingers());
        let Some(owner) = lingers else { return };
        if owner.client == self.client.id {
            return self.router.shared.watched.losses.wanted(owner);
        }
        let channel = channel(self.layout, &self.prefix, owner.client);
        let (router, mut publish) = (Arc::clone(&self.router), cmd(self.publish()));
        publish.arg(&channel).arg(owner.number);
        self.router.shared.runtime.spawn(async move {
            let ask = router.ask(router.slot_of_key(&channel), Question::command("telling a holder", &publish));
            drop(tokio::time::timeout(router.shared.timeout, ask).await);
        });
    }
}
