//! Work that is done once in PostgreSQL, over [`tokio_postgres`].
//!
//! **Exactly once**, the record in the transaction of the work:
//!
//! ```no_run
//! use tenure::once::{Claimed, OnceTable, postgres};
//!
//! # async fn example(client: &mut tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
//! let table = OnceTable::default(); // made once with `tenure fence ddl --once --dialect postgres`
//! let tx = client.transaction().await?;
//! let done = match postgres::claim(&tx, &table.claim("payment:77")?).await? {
//!     Claimed::Done(done) => done, // by an earlier call
//!     Claimed::Yours(ticket) => {
//!         let left = tx.query_one("UPDATE account SET cents = cents - 500 WHERE id = 9 RETURNING cents", &[]).await?;
//!         postgres::finish(&tx, ticket, left.try_get::<_, i64>(0)?).await?
//!     }
//! };
//! tx.commit().await?; // the work and its record, or neither
//! println!("{} cents are left", done.value);
//! # Ok(())
//! # }
//! ```
//!
//! Under `REPEATABLE READ` and `SERIALIZABLE` a transaction that waited for another one ends with a serialization failure (`40001`)
//! instead of its result: try it again. **At least once**, with a [`Ledger`](super::Ledger): [`PostgresRecords`].

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_postgres::{Client, Config, Transaction};

use super::attempt::Done;
use super::run;
use super::sql::SqlRecords;
use super::table::{Claimed, OnceClaim, OnceTable, Ticket};
use crate::fence::postgres::Error;
use crate::sql::postgres::PgSession;
pub use crate::sql::postgres::{Postgres, Tls};

/// Claims work for this transaction, or returns the result that an earlier call has recorded. Waits for another transaction that has
/// claimed it. Run it before the work.
pub async fn claim<T: DeserializeOwned>(tx: &Transaction<'_>, claim: &OnceClaim<'_>) -> Result<Claimed<T>, Error> {
    run::claim(PgSession(tx), claim).await
}

/// Records the result in the transaction that claimed the work. Commit it then.
pub async fn finish<T: Serialize>(tx: &Transaction<'_>, ticket: Ticket, value: T) -> Result<Done<T>, Error> {
    run::finish(PgSession(tx), ticket, value).await
}

/// Deletes up to a thousand expired records. Not in the transaction of any work.
pub async fn sweep(client: &Client, table: &OnceTable) -> Result<u64, tokio_postgres::Error> {
    run::sweep(PgSession(client), table).await
}

/// Records in a PostgreSQL server, over a connection that is made again when it breaks.
pub type PostgresRecords = SqlRecords<Postgres>;

impl PostgresRecords {
    /// In that table, which exists already. It connects when it is first used.
    pub fn new(config: Config, tls: impl Tls, table: OnceTable) -> Self {
        Self::over(Postgres::new(config, tls), table)
    }
}
