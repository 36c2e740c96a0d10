//! The one thread of a client that talks to SQLite. What queued up meanwhile goes into one transaction.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use rusqlite::TransactionBehavior;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tracing::{debug, warn};

use super::after::After;
use super::fault::{NAME, sqlite_error};
use super::file::{Database, locate};
use super::peers::{Peers, Presence};
use super::verbs::{Answer, Me, Verbs};
use super::watches::Watches;
use crate::connect::Context;
use crate::error::{Error, Result};
use crate::signal::Hub;

/// The most calls in one transaction: others wait for its end.
const BATCH: usize = 64;

/// What the thread is asked to do.
pub(super) enum Job {
    Call(Box<dyn Call>),
    Close(oneshot::Sender<()>),
}

/// A verb with its arguments and the one who waits for its answer.
pub(super) trait Call: Send {
    /// What is being done, in errors.
    fn doing(&self) -> &'static str;
    /// Whether it changes nothing.
    fn reads(&self) -> bool;
    /// Whether nobody waits for it any more and nothing is lost by not doing it.
    fn abandoned(&self) -> bool;
    fn run(&mut self, verbs: &mut Verbs<'_>) -> rusqlite::Result<()>;
    /// Answers: with what the verb said, if the transaction went well.
    fn finish(self: Box<Self>, transaction: Result<()>);
}

/// The calls of one verb.
pub(super) struct Ask<T, F> {
    pub(super) doing: &'static str,
    pub(super) verb: F,
    pub(super) answer: Option<Result<T>>,
    pub(super) reply: oneshot::Sender<Result<T>>,
}

impl<T: Send, F: FnMut(&mut Verbs<'_>) -> Answer<T> + Send> Call for Ask<T, F> {
    fn doing(&self) -> &'static str {
        self.doing
    }

    fn reads(&self) -> bool {
        self.doing == super::INSPECTING
    }

    fn abandoned(&self) -> bool {
        self.reply.is_closed() && self.doing != super::RELEASING
    }

    fn run(&mut self, verbs: &mut Verbs<'_>) -> rusqlite::Result<()> {
        self.answer = Some((self.verb)(verbs)?);
        Ok(())
    }

    fn finish(self: Box<Self>, transaction: Result<()>) {
        let Self { answer, reply, .. } = *self;
        drop(reply.send(transaction.and_then(|()| answer.unwrap_or(Err(Error::Closed)))));
    }
}

pub(super) struct Worker {
    database: Database,
    patience: Duration,
    me: Me,
    peers: Arc<Peers>,
    presence: Option<Presence>,
}

impl Worker {
    /// Opens the file and shows itself to the peers. Blocks.
    pub(super) fn open(rest: &str, context: Context, hub: Hub, watches: Watches, runtime: Handle) -> Result<Self> {
        // A little less than the engine waits, so that its answer says why.
        let patience = context.timeout - context.timeout / 10;
        let boot = boot_id()?;
        let database = Database::open(&locate(rest)?, patience)?;
        let peers = Arc::new(Peers::new(&database.path, hub, watches, runtime));
        let presence = Presence::new(&peers, context.client.id)
            .inspect_err(|e| {
                let file = database.path.display();
                warn!(%file, error = %e, "no pipes beside the file: deaths are noticed by the lease, releases by polling");
            })
            .ok();
        let Context { client, clock, .. } = context;
        let me =
            Me { id: client.id, client: client.id.to_string(), about: client.about, boot, clock, present: presence.is_some() };
        let mut worker = Self { database, patience, me, peers, presence };
        let dead = worker.peers.dead();
        worker.transact(|verbs| verbs.sweep(dead)).map_err(|e| worker.error("opening", &e))??;
        Ok(worker)
    }

    pub(super) fn path(&self) -> PathBuf {
        self.database.path.clone()
    }

    pub(super) fn run(mut self, jobs: &Receiver<Job>) {
        while let Ok(job) = jobs.recv() {
            let mut calls = Vec::new();
            let mut close = None;
            for job in std::iter::once(job).chain(jobs.try_iter()) {
                match job {
                    Job::Call(call) if call.abandoned() => {}
                    Job::Call(call) => calls.push(call),
                    Job::Close(done) => close = Some(done),
                }
                if close.is_some() || calls.len() == BATCH {
                    break;
                }
            }
            if !calls.is_empty() {
                self.perform(calls);
            }
            if let Some(done) = close {
                self.leave();
                let _told = done.send(());
                return;
            }
        }
        self.leave();
    }

    fn perform(&mut self, mut calls: Vec<Box<dyn Call>>) {
        if let Err(e) = self.follow_file() {
            calls.into_iter().for_each(|call| call.finish(Err(e.clone())));
            return;
        }
        let reads = calls.iter().all(|call| call.reads());
        let behavior = if reads { TransactionBehavior::Deferred } else { TransactionBehavior::Immediate };
        let mut after = After::default();
        let done = self.transaction(behavior, &mut after, |verbs| calls.iter_mut().try_for_each(|call| call.run(verbs)));
        if done.is_ok() {
            after.run(&self.peers);
        }
        for call in calls {
            let result = done.as_ref().map_err(|e| self.error(call.doing(), e)).copied();
            call.finish(result);
        }
    }

    fn transaction<T>(
        &mut self,
        behavior: TransactionBehavior,
        after: &mut After,
        work: impl FnOnce(&mut Verbs<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        let tx = self.database.conn.transaction_with_behavior(behavior)?;
        let done = work(&mut Verbs { tx: &tx, me: &self.me, peers: &self.peers, after })?;
        tx.commit()?;
        Ok(done)
    }

    fn transact<T>(&mut self, work: impl FnOnce(&mut Verbs<'_>) -> Answer<T>) -> Answer<T> {
        let mut after = After::default();
        let done = self.transaction(TransactionBehavior::Immediate, &mut after, work)?;
        after.run(&self.peers);
        Ok(done)
    }

    /// Opens the file anew if it was removed or replaced: holds in the old one are gone, and renewals will say so.
    fn follow_file(&mut self) -> Result<()> {
        if !self.database.is_in_place() {
            warn!(file = %self.database.path.display(), "the file was removed or replaced; its locks are lost");
            self.database = Database::open(&self.database.path.clone(), self.patience)?;
        }
        Ok(())
    }

    fn leave(&mut self) {
        if let Err(e) = self.transact(|verbs| verbs.leave()) {
            debug!(error = %e, "the places in line stay behind; others will find them void");
        }
        self.presence = None;
    }

    fn error(&self, doing: &str, e: &rusqlite::Error) -> Error {
        sqlite_error(&self.database.path, doing, e)
    }
}

/// Tells one run of the machine from the next, in which the lease clock starts anew.
fn boot_id() -> Result<String> {
    let path = "/proc/sys/kernel/random/boot_id";
    let id = std::fs::read_to_string(path).map_err(|e| {
        Error::config(format!("the store {NAME}:"), format!("cannot read {path}: {e}"), "Linux with /proc mounted")
    })?;
    Ok(id.trim().to_owned())
}
