//! SQL for fences and records: dialects, names, statements, and the drivers that run them.
//!
//! [`Session`] is a connection or transaction of the application. [`Driver`] is a database that the library reaches by itself,
//! through a pool or a connection that is made again when it breaks. Everything above them is written once for all drivers.

mod driver;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlx"))]
mod fault;
mod fragment;
mod identifier;
#[cfg(feature = "mysql")]
pub(crate) mod mysql;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
#[cfg(feature = "sqlite")]
pub(crate) mod sqlite;
#[cfg(feature = "sqlx")]
pub(crate) mod sqlx;
mod value;

use std::fmt;
use std::str::FromStr;

#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite", feature = "sqlx"))]
pub(crate) use driver::Session;
pub use driver::{Columns, Driver, Operation};
pub(crate) use driver::{Table, whole};
pub(crate) use fragment::{Fragment, Writer};
pub(crate) use identifier::Identifier;
pub use value::{Binds, Value};

use crate::error::{Error, Result};
use crate::name::Token;

/// A dialect of SQL.
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
    /// All dialects.
    pub const ALL: [Self; 3] = [Self::Postgres, Self::Mysql, Self::Sqlite];

    /// Its name in options and errors.
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

/// Definitions of tables and columns in one dialect.
#[derive(Debug, Clone, Copy)]
pub struct Ddl(pub Dialect);

/// A statement, with the placeholders of its dialect and one bind for each, in order.
#[derive(Debug, Clone, PartialEq)]
pub struct Statement {
    /// The text.
    pub text: String,
    /// The values of the placeholders.
    pub binds: Vec<Value>,
}

/// A token as a database keeps it: in a signed 64-bit column.
pub(crate) fn number(token: Token) -> Result<i64> {
    let refuse =
        |_| Error::config(format!("the token {token}"), "does not fit a database's integers", "0 to 9223372036854775807");
    i64::try_from(token.get()).map_err(refuse)
}

/// The token that a database kept. A number below zero was not written by a fence, and is below all tokens.
pub(crate) fn token(number: i64) -> Token {
    Token::new(u64::try_from(number).unwrap_or(0))
}
