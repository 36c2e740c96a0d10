//! Fences in a session of any driver.

use super::{Effect, FenceTable, Probe, Update};
use crate::fence::{Error, Pass};
use crate::sql::{Columns, Session, whole};

/// Raises the mark in the transaction of the session, and checks it.
pub(crate) async fn pass<S: Session>(
    mut session: S,
    fences: &FenceTable,
    resource: &str,
    pass: &dyn Pass,
) -> Result<(), Error<S::Error>> {
    let dialect = session.dialect();
    let statements = fences.raise(dialect, resource, pass.token()).map_err(Error::Request)?;
    let row = session.read(&statements).await.map_err(Error::Store)?;
    let seen = fences.largest(dialect, row).map_err(Error::Request)?;
    Ok(fences.counters().check(resource, pass, seen)?)
}

/// Carries an update out. If it matches no row, a probe says why.
pub(crate) async fn update<S: Session>(mut session: S, update: &Update<'_>) -> Result<Effect, Error<S::Error>> {
    let dialect = session.dialect();
    let write = update.write(dialect).map_err(Error::Request)?;
    let matched = session.write(&write).await.map_err(Error::Store)?;
    let mut found = None;
    if matched == 0 {
        let probe = update.probe(dialect).map_err(Error::Request)?;
        let row = session.read(&[probe]).await.map_err(Error::Store)?;
        found = row.map(|row| numbers(update, &row)).transpose()?.map(|[fence, lease]| Probe { fence, lease });
    }
    update.check(matched, found)
}

/// Reads the lease of the row that an update names.
pub(crate) async fn read_lease<S: Session>(
    mut session: S,
    update: &Update<'_>,
    column: &str,
) -> Result<Option<i64>, Error<S::Error>> {
    let read = update.read_lease(session.dialect(), column).map_err(Error::Request)?;
    let row = session.read(&[read]).await.map_err(Error::Store)?;
    Ok(row.map(|row| numbers(update, &row)).transpose()?.map(|[lease]| lease))
}

fn numbers<const N: usize, E>(update: &Update<'_>, row: &Columns) -> Result<[i64; N], Error<E>> {
    let refuse = || {
        let asked = format!("{update:?}");
        crate::Error::config(asked, "has a fence or a lease that is no whole number", "a column of 64-bit whole numbers")
    };
    whole(row).ok_or_else(|| Error::Request(refuse()))
}
