//! The table of records, as each dialect defines it.

use super::OnceTable;
use crate::fence::sql::{Ddl, Dialect};

/// What the name of a table's index has behind that of the table.
pub(super) const INDEX: &str = "_expires_at";

impl Ddl {
    /// The table of records of [`OnceTable`], and the index by which old ones are found.
    #[must_use]
    pub fn once(self, table: &OnceTable) -> String {
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
}
