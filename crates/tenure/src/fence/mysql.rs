//! Fences in MySQL and MariaDB, over [`mysql_async`].
//!
//! ```no_run
//! use mysql_async::prelude::Queryable;
//! use tenure::fence::{mysql, sql::FenceTable};
//!
//! # async fn example(conn: &mut mysql_async::Conn, guard: &tenure::Guard) -> Result<(), Box<dyn std::error::Error>> {
//! let fences = FenceTable::default(); // made once with `tenure fence ddl --dialect mysql`
//! let mut tx = conn.start_transaction(Default::default()).await?;
//! mysql::pass(&mut tx, &fences, "stock:1001", guard).await?; // too late? then tx is dropped, and nothing is written
//! tx.query_drop("UPDATE stock SET units = units - 1 WHERE id = 1001").await?;
//! tx.commit().await?;
//! # Ok(())
//! # }
//! ```
//!
//! Of many first writers of a resource the server may end one with a deadlock (`1213`), as for any new row, and
//! MariaDB from 11.6 on a writer that has read before the mark was raised (`1020`): try it again.

use mysql_async::prelude::Queryable;
use mysql_async::{Pool, Transaction};

use super::Pass;
use super::sql::{Effect, FenceTable, SqlMarks, Update, run};
pub use crate::sql::mysql::Mysql;

/// Why a fenced write did not happen.
pub type Error = super::Error<mysql_async::Error>;

/// Lets the rest of the transaction happen under this pass, or says that it is too late. Run it first: an earlier read may be older
/// than the mark.
///
/// Other writers of the resource wait until the transaction ends.
pub async fn pass(tx: &mut Transaction<'_>, fences: &FenceTable, resource: &str, pass: &dyn Pass) -> Result<(), Error> {
    run::pass(tx, fences, resource, pass).await
}

/// Carries an update out, in a transaction or by itself.
pub async fn update(client: &mut impl Queryable, update: &Update<'_>) -> Result<Effect, Error> {
    run::update(client, update).await
}

/// Reads the lease of the row that an update names. `None`: there is no such row.
pub async fn read_lease(client: &mut impl Queryable, update: &Update<'_>, column: &str) -> Result<Option<i64>, Error> {
    run::read_lease(client, update, column).await
}

/// [`Marks`](super::marks::Marks) in a MySQL or MariaDB server, over a pool.
pub type MysqlMarks = SqlMarks<Mysql>;

impl MysqlMarks {
    /// In that table, which exists already. It connects when it is first used.
    #[must_use]
    pub fn new(pool: Pool, table: FenceTable) -> Self {
        Self::over(Mysql::new(pool), table)
    }
}
