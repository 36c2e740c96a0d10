//! The table form: a mark per resource, raised in the transaction that writes.

use async_trait::async_trait;

use super::{Dialect, Statement};
use crate::error::{Error, Result};
use crate::fence::marks::Marks;
use crate::fence::{FenceCounters, FenceStats};
use crate::name::{Resource, Token};
use crate::sql::{Columns, Driver, Identifier, Operation, Table, Writer, number, token, whole};

/// A table of marks: one row per resource, with the largest token that it has seen.
///
/// The row stays locked until the transaction ends, so that of two writers under different tokens one waits for the other:
/// nothing comes between the check and the write. A transaction that passes several resources takes them in one order
/// everywhere, or the database ends one of two that wait for each other. **Rows are never deleted**: a deleted row has lost
/// its mark.
#[derive(Debug, Clone)]
pub struct FenceTable {
    pub(super) name: Identifier,
    counters: FenceCounters,
}

impl Default for FenceTable {
    fn default() -> Self {
        Self { name: Identifier::word("tenure_fences"), counters: FenceCounters::default() }
    }
}

impl FenceTable {
    /// A table of this name, instead of `tenure_fences`.
    pub fn named(name: &str) -> Result<Self> {
        Ok(Self { name: Identifier::table(name)?, ..Self::default() })
    }

    /// Its name, as it was given.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name.given()
    }

    /// What it has let through and refused.
    #[must_use]
    pub fn stats(&self) -> FenceStats {
        self.counters.stats()
    }

    /// The statements that raise a resource's mark, to be run in order in the transaction that writes. The last one returns one row
    /// with one whole number, the largest token seen: [`FenceCounters::check`] compares it. Roll back if it is stale.
    ///
    /// Run them first: under `REPEATABLE READ`, MySQL shows what was read before them as it was before they waited for others.
    pub fn raise(&self, dialect: Dialect, resource: &str, token: Token) -> Result<Vec<Statement>> {
        let resource = Resource::new(resource)?;
        let resource = resource.as_str();
        let token = number(token)?;
        let table = self.name.quoted(dialect);
        let mut raise = Writer::new(dialect);
        match dialect {
            Dialect::Postgres | Dialect::Sqlite => {
                if dialect == Dialect::Postgres && resource.contains('\0') {
                    let asked = format!("the resource {resource:?}");
                    return Err(Error::config(asked, "has a zero byte, which PostgreSQL's text cannot", "any other characters"));
                }
                let largest = if dialect == Dialect::Postgres { "greatest" } else { "max" };
                // Under a name of its own, because neither takes the name with its schema there.
                raise.text(&format!("INSERT INTO {table} AS f (resource, token) VALUES ("));
                raise.bind(resource).text(", ").bind(token).text(") ON CONFLICT (resource) DO UPDATE");
                raise.text(&format!(" SET token = {largest}(f.token, excluded.token) RETURNING token"));
                Ok(vec![raise.done()])
            }
            Dialect::Mysql => {
                raise.text(&format!("INSERT INTO {table} (resource, token) VALUES (")).bind(resource).text(", ").bind(token);
                // Not VALUES(token), which MySQL wants to drop, nor its successor, which MariaDB does not know.
                raise.text(") ON DUPLICATE KEY UPDATE token = greatest(token, ").bind(token).text(")");
                // Locking, because a plain read may come from a snapshot that is older than the mark.
                let mut read = Writer::new(dialect);
                read.text(&format!("SELECT token FROM {table} WHERE resource = ")).bind(resource).text(" FOR UPDATE");
                Ok(vec![raise.done(), read.done()])
            }
        }
    }

    /// The counters of this fence. They check what [`raise`](Self::raise) returned.
    #[must_use]
    pub fn counters(&self) -> &FenceCounters {
        &self.counters
    }

    fn operation(&self) -> Operation<'_> {
        Operation { what: "raising a mark", table: Table::Marks(self.name()) }
    }

    /// The token in the row that [`raise`](Self::raise) returned.
    pub(super) fn largest(&self, dialect: Dialect, row: Option<Columns>) -> Result<Token> {
        let seen = row.as_deref().and_then(whole).map(|[seen]| token(seen));
        // Only a trigger can take a row away that was just written.
        seen.ok_or_else(|| self.operation().wrong_table(dialect, "the mark that was written is not there as a whole number"))
    }
}

/// [`Marks`] in a table, over a driver.
#[derive(Debug)]
pub struct SqlMarks<D> {
    driver: D,
    table: FenceTable,
}

impl<D: Driver> SqlMarks<D> {
    /// In that table, which exists already.
    ///
    /// **In a table of their own**: a handler that lets its transaction pass at the same row keeps the layer waiting for it.
    pub fn over(driver: D, table: FenceTable) -> Self {
        Self { driver, table }
    }
}

#[async_trait]
impl<D: Driver> Marks for SqlMarks<D> {
    async fn raise(&self, resource: &str, seen: Token) -> Result<Token> {
        let dialect = self.driver.dialect();
        let statements = self.table.raise(dialect, resource, seen)?;
        self.table.largest(dialect, self.driver.read(self.table.operation(), statements).await?)
    }
}
