//! The one background task of a locker: renews in batches, gives back what guards drop, and knows a loss by the
//! deadline even if every call hangs. It never waits for a backend inside its loop.
//!
//! Here is the way to it; [`task`] is the loop, [`release`] what it does to give a hold back,
//! [`window`] what keeps one from being in the way of the other.

mod release;
mod task;
mod window;

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use self::task::Task;
use crate::backend::Claim;
use crate::clock::Instant;
use crate::engine::Settings;
use crate::engine::guard::Held;
use crate::engine::hold::Hold;
use crate::engine::turnstile::Turn;
use crate::error::Result;
use crate::lost::LostReason;
use crate::stats::Counters;

/// Answers the one who waits for a release.
pub(crate) type Ack = oneshot::Sender<Result<()>>;

enum Msg {
    Keep { hold: Arc<Hold>, turn: Option<Turn>, until: Instant, spare_tokens: u32 },
    GiveBack { hold: Arc<Hold>, ack: Option<Ack> },
    Forget { claim: Claim },
    Ended { hold: Arc<Hold> },
    Close(oneshot::Sender<()>),
}

/// The way to the keeper. Sending never blocks and works on any thread.
#[derive(Debug, Clone)]
pub(crate) struct Keeper {
    messages: mpsc::UnboundedSender<Msg>,
    counters: Arc<Counters>,
}

impl Keeper {
    /// Starts the keeper on the current runtime.
    pub(crate) fn start(settings: Settings) -> Self {
        let (messages, inbox) = mpsc::unbounded_channel();
        let counters = Arc::clone(&settings.counters);
        // Weak: the keeper ends when the locker and all guards are gone.
        tokio::spawn(Task::new(settings, messages.downgrade(), inbox).run());
        Self { messages, counters }
    }

    /// Takes care of a new hold and returns what gives it back.
    pub(crate) fn keep(&self, hold: Hold, turn: Option<Turn>, until: Instant) -> Held {
        let hold = Arc::new(hold);
        let spare_tokens = hold.claim.tokens - 1;
        let keep = Msg::Keep { hold: Arc::clone(&hold), turn, until, spare_tokens };
        if self.messages.send(keep).is_err() {
            // Nobody would renew it, nor tell of its end.
            hold.lose(LostReason::Closed);
        }
        Held::new(hold, self.clone())
    }

    /// Gives a hold back; the ack is answered when the store has confirmed it.
    pub(crate) fn give_back(&self, hold: &Arc<Hold>, ack: Option<Ack>) {
        if hold.give_back() {
            self.send(Msg::GiveBack { hold: Arc::clone(hold), ack });
        } else if let Some(ack) = ack {
            // The keeper has noticed, or will at the deadline.
            drop(ack.send(Err(hold.why().into())));
        }
    }

    /// Counts a write that came too late for its fence.
    pub(crate) fn note_stale(&self) {
        self.counters.stale.up();
    }

    /// Tells that a hold was found gone.
    pub(crate) fn ended(&self, hold: &Arc<Hold>) {
        self.send(Msg::Ended { hold: Arc::clone(hold) });
    }

    /// Undoes a claim whose outcome is unknown, or that has a place in line.
    pub(crate) fn forget(&self, claim: Claim) {
        self.send(Msg::Forget { claim });
    }

    /// Ends and gives back everything; resolves when that is done or the time is up.
    pub(crate) async fn close(&self) {
        let (done, closed) = oneshot::channel();
        self.send(Msg::Close(done));
        drop(closed.await);
    }

    fn send(&self, msg: Msg) {
        // The keeper is gone only if its runtime is: the lease ends what cannot be given back.
        drop(self.messages.send(msg));
    }
}
