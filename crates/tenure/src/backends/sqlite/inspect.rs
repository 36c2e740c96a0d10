//! What the file says of locks. Changes nothing.

use rusqlite::params;

use super::fault::NAME;
use super::peers::{Life, Reach};
use super::verbs::{Answer, Hold, Verbs, signed};
use crate::backend::State;
use crate::clock::Instant;
use crate::error::{Error, Fault};
use crate::name::Resource;

const LIST: &str = "SELECT owner, client, until, token, last, note, name FROM holds
                    WHERE name >= ?1 AND boot = ?2 AND until > ?3 ORDER BY name";

impl Verbs<'_> {
    pub(super) fn inspect_one(&mut self, resource: &Resource) -> Answer<Vec<State>> {
        let now = self.me.clock.now();
        let hold = self.stored(resource.as_str(), now)?.filter(|hold| !matches!(self.look(hold), Life::Dead));
        Ok(Ok(vec![self.state(resource.clone(), hold, now)?]))
    }

    pub(super) fn inspect_prefix(&mut self, prefix: &str) -> Answer<Vec<State>> {
        let now = self.me.clock.now();
        let mut statement = self.tx.prepare_cached(LIST)?;
        let mut rows = statement.query(params![prefix.as_bytes(), self.me.boot, signed(now.as_nanos())])?;
        let mut states = Vec::new();
        while let Some(row) = rows.next()? {
            let name: Vec<u8> = row.get(6)?;
            if !name.starts_with(prefix.as_bytes()) {
                break;
            }
            let hold = Hold::read(row)?;
            if matches!(self.look(&hold), Life::Dead) {
                continue;
            }
            let Some(resource) = String::from_utf8(name).ok().and_then(|name| Resource::new(name).ok()) else {
                return Ok(Err(Error::backend(NAME, "listing", Fault::Corrupt, "a name in the file is not UTF-8")));
            };
            states.push(self.state(resource, Some(hold), now)?);
        }
        Ok(Ok(states))
    }

    fn state(&self, resource: Resource, hold: Option<Hold>, now: Instant) -> rusqlite::Result<State> {
        let sql = "SELECT client, count(*) FROM waiters WHERE name = ?1 AND boot = ?2 GROUP BY client";
        let mut statement = self.tx.prepare_cached(sql)?;
        let mut rows = statement.query(params![resource.as_str().as_bytes(), self.me.boot])?;
        let mut waiting = 0_u32;
        while let Some(row) = rows.next()? {
            let (client, owners): (String, i64) = (row.get(0)?, row.get(1)?);
            if self.reach(&client) != Reach::Gone {
                waiting = waiting.saturating_add(u32::try_from(owners).unwrap_or(u32::MAX));
            }
        }
        let holders = hold.map(|hold| hold.show(now)).into_iter().collect();
        Ok(State { holders, waiting: Some(waiting), fence: self.counter()?, ..State::free(resource) })
    }
}
