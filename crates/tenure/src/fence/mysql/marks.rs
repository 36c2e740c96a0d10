//! Marks in MySQL or MariaDB, over a pool.

use std::fmt;

use async_trait::async_trait;
use mysql_async::{Pool, TxOpts};

use super::fault::bounded;
use super::raise;
use crate::error::Result;
use crate::fence::drivers::{Doing, Table};
use crate::fence::marks::Marks;
use crate::fence::sql::{Dialect, FenceTable, Statement, token};
use crate::name::Token;

/// [`Marks`] in a table of a MySQL or MariaDB server.
pub struct MysqlMarks {
    table: FenceTable,
    pool: Pool,
}

impl MysqlMarks {
    /// In that table, which exists already. It connects when it is first used.
    #[must_use]
    pub fn new(pool: Pool, table: FenceTable) -> Self {
        Self { table, pool }
    }

    async fn run(&self, statements: &[Statement]) -> Result<i64, mysql_async::Error> {
        let mut conn = self.pool.get_conn().await?;
        // Not left to autocommit, which a server may have turned off.
        let mut tx = conn.start_transaction(TxOpts::default()).await?;
        let seen = raise(&mut tx, statements).await?;
        tx.commit().await?;
        Ok(seen)
    }
}

#[async_trait]
impl Marks for MysqlMarks {
    async fn raise(&self, resource: &str, seen: Token) -> Result<Token> {
        let statements = self.table.raise(Dialect::Mysql, resource, seen)?;
        let doing = Doing { what: "raising a mark", table: Table::Marks(self.table.name()) };
        bounded(doing, self.run(&statements)).await.map(token)
    }
}

impl fmt::Debug for MysqlMarks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MysqlMarks").field("table", &self.table.name()).finish_non_exhaustive()
    }
}
