//! One node: how it is asked, which server it is, and whether its vote counts.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::OnceCell;

use super::messages::message;
use super::roster::Roster;
use super::rules::Vote;
use super::{NAME, silent};
use crate::backend::{Attempt, Claim, NodeState, Released, Renewal, Retry, Standing, Voter};
use crate::clock::Clock;
use crate::error::{Error, Fault, NodeTrouble, Result};
use crate::name::Token;

/// Votes of one node that may be asked for at the same time: a node that hangs costs no more.
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
    /// Its number in the list.
    index: usize,
    open: Box<Open>,
    store: OnceCell<Arc<dyn Voter>>,
    common: Arc<Common>,
    votes: Arc<AtomicUsize>,
    returns: Arc<AtomicUsize>,
    /// What was wrong last.
    trouble: Mutex<Option<String>>,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Counts one of a limited number, until it is dropped.
pub(super) struct OneOfFew(Arc<AtomicUsize>);

impl OneOfFew {
    fn new(count: &Arc<AtomicUsize>, most: usize) -> Option<Self> {
        let one = Self(Arc::clone(count));
        (count.fetch_add(1, Ordering::Relaxed) < most).then_some(one)
    }
}

impl Drop for OneOfFew {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Node {
    pub(super) fn new(name: String, index: usize, open: Box<Open>, common: &Arc<Common>) -> Arc<Self> {
        Arc::new(Self {
            name,
            index,
            open,
            store: OnceCell::new(),
            common: Arc::clone(common),
            votes: Arc::default(),
            returns: Arc::default(),
            trouble: Mutex::new(Some("it has not been asked yet".to_owned())),
        })
    }

    /// The store, if it has been reached.
    pub(super) fn opened(&self) -> Option<&Arc<dyn Voter>> {
        self.store.get()
    }

    /// Asks once, within the timeout of a call. The outcome of a call that fails is unknown.
    pub(super) async fn call<T, F>(&self, doing: &str, ask: impl FnOnce(Arc<dyn Voter>) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        self.call_within(self.common.timeout, doing, ask).await
    }

    /// The same within a given time.
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
        *self.trouble() = answer.as_ref().err().map(message);
        answer
    }

    /// Leave to give one more vote back, if there are not too many already.
    pub(super) fn gives_back(&self) -> Option<OneOfFew> {
        OneOfFew::new(&self.returns, MOST_RETURNS)
    }

    fn trouble(&self) -> MutexGuard<'_, Option<String>> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that it has not answered in time, though it still may.
    pub(super) fn is_slow(&self, within: Duration) {
        *self.trouble() = Some(format!("no answer within {within:?}"));
    }

    pub(super) async fn release(&self, claim: &Claim) -> Result<Released> {
        self.call("releasing", |store| async move { store.release(claim).await }).await
    }

    /// Renews claims. What another server than the known one extends does not count yet.
    pub(super) async fn renew(self: Arc<Self>, claims: Arc<[Claim]>) -> Result<Vec<Renewal>> {
        let mut said = self.call("renewing", |store| async move { store.renew(&claims).await }).await?;
        if said.iter().any(|one| matches!(one, Renewal::Extended { .. })) {
            let known = self.is_current() || self.identify().await.is_ok();
            if !known || self.objection().is_some() {
                let extended = said.iter_mut().filter(|one| matches!(one, Renewal::Extended { .. }));
                extended.for_each(|one| *one = Renewal::Unknown(Fault::Quarantine));
            }
        }
        Ok(said)
    }

    /// Asks for its vote. A grant over another connection than the known one has the server identified first.
    pub(super) async fn vote(&self, claim: &Claim, at_least: Option<Token>) -> Result<Vote> {
        let Some(_one) = OneOfFew::new(&self.votes, MOST_VOTES) else {
            let detail = format!("not asked: {MOST_VOTES} of its votes are waited for");
            return Err(Error::unavailable(NAME, "acquiring", Fault::Timeout, detail));
        };
        let answer = self.call("acquiring", |store| async move {
            let answer = store.vote(claim, at_least).await?;
            let knows = || self.common.roster.knows(self.index, store.connection(), claim.lease);
            if matches!(answer, Attempt::Granted { .. }) && !knows() {
                self.identify_at(&*store).await?;
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
        self.common.roster.objection(self.index)
    }

    /// What it has said: this error, or why its answer does not count.
    pub(super) fn said(&self, error: Option<&Error>) -> NodeTrouble {
        let (said, fault) = match (error, self.objection()) {
            (Some(e), _) => (message(e), e.fault()),
            (None, Some(Standing::Quarantined { left })) => {
                let said = format!("recently restarted and may have forgotten locks; counts again in {left:.1?}");
                (said, Some(Fault::Quarantine))
            }
            (None, Some(Standing::Refused { why })) => (why, None),
            (None, _) => ("has answered".to_owned(), None),
        };
        NodeTrouble { node: self.name.clone(), said, fault }
    }

    /// Whether answers come from the server that is known.
    pub(super) fn is_current(&self) -> bool {
        self.opened().is_some_and(|store| self.common.roster.knows(self.index, store.connection(), Duration::ZERO))
    }

    /// Asks which server it is, and names the longest lease of this client.
    pub(super) async fn identify(&self) -> Result<()> {
        self.call("identifying", |store| async move { self.identify_at(&*store).await }).await
    }

    async fn identify_at(&self, store: &dyn Voter) -> Result<()> {
        let Common { clock, roster, .. } = &*self.common;
        let longest = roster.longest();
        let asked = clock.now();
        let server = store.identify(longest).await?;
        if server.replica {
            let detail = "it is a replica: it only copies another one's votes";
            return Err(Error::backend(NAME, "identifying", Fault::ReadOnly, detail));
        }
        roster.note(&self.name, self.index, server, longest, (asked, clock.now()));
        Ok(())
    }

    fn standing(&self) -> Standing {
        let trouble = self.trouble().clone();
        if !self.common.roster.has_heard_of(self.index) {
            return Standing::Away { why: trouble.unwrap_or_else(|| "it has not said who it is".to_owned()) };
        }
        self.objection().unwrap_or_else(|| trouble.map_or(Standing::Counts, |why| Standing::Away { why }))
    }

    pub(super) fn state(&self) -> NodeState {
        let clock_ahead_ms = self.common.roster.clock_ahead(self.index);
        NodeState { name: self.name.clone(), standing: self.standing(), clock_ahead_ms }
    }
}
