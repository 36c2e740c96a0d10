//! The column forms: an update that compares a token, a lease, or both, in the write itself.

use std::fmt;

use super::{Binds, Dialect, Statement};
use crate::error::{Error, Result};
use crate::fence::{self, FenceCounters, Pass};
use crate::sql::{Fragment, Identifier, Writer, number, token};

/// An `UPDATE` of one row that is fenced by columns of that row.
///
/// Fragments are SQL with `?` for each bind, whatever the dialect; `??` is the character itself.
/// **Not to be repeated** after an error that leaves open whether it was carried out, if what it sets is made of what is there
/// (`units = units - ?`), unless it has a [lease](Self::lease). What sets a value may be repeated.
///
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
    counters: FenceCounters,
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
}

impl<'a> Update<'a> {
    /// Of this table.
    pub fn of(table: &str) -> Self {
        let table = table.to_owned();
        Self { table, set: Vec::new(), key: None, only_if: None, fence: None, lease: None, counters: FenceCounters::default() }
    }

    /// What is set: `column = expression`, once or several times.
    pub fn set(mut self, text: &str, binds: impl Binds) -> Self {
        self.set.push(Fragment::new(text, binds));
        self
    }

    /// Which row: a condition that only one can meet.
    pub fn key(mut self, text: &str, binds: impl Binds) -> Self {
        self.key = Some(Fragment::new(text, binds));
        self
    }

    /// A condition of the application, for example that enough is left. If it is not met, that is a value, not an error.
    pub fn only_if(mut self, text: &str, binds: impl Binds) -> Self {
        self.only_if = Some(Fragment::new(text, binds));
        self
    }

    /// Refuses the write if this column holds a larger token, and keeps the token there otherwise.
    ///
    /// **A column of 64-bit whole numbers**, as `tenure fence ddl` makes it: one that keeps less of a token (`INT` where the server is
    /// not strict, `FLOAT`) refuses no write.
    pub fn fenced(mut self, column: &str, pass: &'a dyn Pass) -> Self {
        self.fence = Some((column.to_owned(), pass));
        self
    }

    /// Refuses the write if this column is not what was read any more, and raises it by one otherwise.
    ///
    /// A column as for [`fenced`](Self::fenced). Read the lease before what the write is made from, or in the same statement.
    pub fn lease(mut self, column: &str, read: i64) -> Self {
        self.lease = Some((column.to_owned(), read));
        self
    }

    /// Where this write is counted.
    pub fn counted(mut self, counters: &FenceCounters) -> Self {
        self.counters = counters.clone();
        self
    }

    /// The statement. It meets one row if it wrote; otherwise [`probe`](Self::probe) finds out why not.
    pub fn write(&self, dialect: Dialect) -> Result<Statement> {
        if self.set.is_empty() && self.fence.is_none() && self.lease.is_none() {
            let asked = format!("an update of {}", self.table);
            return Err(Error::config(asked, "sets nothing", "what is set, a fence or a lease"));
        }
        let mut writer = Writer::new(dialect);
        let fence = match &self.fence {
            Some((name, pass)) => Some((column(dialect, name)?, number(pass.token())?)),
            None => None,
        };
        let lease = match &self.lease {
            Some((name, read)) => Some((column(dialect, name)?, *read)),
            None => None,
        };
        writer.text("UPDATE ").text(&self.table(dialect)?).text(" SET ");
        for (i, set) in self.set.iter().enumerate() {
            writer.text(if i == 0 { "" } else { ", " }).fragment(set)?;
        }
        let mut first = self.set.is_empty();
        let mut comma = || if std::mem::take(&mut first) { "" } else { ", " };
        if let Some((column, token)) = &fence {
            writer.text(comma()).text(column).text(" = ").bind(*token);
        }
        if let Some((column, read)) = &lease {
            let next = read.checked_add(1).ok_or_else(|| Error::config(format!("the lease {read}"), "is the last", "less"))?;
            writer.text(comma()).text(column).text(" = ").bind(next);
        }
        writer.text(" WHERE (").fragment(self.row()?)?.text(")");
        if let Some(condition) = &self.only_if {
            writer.text(" AND (").fragment(condition)?.text(")");
        }
        if let Some((column, token)) = &fence {
            writer.text(&format!(" AND {} <= ", number_in(column))).bind(*token);
        }
        if let Some((column, read)) = &lease {
            writer.text(&format!(" AND {} = ", number_in(column))).bind(*read);
        }
        Ok(writer.done())
    }

