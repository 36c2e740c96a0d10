//! A piece of a user's SQL with `?` where its binds go.

use super::{Binds, Dialect, Statement, Value};
use crate::error::{Error, Result};

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Fragment {
    text: String,
    binds: Vec<Value>,
}

impl Fragment {
    pub(crate) fn new(text: &str, binds: impl Binds) -> Self {
        Self { text: text.to_owned(), binds: binds.values() }
    }
}

/// Puts a statement together, and numbers its placeholders.
pub(crate) struct Writer {
    dialect: Dialect,
    text: String,
    binds: Vec<Value>,
}

impl Writer {
    pub(crate) fn new(dialect: Dialect) -> Self {
        Self { dialect, text: String::new(), binds: Vec::new() }
    }

    pub(crate) fn text(&mut self, text: &str) -> &mut Self {
        self.text.push_str(text);
        self
    }

    pub(crate) fn bind(&mut self, value: impl Into<Value>) -> &mut Self {
        self.binds.push(value.into());
        match self.dialect {
            Dialect::Postgres => self.text.push_str(&format!("${}", self.binds.len())),
            Dialect::Mysql | Dialect::Sqlite => self.text.push('?'),
        }
        self
    }

    /// `?` outside of quotes is a placeholder, `??` the character itself (an operator in PostgreSQL).
    pub(crate) fn fragment(&mut self, fragment: &Fragment) -> Result<&mut Self> {
        let mut binds = fragment.binds.iter();
        let mut quote = None;
        let mut chars = fragment.text.chars().peekable();
        let mut wanted = 0;
        while let Some(c) = chars.next() {
            match (c, quote) {
                ('?', None) if chars.next_if_eq(&'?').is_some() => self.text.push('?'),
                ('?', None) => {
                    wanted += 1;
                    if let Some(value) = binds.next() {
                        self.bind(value.clone());
                    }
                }
                // PostgreSQL knows no such quote: what stands behind it there is not quoted.
                ('\'' | '"' | '`', None) if c != '`' || self.dialect != Dialect::Postgres => {
                    quote = Some(c);
                    self.text.push(c);
                }
                (c, open) => {
                    if open == Some(c) {
                        quote = None;
                    }
                    self.text.push(c);
                }
            }
        }
        let given = fragment.binds.len();
        if wanted == given && quote.is_none() {
            return Ok(self);
        }
        let problem = match quote {
            Some(quote) => format!("has a {quote} without an end"),
            None => format!("has {wanted} placeholders and {given} binds"),
        };
        Err(Error::config(format!("the SQL {:?}", fragment.text), problem, "one ? for each bind, ?? for the character itself"))
    }

    pub(crate) fn done(self) -> Statement {
        Statement { text: self.text, binds: self.binds }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quote_is_one_only_where_the_dialect_has_it() {
        let read = |dialect, text: &str| Writer::new(dialect).fragment(&Fragment::new(text, ())).is_ok();
        assert!(read(Dialect::Mysql, "`a\"` = 1") && read(Dialect::Sqlite, "`a\"` = 1"));
        assert!(!read(Dialect::Postgres, "`a\"` = 1"), "the rest of the statement would be quoted");
    }
}
