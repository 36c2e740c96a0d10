//! Work that is done once in PostgreSQL, MySQL, MariaDB and SQLite, over [`sqlx`].
//!
//! **Exactly once**, the record in the transaction of the work:
//!
//! ```no_run
//! use tenure::once::{Claimed, OnceTable, sqlx};
//!
//! # async fn example(pool: &::sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
//! let table = OnceTable::default(); // made once with `tenure fence ddl --once --dialect postgres`
//! let mut tx = pool.begin().await?;
//! let done = match sqlx::claim(&mut tx, &table.claim("payment:77")?).await? {
//!     Claimed::Done(done) => done, // by an earlier call
//!     Claimed::Yours(ticket) => {
//!         let take = "UPDATE account SET cents = cents - 500 WHERE id = 9 RETURNING cents";
//!         let left: i64 = ::sqlx::query_scalar(take).fetch_one(&mut *tx).await?;
//!         sqlx::finish(&mut tx, ticket, left).await?
//!     }
//! };
//! tx.commit().await?; // the work and its record, or neither
//! println!("{} cents are left", done.value);
//! # Ok(())
//! # }
//! ```
//!
//! A transaction that waited for another one may end with an error of the database, as with [any driver](crate::fence::sqlx): try it
//! again. **At least once**, with a [`Ledger`](super::Ledger): [`SqlxRecords`].

use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::{Connection, Pool, Transaction};

use super::attempt::Done;
use super::run;
use super::sql::SqlRecords;
use super::table::{Claimed, OnceClaim, OnceTable, Ticket};
use crate::fence::sqlx::Error;
use crate::sql::sqlx::Sqlx;
pub use crate::sql::sqlx::{Database, SqlxPool};

/// Claims work for this transaction, or returns the result that an earlier call has recorded. Waits for another transaction that has
/// claimed it. Run it first: an earlier read may be older than the record.
pub async fn claim<T, DB>(tx: &mut Transaction<'_, DB>, claim: &OnceClaim<'_>) -> Result<Claimed<T>, Error>
where
    T: DeserializeOwned,
    DB: Database,
{
    run::claim(Sqlx::<DB>::new(tx).map_err(Error::Request)?, claim).await
}

/// Records the result in the transaction that claimed the work. Commit it then.
pub async fn finish<T, DB>(tx: &mut Transaction<'_, DB>, ticket: Ticket, value: T) -> Result<Done<T>, Error>
where
    T: Serialize,
    DB: Database,
{
    run::finish(Sqlx::<DB>::new(tx).map_err(Error::Request)?, ticket, value).await
}

/// Deletes up to a thousand expired records. Not in the transaction of any work.
pub async fn sweep<C>(conn: &mut C, table: &OnceTable) -> Result<u64, Error>
where
    C: Connection<Database: Database>,
{
    run::sweep(Sqlx::<C::Database>::new(conn).map_err(Error::Request)?, table).await.map_err(Error::Store)
}

/// Records over a pool of sqlx.
pub type SqlxRecords<DB> = SqlRecords<SqlxPool<DB>>;

impl<DB: Database> SqlxRecords<DB> {
    /// In that table, which exists already. It connects when it is first used.
    pub fn new(pool: Pool<DB>, table: OnceTable) -> crate::Result<Self> {
        Ok(Self::over(SqlxPool::new(pool)?, table))
    }
}
