//! The queue: positions, which clients a waiter watches, and which waiters are woken.

use rusqlite::{OptionalExtension, params};

use super::message::Message;
use super::peers::{Life, Reachable};
use super::rows::{Hold, Waiter, read_client, select_waiters, signed, turn_of, written, written_turn};
use super::verbs::Verbs;
use crate::backend::{Claim, Mode};
use crate::backends::decision::{Decision, Turn, decide};
use crate::clock::Instant;
use crate::name::ClientId;

/// How many waiters are told whom to watch: a second one, in case the first dies with the holder.
const WATCHERS: usize = 2;

/// The hub's key of a waiter: one of its own for a fair lock, otherwise one for all of its client.
pub(super) fn key_of(mode: Mode, name: &str, owner: &str) -> String {
    if mode == Mode::Fair { format!("{name}\0{owner}") } else { name.to_owned() }
}

/// The clients whose death may let a claim in, each once.
pub(super) fn before(mode: Mode, owner: &str, holds: &[Hold], queue: &[Waiter]) -> Vec<ClientId> {
    let holders = || holds.iter().filter_map(|hold| hold.client).collect();
    let mut clients: Vec<ClientId> = match mode {
        // Each looks at the one before it alone: two hundred waiters must not look at two hundred each.
        Mode::Fair => match queue.iter().take_while(|w| w.owner != owner).filter(|w| w.mode == Mode::Fair).last() {
            Some(waiter) => waiter.client.into_iter().collect(),
            None => holders(),
        },
        Mode::Read if holds.iter().all(|hold| hold.mode == Mode::Read) => {
            queue.iter().filter(|w| w.mode == Mode::Write && w.owner != owner).filter_map(|w| w.client).collect()
        }
        _ => holders(),
    };
    clients.sort_unstable();
    clients.dedup();
    clients
}

