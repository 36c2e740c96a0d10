//! The table form: a mark per resource, raised in the transaction that writes.

use super::fragment::Writer;
use super::{Dialect, Statement, identifier, number};
use crate::error::Result;
use crate::fence::{Stats, Tally};
use crate::name::{Resource, Token};

/// A table of marks: one row per resource, with the largest token that it has seen.
///
/// The row stays locked until the transaction ends, so that of two who write under different tokens one waits for the other:
/// nothing comes between the check and the write.
#[derive(Debug, Clone)]
pub struct FenceTable {
    name: String,
    pub(crate) tally: Tally,
}

impl Default for FenceTable {
    fn default() -> Self {
        Self { name: "tenure_fences".to_owned(), tally: Tally::default() }
    }
}

impl FenceTable {
    /// A table of this name, instead of `tenure_fences`.
    pub fn named(name: &str) -> Result<Self> {
        Ok(Self { name: identifier(name)?.to_owned(), ..Self::default() })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it has let through and refused.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.tally.stats()
    }

    /// The statements that raise a resource's mark, to be run in order in the transaction that writes. The last one returns one row
    /// with one whole number, the largest token seen: [`judge`](Tally::judge) compares it. Roll back if that says stale.
    pub fn raise(&self, dialect: Dialect, resource: &str, token: Token) -> Result<Vec<Statement>> {
        let resource = Resource::new(resource)?;
        let token = number(token)?;
        let table = &self.name;
        let mut raise = Writer::new(dialect);
        raise.text(&format!("INSERT INTO {table} (resource, token) VALUES (")).bind(resource.as_str()).text(", ").bind(token);
        match dialect {
            Dialect::Postgres => {
                let update = format!("token = greatest({table}.token, excluded.token) RETURNING token");
                raise.text(&format!(") ON CONFLICT (resource) DO UPDATE SET {update}"));
            }
            Dialect::Sqlite => {
                let update = format!("token = max({table}.token, excluded.token) RETURNING token");
                raise.text(&format!(") ON CONFLICT (resource) DO UPDATE SET {update}"));
            }
            Dialect::Mysql => {
                raise.text(") ON DUPLICATE KEY UPDATE token = greatest(token, VALUES(token))");
                // Locking, because a plain read may come from a snapshot that is older than the mark.
                let mut read = Writer::new(dialect);
                read.text(&format!("SELECT token FROM {table} WHERE resource = ")).bind(resource.as_str()).text(" FOR UPDATE");
                return Ok(vec![raise.done(), read.done()]);
            }
        }
        Ok(vec![raise.done()])
    }

    /// Counts, and says whether a write may go on. See [`raise`](Self::raise).
    #[must_use]
    pub fn tally(&self) -> &Tally {
        &self.tally
    }
}
