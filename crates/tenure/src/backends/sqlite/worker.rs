//! The one thread of a client that talks to SQLite. What queued up meanwhile goes into one transaction.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use rusqlite::TransactionBehavior;
use tokio::sync::oneshot;
use tracing::{debug, info, warn};

use super::after::After;
use super::boot;
use super::boots::Boots;
use super::fault::sqlite_error;
use super::file::Database;
use super::peers::{Company, Peers, Presence};
use super::pipes::Pipes;
use super::place::Place;
use super::terms::{SqliteOptions, Terms};
use super::verbs::{Answer, Me, Verbs};
use crate::clock::Instant;
use crate::error::{Error, Result};
use crate::lifeline::Lifeline;
use crate::name::ClientId;
use crate::store::Context;

/// The most calls in one transaction: others wait for its end.
const BATCH: usize = 64;
/// How often pipes are tried for that could not be made.
const AGAIN: Duration = Duration::from_secs(1);

/// What the thread is asked to do.
pub(super) enum Job {
    Call(Box<dyn Call>),
    /// See [`super::siblings`].
    Look,
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
    terms: Terms,
    patience: Duration,
    me: Me,
    boots: Boots,
    peers: Arc<Peers>,
    presence: Option<Presence>,
    /// Of the presence before.
    alive: Option<File>,
    lifeline: Lifeline,
    /// When pipes were last made, or could not be.
    tried: Instant,
}

impl Worker {
    /// Opens the file and shows itself to the peers. Blocks.
    pub(super) fn open(options: &SqliteOptions, context: Context, lifeline: Lifeline, company: Company) -> Result<Self> {
        // A little less than the engine waits, so that its answer says why.
        let patience = context.timeout - context.timeout / 10;
        let boot = boot::id()?;
        let terms = options.terms()?;
        let boots = Boots::new(boot.clone());
        let database = open_database(&terms, patience, &boots)?;
        let Context { client, clock, .. } = context;
        let (peers, presence) = appear(&terms, &database.place, company, client.id);
        let presence = presence.inspect_err(|e| no_pipes(&database, e)).ok();
        boots.ask(&peers);
        lifeline.set(presence.as_ref().and_then(Presence::lifeline));
        let tried = clock.now();
        let me =
            Me { id: client.id, client: client.id.to_string(), about: client.about, boot, clock, present: presence.is_some() };
        let mut worker = Self { database, terms, patience, me, boots, peers, presence, alive: None, lifeline, tried };
        let dead = worker.peers.dead();
        worker.transact(|verbs| verbs.sweep(dead)).map_err(|e| worker.error("opening", e))??;
        Ok(worker)
    }

    pub(super) fn path(&self) -> PathBuf {
        self.database.place.path.clone()
    }

