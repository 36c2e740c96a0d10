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
//!     "UPDATE stock SET units = units - $1, fence = $2 WHERE (id = $3) AND (units >= $4) AND fence <= $5",
//! );
//! assert_eq!(write.binds.len(), 5);
//! # tenure::Result::Ok(())
//! ```

mod ddl;
mod fragment;
mod table;
mod update;

use std::fmt;
use std::str::FromStr;

pub use ddl::Ddl;
pub use table::FenceTable;
pub use update::{Effect, Probe, Update};

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

/// What takes the place of a placeholder.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// NULL.
    Null,
    /// A truth value.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A number.
    Float(f64),
    /// Text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
}

macro_rules! values {
    ($($from:ty => $to:ident($convert:expr);)*) => {
        $(impl From<$from> for Value {
            fn from(value: $from) -> Self {
                Self::$to($convert(value))
            }
        })*
    };
}

values! {
    bool => Bool(std::convert::identity);
    i32 => Int(i64::from);
    u32 => Int(i64::from);
    i64 => Int(std::convert::identity);
    f64 => Float(std::convert::identity);
    &str => Text(str::to_owned);
    String => Text(std::convert::identity);
    Vec<u8> => Bytes(std::convert::identity);
    &[u8] => Bytes(<[u8]>::to_vec);
}

impl<T: Into<Self>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
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

/// Checks the name of a table or a column: it becomes part of the text.
pub(crate) fn identifier(name: &str) -> Result<&str> {
    let plain = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '$')
    };
    if name.len() <= 128 && name.split('.').all(plain) {
        return Ok(name);
    }
    let allowed = "letters, digits, _ and $, not a digit first, with a schema and a dot before it or without";
    Err(Error::config(format!("the name {name:?} of a table or column"), "cannot stand in a statement", allowed))
}
