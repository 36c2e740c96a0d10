//! The tables and columns that fences need, as each dialect defines them.

use super::{Dialect, FenceTable, Identifier};
use crate::error::Result;

/// What the name of a table's index has behind that of the table.
#[cfg(feature = "once")]
pub(crate) const INDEX: &str = "_expires_at";

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

    /// The table of records of [`OnceTable`](crate::once::OnceTable), and the index by which old ones are found.
    #[cfg(feature = "once")]
    #[must_use]
    pub fn once(self, table: &crate::once::OnceTable) -> String {
        let name = table.identifier().quoted(self.0);
        let index = table.identifier().last_and(INDEX, self.0);
        let (bytes, result, number) = match self.0 {
            Dialect::Postgres => ("bytea", "bytea", "bigint"),
            Dialect::Mysql => ("varbinary(512)", "longblob", "bigint"),
            Dialect::Sqlite => ("BLOB", "BLOB", "INTEGER"),
        };
        let columns = format!(
            "  job {bytes} PRIMARY KEY,\n  token {number} NOT NULL,\n  earlier {number},\n  result {result},\n  \
             changed_at {number} NOT NULL,\n  expires_at {number} NOT NULL"
        );
        match self.0 {
            Dialect::Mysql => {
                format!("CREATE TABLE IF NOT EXISTS {name} (\n{columns},\n  INDEX {index} (expires_at)\n) ENGINE=InnoDB;\n")
            }
            Dialect::Postgres => format!(
                "CREATE TABLE IF NOT EXISTS {name} (\n{columns}\n);\n\
                 CREATE INDEX IF NOT EXISTS {index} ON {name} (expires_at);\n"
            ),
            // Here it is the index that is in a schema, and its table is where it is.
            Dialect::Sqlite => {
                let (schema, plain) = (table.identifier().schema(self.0), table.identifier().last_and("", self.0));
                format!(
                    "CREATE TABLE IF NOT EXISTS {name} (\n{columns}\n) STRICT;\n\
                     CREATE INDEX IF NOT EXISTS {schema}{index} ON {plain} (expires_at);\n"
                )
            }
        }
    }

    /// A column for [`Update::fenced`](super::Update::fenced) or [`Update::lease`](super::Update::lease).
    pub fn column(self, table: &str, column: &str) -> Result<String> {
        let (table, column) = (Identifier::table(table)?.quoted(self.0), Identifier::column(column)?.quoted(self.0));
        let kind = if self.0 == Dialect::Sqlite { "INTEGER" } else { "bigint" };
        Ok(format!("ALTER TABLE {table} ADD COLUMN {column} {kind} NOT NULL DEFAULT 0;\n"))
    }
}
