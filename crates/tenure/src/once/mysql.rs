//! Work that is done once in MySQL and MariaDB, over [`mysql_async`].
//!
//! **Exactly once**, the record in the transaction of the work:
//!
//! ```no_run
//! use mysql_async::prelude::Queryable;
//! use tenure::once::{Claimed, OnceTable, mysql};
//!
//! # async fn example(conn: &mut mysql_async::Conn) -> Result<(), Box<dyn std::error::Error>> {
//! let table = OnceTable::default(); // made once with `tenure fence ddl --once --dialect mysql`
//! let mut tx = conn.start_transaction(Default::default()).await?;
//! let done = match mysql::claim(&mut tx, &table.claim("payment:77")?).await? {
//!     Claimed::Done(done) => done, // by an earlier call
//!     Claimed::Yours(ticket) => {
//!         tx.query_drop("UPDATE account SET cents = cents - 500 WHERE id = 9").await?;
//!         mysql::finish(&mut tx, ticket, 500).await?
//!     }
//! };
//! tx.commit().await?; // the work and its record, or neither
//! println!("{} cents were taken", done.value);
//! # Ok(())
//! # }
//! ```
//!
//! Of several transactions that wait for one that is then rolled back, the server may end some with a deadlock (`1213`): try it again.
//! On an error, roll back by yourself: a transaction that is only dropped keeps others waiting until its connection is used again.
//! Old records are deleted from MySQL 8.0.1 and MariaDB 10.6 on, which can skip rows that are locked; older servers keep them.
//! **At least once**, with a [`Ledger`](super::Ledger): [`MysqlRecords`].

use mysql_async::prelude::Queryable;
use mysql_async::{Pool, Transaction};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::attempt::Done;
use super::run;
use super::sql::SqlRecords;
use super::table::{Claimed, OnceClaim, OnceTable, Ticket};
use crate::fence::mysql::Error;
pub use crate::sql::mysql::Mysql;

/// Claims work for this transaction, or returns the result that an earlier call has recorded. Waits for another transaction that has
/// claimed it. Run it first: an earlier read may be older than the record.
pub async fn claim<T: DeserializeOwned>(tx: &mut Transaction<'_>, claim: &OnceClaim<'_>) -> Result<Claimed<T>, Error> {
    run::claim(tx, claim).await
}

/// Records the result in the transaction that claimed the work. Commit it then.
pub async fn finish<T: Serialize>(tx: &mut Transaction<'_>, ticket: Ticket, value: T) -> Result<Done<T>, Error> {
    run::finish(tx, ticket, value).await
}

/// Deletes up to a thousand expired records. Not in the transaction of any work.
pub async fn sweep(client: &mut impl Queryable, table: &OnceTable) -> Result<u64, mysql_async::Error> {
    run::sweep(client, table).await
}

/// Records in a MySQL or MariaDB server, over a pool.
pub type MysqlRecords = SqlRecords<Mysql>;

impl MysqlRecords {
    /// In that table, which exists already. It connects when it is first used.
    #[must_use]
    pub fn new(pool: Pool, table: OnceTable) -> Self {
        Self::over(Mysql::new(pool), table)
    }
}
