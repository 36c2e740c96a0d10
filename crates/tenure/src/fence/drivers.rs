//! What marks and records share of a driver: what is done in which table, and how to say that it is missing.

use super::sql::Dialect;

/// What is done, in which table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Doing<'a> {
    pub(crate) what: &'static str,
    pub(crate) table: Table<'a>,
}

/// A table of ours.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Table<'a> {
    Marks(&'a str),
    #[cfg(feature = "once")]
    Records(&'a str),
}

impl Table<'_> {
    /// It is not there, or is another one.
    pub(crate) fn missing(self, dialect: Dialect, problem: &str) -> crate::Error {
        let (asked, option) = match self {
            Self::Marks(name) => (format!("the table of marks {name}"), ""),
            #[cfg(feature = "once")]
            Self::Records(name) => (format!("the table of records {name}"), "--once "),
        };
        let allowed = format!("one as `tenure fence ddl {option}--dialect {dialect}` makes it");
        crate::Error::config(asked, format!("cannot be used: {problem}"), allowed)
    }
}
