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
//! Of several who wait for a transaction that is then rolled back the server may end some with a deadlock (`1213`): try it again.
//! On an error, roll back by yourself: a transaction that is only dropped keeps others waiting until its connection is used again.
//! Old records are deleted from MySQL 8.0.1 and MariaDB 10.6 on, which can skip rows that are locked; older servers keep them.
//! **At least once**, with a [`Ledger`](super::Ledger): [`MysqlRecords`].

use std::fmt;

use async_trait::async_trait;
use mysql_async::prelude::Queryable;
use mysql_async::{FromValueError, Pool, Transaction, TxOpts};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::attempt::Done;
use super::sql::{Driver, SqlRecords};
use super::table::{Claimed, OnceClaim, OnceTable, Row, TRIES, Ticket};
use crate::error::Result;
use crate::fence::drivers::{Doing, Table};
use crate::fence::mysql::fault::bounded;
use crate::fence::mysql::{Error, params};
use crate::fence::sql::{Dialect, Statement};

/// Claims work for this transaction, or returns what was recorded when it was done. Waits for another one that has claimed it. Run
/// it first: what was read before it may be older than the record.
pub async fn claim<T: DeserializeOwned>(tx: &mut Transaction<'_>, claim: &OnceClaim<'_>) -> Result<Claimed<T>, Error> {
    let statements = claim.statements(Dialect::Mysql);
    let mut row = None;
    for _ in 0..TRIES {
        row = read(tx, &statements).await.map_err(Error::Store)?;
        if row.is_some() {
            break;
        }
    }
    claim.judge(row)
}

/// Records the result in the transaction that claimed the work. Commit it then.
pub async fn finish<T: Serialize>(tx: &mut Transaction<'_>, ticket: Ticket, value: T) -> Result<Done<T>, Error> {
    let statement = ticket.finish(Dialect::Mysql, &value).map_err(Error::Request)?;
    let affected = write(tx, &statement).await.map_err(Error::Store)?;
    ticket.judge(value, affected)
}

/// Deletes up to a thousand records whose time is up. Not in the transaction of any work.
pub async fn sweep(client: &mut impl Queryable, table: &OnceTable) -> Result<u64, mysql_async::Error> {
    write(client, &table.sweep(Dialect::Mysql)).await
}

async fn read(client: &mut impl Queryable, statements: &[Statement]) -> Result<Option<Row>, mysql_async::Error> {
    let mut last: Option<mysql_async::Row> = None;
    for statement in statements {
        last = client.exec_first(&statement.text, params(statement)).await?;
    }
    last.map(row).transpose()
}

fn row(row: mysql_async::Row) -> Result<Row, mysql_async::Error> {
    fn column<T: mysql_async::prelude::FromValue>(row: &mysql_async::Row, at: usize) -> Result<T, mysql_async::Error> {
        let missing = || mysql_async::Error::Other(format!("column {at} is missing").into());
        let other = |e: FromValueError| mysql_async::Error::Other(format!("column {at} is something else: {e}").into());
        row.get_opt(at).ok_or_else(missing)?.map_err(other)
    }
    Ok(Row { token: column(&row, 0)?, earlier: column(&row, 1)?, result: column(&row, 2)?, age: column(&row, 3)? })
}

async fn write(client: &mut impl Queryable, statement: &Statement) -> Result<u64, mysql_async::Error> {
    let result = client.exec_iter(&statement.text, params(statement)).await?;
    let affected = result.affected_rows();
    result.drop_result().await?;
    Ok(affected)
}

/// Records in a MySQL or MariaDB server, over a pool.
pub type MysqlRecords = SqlRecords<Mysql>;

impl MysqlRecords {
    /// In that table, which exists already. It connects when it is first used.
    #[must_use]
    pub fn new(pool: Pool, table: OnceTable) -> Self {
        Self::over(Mysql(pool), table)
    }
}

/// The way to the server of [`MysqlRecords`].
pub struct Mysql(Pool);

#[async_trait]
impl Driver for Mysql {
    fn dialect(&self) -> Dialect {
        Dialect::Mysql
    }

    async fn read(&self, what: &'static str, table: &OnceTable, statements: Vec<Statement>) -> Result<Option<Row>> {
        let call = async {
            let mut conn = self.0.get_conn().await?;
            // Not left to autocommit, which a server may have turned off.
            let mut tx = conn.start_transaction(TxOpts::default()).await?;
            let row = read(&mut tx, &statements).await?;
            tx.commit().await?;
            Ok(row)
        };
        bounded(Doing { what, table: Table::Records(table.name()) }, call).await
    }

    async fn write(&self, what: &'static str, table: &OnceTable, statement: Statement) -> Result<u64> {
        let call = async {
            let mut conn = self.0.get_conn().await?;
            let mut tx = conn.start_transaction(TxOpts::default()).await?;
            let affected = write(&mut tx, &statement).await?;
            tx.commit().await?;
            Ok(affected)
        };
        bounded(Doing { what, table: Table::Records(table.name()) }, call).await
    }
}

impl fmt::Debug for Mysql {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mysql")
    }
}
