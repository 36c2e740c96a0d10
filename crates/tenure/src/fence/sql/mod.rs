//! Fences in SQL, as text and binds that fit any driver.
//!
//! Three forms, from the simplest to the strictest:
//!
//! - **A table of marks** ([`FenceTable`]): one row per resource, raised and compared in the transaction that writes. Whatever the
//!   transaction does after it is fenced: inserts, deletes, several tables.
//! - **A column** ([`Update::fenced`]): the row that is written keeps the largest token, and the write itself compares.
//! - **A lease column** ([`Update::lease`]): compare-and-set on a number that the row keeps. Of two who have read the same number
//!   one wins, also if both hold valid tokens.
//!
//! ```
//! use tenure::Token;
//! use tenure::fence::sql::{Dialect, Update};
//!
//! let sell = Update::of("stock").set("units = units - ?", [1]).key("id = ?", [1001]).only_if("units >= ?", [1]);
//! let write = sell.fenced("fence", &Token::new(7)).write(Dialect::Postgres)?;
//! assert_eq!(
//!     write.text,
//!     "UPDATE \"stock\" SET units = units - $1, \"fence\" = $2 WHERE (id = $3) AND (units >= $4) AND coalesce(\"fence\", 0) <= $5",
//! );
//! assert_eq!(write.binds.len(), 5);
//! # Ok::<(), tenure::Error>(())
//! ```
//!
//! # Names
//! Tables and columns are named as one writes them in SQL: `stock`, `shop.stock`, or in quotes, `"Group of"`, whichever kind: `` `…` ``
//! is the same. They are written in the quotes of the dialect, so that nothing in a name is more than a name, and words of SQL
//! (`order`) are names too. One without quotes means the table that it would mean in a statement: PostgreSQL folds it to lower case.

mod ddl;
mod fragment;
#[cfg(test)]
mod golden;
mod identifier;
mod table;
mod update;
mod value;

use std::fmt;
use std::str::FromStr;

pub use ddl::Ddl;
#[cfg(feature = "once")]
pub(crate) use fragment::Writer;
pub(crate) use identifier::Identifier;
pub use table::FenceTable;
pub use update::{Effect, Probe, Update};
pub use value::{Binds, Value};

use crate::error::{Error, Result};
use crate::name::Token;

/// Whose SQL it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// PostgreSQL.
    Postgres,
    /// MySQL and MariaDB.
    Mysql,
    /// SQLite.
    Sqlite,
}

impl Dialect {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Postgres, Self::Mysql, Self::Sqlite];

    /// The name by which it is asked for.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Mysql => "mysql",
            Self::Sqlite => "sqlite",
        }
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Dialect {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        match s {
            "postgres" | "postgresql" => Ok(Self::Postgres),
            "mysql" | "mariadb" => Ok(Self::Mysql),
            "sqlite" => Ok(Self::Sqlite),
            _ => Err(Error::config(format!("the dialect {s:?}"), "is not known", "postgres, mysql (also for MariaDB), sqlite")),
        }
    }
}

/// A statement, with placeholders as its dialect writes them and one bind for each, in order.
#[derive(Debug, Clone, PartialEq)]
pub struct Statement {
    /// The text.
    pub text: String,
    /// What takes the places of the placeholders.
    pub binds: Vec<Value>,
}

/// A token as a database keeps it: in a signed 64-bit column.
pub(crate) fn number(token: Token) -> Result<i64> {
    let refuse =
        |_| Error::config(format!("the token {token}"), "does not fit a database's integers", "0 to 9223372036854775807");
    i64::try_from(token.get()).map_err(refuse)
}

/// The token that a database kept. What is below zero was not written by a fence, and is below all tokens.
pub(crate) fn token(number: i64) -> Token {
    Token::new(u64::try_from(number).unwrap_or(0))
}