    /// Reads one row of two whole numbers, `fence` and `lease` of a [`Probe`]: why the write was refused. Run it when the write met no row.
    pub fn probe(&self, dialect: Dialect) -> Result<Statement> {
        let mut writer = Writer::new(dialect);
        let number = |name: Option<&String>| -> Result<String> {
            let number = name.map_or_else(|| Ok("0".to_owned()), |name| column(dialect, name).map(|column| number_in(&column)));
            Ok(whole(dialect, &number?))
        };
        let fence = number(self.fence.as_ref().map(|(name, _)| name))?;
        let lease = number(self.lease.as_ref().map(|(name, _)| name))?;
        writer.text(&format!("SELECT {fence} AS fence, {lease} AS lease"));
        writer.text(" FROM ").text(&self.table(dialect)?).text(" WHERE (").fragment(self.row()?)?.text(")");
        if dialect == Dialect::Mysql {
            // A plain read may come from a snapshot in which nothing stands in the way yet.
            writer.text(" LOCK IN SHARE MODE");
        }
        Ok(writer.done())
    }

    /// Reads one whole number, the row's `lease`, for [`lease`](Self::lease). No row: there is none to write to.
    pub fn read_lease(&self, dialect: Dialect, name: &str) -> Result<Statement> {
        let mut writer = Writer::new(dialect);
        let lease = whole(dialect, &number_in(&column(dialect, name)?));
        writer.text(&format!("SELECT {lease} AS lease FROM ")).text(&self.table(dialect)?);
        writer.text(" WHERE (").fragment(self.row()?)?.text(")");
        Ok(writer.done())
    }

    /// What an update has done that met so many rows, given what the probe found if it was none.
    ///
    /// Rows that are *met* count, also those that do not change. MySQL counts only those that changed, unless its
    /// client wants them found (`CLIENT_FOUND_ROWS`).
    pub fn check<E>(&self, matched: u64, probe: Option<Probe>) -> Result<Effect, fence::Error<E>> {
        let Self { table, counters, .. } = self;
        match matched {
            0 => {}
            1 => {
                counters.accepted();
                return Ok(Effect::Written);
            }
            n => {
                let (asked, problem) = (format!("an update of {table}"), format!("was made in {n} rows"));
                return Err(fence::Error::Request(Error::config(asked, problem, "a key that one row meets; roll this back")));
            }
        }
        let Some(Probe { fence, lease }) = probe else { return Ok(Effect::NoSuchRow) };
        if let Some((_, pass)) = self.fence
            && token(fence) > pass.token()
        {
            counters.check(table, pass, token(fence))?;
        }
        match (&self.lease, &self.only_if) {
            (Some((_, read)), _) if lease != *read => Err(counters.overtaken(table, *read, lease).into()),
            (_, Some(_)) => Ok(Effect::Unmet),
            // It has come only since.
            (_, None) => Ok(Effect::NoSuchRow),
        }
    }

    fn table(&self, dialect: Dialect) -> Result<String> {
        Ok(Identifier::table(&self.table)?.quoted(dialect))
    }

    fn row(&self) -> Result<&Fragment> {
        let asked = format!("an update of {}", self.table);
        self.key.as_ref().ok_or_else(|| Error::config(asked, "names no row", "a key, such as id = ?"))
    }
}

/// As it stands in a statement.
fn column(dialect: Dialect, name: &str) -> Result<String> {
    Ok(Identifier::column(name)?.quoted(dialect))
}

/// A column that is NULL was never written to.
fn number_in(column: &str) -> String {
    format!("coalesce({column}, 0)")
}

/// As the same type in all tables, however the column is defined.
fn whole(dialect: Dialect, number: &str) -> String {
    format!("CAST({number} AS {})", if dialect == Dialect::Mysql { "signed" } else { "bigint" })
}

impl fmt::Debug for Update<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Binds may be personal, and are no business of a log.
        f.debug_struct("Update").field("table", &self.table).finish_non_exhaustive()
    }
}
