//! The verbs of the contract as SQL, inside a transaction that the worker began.

use std::fs::File;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, ToSql, params};

use super::bounds::Bounds;
use super::message::Message;
use super::numbers::exhausted;
use super::peers::{Life, Peers};
use super::post_commit::PostCommit;
use super::queue::before;
use super::rows::{Hold, Stored, now_micros, signed, turn_of, written};
use crate::backend::{Attempt, Broken, Claim, Mode, Queue, Released, Renewal};
use crate::backends::decision::{Decision, Turn, decide};
use crate::clock::{Clock, Instant};
use crate::error::Error;
use crate::name::{ClientId, OwnerId, Resource, Token};

/// The most rows that one statement deletes.
const PART: usize = 5_000;
/// Tables, and what their rows are known by.
const HOLDS: (&str, &str) = ("holds", "name, owner");
const WAITERS: (&str, &str) = ("waiters", "place");

/// Why a verb has no answer.
pub(super) enum VerbError {
    /// Undoes the transaction.
    Sqlite(rusqlite::Error),
    /// Leaves the transaction as it is.
    Refused(Error),
}

pub(super) type VerbResult<T> = Result<T, VerbError>;

impl From<rusqlite::Error> for VerbError {
    fn from(e: rusqlite::Error) -> Self {
        Self::Sqlite(e)
    }
}

impl From<Error> for VerbError {
    fn from(e: Error) -> Self {
        Self::Refused(e)
    }
}

/// The client that asks.
#[derive(Debug)]
pub(super) struct Me {
    pub(super) id: ClientId,
    pub(super) client: String,
    pub(super) about: Arc<str>,
    pub(super) boot: String,
    pub(super) clock: Clock,
    /// Whether this client has pipes.
    pub(super) present: bool,
}

/// A transaction, and what is to be done after its commit.
pub(super) struct Verbs<'a> {
    pub(super) tx: &'a Connection,
    pub(super) me: &'a Me,
    pub(super) peers: &'a Peers,
    pub(super) bounds: &'a Bounds,
    pub(super) post_commit: &'a mut PostCommit,
}

