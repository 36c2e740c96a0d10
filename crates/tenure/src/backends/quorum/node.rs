//! One node: how it is asked, who it is, and whether its vote counts.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::OnceCell;

use super::roster::Roster;
use super::rules::Vote;
use super::words::words;
use super::{NAME, silent};
use crate::backend::{Attempt, Claim, NodeState, Retry, Standing, Voter};
use crate::clock::Clock;
use crate::error::{Error, Fault, NodeTrouble, Result};
use crate::name::Token;

/// Votes of one node that may be asked for at the same time. One that does not answer is not asked without end.
const MOST_VOTES: usize = 10_000;
/// Votes that may wait to be given back at the same time.
const MOST_RETURNS: usize = 1000;
pub(super) type Open = dyn Fn() -> BoxFuture<'static, Result<Arc<dyn Voter>>> + Send + Sync;

/// What all nodes share.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) clock: Clock,
    /// The longest that a call to one node may be under way.
    pub(super) timeout: Duration,
    pub(super) roster: Roster,
}

pub(super) struct Node {
    pub(super) name: String,
    place: usize,
    open: Box<Open>,
    store: OnceCell<Arc<dyn Voter>>,
    common: Arc<Common>,
    votes: AtomicUsize,
    returns: Arc<AtomicUsize>,
    /// What was wrong last.
    trouble: Mutex<Option<String>>,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Counts a call for as long as it is under way.
struct UnderWay<'a>(&'a AtomicUsize);

impl<'a> UnderWay<'a> {
    fn one_of(count: &'a AtomicUsize, most: usize) -> Option<Self> {
        let one = Self(count);
        (count.fetch_add(1, Ordering::Relaxed) < most).then_some(one)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counts a vote until it is given back.
pub(super) struct Returning(Arc<AtomicUsize>);

impl Drop for Returning {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Node {
    pub(super) fn new(name: String, place: usize, open: Box<Open>, common: &Arc<Common>) -> Arc<Self> {
        Arc::new(Self {
            name,
            place,
            open,
            store: OnceCell::new(),
            common: Arc::clone(common),
            votes: AtomicUsize::new(0),
            returns: Arc::default(),
            trouble: Mutex::new(Some("it has not been asked yet".to_owned())),
        })
    }

    /// The store, if it has been reached.
    pub(super) fn opened(&self) -> Option<&Arc<dyn Voter>> {
        self.store.get()
    }

    /// Asks once, for as long as one call may take. The outcome of a call that fails is unknown, unless it says that it was not sent.
    pub(super) async fn call<T, F>(&self, doing: &str, ask: impl FnOnce(Arc<dyn Voter>) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        self.call_within(self.common.timeout, doing, ask).await
    }

    /// The same for as long as is given.
    pub(super) async fn call_within<T, F>(
        &self,
        within: Duration,
        doing: &str,
        ask: impl FnOnce(Arc<dyn Voter>) -> F,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let asked = async {
            let store = self.store.get_or_try_init(|| (self.open)()).await?;
            ask(Arc::clone(store)).await
        };
        let late = |_| Err(silent(doing, within));
        let answer = tokio::time::timeout(within, asked).await.unwrap_or_else(late);
        self.note(answer.as_ref().err());
        answer
    }

    /// Leave to give one more vote back, if there are not too many already.
    pub(super) fn gives_back(&self) -> Option<Returning> {
        let one = Returning(Arc::clone(&self.returns));
        (self.returns.fetch_add(1, Ordering::Relaxed) < MOST_RETURNS).then_some(one)
    }

    fn note(&self, error: Option<&Error>) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = error.map(words);
    }

    /// Takes note that it has not answered in time, though it still may.
    pub(super) fn is_slow(&self, within: Duration) {
        let why = Some(format!("no answer within {within:?}"));
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }

    /// Asks for its vote. If another server may have answered than the one that is known, that is cleared up first.
    pub(super) async fn vote(&self, claim: &Claim, at_least: Option<Token>) -> Result<Vote> {
        let Some(_one) = UnderWay::one_of(&self.votes, MOST_VOTES) else {
            let detail = format!("not asked: {MOST_VOTES} of its votes are waited for");
            return Err(Error::unavailable(NAME, "acquiring", Fault::Timeout, detail));
        };
        let answer = self.call("acquiring", |store| async move {
            let answer = store.vote(claim, at_least).await?;
            let knows = || self.common.roster.knows(self.place, store.connection(), claim.lease);
            if matches!(answer, Attempt::Granted { .. }) && !knows() {
                self.meet(&*store).await?;
            }
            Ok(answer)
        });
        Ok(match answer.await? {
            Attempt::Granted { .. } if self.objection().is_some() => Vote::Uncounted,
            Attempt::Granted { token, valid_for } => Vote::Yes { token, valid_for },
            Attempt::Busy { retry: Retry::OnSignal { within }, holder } => Vote::No { poll_within: within, holder },
            // Nothing that a node of a quorum is asked for is answered so.
            Attempt::Done { .. } | Attempt::Busy { retry: Retry::After(_), .. } => Vote::Unknown,
        })
    }

    /// Why its vote does not count, if it is known to be one that does not.
    pub(super) fn objection(&self) -> Option<Standing> {
        self.common.roster.objection(self.place)
    }

    /// What it has said: this error, or why its answer does not count.
    pub(super) fn said(&self, error: Option<&Error>) -> NodeTrouble {
        let (said, fault) = match (error, self.objection()) {
            (Some(e), _) => (words(e), e.fault()),
            (None, Some(Standing::Quarantined { left })) => {
                let said = format!("restarted of late and may have forgotten locks; counts again in {left:.1?}");
                (said, Some(Fault::Quarantine))
            }
            (None, Some(Standing::Refused { why })) => (why, None),
            (None, _) => ("has answered".to_owned(), None),
        };
        NodeTrouble { node: self.name.clone(), said, fault }
    }

    /// Whether answers come from the server that is known.
    pub(super) fn is_current(&self) -> bool {
        self.opened().is_some_and(|store| self.common.roster.knows(self.place, store.connection(), Duration::ZERO))
    }

    /// Asks who it is, and says who comes.
    pub(super) async fn identify(&self) -> Result<()> {
        self.call("identifying", |store| async move { self.meet(&*store).await }).await
    }

    async fn meet(&self, store: &dyn Voter) -> Result<()> {
        let Common { clock, roster, .. } = &*self.common;
        let longest = roster.longest();
        let asked = clock.now();
        let server = store.identify(longest).await?;
        if server.replica {
            let detail = "it is a replica: it only copies another one's votes";
            return Err(Error::backend(NAME, "identifying", Fault::ReadOnly, detail));
        }
        roster.note(&self.name, self.place, server, longest, (asked, clock.now()));
        Ok(())
    }

    fn standing(&self) -> Standing {
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if !self.common.roster.has_heard_of(self.place) {
            return Standing::Away { why: trouble.unwrap_or_else(|| "it has not said who it is".to_owned()) };
        }
        self.objection().unwrap_or_else(|| trouble.map_or(Standing::Counts, |why| Standing::Away { why }))
    }

    pub(super) fn state(&self) -> NodeState {
        let clock_ahead_ms = self.common.roster.clock_ahead(self.place);
        NodeState { name: self.name.clone(), standing: self.standing(), clock_ahead_ms }
    }
}
