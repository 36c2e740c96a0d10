//! The verbs of the contract as SQL, inside a transaction that the worker began.

use std::fs::File;
use std::sync::Arc;

use rusqlite::{OptionalExtension, ToSql, Transaction, params};

use super::after::After;
use super::bounds::Bounds;
use super::fault::NAME;
use super::line::before;
use super::message::Message;
use super::peers::{Life, Peers};
use super::rows::{Hold, Stored, now_micros, signed, turn_of, unsigned, written};
use crate::backend::{Attempt, Broken, Claim, Mode, Released, Renewal};
use crate::backends::verdict::{Turn, Verdict, verdict};
use crate::clock::{Clock, Instant};
use crate::error::{Error, Fault, Result};
use crate::name::{ClientId, Resource, Token};

/// The most rows that one statement deletes.
const PART: usize = 5_000;
/// Tables, and what their rows are known by.
const HOLDS: (&str, &str) = ("holds", "name, owner");
const WAITERS: (&str, &str) = ("waiters", "place");

/// The outer error is SQLite's and undoes the transaction; the inner one is an answer.
pub(super) type Answer<T> = rusqlite::Result<Result<T>>;

/// Who asks.
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

/// A transaction, and what it will have to do afterwards.
pub(super) struct Verbs<'a> {
    pub(super) tx: &'a Transaction<'a>,
    pub(super) me: &'a Me,
    pub(super) peers: &'a Peers,
    pub(super) bounds: &'a Bounds,
    pub(super) after: &'a mut After,
}

