//! The column forms: an update that compares a token, a lease, or both, in the write itself.

use std::fmt;

use super::fragment::{Fragment, Writer};
use super::{Dialect, Statement, Value, identifier, number, token};
use crate::error::{Error, Result};
use crate::fence::{self, Pass, Tally};

/// An `UPDATE` of one row that is fenced by columns of that row.
///
/// Fragments are SQL with `?` for each bind, whatever the dialect; `??` is the character itself.
/// **Deleting the row deletes its fence**: rows that come back need the [table form](super::FenceTable).
#[derive(Clone)]
#[must_use = "nothing is written yet"]
pub struct Update<'a> {
    table: String,
    set: Vec<Fragment>,
    key: Option<Fragment>,
    only_if: Option<Fragment>,
    fence: Option<(String, &'a dyn Pass)>,
    lease: Option<(String, i64)>,
    tally: Tally,
}

/// What an update did that was not refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Written.
    Written,
    /// There is such a row, and its condition ([`Update::only_if`]) is not met.
    Unmet,
    /// There is no such row.
    NoSuchRow,
}

/// The row as it is, for an update that wrote nothing. See [`Update::probe`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probe {
    /// The first column: the fence, or 0 if the update has none.
    pub fence: i64,
    /// The second column: the lease, or 0 if the update has none.
    pub lease: i64,
    /// The third column: 1 if the condition is met or there is none, else 0.
    pub met: i64,
}

impl<'a> Update<'a> {
    /// Of this table.
    pub fn of(table: &str) -> Self {
        let table = table.to_owned();
        Self { table, set: Vec::new(), key: None, only_if: None, fence: None, lease: None, tally: Tally::default() }
    }

    /// What is set: `column = expression`, once or several times.
    pub fn set<V: Into<Value>>(mut self, text: &str, binds: impl IntoIterator<Item = V>) -> Self {
        self.set.push(Fragment::new(text, binds));
        self
    }

    /// Which row: a condition that only one can meet.
    pub fn key<V: Into<Value>>(mut self, text: &str, binds: impl IntoIterator<Item = V>) -> Self {
        self.key = Some(Fragment::new(text, binds));
        self
    }

    /// A condition of the business, such as that enough is left. That it is not met is a value, not an error.
    pub fn only_if<V: Into<Value>>(mut self, text: &str, binds: impl IntoIterator<Item = V>) -> Self {
        self.only_if = Some(Fragment::new(text, binds));
        self
    }

    /// Refuses the write if this column holds a larger token, and keeps the token there otherwise.
    pub fn fenced(mut self, column: &str, pass: &'a dyn Pass) -> Self {
        self.fence = Some((column.to_owned(), pass));
        self
    }

    /// Refuses the write if this column is not what was read any more, and raises it by one otherwise.
    pub fn lease(mut self, column: &str, read: i64) -> Self {
        self.lease = Some((column.to_owned(), read));
        self
    }

    /// Where this write is counted.
    pub fn counted(mut self, tally: &Tally) -> Self {
        self.tally = tally.clone();
        self
    }

    /// The statement. It affects one row if it wrote; otherwise [`probe`](Self::probe) finds out why not.
    pub fn write(&self, dialect: Dialect) -> Result<Statement> {
        let mut writer = Writer::new(dialect);
        writer.text("UPDATE ").text(identifier(&self.table)?).text(" SET ");
        for (i, set) in self.set.iter().enumerate() {
            writer.text(if i == 0 { "" } else { ", " }).fragment(set)?;
        }
        let mut first = self.set.is_empty();
        let mut comma = || if std::mem::take(&mut first) { "" } else { ", " };
        if let Some((column, pass)) = &self.fence {
            writer.text(comma()).text(identifier(column)?).text(" = ").bind(number(pass.token())?);
        }
        if let Some((column, read)) = &self.lease {
            let next = read.checked_add(1).ok_or_else(|| Error::config(format!("the lease {read}"), "is the last", "less"))?;
            writer.text(comma()).text(identifier(column)?).text(" = ").bind(next);
        }
        writer.text(" WHERE (").fragment(self.row()?)?.text(")");
        if let Some(condition) = &self.only_if {
            writer.text(" AND (").fragment(condition)?.text(")");
        }
        if let Some((column, pass)) = &self.fence {
            writer.text(" AND ").text(column).text(" <= ").bind(number(pass.token())?);
        }
        if let Some((column, read)) = &self.lease {
            writer.text(" AND ").text(column).text(" = ").bind(*read);
        }
        Ok(writer.done())
    }

    /// Reads one row of three whole numbers, a [`Probe`]: what stands in the way. To be run when the write affected nothing.
    pub fn probe(&self, dialect: Dialect) -> Result<Statement> {
        let mut writer = Writer::new(dialect);
        let column = |column: Option<&String>| column.map_or(Ok("0"), |name| identifier(name)).map(str::to_owned);
        let (fence, lease) = (column(self.fence.as_ref().map(|f| &f.0))?, column(self.lease.as_ref().map(|l| &l.0))?);
        let big = if dialect == Dialect::Mysql { "SIGNED" } else { "BIGINT" };
        writer.text(&format!("SELECT CAST({fence} AS {big}), CAST({lease} AS {big}), CAST("));
        match &self.only_if {
            Some(condition) => writer.text("CASE WHEN (").fragment(condition)?.text(") THEN 1 ELSE 0 END"),
            None => writer.text("1"),
        };
        writer.text(&format!(" AS {big}) FROM ")).text(identifier(&self.table)?);
        writer.text(" WHERE (").fragment(self.row()?)?.text(")");
        Ok(writer.done())
    }

    /// What an update that affected so many rows has done, given what the probe found if it was none.
    ///
    /// A server that counts only rows that *changed* (MySQL without `CLIENT_FOUND_ROWS`) says none also if the same holder repeats
    /// itself: then the fence is its own, and the write counts as done.
    pub fn judge<E>(&self, affected: u64, probe: Option<Probe>) -> Result<Effect, fence::Error<E>> {
        let Self { table, tally, .. } = self;
        match affected {
            0 => {}
            1 => {
                tally.accepted();
                return Ok(Effect::Written);
            }
            n => {
                let (asked, problem) = (format!("an update of {table}"), format!("was made in {n} rows"));
                return Err(fence::Error::Request(Error::config(asked, problem, "a key that one row meets; roll this back")));
            }
        }
        let Some(Probe { fence, lease, met }) = probe else { return Ok(Effect::NoSuchRow) };
        let mut mine = false;
        if let Some((_, pass)) = &self.fence {
            if token(fence) > pass.token() {
                tally.judge(table, *pass, token(fence))?;
            }
            mine = token(fence) == pass.token();
        }
        match &self.lease {
            Some((_, read)) if lease != *read => Err(tally.overtaken(table, *read, lease).into()),
            None if mine && met != 0 => {
                tally.accepted();
                Ok(Effect::Written)
            }
            _ => Ok(Effect::Unmet),
        }
    }

    fn row(&self) -> Result<&Fragment> {
        let asked = format!("an update of {}", self.table);
        self.key.as_ref().ok_or_else(|| Error::config(asked, "names no row", "a key, such as id = ?"))
    }
}

impl fmt::Debug for Update<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Binds may be personal, and are no business of a log.
        f.debug_struct("Update").field("table", &self.table).finish_non_exhaustive()
    }
}
