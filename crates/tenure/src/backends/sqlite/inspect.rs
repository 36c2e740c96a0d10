//! What the file says of locks. Changes nothing.

use std::collections::BTreeMap;

use rusqlite::params;

use super::fault::NAME;
use super::peers::Reach;
use super::rows::{Hold, hold_columns, signed};
use super::verbs::{Answer, Verbs};
use crate::backend::{Mode, Permits, State};
use crate::backends::verdict::held;
use crate::clock::Instant;
use crate::error::{Error, Fault};
use crate::name::Resource;

const LIST: &str =
    concat!("SELECT ", hold_columns!(), ", name FROM holds WHERE name >= ?1 AND boot = ?2 AND until > ?3 ORDER BY name");

impl Verbs<'_> {
    pub(super) fn inspect_one(&mut self, resource: &Resource) -> Answer<Vec<State>> {
        let now = self.me.clock.now();
        let mut holds = self.stored(resource.as_str(), now)?.holds;
        holds.retain(|hold| !self.is_dead(&hold.client));
        Ok(Ok(vec![self.state(resource.clone(), holds, now)?]))
    }

    /// The names that somebody holds, and latches that are not open.
    pub(super) fn inspect_prefix(&mut self, prefix: &str) -> Answer<Vec<State>> {
        let now = self.me.clock.now();
        let mut names: BTreeMap<Vec<u8>, Vec<Hold>> = BTreeMap::new();
        let mut statement = self.tx.prepare_cached(LIST)?;
        let mut rows = statement.query(params![prefix.as_bytes(), self.me.boot, signed(now.as_nanos())])?;
        while let Some(row) = rows.next()? {
            let name: Vec<u8> = row.get(8)?;
            if !name.starts_with(prefix.as_bytes()) {
                break;
            }
            let hold = Hold::read(row)?;
            if !self.is_dead(&hold.client) {
                names.entry(name).or_default().push(hold);
            }
        }
        let mut statement = self.tx.prepare_cached("SELECT name FROM latches WHERE name >= ?1 ORDER BY name")?;
        let mut rows = statement.query(params![prefix.as_bytes()])?;
        while let Some(row) = rows.next()? {
            let name: Vec<u8> = row.get(0)?;
            if !name.starts_with(prefix.as_bytes()) {
                break;
            }
            names.entry(name).or_default();
        }
        let mut states = Vec::new();
        for (name, holds) in names {
            let Some(resource) = String::from_utf8(name).ok().and_then(|name| Resource::new(name).ok()) else {
                return Ok(Err(Error::backend(NAME, "listing", Fault::Corrupt, "a name in the file is not UTF-8")));
            };
            states.push(self.state(resource, holds, now)?);
        }
        Ok(Ok(states))
    }

    fn state(&self, resource: Resource, holds: Vec<Hold>, now: Instant) -> rusqlite::Result<State> {
        let name = resource.as_str();
        let mut line = self.line(name, now)?;
        // Those who keep others out need no pipe to be there.
        line.retain(|w| if w.mode.keeps_place() { !self.is_dead(&w.client) } else { self.reach(&w.client) != Reach::Gone });
        let modes: Vec<_> = holds.iter().map(|hold| (&hold.owner, hold.mode)).collect();
        let taken = i64::try_from(held(&modes)).unwrap_or(i64::MAX);
        let permits = self.permits(name)?.map(|of| Permits { of: of.into(), free: i64::from(of) - taken });
        let count = self.count(name)?;
        Ok(State {
            waiting: Some(u32::try_from(line.len()).unwrap_or(u32::MAX)),
            line: line.into_iter().filter(|w| w.mode == Mode::Fair).map(|w| w.owner).collect(),
            permits,
            count,
            fence: self.counter()?,
            holders: holds.into_iter().map(|hold| hold.show(now)).collect(),
            verdicts: Vec::new(),
            resource,
        })
    }
}