impl Verbs<'_> {
    pub(super) fn acquire(&mut self, claim: &Claim, at_least: Option<Token>) -> VerbResult<Attempt> {
        let name = claim.resource.as_str();
        let owner = claim.owner.to_string();
        let now = self.me.clock.now();
        let number = match claim.mode {
            Mode::Permits { of, .. } => self.permits_or(name, of)?,
            Mode::Resize { of } => return self.resize(name, of, now),
            mode if !mode.holds() => return self.latch(claim, now),
            _ => 0,
        };
        let Stored { mut holds, lapsed } = self.stored(name, now)?;
        if lapsed {
            let sql = "DELETE FROM holds WHERE name = ?1 AND (until <= ?2 OR NOT of_this_boot(boot, client))";
            self.run(sql, params![name.as_bytes(), signed(now.as_nanos())])?;
            // The row of a client that was only now seen to live is still there.
            holds = self.stored(name, now)?.holds;
        }
        let mut queue = self.queue_before(claim.mode, name, &owner, now)?;
        let mut ended = lapsed;
        let attempt = loop {
            let held: Vec<_> = holds.iter().map(|hold| (&*hold.owner, hold.mode)).collect();
            let waiting: Vec<_> = queue.iter().map(|waiter| (&*waiter.owner, waiter.mode)).collect();
            let writers_turn = turn_of(&queue).left_to_writers(now).is_some();
            break match decide(&&*owner, claim.mode, &held, &waiting, number, writers_turn) {
                Decision::Again(mine) => self.go_on(claim, at_least, &holds[mine], holds[mine].mode, now),
                Decision::Change(mine) => {
                    ended = true;
                    self.go_on(claim, at_least, &holds[mine], claim.mode.held_as(), now)
                }
                Decision::Grant => {
                    match claim.mode {
                        Mode::Write => self.set_turn(name, Turn::Open)?,
                        Mode::Read if !queue.is_empty() => self.set_turn(name, Turn::Writers)?,
                        _ => {}
                    }
                    self.grant(claim, at_least, now)
                }
                Decision::Busy => {
                    let (alive, buried) = self.bury_dead(&before(claim.mode, &owner, &holds, &queue), &mut holds)?;
                    if buried {
                        ended = true;
                        queue = self.queue_before(claim.mode, name, &owner, now)?;
                        continue;
                    }
                    if claim.queue == Queue::Allowed {
                        self.tell_who_lingers(&holds);
                    }
                    Ok(self.busy(claim, &owner, (&holds, &queue), alive, now)?)
                }
            };
        };
        // What has ended may let others in, too, also if there is no token left for this claim.
        if ended {
            self.wake(name, now)?;
        }
        attempt
    }

    fn go_on(&self, claim: &Claim, at_least: Option<Token>, hold: &Hold, mode: Mode, now: Instant) -> VerbResult<Attempt> {
        let (mut token, mut last) = (hold.token, hold.last);
        if let Some(least) = at_least.filter(|least| *least > token) {
            (token, last) = (least, least.plus(u64::from(claim.tokens.max(1)) - 1).ok_or_else(exhausted)?);
            self.count_to(last)?;
        }
        let (kind, _) = written(mode);
        let until = signed(now.after(claim.lease).as_nanos());
        let sql = "UPDATE holds SET until = ?3, kind = ?4, token = ?5, last = ?6 WHERE name = ?1 AND owner = ?2";
        let name = claim.resource.as_str().as_bytes();
        self.run(sql, params![name, hold.owner, until, kind, signed(token.get()), signed(last.get())])?;
        Ok(Attempt::Granted { token, valid_for: claim.lease })
    }

    fn grant(&mut self, claim: &Claim, at_least: Option<Token>, now: Instant) -> VerbResult<Attempt> {
        let (name, owner) = (claim.resource.as_str(), claim.owner.to_string());
        let (token, last) = self.tokens(claim.tokens, at_least)?;
        let note = claim.note.as_ref().unwrap_or(&self.me.about);
        let (kind, take) = written(claim.mode);
        let until = signed(now.after(claim.lease).as_nanos());
        let (first, last) = (signed(token.get()), signed(last.get()));
        self.run(
            "INSERT OR REPLACE INTO holds (name, owner, kind, take, client, boot, until, token, last, note, since)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
            params![name.as_bytes(), owner, kind, take, self.me.client, self.me.boot, until, first, last, &**note, now_micros()],
        )?;
        if self.is_queued_for(name)? {
            self.dequeue(name, &owner)?;
            self.tell_who_holds(name, claim.mode, now)?;
        }
        Ok(Attempt::Granted { token, valid_for: claim.lease })
    }

    pub(super) fn renew(&mut self, claims: &[Claim]) -> VerbResult<Vec<Renewal>> {
        let mut statement =
            self.tx.prepare_cached("UPDATE holds SET until = ?5 WHERE name = ?1 AND owner = ?2 AND boot = ?3 AND until > ?4")?;
        let mut renew = |claim: &Claim| -> rusqlite::Result<Renewal> {
            let now = self.me.clock.now();
            let (now, until) = (signed(now.as_nanos()), signed(now.after(claim.lease).as_nanos()));
            let name = claim.resource.as_str().as_bytes();
            let extended = statement.execute(params![name, claim.owner.to_string(), self.me.boot, now, until])?;
            Ok(if extended == 1 { Renewal::Extended { valid_for: claim.lease } } else { Renewal::Gone })
        };
        Ok(claims.iter().map(&mut renew).collect::<rusqlite::Result<_>>()?)
    }

    pub(super) fn release(&mut self, claim: &Claim) -> VerbResult<Released> {
        let name = claim.resource.as_str();
        let owner = claim.owner.to_string();
        let now = self.me.clock.now();
        let sql = "DELETE FROM holds WHERE name = ?1 AND owner = ?2 RETURNING boot = ?3 AND until > ?4";
        let hold: Option<bool> = self
            .tx
            .prepare_cached(sql)?
            .query_row(params![name.as_bytes(), owner, self.me.boot, signed(now.as_nanos())], |row| row.get(0))
            .optional()?;
        let has_queue = self.is_queued_for(name)?;
        let left = if has_queue { self.dequeue(name, &owner)? } else { None };
        // A waiter that leaves may have been told already that the lock is free. Without pipes, those of this client are in no queue.
        if (hold.is_some() || left.is_some()) && (has_queue || !self.me.present) {
            self.wake(name, now)?;
        }
        if let Some(position) = left.filter(|_| claim.mode == Mode::Fair) {
            self.wake_behind(name, position, now)?;
        }
        if hold != Some(true) {
            return Ok(Released::NotHeld);
        }
        Ok(Released::Yes { others_wait: has_queue && self.others_wait(name, now)? })
    }

    pub(super) fn break_hold(&mut self, resource: &Resource, at_least: Option<Token>) -> VerbResult<Option<Broken>> {
        let name = resource.as_str();
        let now = self.me.clock.now();
        let mut holds = self.stored(name, now)?.holds;
        let clients: Vec<ClientId> = holds.iter().filter_map(|hold| hold.client).collect();
        self.bury_dead(&clients, &mut holds)?;
        if holds.is_empty() && at_least.is_none() {
            return Ok(None);
        }
        let (fence, _) = self.tokens(1, at_least)?;
        if holds.is_empty() {
            return Ok(None);
        }
        self.run("DELETE FROM holds WHERE name = ?1", params![name.as_bytes()])?;
        self.wake(name, now)?;
        holds.iter().for_each(|hold| self.tell_of_loss(hold));
        Ok(Some(Broken { holders: holds.into_iter().map(|hold| hold.show(now)).collect(), fence }))
    }

    /// Tells the client of a hold that it was taken away.
    fn tell_of_loss(&mut self, hold: &Hold) {
        let (Some(client), Ok(owner)) = (hold.client, hold.owner.parse()) else { return };
        if client == self.me.id {
            self.post_commit.lost(owner);
        } else {
            self.post_commit.send(client, &Message::Lost(owner));
        }
    }

    /// Tells holders that keep what no task has that it is wanted.
    fn tell_who_lingers(&mut self, holds: &[Hold]) {
        for owner in holds.iter().filter_map(|hold| hold.owner.parse::<OwnerId>().ok()).filter(|owner| owner.lingers()) {
            self.post_commit.send(owner.client, &Message::Wanted(owner));
        }
    }

    /// Removes all that the clients left, and all that has run out.
    pub(super) fn sweep(&mut self, dead: Vec<ClientId>) -> rusqlite::Result<()> {
        for client in dead {
            self.bury(client)?;
        }
        let now = self.me.clock.now();
        let void = "until <= ?1 OR NOT of_this_boot(boot, client)";
        for table in [HOLDS, WAITERS] {
            self.clear(table, void, params![signed(now.as_nanos())])?;
        }
        self.sweep_numbers(now)
    }

    /// Takes this client out of all queues.
    pub(super) fn leave(&mut self) -> rusqlite::Result<()> {
        self.run("DELETE FROM waiters WHERE client = ?1", params![self.me.client]).map(drop)
    }

    /// Deletes many rows in parts: a statement that exceeds its bounds would be tried again for ever.
    pub(super) fn clear(&self, (table, key): (&str, &str), which: &str, params: &[&dyn ToSql]) -> rusqlite::Result<()> {
        let sql = format!("DELETE FROM {table} WHERE ({key}) IN (SELECT {key} FROM {table} WHERE {which} LIMIT {PART})");
        loop {
            self.bounds.restart();
            if self.run(&sql, params)? < PART {
                return Ok(());
            }
        }
    }

    pub(super) fn run(&self, sql: &str, params: impl rusqlite::Params) -> rusqlite::Result<usize> {
        self.tx.prepare_cached(sql)?.execute(params)
    }

    /// Removes all that the dead ones of the clients left. Returns those that live, with the pipes by which their end will be seen, and
    /// whether one was dead.
    fn bury_dead(&mut self, clients: &[ClientId], holds: &mut Vec<Hold>) -> rusqlite::Result<(Vec<(ClientId, File)>, bool)> {
        let (mut alive, mut dead) = (Vec::new(), Vec::new());
        for client in clients {
            match self.look(Some(*client)) {
                Life::Alive(pipe) => alive.push((*client, pipe)),
                Life::Dead => dead.push(*client),
                Life::Unknown => {}
            }
        }
        holds.retain(|hold| hold.client.is_none_or(|client| !dead.contains(&client)));
        dead.iter().try_for_each(|client| self.bury(*client))?;
        Ok((alive, !dead.is_empty()))
    }

    fn bury(&mut self, client: ClientId) -> rusqlite::Result<()> {
        for table in [HOLDS, WAITERS] {
            self.clear(table, "client = ?1", params![client.to_string()])?;
        }
        self.post_commit.remove(client);
        Ok(())
    }
}
