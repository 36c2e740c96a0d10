//! The near connection: driven by the runtime of the caller, so that a call of a lone caller changes no thread.
//!
//! It carries nothing but acquisitions and releases of callers. Renewals and pushes go over the link's own connection, on the thread of
//! the background; so do callers that come while others are there, because one connection sends their calls in one packet.
//!
//! A runtime that is blocked or has stopped drives nothing. The background looks after that: it gives up a near connection that has
//! calls under way and takes no step when it is told to, and the engine asks again over the other one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use redis::{PushInfo, PushKind};
use tokio::runtime::{Handle, Id};
use tracing::debug;

use super::calls::HICCUP;
use super::link::{Link, Live};
use super::shared::lock;
use super::single_flight::SingleFlight;
use crate::caller;

/// So many calls, one after the other within [`SOON`], are worth a connection.
const OFTEN: u32 = 32;
const SOON: Duration = Duration::from_secs(1);
/// How often the background looks whether calls are answered.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// It is given up after so many looks without a call.
const IDLE_LOOKS: u32 = 50;
/// A panic of the caller's runtime, if it can have no connections, must not end the process.
const CAN_TRY: bool = !cfg!(panic = "abort");

#[derive(Default)]
pub(super) struct Near {
    state: Mutex<State>,
    /// Calls begun and answered over whatever near connection.
    begun: AtomicU64,
    answered: AtomicU64,
}

#[derive(Default)]
struct State {
    present: Option<(Id, Arc<Live>)>,
    /// Calls without another one beside them, and since when.
    alone: u32,
    since: Option<Instant>,
    /// The runtime on which one is being made, or could not be made.
    tried: Option<Id>,
}

impl State {
    /// Counts a lone call. Whether there have been many of late.
    fn is_worth_it(&mut self) -> bool {
        let since = *self.since.get_or_insert_with(Instant::now);
        self.alone += 1;
        if self.alone < OFTEN {
            return false;
        }
        (self.alone, self.since) = (0, None);
        since.elapsed() < SOON
    }
}

/// A call over the near connection.
pub(super) struct NearCall<'a>(&'a Near);

impl Drop for NearCall<'_> {
    fn drop(&mut self) {
        self.0.answered.fetch_add(1, Ordering::Relaxed);
    }
}

impl Near {
    pub(super) fn begin(&self) -> NearCall<'_> {
        self.begun.fetch_add(1, Ordering::Relaxed);
        NearCall(self)
    }

    /// Gives up the connection with this id, or whichever there is. What was under way over it is told by its end.
    pub(super) fn discard(&self, id: Option<u64>) {
        let given_up = lock(&self.state).present.take_if(|(_, live)| id.is_none_or(|id| live.id == id));
        if let Some((_, live)) = given_up {
            live.connection.driver().abort();
        }
    }
}

impl Link {
    /// The connection that the caller's own runtime drives, if there is one. Makes one for a caller that comes often and is alone.
    pub(super) fn near(&self) -> Option<Arc<Live>> {
        // A call that is cut off must end its connection: over the other one, its undoing could overtake it.
        if !CAN_TRY || self.follows_master() || self.shared.timeout < HICCUP {
            return None;
        }
        caller::runtime(|runtime| {
            let mut state = lock(&self.near.state);
            if let Some((id, live)) = &state.present {
                return (*id == runtime.id()).then(|| Arc::clone(live));
            }
            if state.is_worth_it() && state.tried != Some(runtime.id()) {
                state.tried = Some(runtime.id());
                drop(state);
                self.make_near(runtime);
            }
            None
        })?
    }

    /// Connects on the caller's runtime. One that has no connections ends the task by a panic, and is not tried again.
    fn make_near(&self, runtime: &Handle) {
        let (me, id) = (Weak::clone(&self.me), runtime.id());
        drop(runtime.spawn(async move {
            let Some(link) = me.upgrade() else { return };
            let beside = link.live().clone();
            let made = match beside {
                Some(beside) => link.dial_near(&beside).await,
                None => None,
            };
            let mut state = lock(&link.near.state);
            state.tried = None;
            let Some(live) = made else { return };
            // All calls were ended meanwhile: the server may be elsewhere now.
            if live.aborted.is_set() || state.present.is_some() {
                return;
            }
            debug!(connection = live.id, "a near connection to redis");
            state.present = Some((id, live));
            drop(state);
            link.shared.runtime.spawn(look_after(Weak::clone(&link.me)));
        }));
    }

    async fn dial_near(&self, beside: &Live) -> Option<Arc<Live>> {
        let (me, id) = (Weak::clone(&self.me), self.shared.next_id());
        let generation = Arc::clone(&beside.aborted);
        let on_push = move |push: PushInfo| {
            match (&push.kind, me.upgrade()) {
                (PushKind::Disconnection, Some(link)) => link.near.discard(Some(id)),
                (PushKind::Invalidate | PushKind::Other(_), _) | (_, None) => {}
                // Nothing is to be pushed over it. redis-rs may take it for an answer, and every later answer would be that of another call.
                (_, Some(link)) => link.abort(&generation),
            }
            Ok::<(), ()>(())
        };
        let (connection, _) = tokio::time::timeout(self.shared.timeout, self.dial(on_push)).await.ok()?.ok()?;
        let aborted = Arc::clone(&beside.aborted);
        aborted.ends(connection.driver());
        let (link, wake) = (Weak::clone(&self.me), beside.wake);
        Some(Arc::new(Live { link, connection, id, wake, aborted, waits: SingleFlight::default() }))
    }
}

/// Gives up a connection that is not used any more, or whose calls get no answer.
async fn look_after(link: Weak<Link>) {
    let (mut seen, mut idle, mut nudged) = ((0, 0), 0, None);
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let Some(link) = link.upgrade() else { return };
        let near = &link.near;
        let driver = lock(&near.state).present.as_ref().map(|(_, live)| live.connection.driver());
        let Some(driver) = driver else { return };
        let now = (near.begun.load(Ordering::Relaxed), near.answered.load(Ordering::Relaxed));
        if now != seen {
            (seen, idle, nudged) = (now, 0, None);
            continue;
        }
        idle += 1;
        // A server that is slow is waited for. A runtime that is stuck is not.
        let before = nudged.replace(driver.nudge());
        let is_stuck = now.0 != now.1 && before.is_some() && before == nudged;
        if is_stuck || now.0 == now.1 && idle >= IDLE_LOOKS {
            debug!(is_stuck, "the near connection is given up");
            return near.discard(None);
        }
    }
}
