//! [`News`]: when to look again at what somebody else changes.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};

use crate::backend::Mode;
use crate::engine::Engine;
use crate::engine::acquire::Patience;
use crate::name::Resource;
use crate::retry::jitter;
use crate::signal::Signal;

/// The longest between two looks: what a lost message costs at most.
const POLL: Duration = Duration::from_secs(1);

/// News of some names: what the store tells, and a look from time to time, because messages get lost and not every store
/// tells of everything.
#[derive(Debug)]
pub(crate) struct News {
    engine: Arc<Engine>,
    signals: Vec<((Resource, Mode), Signal)>,
    poll: Duration,
}

impl News {
    /// Looks at least three times per lease.
    pub(crate) fn new(engine: Arc<Engine>, lease: Duration) -> Self {
        Self { engine, signals: Vec::new(), poll: POLL.min(lease / 3) }
    }

    /// Listens to these names, by the way they are used, and to no others. True if one of them is new: then what it is about must be looked at
    /// again, because it may have changed before the subscription stood. Without one, only polls.
    pub(crate) async fn listen(&mut self, topics: &[(Resource, Mode)]) -> bool {
        self.signals.retain(|(heard, _)| topics.contains(heard));
        let mut new = false;
        for topic in topics {
            if self.signals.iter().any(|(heard, _)| heard == topic) {
                continue;
            }
            if let Ok(signal) = self.engine.watch(topic.0.clone(), topic.1).await {
                self.signals.push((topic.clone(), signal));
                new = true;
            }
        }
        new
    }

    /// Waits until a look may show something new.
    pub(crate) async fn wait(&mut self) {
        let core = &self.engine;
        // Many who look at the same must not do it at the same moment.
        let next = core.settings.clock.now().after(self.poll / 2 + jitter(self.poll / 2));
        let mut any: FuturesUnordered<_> = self.signals.iter_mut().map(|(_, signal)| signal.fired()).collect();
        let fired = async {
            if any.next().await.is_none() {
                std::future::pending::<()>().await;
            }
        };
        core.within(Patience::Until(next), fired).await;
    }
}