impl Verbs<'_> {
    pub(super) fn acquire(&mut self, claim: &Claim, at_least: Option<Token>) -> Answer<Attempt> {
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
            // Who was only now seen to live has stayed.
            holds = self.stored(name, now)?.holds;
        }
        let mut line = self.line_before(claim.mode, name, &owner, now)?;
        let mut ended = lapsed;
        let attempt = loop {
            let held: Vec<_> = holds.iter().map(|hold| (&*hold.owner, hold.mode)).collect();
            let waiting: Vec<_> = line.iter().map(|waiter| (&*waiter.owner, waiter.mode)).collect();
            let left = turn_of(&line).left_to_writers(now);
            let attempt = match verdict(&&*owner, claim.mode, &held, &waiting, number, left.is_some()) {
                Verdict::Again(mine) => self.go_on(claim, at_least, &holds[mine], holds[mine].mode, now)?,
                Verdict::Change(mine) => {
                    ended = true;
                    self.go_on(claim, at_least, &holds[mine], claim.mode.held_as(), now)?
                }
                Verdict::Grant => {
                    match claim.mode {
                        Mode::Write => self.set_turn(name, Turn::Open)?,
                        Mode::Read if !line.is_empty() => self.set_turn(name, Turn::Writers)?,
                        _ => {}
                    }
                    self.grant(claim, at_least, now)?
                }
                Verdict::Busy => {
                    let (alive, dead) = self.look_at(&before(claim.mode, &owner, &holds, &line));
                    if !dead.is_empty() {
                        ended = true;
                        holds.retain(|hold| hold.client.is_none_or(|client| !dead.contains(&client)));
                        dead.into_iter().try_for_each(|client| self.bury(client))?;
                        line = self.line_before(claim.mode, name, &owner, now)?;
                        continue;
                    }
                    Ok(self.busy(claim, &owner, (&holds, &line), alive, now)?)
                }
            };
            break attempt;
        };
        // What has ended may be enough for others too.
        if ended {
            self.wake(name, now)?;
        }
        Ok(attempt)
    }

    fn go_on(&self, claim: &Claim, at_least: Option<Token>, hold: &Hold, mode: Mode, now: Instant) -> Answer<Attempt> {
        let (mut token, mut last) = (hold.token, hold.last);
        if let Some(least) = at_least.filter(|least| *least > token) {
            let Some(reserved) = least.plus(u64::from(claim.tokens.max(1)) - 1) else { return Ok(Err(exhausted())) };
            (token, last) = (least, reserved);
            self.count_to(last)?;
        }
        let (kind, _) = written(mode);
        let until = signed(now.after(claim.lease).as_nanos());
        let sql = "UPDATE holds SET until = ?3, kind = ?4, token = ?5, last = ?6 WHERE name = ?1 AND owner = ?2";
        let name = claim.resource.as_str().as_bytes();
        self.run(sql, params![name, hold.owner, until, kind, signed(token.get()), signed(last.get())])?;
        Ok(Ok(Attempt::Granted { token, valid_for: claim.lease }))
    }

    fn grant(&mut self, claim: &Claim, at_least: Option<Token>, now: Instant) -> Answer<Attempt> {
        let (name, owner) = (claim.resource.as_str(), claim.owner.to_string());
        let (token, last) = match self.tokens(claim.tokens, at_least)? {
            Ok(tokens) => tokens,
            Err(e) => return Ok(Err(e)),
        };
        let note = claim.note.as_ref().unwrap_or(&self.me.about);
        let (kind, take) = written(claim.mode);
        let until = signed(now.after(claim.lease).as_nanos());
        let (first, last) = (signed(token.get()), signed(last.get()));
        self.run(
            "INSERT OR REPLACE INTO holds (name, owner, kind, take, client, boot, until, token, last, note, since)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
            params![name.as_bytes(), owner, kind, take, self.me.client, self.me.boot, until, first, last, &**note, now_micros()],
        )?;
        self.leave_line(name, &owner)?;
        self.tell_who_holds(name, claim.mode, now)?;
        Ok(Ok(Attempt::Granted { token, valid_for: claim.lease }))
    }

    pub(super) fn renew(&mut self, claims: &[Claim]) -> Answer<Vec<Renewal>> {
        let mut statement =
            self.tx.prepare_cached("UPDATE holds SET until = ?5 WHERE name = ?1 AND owner = ?2 AND boot = ?3 AND until > ?4")?;
        let mut renew = |claim: &Claim| -> rusqlite::Result<Renewal> {
            let now = self.me.clock.now();
            let (now, until) = (signed(now.as_nanos()), signed(now.after(claim.lease).as_nanos()));
            let name = claim.resource.as_str().as_bytes();
            let extended = statement.execute(params![name, claim.owner.to_string(), self.me.boot, now, until])?;
            Ok(if extended == 1 { Renewal::Extended { valid_for: claim.lease } } else { Renewal::Gone })
        };
        claims.iter().map(&mut renew).collect::<rusqlite::Result<_>>().map(Ok)
    }

    pub(super) fn release(&mut self, claim: &Claim) -> Answer<Released> {
        let name = claim.resource.as_str();
        let owner = claim.owner.to_string();
        let now = self.me.clock.now();
        let sql = "DELETE FROM holds WHERE name = ?1 AND owner = ?2 RETURNING boot = ?3 AND until > ?4";
        let hold: Option<bool> = self
            .tx
            .prepare_cached(sql)?
            .query_row(params![name.as_bytes(), owner, self.me.boot, signed(now.as_nanos())], |row| row.get(0))
            .optional()?;
        let left = self.leave_line(name, &owner)?;
        // One who leaves the line may have been told already that it is free.
        if hold.is_some() || left.is_some() {
            self.wake(name, now)?;
        }
        if let Some(place) = left.filter(|_| claim.mode == Mode::Fair) {
            self.wake_behind(name, place, now)?;
        }
        if hold != Some(true) {
            return Ok(Ok(Released::NotHeld));
        }
        Ok(Ok(Released::Yes { others_wait: self.others_wait(name, now)? }))
    }

    pub(super) fn break_hold(&mut self, resource: &Resource, at_least: Option<Token>) -> Answer<Option<Broken>> {
        let name = resource.as_str();
        let now = self.me.clock.now();
        let mut holds = self.stored(name, now)?.holds;
        let clients: Vec<ClientId> = holds.iter().filter_map(|hold| hold.client).collect();
        let (_, dead) = self.look_at(&clients);
        holds.retain(|hold| hold.client.is_none_or(|client| !dead.contains(&client)));
        dead.into_iter().try_for_each(|client| self.bury(client))?;
        if holds.is_empty() && at_least.is_none() {
            return Ok(Ok(None));
        }
        let fence = match self.tokens(1, at_least)? {
            Ok((fence, _)) => fence,
            Err(e) => return Ok(Err(e)),
        };
        if holds.is_empty() {
            return Ok(Ok(None));
        }
        self.run("DELETE FROM holds WHERE name = ?1", params![name.as_bytes()])?;
        self.wake(name, now)?;
        holds.iter().for_each(|hold| self.tell_of_loss(hold));
        Ok(Ok(Some(Broken { holders: holds.into_iter().map(|hold| hold.show(now)).collect(), fence })))
    }

    /// Tells the client of a hold that it was taken away.
    fn tell_of_loss(&mut self, hold: &Hold) {
        let (Some(client), Ok(owner)) = (hold.client, hold.owner.parse()) else { return };
        if client == self.me.id {
            self.after.lost(owner);
        } else {
            self.after.send(client, &Message::Lost(owner));
        }
    }

    /// Removes all that the clients left, and all that has run out.
    pub(super) fn sweep(&mut self, dead: Vec<ClientId>) -> Answer<()> {
        for client in dead {
            self.bury(client)?;
        }
        let now = self.me.clock.now();
        let void = "until <= ?1 OR NOT of_this_boot(boot, client)";
        for table in [HOLDS, WAITERS] {
            self.clear(table, void, params![signed(now.as_nanos())])?;
        }
        self.sweep_numbers(now)?;
        Ok(Ok(()))
    }

    /// Takes this client out of all lines.
    pub(super) fn leave(&mut self) -> Answer<()> {
        self.run("DELETE FROM waiters WHERE client = ?1", params![self.me.client])?;
        Ok(Ok(()))
    }

    /// Deletes what may be a great deal, a part at a time: what takes longer than a statement may would be tried again for ever.
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

    /// Those of the clients who live, with the pipes by which their end will be seen, and the dead.
    fn look_at(&self, clients: &[ClientId]) -> (Vec<(ClientId, File)>, Vec<ClientId>) {
        let (mut alive, mut dead) = (Vec::new(), Vec::new());
        for client in clients {
            match self.look(Some(*client)) {
                Life::Alive(pipe) => alive.push((*client, pipe)),
                Life::Dead => dead.push(*client),
                Life::Unknown => {}
            }
        }
        (alive, dead)
    }

    fn bury(&mut self, client: ClientId) -> rusqlite::Result<()> {
        for table in [HOLDS, WAITERS] {
            self.clear(table, "client = ?1", params![client.to_string()])?;
        }
        self.after.remove(client);
        Ok(())
    }

    pub(super) fn counter(&self) -> rusqlite::Result<Option<Token>> {
        let sql = "SELECT token FROM counter WHERE one = 1";
        let token = self.tx.prepare_cached(sql)?.query_row([], |row| row.get(0)).optional()?;
        Ok(token.map(|token| Token::new(unsigned(token))))
    }

    /// Reserves tokens. One counter for all names: it outlives the rows of locks that are free.
    fn tokens(&self, count: u32, at_least: Option<Token>) -> Answer<(Token, Token)> {
        let first = Token::next(self.counter()?, at_least);
        let last = first.and_then(|first| first.plus(u64::from(count.max(1)) - 1));
        let Some((first, last)) = first.zip(last) else { return Ok(Err(exhausted())) };
        self.count_to(last)?;
        Ok(Ok((first, last)))
    }

    /// Raises the counter; it never goes back.
    fn count_to(&self, last: Token) -> rusqlite::Result<usize> {
        let sql = "INSERT INTO counter (one, token) VALUES (1, ?1) ON CONFLICT (one) DO UPDATE SET token = max(token, ?1)";
        self.run(sql, params![signed(last.get())])
    }
}

fn exhausted() -> Error {
    Error::backend(NAME, "acquiring", Fault::TokenExhausted, "the next token would not fit 63 bits")
}
