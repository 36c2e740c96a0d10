//! Records in a database, over any driver that can run [statements](Statement).
//!
//! `once::postgres`, `once::mysql`, `once::sqlite` and `once::sqlx` have such drivers. For another one, implement [`Driver`]: it runs text
//! and binds, and says what errors mean.

use std::time::Duration;

use async_trait::async_trait;

use super::Key;
use super::keep::millis;
use super::records::{Begin, Begun, Finished, Record, Records};
use super::statements::{BATCH, Over, Statements, Taker, sweep};
use super::table::{OnceTable, Row, TRIES, vanished};
use crate::error::Result;
use crate::name::Token;
pub use crate::sql::{Columns, Driver, Operation};
use crate::sql::{Statement, number, token};

/// Records in a table.
#[derive(Debug)]
pub struct SqlRecords<D> {
    driver: D,
    table: OnceTable,
}

impl<D: Driver> SqlRecords<D> {
    /// In that table. The ledger says how long records are kept.
    pub fn over(driver: D, table: OnceTable) -> Self {
        Self { driver, table }
    }

    fn sql<'a>(&'a self, key: &'a Key) -> Statements<'a> {
        Statements { dialect: self.driver.dialect(), table: self.table.identifier(), key }
    }

    async fn read(&self, doing: &'static str, statements: Vec<Statement>) -> Result<Option<Row>> {
        let columns = self.driver.read(self.table.operation(doing), statements).await?;
        columns.map(|columns| self.table.row(self.driver.dialect(), columns)).transpose()
    }
}

#[async_trait]
impl<D: Driver> Records for SqlRecords<D> {
    async fn begin(&self, key: &Key, begin: Begin) -> Result<Begun> {
        let (number, keep) = (number(begin.token)?, millis(begin.keep)?);
        let over = if begin.repeat { Over::Smaller } else { Over::Nobody };
        let sql = self.sql(key);
        let take = sql.take(Taker { number, keep, over });
        let statements = [sql.insert(number, None, keep), take, sql.read(false)];
        for _ in 0..TRIES {
            if let Some(row) = self.read("beginning", statements.to_vec()).await? {
                return Ok(row.begun(begin.token));
            }
        }
        Err(vanished(key))
    }

    async fn finish(&self, key: &Key, mine: Token, result: &[u8], keep: Duration) -> Result<Finished> {
        let (number, keep) = (number(mine)?, millis(keep)?);
        let sql = self.sql(key);
        // The row first: an update that meets none would lock the gap, where others want to put theirs.
        let (made, record) = (sql.insert(number, Some(result), keep), sql.record(number, result, keep));
        let statements = [made, record, sql.token(false)];
        for _ in 0..TRIES {
            match self.read("recording", statements.to_vec()).await?.map(|row| token(row.token)) {
                Some(seen) if seen == mine => return Ok(Finished::Recorded),
                Some(seen) if seen > mine => return Ok(Finished::Stale { seen }),
                // Another call has deleted or made it between the statements.
                Some(_) | None => {}
            }
        }
        Err(vanished(key))
    }

    async fn look(&self, key: &Key) -> Result<Option<Record>> {
        Ok(self.read("looking", vec![self.sql(key).read(true)]).await?.map(Row::record))
    }

    async fn forget(&self, key: &Key, mine: Token) -> Result<Option<Token>> {
        let sql = self.sql(key);
        let row = self.read("forgetting", vec![sql.delete(number(mine)?), sql.token(true)]).await?;
        Ok(row.map(|row| token(row.token)))
    }

    async fn sweep(&self) -> Result<u64> {
        let mut all = 0;
        loop {
            let expired = sweep(self.driver.dialect(), self.table.identifier());
            let swept = self.driver.write(self.table.operation("sweeping"), expired).await?;
            all += swept;
            if swept < BATCH {
                return Ok(all);
            }
        }
    }
}
