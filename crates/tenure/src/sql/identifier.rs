//! Names of tables and columns: read from what a user gave, and written in the dialect's own quotes.

use super::Dialect;
use crate::error::{Error, Result};

/// The longest part, in bytes. PostgreSQL cuts what is longer, and two names would mean one table.
const LONGEST: usize = 63;

/// The name of a table or column. Nothing of it becomes SQL but in quotes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identifier {
    given: String,
    before: Vec<Part>,
    last: Part,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    /// Without quotes: which letters are the same is the dialect's to say.
    Word(String),
    /// What stood in quotes, as it is meant.
    Quoted(String),
}

impl Identifier {
    /// A table, with a schema and a dot before it or without.
    pub(crate) fn table(name: &str) -> Result<Self> {
        let more = ", with a schema and a dot before it or without";
        Self::read(name).ok_or_else(|| refuse("table", name, LONGEST, more))
    }

    /// A table beside which something else has the same name with more behind it.
    #[cfg(feature = "once")]
    pub(crate) fn table_and(name: &str, more: &str) -> Result<Self> {
        let table = Self::table(name)?;
        let longest = LONGEST - more.len();
        if table.last.text().len() <= longest { Ok(table) } else { Err(refuse("table", name, longest, "")) }
    }

    /// A column.
    pub(crate) fn column(name: &str) -> Result<Self> {
        Self::read(name).filter(|name| name.before.is_empty()).ok_or_else(|| refuse("column", name, LONGEST, ""))
    }

    /// A word of our own.
    pub(crate) fn word(word: &str) -> Self {
        Self { given: word.to_owned(), before: Vec::new(), last: Part::Word(word.to_owned()) }
    }

    fn read(name: &str) -> Option<Self> {
        let (mut before, mut rest) = (Vec::new(), name);
        loop {
            let (part, behind) = Part::read(rest)?;
            if behind.is_empty() {
                return Some(Self { given: name.to_owned(), before, last: part });
            }
            before.push(part);
            rest = behind.strip_prefix('.')?;
        }
    }

    /// As it was given.
    pub(crate) fn given(&self) -> &str {
        &self.given
    }

    /// As it stands in a statement.
    pub(crate) fn quoted(&self, dialect: Dialect) -> String {
        self.schema(dialect) + &self.last.quoted(dialect)
    }

    /// What stands before its last part, with the dot.
    pub(crate) fn schema(&self, dialect: Dialect) -> String {
        self.before.iter().map(|part| part.quoted(dialect) + ".").collect()
    }

    /// Its last part, with something more at the end of the name.
    #[cfg(feature = "once")]
    pub(crate) fn last_and(&self, more: &str, dialect: Dialect) -> String {
        let last = match &self.last {
            Part::Word(word) => Part::Word(format!("{word}{more}")),
            Part::Quoted(text) => Part::Quoted(format!("{text}{more}")),
        };
        last.quoted(dialect)
    }
}

impl Part {
    /// The part at the beginning, and what stands behind it.
    fn read(text: &str) -> Option<(Self, &str)> {
        let (part, behind) = match text.chars().next()? {
            quote @ ('"' | '`') => {
                let (inner, behind) = unquote(text, quote)?;
                (Self::Quoted(inner), behind)
            }
            c if c.is_ascii_alphabetic() || c == '_' => {
                let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '$').unwrap_or(text.len());
                (Self::Word(text[..end].to_owned()), &text[end..])
            }
            _ => return None,
        };
        part.fits().then_some((part, behind))
    }

    fn fits(&self) -> bool {
        // The client of MySQL takes a quote behind a backslash for text, unlike its server, and would read on behind the end.
        let text = self.text();
        (1..=LONGEST).contains(&text.len()) && !text.contains(|c: char| c == '\\' || c.is_control())
    }

    fn text(&self) -> &str {
        match self {
            Self::Word(text) | Self::Quoted(text) => text,
        }
    }

    fn quoted(&self, dialect: Dialect) -> String {
        let quote = match dialect {
            Dialect::Postgres => "\"",
            // SQLite takes "…" for text where there is no such column, and would compare with that.
            Dialect::Mysql | Dialect::Sqlite => "`",
        };
        let text = match self {
            // As the server would fold it.
            Self::Word(word) if dialect == Dialect::Postgres => word.to_ascii_lowercase(),
            Self::Word(text) | Self::Quoted(text) => text.replace(quote, &quote.repeat(2)),
        };
        format!("{quote}{text}{quote}")
    }
}

/// What stands in quotes at the beginning, where the quote itself stands twice, and what stands behind them.
fn unquote(text: &str, quote: char) -> Option<(String, &str)> {
    let (mut inner, mut rest) = (String::new(), &text[1..]);
    loop {
        let (before, behind) = rest.split_once(quote)?;
        inner.push_str(before);
        match behind.strip_prefix(quote) {
            Some(behind) => {
                inner.push(quote);
                rest = behind;
            }
            None => return Some((inner, behind)),
        }
    }
}

fn refuse(kind: &str, name: &str, longest: usize, more: &str) -> Error {
    let allowed = format!(
        "letters, digits, _ and $, not a digit first, or anything in \"…\" or `…` (that quote twice, no backslash, no control \
         characters), up to {longest} bytes{more}"
    );
    Error::config(format!("the {kind} {name:?}"), "cannot stand in a statement", allowed)
}
