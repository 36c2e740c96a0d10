//! One file for all processes of one machine: SQLite in WAL mode, and pipes beside it.
//!
//! - [`terms`]: what the URL says; [`location`]: where the file is ([`resolve`]), whose directories it is in ([`trust`], [`groups`]), on
//!   which [`filesystem`] and under which [`names`]; [`recognize`]: whether it is ours, before it is touched; [`file`]: how it is opened,
//!   within which [`bounds`]; [`index`]: with which log; [`format`]: its tables; [`fault`]: what its errors mean.
//! - [`worker`]: who works on the file, in a [`seat`] that a client's [`thread`] and its callers share, unless those are a [`crowd`]; [`jobs`]: what the
//!   thread is asked to do; [`calm`]: what need not be looked at again; [`siblings`]: other clients of the process; [`boot`]: by which clock.
//! - [`verbs`] and [`inspect`]: the contract as SQL, in a [`transaction`]. Leases are points of `CLOCK_BOOTTIME`, which all processes share, and void after a
//!   restart of the machine ([`boots`]). [`rows`]: holds and waiters; [`queue`]: positions, and who is woken; [`polls`]: who asks again, and
//!   when; [`numbers`]: permits and latches; [`identify`]: which file it is.
//! - [`pipes`]: the directory beside the file; [`peers`]: who is alive, and who wakes whom; [`watches`]: whose death wakes whom;
//!   [`message`]: what they write; [`post_commit`]: what is done once the transaction stands.

mod boot;
mod boots;
mod bounds;
mod calm;
mod crowd;
mod fault;
mod file;
mod filesystem;
mod format;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod groups;
mod identify;
mod index;
mod inspect;
mod jobs;
mod location;
mod message;
mod names;
mod numbers;
mod peers;
mod pipes;
mod polls;
mod post_commit;
mod queue;
mod recognize;
mod resolve;
mod rows;
mod seat;
mod siblings;
mod terms;
#[cfg(test)]
mod tests;
mod thread;
mod transaction;
mod trust;
mod verbs;
mod watches;
mod worker;

use std::fmt;
use std::future::poll_fn;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use self::crowd::Caller;
use self::fault::NAME;
pub(crate) use self::fault::sqlite_error;
pub(crate) use self::file::why_not;
use self::jobs::{Ask, Job, Kind};
use self::peers::Notifiers;
use self::seat::{Outbox, Seat};
pub use self::terms::SqliteOptions;
use self::verbs::{VerbResult, Verbs};
use self::watches::Watches;
use self::worker::Worker;
use crate::backend::{
    Attempt, Backend, Broken, Capabilities, Claim, LOCAL, Losses, Opened, Reach, Released, Renewal, Safety, Scope, Server, State,
    Survival, Voter,
};
use crate::error::{Error, Fault, Result};
use crate::lifeline::Lifeline;
use crate::name::{Resource, Token};
use crate::signal::{Hub, Signal};
use crate::store::{Address, Context, Opening, Scheme, StoreOptions};

static CAPABILITIES: Capabilities = Capabilities {
    backend: NAME,
    reach: Reach::Machine,
    // There is no process but the holders' own: the others go on.
    safety: Safety { store_restart: Survival::Lock, ..LOCAL.safety },
    ..LOCAL
};

/// A client of a file. Its thread ends when it is closed or dropped.
struct Sqlite {
    path: PathBuf,
    outbox: Arc<Outbox>,
    hub: Hub,
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sqlite").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Sqlite {
    async fn ask<T: Send + 'static>(
        &self,
        kind: Kind,
        doing: &'static str,
        verb: impl FnMut(&mut Verbs<'_>) -> VerbResult<T> + Send + 'static,
    ) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        self.outbox.send(Job::Verb(Box::new(Ask { kind, doing, verb, answer: None, reply })))?;
        answer.await.unwrap_or(Err(Error::Closed))
    }

    /// The same for what takes but a moment, without a change of threads if the file is free.
    async fn ask_briefly<T: Send + 'static>(
        &self,
        kind: Kind,
        (doing, name): (&'static str, &Resource),
        mut verb: impl FnMut(&mut Verbs<'_>) -> VerbResult<T> + Send + 'static,
    ) -> Result<T> {
        let caller = poll_fn(|cx| Poll::Ready(Caller::new(cx, name.as_str()))).await;
        match self.outbox.do_here(caller, doing, &mut verb) {
            Some(answer) => answer,
            None => self.ask(kind, doing, verb).await,
        }
    }
}

#[async_trait]
impl Backend for Sqlite {
    fn capabilities(&self) -> &Capabilities {
        &CAPABILITIES
    }

