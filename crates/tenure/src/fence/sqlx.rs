//! Fences in PostgreSQL, MySQL, MariaDB and SQLite, over [`sqlx`].
//!
//! ```no_run
//! use tenure::fence::{sql::FenceTable, sqlx};
//!
//! # async fn example(pool: &::sqlx::PgPool, guard: &tenure::Guard) -> Result<(), Box<dyn std::error::Error>> {
//! let fences = FenceTable::default(); // made once with `tenure fence ddl --dialect postgres`
//! let mut tx = pool.begin().await?;
//! sqlx::pass(&mut tx, &fences, "stock:1001", guard).await?; // too late? then tx is dropped, and nothing is written
//! ::sqlx::query("UPDATE stock SET units = units - 1 WHERE id = 1001").execute(&mut *tx).await?;
//! tx.commit().await?;
//! # Ok(())
//! # }
//! ```
//!
//! The databases are those that the application has turned on in its own features of sqlx. Their rules for transactions that waited
//! for others are those of any driver: try a transaction again that ended with a serialization failure (`40001`), a deadlock (`1213`)
//! or `SQLITE_BUSY_SNAPSHOT`.
//!
//! **Types in PostgreSQL**: sqlx sends a type with each bind: `bigint`, `double precision`, `boolean`, `text` (also for NULL) or `bytea`.
//! Cast it in a fragment where a column is of another type: `day = ?::date`.

use sqlx::{Connection, Pool, Transaction};

use super::Pass;
use super::sql::{Effect, FenceTable, SqlMarks, Update, run};
use crate::sql::sqlx::Sqlx;
pub use crate::sql::sqlx::{Database, SqlxPool};

/// Why a fenced write did not happen.
pub type Error = super::Error<sqlx::Error>;

/// Lets the rest of the transaction happen under this pass, or says that it is too late. Run it first: an earlier read may be older
/// than the mark.
///
/// Other writers of the resource wait until the transaction ends.
pub async fn pass<DB: Database>(
    tx: &mut Transaction<'_, DB>,
    fences: &FenceTable,
    resource: &str,
    pass: &dyn Pass,
) -> Result<(), Error> {
    run::pass(Sqlx::<DB>::new(tx).map_err(Error::Request)?, fences, resource, pass).await
}

/// Carries an update out, in a transaction (`&mut *tx`) or by itself.
pub async fn update<C>(conn: &mut C, update: &Update<'_>) -> Result<Effect, Error>
where
    C: Connection<Database: Database>,
{
    run::update(Sqlx::<C::Database>::new(conn).map_err(Error::Request)?, update).await
}

/// Reads the lease of the row that an update names. `None`: there is no such row.
pub async fn read_lease<C>(conn: &mut C, update: &Update<'_>, column: &str) -> Result<Option<i64>, Error>
where
    C: Connection<Database: Database>,
{
    run::read_lease(Sqlx::<C::Database>::new(conn).map_err(Error::Request)?, update, column).await
}

/// [`Marks`](super::marks::Marks) over a pool of sqlx.
pub type SqlxMarks<DB> = SqlMarks<SqlxPool<DB>>;

impl<DB: Database> SqlxMarks<DB> {
    /// In that table, which exists already. It connects when it is first used.
    pub fn new(pool: Pool<DB>, table: FenceTable) -> crate::Result<Self> {
        Ok(Self::over(SqlxPool::new(pool)?, table))
    }
}
