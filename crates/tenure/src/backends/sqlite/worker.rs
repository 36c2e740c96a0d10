//! Who works on the file: a connection, and what belongs to it. Verbs that have queued up share one transaction.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tracing::{debug, info, warn};

use super::boot;
use super::boots::Boots;
use super::calm::Calm;
use super::fault::sqlite_error;
use super::file::Database;
use super::jobs::{Answered, Kind, QueuedVerb};
use super::location::Location;
use super::peers::{Notifiers, Peers, Presence};
use super::pipes::Pipes;
use super::post_commit::PostCommit;
use super::terms::{SqliteOptions, Terms};
use super::transaction::{Access, Transaction};
use super::verbs::{Me, VerbError, VerbResult, Verbs};
use crate::clock;
use crate::error::{Error, Result};
use crate::lifeline::Lifeline;
use crate::name::ClientId;
use crate::store::Context;

/// How often pipes are tried for that could not be made.
const AGAIN: Duration = Duration::from_secs(1);
/// A transaction on a caller's thread that took longer is followed by ten times its length without one: a slow file holds up no
/// caller's thread for more than a tenth of the time.
const SLOW: Duration = Duration::from_millis(5);

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
    tried: clock::Instant,
    calm: Calm,
    /// Until then no caller does its verb itself.
    slow_until: Option<Instant>,
}

impl Worker {
    /// Opens the file and shows itself to the peers. Blocks.
    pub(super) fn open(options: &SqliteOptions, context: Context, lifeline: Lifeline, notify: Notifiers) -> Result<Self> {
        // A little less than the engine waits, so that its answer says why.
        let patience = context.timeout - context.timeout / 10;
        let boot = boot::id()?;
        let terms = options.terms()?;
        let boots = Boots::new(boot.clone());
        let database = open_database(&terms, patience, &boots)?;
        let Context { client, clock, .. } = context;
        let (peers, presence) = appear(&terms, &database.location, notify, client.id);
        let presence = presence.inspect_err(|e| no_pipes(&database, e)).ok();
        boots.ask(&peers);
        lifeline.set(presence.as_ref().and_then(Presence::lifeline));
        let tried = clock.now();
        let me =
            Me { id: client.id, client: client.id.to_string(), about: client.about, boot, clock, present: presence.is_some() };
        let worker = Self {
            database,
            terms,
            patience,
            me,
            boots,
            peers,
            presence,
            alive: None,
            lifeline,
            tried,
            calm: Calm::default(),
            slow_until: None,
        };
        let dead = worker.peers.dead();
        worker.transact(|verbs| verbs.sweep(dead)).map_err(|e| worker.error("opening", e))?;
        Ok(worker)
    }

    pub(super) fn path(&self) -> PathBuf {
        self.database.location.path.clone()
    }

    #[cfg(test)]
    pub(super) fn is_calm(&self) -> bool {
        self.calm.has_begun()
    }

    pub(super) fn is_log_long(&self) -> bool {
        self.database.is_log_long()
    }

    pub(super) fn write_back(&mut self) {
        if self.is_log_long() {
            self.database.write_back();
        }
    }

    /// Does a verb on its caller's thread: one transaction that waits for nobody. `None`: nothing was done.
    pub(super) fn perform_here<T>(
        &mut self,
        doing: &str,
        mut verb: impl FnMut(&mut Verbs<'_>) -> VerbResult<T>,
    ) -> Option<Result<T>> {
        // Of a file system that is not known no one knows how long it takes.
        if self.terms.any_filesystem || self.slow_until.is_some_and(|end| Instant::now() < end) || !self.is_settled() {
            return None;
        }
        let begun = Instant::now();
        let mut post_commit = PostCommit::default();
        let tx = self.begin(Access::Write, true).ok()?;
        let mut verbs = Verbs {
            tx: tx.conn(),
            me: &self.me,
            peers: &self.peers,
            bounds: &self.database.bounds,
            post_commit: &mut post_commit,
        };
        let answer = match verb(&mut verbs) {
            Ok(answer) => Ok(answer),
            Err(VerbError::Refused(e)) => Err(e),
            // What is wrong, the thread will say.
            Err(VerbError::Sqlite(_)) => return None,
        };
        // Not asked again: its outcome may be unknown.
        let answer = match tx.commit() {
            Ok(()) => {
                post_commit.run(&self.peers);
                answer
            }
            Err(e) => Err(self.error(doing, e)),
        };
        let took = begun.elapsed();
        self.slow_until = (took > SLOW).then(|| Instant::now() + took * 10);
        Some(answer)
    }

    /// Does what has queued up. The answers are not given yet.
    pub(super) fn perform(&mut self, calls: Vec<Box<dyn QueuedVerb>>) -> Vec<Answered> {
        if let Err(e) = self.follow_file() {
            return calls.into_iter().map(|call| (call, Err(e.clone()))).collect();
        }
        // Apart: a long read blocks no write, and a row that cannot be read fails no renewal.
        let (reads, writes): (Vec<_>, Vec<_>) = calls.into_iter().partition(|call| call.kind() == Kind::Read);
        let mut answered = self.perform_as(Access::Write, writes);
        answered.append(&mut self.perform_as(Access::Read, reads));
        answered
    }

    fn perform_as(&self, access: Access, mut calls: Vec<Box<dyn QueuedVerb>>) -> Vec<Answered> {
        if calls.is_empty() {
            return Vec::new();
        }
        let mut post_commit = PostCommit::default();
        let done = self.transaction(access, &mut post_commit, |verbs| calls.iter_mut().try_for_each(|call| call.run(verbs)));
        let done = done.map_err(Arc::new);
        match &done {
            Ok(()) => post_commit.run(&self.peers),
            // One of them has met a row that makes no sense: each is run alone.
            Err(e) if e.sqlite_error_code().is_none() && calls.len() > 1 => {
                return calls.into_iter().flat_map(|call| self.perform_as(access, vec![call])).collect();
            }
            Err(_) => {}
        }
        let answer = |call: Box<dyn QueuedVerb>| {
            let result = done.as_ref().map_err(|e| self.error(call.doing(), Arc::clone(e))).copied();
            (call, result)
        };
        calls.into_iter().map(answer).collect()
    }

    fn begin(&self, access: Access, brief: bool) -> rusqlite::Result<Transaction<'_>> {
        self.database.bounds.begin(brief);
        self.boots.look_again();
        Transaction::begin(&self.database.conn, access)
    }

