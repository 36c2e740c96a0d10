//! The tables and columns that fences need, as each dialect defines them.

use super::{Dialect, FenceTable, Identifier};
use crate::error::Result;

/// Definitions for one dialect.
#[derive(Debug, Clone, Copy)]
pub struct Ddl(pub Dialect);

impl Ddl {
    /// The table of marks of [`FenceTable`].
    #[must_use]
    pub fn table(self, table: &FenceTable) -> String {
        let name = table.name.quoted(self.0);
        match self.0 {
            // An order of its own, because an index in the system's order breaks when that changes, and a mark would be overlooked.
            Dialect::Postgres => format!(
                "CREATE TABLE IF NOT EXISTS {name} (\n  resource text COLLATE \"C\" PRIMARY KEY,\n  token bigint NOT NULL\n);\n"
            ),
            // Bytes, because text would take names for equal that differ in case or in spaces at their end.
            Dialect::Mysql => format!(
                "CREATE TABLE IF NOT EXISTS {name} (\n  resource varbinary(512) PRIMARY KEY,\n  token bigint NOT NULL\n) ENGINE=InnoDB;\n"
            ),
            Dialect::Sqlite => format!(
                "CREATE TABLE IF NOT EXISTS {name} (\n  resource TEXT PRIMARY KEY,\n  token INTEGER NOT NULL\n) STRICT, WITHOUT ROWID;\n"
            ),
        }
    }

    /// A column for [`Update::fenced`](super::Update::fenced) or [`Update::lease`](super::Update::lease).
    pub fn column(self, table: &str, column: &str) -> Result<String> {
        let (table, column) = (Identifier::table(table)?.quoted(self.0), Identifier::column(column)?.quoted(self.0));
        let kind = if self.0 == Dialect::Sqlite { "INTEGER" } else { "bigint" };
        Ok(format!("ALTER TABLE {table} ADD COLUMN {column} {kind} NOT NULL DEFAULT 0;\n"))
    }
}
