//! The verbs of the contract as SQL, inside a transaction that the worker began.

use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use rusqlite::{OptionalExtension, Row, Transaction, params};

use super::fault::NAME;
use super::message::Message;
use super::peers::{Life, Peers, Reach};
use crate::backend::{Attempt, Broken, Claim, Holder, Mode, Queue, Released, Renewal};
use crate::clock::{Clock, Instant};
use crate::error::{Error, Fault, Result};
use crate::name::{ClientId, Resource, Token};

/// What a lost word to a waiter costs, or one that was left with a waiter that is stopped.
const POLL: Duration = Duration::from_secs(1);
/// The same where there are no pipes.
const BLIND_POLL: Duration = Duration::from_millis(50);
/// How many in line are told whom to watch: a second one, in case that the first dies with the holder.
const WATCHERS: usize = 2;

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

/// What is to be done once the transaction has been committed.
#[derive(Debug, Default)]
pub(super) struct After {
    fire: Vec<String>,
    send: Vec<(String, Vec<u8>)>,
    watch: Vec<(ClientId, String, File)>,
    dead: Vec<String>,
}

impl After {
    /// Comes before the answers: what others wait for first.
    pub(super) fn run(self, peers: &Arc<Peers>) {
        for (client, message) in self.send {
            peers.send(&client, &message);
        }
        for name in self.fire {
            peers.hub().fire(&name);
        }
        for (client, name, alive) in self.watch {
            peers.watch(client, &name, alive);
        }
        // After the rows are gone: a missing pipe says nothing, so a row must not outlive the pipe of a dead client.
        for client in self.dead {
            peers.remove(&client);
        }
    }
}

pub(super) struct Hold {
    owner: String,
    client: String,
    until: Instant,
    token: Token,
    last: Token,
    note: Option<String>,
}

const FIND: &str = "SELECT owner, client, until, token, last, note FROM holds WHERE name = ?1 AND boot = ?2 AND until > ?3";

impl Hold {
    pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            owner: row.get(0)?,
            client: row.get(1)?,
            until: Instant::from_nanos(unsigned(row.get(2)?)),
            token: Token::new(unsigned(row.get(3)?)),
            last: Token::new(unsigned(row.get(4)?)),
            note: row.get(5)?,
        })
    }

    pub(super) fn show(self, now: Instant) -> Holder {
        Holder {
            owner: self.owner,
            mode: Mode::Exclusive,
            token: Some(self.last),
            since: UNIX_EPOCH.checked_add(Duration::from_micros(self.token.get())),
            expires_in: Some(self.until.since(now)),
            note: self.note,
        }
    }
}

fn unsigned(n: i64) -> u64 {
    u64::try_from(n).unwrap_or(0)
}

pub(super) fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// A transaction, and what it will have to do afterwards.
pub(super) struct Verbs<'a> {
    pub(super) tx: &'a Transaction<'a>,
    pub(super) me: &'a Me,
    pub(super) peers: &'a Peers,
    pub(super) after: &'a mut After,
}

