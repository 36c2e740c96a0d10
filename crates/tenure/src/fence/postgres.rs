//! Fences in PostgreSQL, over [`tokio_postgres`].
//!
//! ```no_run
//! use tenure::fence::{postgres, sql::FenceTable};
//!
//! # async fn example(client: &mut tokio_postgres::Client, guard: &tenure::Guard) -> Result<(), Box<dyn std::error::Error>> {
//! let fences = FenceTable::default(); // made once with `tenure fence ddl --dialect postgres`
//! let tx = client.transaction().await?;
//! postgres::pass(&tx, &fences, "stock:1001", guard).await?; // too late? then tx is dropped, and nothing is written
//! tx.execute("UPDATE stock SET units = units - 1 WHERE id = 1001", &[]).await?;
//! tx.commit().await?;
//! # Ok(())
//! # }
//! ```
//!
//! Under `REPEATABLE READ` and `SERIALIZABLE` a transaction that waited for another one at the fence ends with a serialization
//! failure (`40001`), as it would for any row: try it again.
//!
//! **Bound the wait**: a holder that is stopped inside of its transaction keeps the next one waiting at the fence for as long as its
//! connection lives. `lock_timeout` ends the wait of the one, `idle_in_transaction_session_timeout` the transaction of the other;
//! PostgreSQL sets neither by itself. (MySQL gives up after `innodb_lock_wait_timeout`, 50 s; SQLite after its busy timeout.)

use tokio_postgres::{Config, GenericClient, Transaction};

use super::Pass;
use super::sql::{Effect, FenceTable, SqlMarks, Update, run};
use crate::sql::postgres::PgSession;
pub use crate::sql::postgres::{Postgres, Tls};

/// Why a fenced write did not happen.
pub type Error = super::Error<tokio_postgres::Error>;

/// Lets the rest of the transaction happen under this pass, or says that it is too late. Run it first.
///
/// Other writers of the resource wait until the transaction ends.
pub async fn pass(tx: &Transaction<'_>, fences: &FenceTable, resource: &str, pass: &dyn Pass) -> Result<(), Error> {
    run::pass(PgSession(tx), fences, resource, pass).await
}

/// Carries an update out, in a transaction or by itself.
pub async fn update(client: &(impl GenericClient + Sync), update: &Update<'_>) -> Result<Effect, Error> {
    run::update(PgSession(client), update).await
}

/// Reads the lease of the row that an update names. `None`: there is no such row.
pub async fn read_lease(client: &(impl GenericClient + Sync), update: &Update<'_>, column: &str) -> Result<Option<i64>, Error> {
    run::read_lease(PgSession(client), update, column).await
}

/// [`Marks`](super::marks::Marks) in a PostgreSQL server.
///
/// A row that is locked for longer than three seconds is an error. Calls share a connection, and wait behind it meanwhile.
pub type PostgresMarks = SqlMarks<Postgres>;

impl PostgresMarks {
    /// In that table, which exists already. It connects when it is first used.
    pub fn new(config: Config, tls: impl Tls, table: FenceTable) -> Self {
        Self::over(Postgres::new(config, tls), table)
    }
}