    fn transaction(
        &self,
        access: Access,
        post_commit: &mut PostCommit,
        work: impl FnOnce(&mut Verbs<'_>) -> rusqlite::Result<()>,
    ) -> rusqlite::Result<()> {
        let tx = self.begin(access, false)?;
        let bounds = &self.database.bounds;
        work(&mut Verbs { tx: tx.conn(), me: &self.me, peers: &self.peers, bounds, post_commit })?;
        tx.commit()
    }

    fn transact(&self, work: impl FnOnce(&mut Verbs<'_>) -> rusqlite::Result<()>) -> rusqlite::Result<()> {
        let mut post_commit = PostCommit::default();
        self.transaction(Access::Write, &mut post_commit, work)?;
        post_commit.run(&self.peers);
        Ok(())
    }

    /// Whether the file, its log and the pipes are all in their places.
    fn is_settled(&mut self) -> bool {
        let Some(presence) = &self.presence else { return false };
        // First: what changes after the look at the directories must have a later time.
        let now = SystemTime::now();
        let dirs = self.database.location.stamp().zip(presence.stamp()).map(|(dir, pipes)| [dir, pipes]);
        if dirs.is_some_and(|dirs| self.calm.lasts(&dirs)) {
            return true;
        }
        let is_settled = self.database.is_in_place() && presence.is_seen();
        match dirs.filter(|_| is_settled && !self.terms.any_filesystem) {
            Some(dirs) => self.calm.begin(dirs, now),
            None => self.calm.end(),
        }
        is_settled
    }

    /// Opens the file anew if it was removed or replaced: holds in the old one are gone, and renewals will say so. Makes missing pipes
    /// anew: without them this client's death is not seen, and it cannot be woken.
    fn follow_file(&mut self) -> Result<()> {
        if self.is_settled() {
            return Ok(());
        }
        let is_in_place = self.database.is_in_place();
        let mut is_elsewhere = false;
        if !is_in_place {
            let before = self.database.location.directory();
            self.let_go();
            self.database = open_database(&self.terms, self.patience, &self.boots)?;
            is_elsewhere = self.database.location.directory() != before;
        }
        let has_pipes = match &self.presence {
            Some(presence) => presence.is_seen(),
            None => self.me.clock.now().since(self.tried) < AGAIN,
        };
        // Pipes that are found stay: without them this client would look dead to a container with another boot id.
        if is_elsewhere || !has_pipes {
            let had_none = self.presence.is_none();
            // Before the new pipes have its names. The old one stays open: its name may still be there.
            if let Some(presence) = self.presence.take() {
                self.alive = presence.withdraw();
            }
            let (peers, presence) = appear(&self.terms, &self.database.location, self.peers.notify.clone(), self.me.id);
            match &presence {
                Ok(_) if had_none => info!(file = %self.database.location.path.display(), "there are pipes beside the file now"),
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
    pub(super) fn let_go(&mut self) {
        if !self.database.is_in_place() {
            let file = self.database.location.path.display();
            warn!(%file, "it, its -wal or its -shm was removed or replaced; its locks may be lost");
            if let Err(e) = self.database.let_go() {
                debug!(error = %e, "it stays open");
            }
        }
    }

    pub(super) fn leave(&mut self) {
        if let Err(e) = self.transact(|verbs| verbs.leave()) {
            debug!(error = %e, "its positions in queues stay behind; others will find them void");
        }
        self.presence = None;
        self.lifeline.set(None);
    }

    fn error(&self, doing: &str, e: impl Into<Arc<rusqlite::Error>>) -> Error {
        sqlite_error(&self.database.location.path, doing, e)
    }
}

fn open_database(terms: &Terms, patience: Duration, boots: &Boots) -> Result<Database> {
    let database = Database::open(terms, patience)?;
    boots.define(&database.conn).map_err(|e| sqlite_error(&database.location.path, "opening", e))?;
    Ok(database)
}

/// Finds the peers of a file, and makes the pipes of this client if it can.
fn appear(
    terms: &Terms,
    location: &Arc<Location>,
    notify: Notifiers,
    client: ClientId,
) -> (Arc<Peers>, std::io::Result<Presence>) {
    let (pipes, made) = Pipes::new(terms.clone(), location);
    let peers = Arc::new(Peers { pipes, notify });
    let presence = made.and_then(|()| Presence::new(&peers, client));
    (peers, presence)
}

fn no_pipes(database: &Database, e: &std::io::Error) {
    let file = database.location.path.display();
    warn!(%file, error = %e, "no pipes beside the file: deaths are noticed by the lease, releases by polling");
}
