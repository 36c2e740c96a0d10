//! [`ChangeWatch`]: when to look again at state that other clients change.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};

use crate::backend::Mode;
use crate::engine::Engine;
use crate::engine::acquire::Patience;
use crate::name::Resource;
use crate::retry::jitter;
use crate::signal::Signal;

/// The longest time between two looks: what a lost signal costs at most.
const POLL: Duration = Duration::from_secs(1);

/// Watches names for changes: by the signals of the store, and by a look from time to time, because signals get lost and not every store
/// sends all of them.
#[derive(Debug)]
pub(crate) struct ChangeWatch {
    engine: Arc<Engine>,
    signals: Vec<((Resource, Mode), Signal)>,
    poll: Duration,
}

impl ChangeWatch {
    /// Looks at least three times per lease.
    pub(crate) fn new(engine: Arc<Engine>, lease: Duration) -> Self {
        Self { engine, signals: Vec::new(), poll: POLL.min(lease / 3) }
    }

    /// Listens to these names in these modes, and to no others. True if one of them is new: it may have changed before the subscription
    /// stood, so it must be looked at again. Without a subscription it polls.
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
        let engine = &self.engine;
        // Many clients must not look at the same moment.
        let next = engine.settings.clock.now().after(self.poll / 2 + jitter(self.poll / 2));
        let mut any: FuturesUnordered<_> = self.signals.iter_mut().map(|(_, signal)| signal.fired()).collect();
        let fired = async {
            if any.next().await.is_none() {
                std::future::pending::<()>().await;
            }
        };
        engine.within(Patience::Until(next), fired).await;
    }
}
