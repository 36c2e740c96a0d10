//! `tenure fence`: what fences in databases are made of.

use std::fmt::Write;

use tenure::fence::sql::{Ddl, FenceTable};

use crate::args::{Column, DdlArgs};
use crate::exit::Failure;
use crate::output;

pub(crate) fn ddl(wanted: &DdlArgs) -> Result<u8, Failure> {
    let ddl = Ddl(wanted.dialect);
    let usual = wanted.column.is_empty() && wanted.lease.is_empty() && wanted.once.is_none();
    let table = wanted.table.clone().or_else(|| usual.then(FenceTable::default));
    let mut text = String::new();
    if let Some(table) = table {
        let _infallible = write!(text, "-- The largest token that has written to each resource.\n{}", ddl.table(&table));
    }
    let kinds = [
        ("The largest token that has written to each row", &wanted.column),
        ("Changes with every write of a row", &wanted.lease),
    ];
    for (what, columns) in kinds {
        for Column { table, column } in columns {
            let _infallible = write!(text, "-- {what}.\n{}", ddl.column(table, column)?);
        }
    }
    if let Some(table) = &wanted.once {
        let _infallible = write!(text, "-- What is done, and what was begun and never finished.\n{}", ddl.once(table));
    }
    output::print(&text)?;
    Ok(0)
}