impl Verbs<'_> {
    /// Takes or keeps a position. A writer's also says whose turn it will be.
    pub(super) fn enqueue(&self, claim: &Claim, owner: &str, turn: Turn, now: Instant) -> rusqlite::Result<()> {
        let name = claim.resource.as_str().as_bytes();
        let has_lease = claim.mode.keeps_position() || claim.mode == Mode::CountZero;
        // Without a pipe it cannot be woken, and its death is not seen.
        if !self.me.present && !claim.mode.keeps_position() {
            return Ok(());
        }
        let until = if has_lease { signed(now.after(claim.position_lease()).as_nanos()) } else { i64::MAX };
        let (kind, take) = written(claim.mode);
        let take = if claim.mode == Mode::Write { written_turn(turn) } else { take };
        let params = params![name, owner, kind, take, self.me.client, self.me.boot, until];
        if has_lease {
            // A position that has ended is taken anew, at the end.
            self.run("DELETE FROM waiters WHERE name = ?1 AND until <= ?2", params![name, signed(now.as_nanos())])?;
            let sql = "INSERT INTO waiters (name, owner, kind, take, client, boot, until) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
                       ON CONFLICT (owner, name) DO UPDATE SET until = excluded.until";
            self.run(sql, params)?;
        } else {
            let sql = "INSERT OR IGNORE INTO waiters (name, owner, kind, take, client, boot, until)
                       VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
            self.run(sql, params)?;
        }
        Ok(())
    }

    /// Whether there are positions at all, dead or alive: mostly there are none, and nothing else need be asked.
    pub(super) fn is_queued_for(&self, name: &str) -> rusqlite::Result<bool> {
        let sql = "SELECT EXISTS (SELECT 1 FROM waiters WHERE name = ?1)";
        self.tx.prepare_cached(sql)?.query_row(params![name.as_bytes()], |row| row.get(0))
    }

    /// Whether other clients wait.
    pub(super) fn others_wait(&self, name: &str, now: Instant) -> rusqlite::Result<bool> {
        let sql = "SELECT EXISTS (SELECT 1 FROM waiters WHERE name = ?1 AND until > ?2 AND client <> ?3 AND of_this_boot(boot, client))";
        let params = params![name.as_bytes(), signed(now.as_nanos()), self.me.client];
        self.tx.prepare_cached(sql)?.query_row(params, |row| row.get(0))
    }

    /// Gives up a position, and says which it was.
    pub(super) fn dequeue(&self, name: &str, owner: &str) -> rusqlite::Result<Option<i64>> {
        let sql = "DELETE FROM waiters WHERE owner = ?2 AND name = ?1 RETURNING place";
        self.tx.prepare_cached(sql)?.query_row(params![name.as_bytes(), owner], |row| row.get(0)).optional()
    }

    /// Tells the first waiters to watch this client, which now holds the lock.
    pub(super) fn tell_who_holds(&mut self, name: &str, mode: Mode, now: Instant) -> rusqlite::Result<()> {
        if !self.me.present {
            return Ok(());
        }
        for waiter in self.next_waiters(name, WATCHERS, now)? {
            let is_fair = waiter.mode == Mode::Fair;
            let Some(client) = waiter.client.filter(|client| *client != self.me.id) else { continue };
            // The next in a fair queue has watched this one already.
            if is_fair && mode == Mode::Fair {
                continue;
            }
            let (id, key) = (self.me.id, key_of(waiter.mode, name, &waiter.owner));
            // One in a fair queue goes on watching the one before it.
            let message = if mode.is_shared() || is_fair { Message::HeldToo(id, key) } else { Message::Held(id, key) };
            self.post_commit.send(client, &message);
        }
        Ok(())
    }

    /// Wakes the waiters that would be granted if they asked now, in the order of the queue, and no others.
    pub(super) fn wake(&mut self, name: &str, now: Instant) -> rusqlite::Result<()> {
        if !self.me.present {
            // The waiters of this client are in no queue.
            self.post_commit.fire(name.to_owned());
        }
        let sql = "SELECT kind FROM waiters WHERE name = ?1 AND until > ?2 AND of_this_boot(boot, client) ORDER BY place LIMIT 1";
        let params = params![name.as_bytes(), signed(now.as_nanos())];
        let first: Option<i64> = self.tx.prepare_cached(sql)?.query_row(params, |row| row.get(0)).optional()?;
        let Some(first) = first else { return Ok(()) };
        let holds = self.stored(name, now)?.holds;
        if first == written(Mode::Fair).0 {
            // Also while it is held: a waiter that has become the first watches the holder from now on.
            return self.wake_first(name, now);
        }
        if first != written(Mode::Exclusive).0 {
            return self.wake_queue(name, holds, now);
        }
        // The plain lock does without reading the whole queue.
        if holds.is_empty() {
            for waiter in self.next_waiters(name, 1, now)? {
                self.notify(waiter.client, key_of(waiter.mode, name, &waiter.owner));
            }
        }
        Ok(())
    }

    /// Wakes the first in a fair queue that lives, without reading all of it.
    fn wake_first(&mut self, name: &str, now: Instant) -> rusqlite::Result<()> {
        while let Some(waiter) = self.first_fair(name, now)? {
            match self.reach(waiter.client) {
                Reachable::Yes => self.notify(waiter.client, key_of(waiter.mode, name, &waiter.owner)),
                Reachable::Gone if self.is_dead(waiter.client) => {
                    self.run("DELETE FROM waiters WHERE place = ?1", params![waiter.position])?;
                    continue;
                }
                // It polls, and it is its turn all the same.
                Reachable::Gone | Reachable::Refused => {}
            }
            break;
        }
        Ok(())
    }

    /// Wakes the one in a fair queue behind a waiter that has left: it has watched that one alone.
    pub(super) fn wake_behind(&mut self, name: &str, position: i64, now: Instant) -> rusqlite::Result<()> {
        let sql = select_waiters!(" AND kind = 1 AND place > ?3", " LIMIT 1");
        let params = params![name.as_bytes(), signed(now.as_nanos()), position];
        if let Some(waiter) = self.tx.prepare_cached(sql)?.query_row(params, Waiter::read).optional()? {
            self.notify(waiter.client, key_of(waiter.mode, name, &waiter.owner));
        }
        Ok(())
    }

    fn wake_queue(&mut self, name: &str, holds: Vec<Hold>, now: Instant) -> rusqlite::Result<()> {
        let number = self.permits(name)?.unwrap_or(0);
        let mut holds: Vec<(String, Mode)> = holds.into_iter().map(|hold| (hold.owner, hold.mode)).collect();
        let mut queue = self.queue(name, now)?;
        let mut modes: Vec<(String, Mode)> = queue.iter().map(|w| (w.owner.clone(), w.mode)).collect();
        let writers_turn = turn_of(&queue).left_to_writers(now).is_some();
        let mut at = 0;
        while let Some(waiter) = queue.get(at) {
            at += 1;
            if decide(&waiter.owner, waiter.mode, &holds, &modes, number, writers_turn) != Decision::Grant {
                continue;
            }
            match self.reach(waiter.client) {
                Reachable::Yes => self.notify(waiter.client, key_of(waiter.mode, name, &waiter.owner)),
                Reachable::Gone if !waiter.mode.keeps_position() || self.is_dead(waiter.client) => {
                    self.run("DELETE FROM waiters WHERE place = ?1", params![waiter.position])?;
                    queue.remove(at - 1);
                    modes.remove(at - 1);
                    // Others may have stood behind it.
                    at = 0;
                    continue;
                }
                // It polls, and it is its turn all the same.
                Reachable::Gone | Reachable::Refused if waiter.mode.keeps_position() => {}
                Reachable::Gone | Reachable::Refused => continue,
            }
            if !waiter.mode.is_shared() {
                break;
            }
            holds.push((waiter.owner.clone(), waiter.mode));
        }
        Ok(())
    }

    /// Wakes all that wait for a latch.
    pub(super) fn wake_latch(&mut self, name: &str) -> rusqlite::Result<()> {
        if !self.me.present {
            self.post_commit.fire(name.to_owned());
        }
        let sql = "DELETE FROM waiters WHERE name = ?1 AND kind = ?2 RETURNING client";
        let mut statement = self.tx.prepare_cached(sql)?;
        let rows = statement.query_map(params![name.as_bytes(), written(Mode::CountZero).0], |row| read_client(row, 0))?;
        for client in rows.collect::<rusqlite::Result<Vec<_>>>()? {
            self.notify(client, name.to_owned());
        }
        Ok(())
    }

    fn notify(&mut self, client: Option<ClientId>, key: String) {
        match client {
            Some(client) if client == self.me.id => self.post_commit.fire(key),
            Some(client) => self.post_commit.send(client, &Message::Free(key)),
            None => {}
        }
    }

    /// The first waiters that can be reached. The dead are taken out of the queue.
    fn next_waiters(&self, name: &str, count: usize, now: Instant) -> rusqlite::Result<Vec<Waiter>> {
        let mut next = Vec::new();
        let mut gone = Vec::new();
        let mut statement = self.tx.prepare_cached(select_waiters!("", ""))?;
        let mut rows = statement.query(params![name.as_bytes(), signed(now.as_nanos())])?;
        while next.len() < count
            && let Some(row) = rows.next()?
        {
            let waiter = Waiter::read(row)?;
            match self.reach(waiter.client) {
                Reachable::Yes => next.push(waiter),
                // Without pipes its position has a lease.
                Reachable::Gone if row.get::<_, i64>(5)? == i64::MAX => gone.push(waiter.position),
                Reachable::Gone | Reachable::Refused => {}
            }
        }
        for position in gone {
            self.run("DELETE FROM waiters WHERE place = ?1", params![position])?;
        }
        Ok(next)
    }

    /// An owner that is no client cannot be reached.
    pub(super) fn reach(&self, client: Option<ClientId>) -> Reachable {
        match client {
            Some(client) if client == self.me.id => Reachable::Yes,
            Some(client) => self.peers.reach(client),
            None => Reachable::Gone,
        }
    }

    pub(super) fn look(&self, client: Option<ClientId>) -> Life {
        match client {
            Some(client) if client != self.me.id => self.peers.look(client),
            _ => Life::Unknown,
        }
    }

    pub(super) fn is_dead(&self, client: Option<ClientId>) -> bool {
        matches!(self.look(client), Life::Dead)
    }
}