    fn partition(&self, _: &Resource) -> u32 {
        0
    }

    async fn acquire(&self, claim: &Claim) -> Result<Attempt> {
        self.vote(claim, None).await
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Renewal>> {
        let claims = claims.to_vec();
        self.ask(Kind::Write, "renewing", move |verbs| verbs.renew(&claims)).await
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        let asked = claim.clone();
        self.ask_briefly(Kind::MustRun, ("releasing", &claim.resource), move |verbs| verbs.release(&asked)).await
    }

    async fn watch(&self, claim: &Claim) -> Result<Signal> {
        Ok(self.hub.listen(&queue::key_of(claim.mode, claim.resource.as_str(), &claim.owner.to_string())).0)
    }

    async fn inspect(&self, scope: Scope<'_>) -> Result<Vec<State>> {
        match scope {
            Scope::One(resource) => {
                let resource = resource.clone();
                self.ask(Kind::Read, "inspecting", move |verbs| verbs.inspect_one(&resource)).await
            }
            Scope::Prefix(prefix) => {
                let prefix = prefix.to_owned();
                self.ask(Kind::Read, "inspecting", move |verbs| verbs.inspect_prefix(&prefix)).await
            }
        }
    }

    async fn break_hold(&self, resource: &Resource) -> Result<Option<Broken>> {
        let resource = resource.clone();
        self.ask(Kind::Write, "breaking", move |verbs| verbs.break_hold(&resource, None)).await
    }

    async fn close(&self) -> Result<()> {
        let (done, closed) = oneshot::channel();
        // Gone already if it was closed before.
        if self.outbox.send(Job::Close(done)).is_ok() {
            drop(closed.await);
        }
        Ok(())
    }
}

#[async_trait]
impl Voter for Sqlite {
    async fn vote(&self, claim: &Claim, at_least: Option<Token>) -> Result<Attempt> {
        let asked = claim.clone();
        self.ask_briefly(Kind::Write, ("acquiring", &claim.resource), move |verbs| verbs.acquire(&asked, at_least)).await
    }

    async fn break_above(&self, resource: &Resource, at_least: Token) -> Result<Option<Broken>> {
        let resource = resource.clone();
        self.ask(Kind::Write, "breaking", move |verbs| verbs.break_hold(&resource, Some(at_least))).await
    }

    async fn identify(&self, longest: Duration) -> Result<Server> {
        self.ask(Kind::Write, "identifying", move |verbs| verbs.identify(longest)).await
    }

    fn connection(&self) -> u64 {
        0
    }
}

pub(crate) static SCHEMES: [Scheme; 1] = [Scheme::new(NAME, open).local().options(&["share", "filesystem"])];

/// Opens `sqlite:`. All that blocks happens on the client's own thread.
fn open(address: Address, context: Context) -> Opening {
    Box::pin(async move {
        let Address { place, mut options, .. } = address;
        SqliteOptions::read(&place, &mut options)?.open(context).await
    })
}

/// Opens a file, on a thread of its own.
fn open_file(options: SqliteOptions, context: Context) -> Opening {
    Box::pin(async move {
        let watches = Watches::default();
        let hub = Hub::with_on_last({
            let watches = watches.clone();
            move |name| watches.forget(name)
        });
        let (jobs, inbox) = mpsc::channel();
        let seat = Arc::<Seat>::default();
        let outbox = Arc::new(Outbox::new(jobs, Arc::clone(&seat)));
        siblings::join(&outbox);
        let (opened, opening) = oneshot::channel();
        let (losses, lifeline) = (Losses::default(), Lifeline::default());
        let notify = Notifiers { hub: hub.clone(), watches, losses: losses.clone(), runtime: Handle::current() };
        let kept = lifeline.clone();
        let start = move || match Worker::open(&options, context, kept, notify) {
            Ok(worker) => {
                let path = worker.path();
                *seat.take() = Some(worker);
                drop(opened.send(Ok(path)));
                thread::run(&seat, &inbox);
            }
            Err(e) => drop(opened.send(Err(e))),
        };
        let thread = std::thread::Builder::new().name("tenure-sqlite".into()).spawn(start);
        thread.map_err(|e| {
            let detail = format!("no thread: {e}");
            Error::unavailable(NAME, "opening", Fault::Connection, detail).with_source(e)
        })?;
        let path = opening.await.unwrap_or(Err(Error::Closed))?;
        Ok(Opened::of_voter(Arc::new(Sqlite { path, outbox, hub })).with_losses(losses).with_lifeline(lifeline))
    })
}
