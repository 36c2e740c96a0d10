//! What the file says of locks. Changes nothing.

use std::collections::{BTreeMap, HashMap};

use rusqlite::{Params, Row, params};

use super::fault::NAME;
use super::peers::Reachable;
use super::rows::{Hold, Waiter, hold_columns, signed, unsigned};
use super::verbs::{VerbResult, Verbs};
use crate::backend::{Mode, Permits, State};
use crate::backends::decision::held;
use crate::clock::Instant;
use crate::error::{Error, Fault};
use crate::name::{ClientId, Resource, Token};

// Each table is read once: with hundreds of thousands of names, a few statements for each take many seconds.
const HOLDS: &str = concat!(
    "SELECT ",
    hold_columns!(),
    ", name FROM holds WHERE name >= ?1 AND until > ?2 AND of_this_boot(boot, client) ORDER BY name"
);
const LINES: &str = "SELECT place, owner, client, kind, take, until, name FROM waiters
                     WHERE name >= ?1 AND until > ?2 AND of_this_boot(boot, client) ORDER BY name, place";
const LATCHES: &str = "SELECT count, name FROM latches WHERE name >= ?1 ORDER BY name";
const NUMBERS: &str = "SELECT number, name FROM permits WHERE name >= ?1 ORDER BY name";

/// What the file says of one name.
#[derive(Default)]
struct Found {
    holds: Vec<Hold>,
    queue: Vec<Waiter>,
    permits: Option<u32>,
    count: Option<u64>,
}

/// What is known of clients: each is looked at once.
#[derive(Default)]
struct ClientCache {
    dead: HashMap<ClientId, bool>,
    gone: HashMap<ClientId, bool>,
}

impl ClientCache {
    fn is_dead(&mut self, verbs: &Verbs<'_>, client: Option<ClientId>) -> bool {
        client.is_some_and(|id| *self.dead.entry(id).or_insert_with(|| verbs.is_dead(client)))
    }

    fn is_gone(&mut self, verbs: &Verbs<'_>, client: Option<ClientId>) -> bool {
        client.is_none_or(|id| *self.gone.entry(id).or_insert_with(|| verbs.reach(client) == Reachable::Gone))
    }
}

impl Verbs<'_> {
    pub(super) fn inspect_one(&mut self, resource: &Resource) -> VerbResult<Vec<State>> {
        let now = self.me.clock.now();
        let name = resource.as_str();
        let holds = self.stored(name, now)?.holds;
        let found = Found { holds, queue: self.queue(name, now)?, permits: self.permits(name)?, count: self.count(name)? };
        Ok(vec![self.state(resource.clone(), found, self.counter()?, &mut ClientCache::default(), now)])
    }

    /// The names that are held, and latches that are not open.
    pub(super) fn inspect_prefix(&mut self, prefix: &str) -> VerbResult<Vec<State>> {
        let now = self.me.clock.now();
        let mut names: BTreeMap<Vec<u8>, Found> = BTreeMap::new();
        let at = signed(now.as_nanos());
        self.each(HOLDS, params![prefix.as_bytes(), at], prefix, 9, |row, name| {
            names.entry(name).or_default().holds.push(Hold::read(row)?);
            Ok(())
        })?;
        let mut known = ClientCache::default();
        names.retain(|_, found| {
            found.holds.retain(|hold| !known.is_dead(self, hold.client));
            !found.holds.is_empty()
        });
        self.each(LATCHES, params![prefix.as_bytes()], prefix, 1, |row, name| {
            names.entry(name).or_default().count = Some(unsigned(row.get(0)?));
            Ok(())
        })?;
        self.each(NUMBERS, params![prefix.as_bytes()], prefix, 1, |row, name| {
            if let Some(found) = names.get_mut(&name) {
                found.permits = Some(row.get(0)?);
            }
            Ok(())
        })?;
        self.each(LINES, params![prefix.as_bytes(), at], prefix, 6, |row, name| {
            if let Some(found) = names.get_mut(&name) {
                found.queue.push(Waiter::read(row)?);
            }
            Ok(())
        })?;
        let fence = self.counter()?;
        let mut states = Vec::new();
        for (name, found) in names {
            let Some(resource) = String::from_utf8(name).ok().and_then(|name| Resource::new(name).ok()) else {
                return Err(Error::backend(NAME, "listing", Fault::Corrupt, "a name in the file is not UTF-8").into());
            };
            states.push(self.state(resource, found, fence, &mut known, now));
        }
        Ok(states)
    }

    /// All rows, in the order of their names, whose name in this column begins with a prefix.
    fn each(
        &self,
        sql: &str,
        params: impl Params,
        prefix: &str,
        column: usize,
        mut take: impl FnMut(&Row<'_>, Vec<u8>) -> rusqlite::Result<()>,
    ) -> rusqlite::Result<()> {
        let mut statement = self.tx.prepare_cached(sql)?;
        let mut rows = statement.query(params)?;
        let mut furthest = Vec::new();
        while let Some(row) = rows.next()? {
            let name: Vec<u8> = row.get(column)?;
            if !name.starts_with(prefix.as_bytes()) {
                break;
            }
            // There may be many. A damaged tree without an end comes back to names that were there.
            if name > furthest {
                self.bounds.restart();
                furthest.clone_from(&name);
            }
            take(row, name)?;
        }
        Ok(())
    }

    fn state(&self, resource: Resource, found: Found, fence: Option<Token>, known: &mut ClientCache, now: Instant) -> State {
        let Found { mut holds, mut queue, permits, count } = found;
        holds.retain(|hold| !known.is_dead(self, hold.client));
        queue.retain(|w| {
            // A waiter that keeps others out needs no pipe.
            let left = if w.mode.keeps_position() { known.is_dead(self, w.client) } else { known.is_gone(self, w.client) };
            w.mode.holds() && !left
        });
        let modes: Vec<_> = holds.iter().map(|hold| (&hold.owner, hold.mode)).collect();
        let taken = i64::try_from(held(&modes)).unwrap_or(i64::MAX);
        State {
            waiting: Some(u32::try_from(queue.len()).unwrap_or(u32::MAX)),
            queue: queue.into_iter().filter(|w| w.mode == Mode::Fair).map(|w| w.owner).collect(),
            permits: permits.map(|of| Permits { of: of.into(), free: i64::from(of) - taken }),
            count,
            fence,
            holders: holds.into_iter().map(|hold| hold.show(now)).collect(),
            nodes: Vec::new(),
            resource,
        }
    }
}