impl Verbs<'_> {
    pub(super) fn acquire(&mut self, claim: &Claim) -> Answer<Attempt> {
        let name = claim.resource.as_str();
        let owner = claim.owner.to_string();
        let now = self.me.clock.now();
        let until = signed(now.after(claim.lease).as_nanos());
        match self.holder(name, now)? {
            Some((hold, _)) if hold.owner == owner => {
                self.run("UPDATE holds SET until = ?2 WHERE name = ?1", params![name.as_bytes(), until])?;
                return Ok(Ok(Attempt::Granted { token: hold.token, valid_for: claim.lease }));
            }
            Some((hold, alive)) => {
                // Without a pipe nobody could wake it, or know that it has died.
                if claim.queue == Queue::Allowed && self.me.present {
                    let sql = "INSERT OR IGNORE INTO waiters (name, owner, client, boot) VALUES (?1, ?2, ?3, ?4)";
                    self.run(sql, params![name.as_bytes(), owner, self.me.client, self.me.boot])?;
                }
                if let (Some(alive), Ok(client)) = (alive, hold.client.parse()) {
                    self.after.watch.push((client, name.to_owned(), alive));
                }
                let poll = if self.me.present { POLL } else { BLIND_POLL };
                return Ok(Ok(Attempt::Busy { poll_within: hold.until.since(now).min(poll), holder: Some(hold.owner) }));
            }
            None => {}
        }
        let (token, last) = match self.tokens(claim.tokens)? {
            Ok(tokens) => tokens,
            Err(e) => return Ok(Err(e)),
        };
        let note = claim.note.as_ref().unwrap_or(&self.me.about);
        let (first, last) = (signed(token.get()), signed(last.get()));
        self.run(
            "INSERT OR REPLACE INTO holds (name, owner, client, boot, until, token, last, note)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            params![name.as_bytes(), owner, self.me.client, self.me.boot, until, first, last, &**note],
        )?;
        self.run("DELETE FROM waiters WHERE owner = ?2 AND name = ?1", params![name.as_bytes(), owner])?;
        if self.me.present {
            let message = Message::Held(self.me.id, name.to_owned()).encode();
            for client in self.next_in_line(name, WATCHERS)? {
                if client != self.me.client {
                    self.after.send.push((client, message.clone()));
                }
            }
        }
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
        let left = self.run("DELETE FROM waiters WHERE owner = ?2 AND name = ?1", params![name.as_bytes(), owner])?;
        // One who leaves the line may have been told already that it is free.
        if hold.is_some() || (left > 0 && self.holder(name, now)?.is_none()) {
            self.wake_next(name)?;
        }
        Ok(Ok(if hold == Some(true) { Released::Yes } else { Released::NotHeld }))
    }

    pub(super) fn break_hold(&mut self, resource: &Resource) -> Answer<Option<Broken>> {
        let name = resource.as_str();
        let now = self.me.clock.now();
        let Some((hold, _)) = self.holder(name, now)? else { return Ok(Ok(None)) };
        let fence = match self.tokens(1)? {
            Ok((fence, _)) => fence,
            Err(e) => return Ok(Err(e)),
        };
        self.run("DELETE FROM holds WHERE name = ?1", params![name.as_bytes()])?;
        self.wake_next(name)?;
        Ok(Ok(Some(Broken { holders: vec![hold.show(now)], fence })))
    }

    /// Removes all that the clients left, and all that has run out.
    pub(super) fn sweep(&mut self, dead: Vec<String>) -> Answer<()> {
        for client in dead {
            self.bury(client)?;
        }
        let now = signed(self.me.clock.now().as_nanos());
        self.run("DELETE FROM holds WHERE boot <> ?1 OR until <= ?2", params![self.me.boot, now])?;
        self.run("DELETE FROM waiters WHERE boot <> ?1", params![self.me.boot])?;
        Ok(Ok(()))
    }

    /// Takes this client out of all lines.
    pub(super) fn leave(&mut self) -> Answer<()> {
        self.run("DELETE FROM waiters WHERE client = ?1", params![self.me.client])?;
        Ok(Ok(()))
    }

    fn run(&self, sql: &str, params: impl rusqlite::Params) -> rusqlite::Result<usize> {
        self.tx.prepare_cached(sql)?.execute(params)
    }

    pub(super) fn stored(&self, name: &str, now: Instant) -> rusqlite::Result<Option<Hold>> {
        let params = params![name.as_bytes(), self.me.boot, signed(now.as_nanos())];
        self.tx.prepare_cached(FIND)?.query_row(params, Hold::read).optional()
    }

    pub(super) fn look(&self, hold: &Hold) -> Life {
        if hold.client == self.me.client { Life::Unknown } else { self.peers.look(&hold.client) }
    }

    /// The present hold, with the pipe by which its end will be seen. A dead holder is none.
    fn holder(&mut self, name: &str, now: Instant) -> rusqlite::Result<Option<(Hold, Option<File>)>> {
        let Some(hold) = self.stored(name, now)? else { return Ok(None) };
        match self.look(&hold) {
            Life::Alive(alive) => Ok(Some((hold, Some(alive)))),
            Life::Unknown => Ok(Some((hold, None))),
            Life::Dead => {
                self.bury(hold.client)?;
                Ok(None)
            }
        }
    }

    fn bury(&mut self, client: String) -> rusqlite::Result<()> {
        self.run("DELETE FROM holds WHERE client = ?1", params![client])?;
        self.run("DELETE FROM waiters WHERE client = ?1", params![client])?;
        self.after.dead.push(client);
        Ok(())
    }

    /// Wakes one, not all: the first in line that lives.
    fn wake_next(&mut self, name: &str) -> rusqlite::Result<()> {
        if !self.me.present {
            // Those of this client are in no line.
            self.after.fire.push(name.to_owned());
        }
        for client in self.next_in_line(name, 1)? {
            if client == self.me.client {
                self.after.fire.push(name.to_owned());
            } else {
                self.after.send.push((client, Message::Free(name.to_owned()).encode()));
            }
        }
        Ok(())
    }

    /// The clients that come first in line and can be reached. The dead are taken out of the line.
    fn next_in_line(&self, name: &str, count: usize) -> rusqlite::Result<Vec<String>> {
        let mut next = Vec::new();
        let mut gone = Vec::new();
        let sql = "SELECT place, client FROM waiters WHERE name = ?1 AND boot = ?2 ORDER BY place";
        let mut statement = self.tx.prepare_cached(sql)?;
        let mut rows = statement.query(params![name.as_bytes(), self.me.boot])?;
        while next.len() < count
            && let Some(row) = rows.next()?
        {
            let client: String = row.get(1)?;
            match self.reach(&client) {
                Reach::Yes => next.push(client),
                Reach::Gone => gone.push(row.get::<_, i64>(0)?),
                Reach::Refused => {}
            }
        }
        for place in gone {
            self.run("DELETE FROM waiters WHERE place = ?1", params![place])?;
        }
        Ok(next)
    }

    pub(super) fn reach(&self, client: &str) -> Reach {
        if client == self.me.client { Reach::Yes } else { self.peers.reach(client) }
    }

    pub(super) fn counter(&self) -> rusqlite::Result<Option<Token>> {
        let sql = "SELECT token FROM counter WHERE one = 1";
        let token = self.tx.prepare_cached(sql)?.query_row([], |row| row.get(0)).optional()?;
        Ok(token.map(|token| Token::new(unsigned(token))))
    }

    /// Reserves tokens. One counter for all names: it outlives the rows of locks that are free.
    fn tokens(&self, count: u32) -> Answer<(Token, Token)> {
        let first = Token::after_now(self.counter()?);
        let last = first.and_then(|first| first.plus(u64::from(count.max(1)) - 1));
        let Some((first, last)) = first.zip(last) else {
            let detail = "the next token would not fit 63 bits";
            return Ok(Err(Error::backend(NAME, "acquiring", Fault::TokenExhausted, detail)));
        };
        let sql = "INSERT OR REPLACE INTO counter (one, token) VALUES (1, ?1)";
        self.run(sql, params![signed(last.get())])?;
        Ok(Ok((first, last)))
    }
}