    pub(super) fn run(mut self, jobs: &Receiver<Job>) {
        while let Ok(job) = jobs.recv() {
            let mut calls = Vec::new();
            let mut close = None;
            for job in std::iter::once(job).chain(jobs.try_iter()) {
                match job {
                    Job::Call(call) if call.abandoned() => {}
                    Job::Call(call) => calls.push(call),
                    Job::Look => self.let_go(),
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

    fn perform(&mut self, calls: Vec<Box<dyn Call>>) {
        if let Err(e) = self.follow_file() {
            calls.into_iter().for_each(|call| call.finish(Err(e.clone())));
            return;
        }
        // Apart: a long look at the file keeps nobody from writing, and what it cannot read is no renewal's business.
        let (reads, writes): (Vec<_>, Vec<_>) = calls.into_iter().partition(|call| call.reads());
        self.perform_as(TransactionBehavior::Immediate, writes);
        self.perform_as(TransactionBehavior::Deferred, reads);
    }

    fn perform_as(&mut self, behavior: TransactionBehavior, mut calls: Vec<Box<dyn Call>>) {
        if calls.is_empty() {
            return;
        }
        let mut after = After::default();
        let done = self.transaction(behavior, &mut after, |verbs| calls.iter_mut().try_for_each(|call| call.run(verbs)));
        let done = done.map_err(Arc::new);
        match &done {
            Ok(()) => after.run(&self.peers),
            // One of them has met a row that makes no sense. The others have not.
            Err(e) if e.sqlite_error_code().is_none() && calls.len() > 1 => {
                calls.into_iter().for_each(|call| self.perform_as(behavior, vec![call]));
                return;
            }
            Err(_) => {}
        }
        for call in calls {
            let result = done.as_ref().map_err(|e| self.error(call.doing(), Arc::clone(e))).copied();
            call.finish(result);
        }
    }

    fn transaction<T>(
        &mut self,
        behavior: TransactionBehavior,
        after: &mut After,
        work: impl FnOnce(&mut Verbs<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        self.database.bounds.restart();
        self.boots.look_again();
        let tx = self.database.conn.transaction_with_behavior(behavior)?;
        let bounds = &self.database.bounds;
        let done = work(&mut Verbs { tx: &tx, me: &self.me, peers: &self.peers, bounds, after })?;
        tx.commit()?;
        Ok(done)
    }

    fn transact<T>(&mut self, work: impl FnOnce(&mut Verbs<'_>) -> Answer<T>) -> Answer<T> {
        let mut after = After::default();
        let done = self.transaction(TransactionBehavior::Immediate, &mut after, work)?;
        after.run(&self.peers);
        Ok(done)
    }

    /// Opens the file anew if it was removed or replaced: holds in the old one are gone, and renewals will say so. Makes the
    /// pipes anew that are not there any more, or could not be made: without them nobody would see this client's death, or
    /// could wake it.
    fn follow_file(&mut self) -> Result<()> {
        let is_in_place = self.database.is_in_place();
        let mut is_elsewhere = false;
        if !is_in_place {
            let before = self.database.place.directory();
            self.let_go();
            self.database = open_database(&self.terms, self.patience, &self.boots)?;
            is_elsewhere = self.database.place.directory() != before;
        }
        let has_pipes = match &self.presence {
            Some(presence) => presence.is_seen(),
            None => self.me.clock.now().since(self.tried) < AGAIN,
        };
        // Those that are found stay: without them it would look dead to one who cannot tell its boot.
        if is_elsewhere || !has_pipes {
            let had_none = self.presence.is_none();
            // Before the new ones have its names.
            // The one before that is kept, too: its name may be there still.
            if let Some(presence) = self.presence.take() {
                self.alive = presence.withdraw();
            }
            let (peers, presence) = appear(&self.terms, &self.database.place, self.peers.company(), self.me.id);
            match &presence {
                Ok(_) if had_none => info!(file = %self.database.place.path.display(), "there are pipes beside the file now"),
                // Said once, and not each second.
                Err(e) if !had_none => no_pipes(&self.database, e),
                _ => {}
            }
            self.me.present = presence.is_ok();
            self.boots.ask(&peers);
            (self.peers, self.presence) = (peers, presence.ok());
            let kept = || self.alive.as_ref().and_then(|alive| Some(alive.try_clone().ok()?.into()));
            self.lifeline.set(self.presence.as_ref().map_or_else(kept, Presence::lifeline));
            self.tried = self.me.clock.now();
        }
        Ok(())
    }

    /// Closes the file if it, its log or the log's index is not in its place any more.
    fn let_go(&mut self) {
        if !self.database.is_in_place() {
            let file = self.database.place.path.display();
            warn!(%file, "it, its -wal or its -shm was removed or replaced; its locks may be lost");
            if let Err(e) = self.database.let_go() {
                debug!(error = %e, "it stays open");
            }
        }
    }

    fn leave(&mut self) {
        if let Err(e) = self.transact(|verbs| verbs.leave()) {
            debug!(error = %e, "the places in line stay behind; others will find them void");
        }
        self.presence = None;
        self.lifeline.set(None);
    }

    fn error(&self, doing: &str, e: impl Into<Arc<rusqlite::Error>>) -> Error {
        sqlite_error(&self.database.place.path, doing, e)
    }
}

fn open_database(terms: &Terms, patience: Duration, boots: &Boots) -> Result<Database> {
    let database = Database::open(terms, patience)?;
    boots.define(&database.conn).map_err(|e| sqlite_error(&database.place.path, "opening", e))?;
    Ok(database)
}

/// Meets the peers of a file, and shows itself to them, if there can be pipes.
fn appear(terms: &Terms, place: &Arc<Place>, company: Company, client: ClientId) -> (Arc<Peers>, std::io::Result<Presence>) {
    let (pipes, made) = Pipes::new(terms.clone(), place);
    let peers = Arc::new(Peers::new(pipes, company));
    let presence = made.and_then(|()| Presence::new(&peers, client));
    (peers, presence)
}

fn no_pipes(database: &Database, e: &std::io::Error) {
    let file = database.place.path.display();
    warn!(%file, error = %e, "no pipes beside the file: deaths are noticed by the lease, releases by polling");
}
