//! The tables and columns of fences, as each dialect defines them.

use super::{Ddl, Dialect, FenceTable};
use crate::error::Result;
use crate::sql::Identifier;

impl Ddl {
    /// The table of marks of [`FenceTable`].
    #[must_use]
    pub fn table(self, table: &FenceTable) -> String {
        let name = table.name.quoted(self.0);
        let (resource, token, end) = match self.0 {
            // The order "C": an index in the order of the system breaks when that changes, and a mark would be overlooked.
            Dialect::Postgres => ("text COLLATE \"C\"", "bigint", ""),
            // Bytes: text would take names for equal that differ in case or in spaces at their end.
            Dialect::Mysql => ("varbinary(512)", "bigint", " ENGINE=InnoDB"),
            Dialect::Sqlite => ("TEXT", "INTEGER", " STRICT, WITHOUT ROWID"),
        };
        format!("CREATE TABLE IF NOT EXISTS {name} (\n  resource {resource} PRIMARY KEY,\n  token {token} NOT NULL\n){end};\n")
    }

    /// A column for [`Update::fenced`](super::Update::fenced) or [`Update::lease`](super::Update::lease).
    pub fn column(self, table: &str, column: &str) -> Result<String> {
        let (table, column) = (Identifier::table(table)?.quoted(self.0), Identifier::column(column)?.quoted(self.0));
        let kind = if self.0 == Dialect::Sqlite { "INTEGER" } else { "bigint" };
        Ok(format!("ALTER TABLE {table} ADD COLUMN {column} {kind} NOT NULL DEFAULT 0;\n"))
    }
}
