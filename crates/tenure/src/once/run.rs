//! Claims in a session of any driver.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::attempt::Done;
use super::table::{Claimed, OnceClaim, OnceTable, TRIES, Ticket};
use crate::fence::Error;
use crate::sql::Session;

/// Claims work for the transaction of the session.
pub(super) async fn claim<T, S>(mut session: S, claim: &OnceClaim<'_>) -> Result<Claimed<T>, Error<S::Error>>
where
    T: DeserializeOwned,
    S: Session,
{
    let dialect = session.dialect();
    let statements = claim.statements(dialect);
    for _ in 0..TRIES {
        if let Some(columns) = session.read(&statements).await.map_err(Error::Store)? {
            return claim.check(Some(claim.table().row(dialect, columns).map_err(Error::Request)?));
        }
    }
    claim.check(None)
}

/// Records the result in the transaction that claimed the work.
pub(super) async fn finish<T, S>(mut session: S, ticket: Ticket, value: T) -> Result<Done<T>, Error<S::Error>>
where
    T: Serialize,
    S: Session,
{
    let statement = ticket.finish(session.dialect(), &value).map_err(Error::Request)?;
    let affected = session.write(&statement).await.map_err(Error::Store)?;
    ticket.check(value, affected)
}

/// Deletes up to a thousand expired records.
pub(super) async fn sweep<S: Session>(mut session: S, table: &OnceTable) -> Result<u64, S::Error> {
    session.write(&table.sweep(session.dialect())).await
}
