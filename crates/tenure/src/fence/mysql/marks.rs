//! Marks in MySQL or MariaDB, over a pool.

use std::fmt;

use async_trait::async_trait;
use mysql_async::{Pool, TxOpts};

use super::raise;
use crate::error::{Error, Fault, Result};
use crate::fence::marks::{Marks, PATIENCE, no_such_table};
use crate::fence::sql::{Dialect, FenceTable, Statement, token};
use crate::name::Token;

const NAME: &str = "mysql";

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
        match tokio::time::timeout(PATIENCE, self.run(&statements)).await {
            Ok(Ok(number)) => Ok(token(number)),
            Ok(Err(e)) => Err(sort(&self.table, &e)),
            Err(_) => Err(Error::unavailable(NAME, "raising a mark", Fault::Timeout, format!("waited {PATIENCE:?}"))),
        }
    }
}

impl fmt::Debug for MysqlMarks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MysqlMarks").field("table", &self.table.name()).finish_non_exhaustive()
    }
}

fn sort(table: &FenceTable, e: &mysql_async::Error) -> Error {
    let doing = "raising a mark";
    let detail = e.to_string();
    let (fault, transient) = match e {
        mysql_async::Error::Server(answer) => match answer.code {
            // No such table, column, database.
            1146 | 1054 | 1049 => return no_such_table(table, Dialect::Mysql, &answer.message),
            code => kind(code),
        },
        // By its words, because whether there is such a kind depends on the driver's features.
        mysql_async::Error::Io(e) if e.to_string().starts_with("TLS") => (Fault::Tls, false),
        mysql_async::Error::Io(_) => (Fault::Connection, true),
        mysql_async::Error::Driver(mysql_async::DriverError::ConnectionClosed) => (Fault::Connection, true),
        mysql_async::Error::Driver(mysql_async::DriverError::PoolDisconnected) => (Fault::Connection, false),
        _ => (Fault::Protocol, false),
    };
    if transient { Error::unavailable(NAME, doing, fault, detail) } else { Error::backend(NAME, doing, fault, detail) }
}

fn kind(code: u16) -> (Fault, bool) {
    match code {
        // Waited too long for a lock, deadlock, changed since the snapshot.
        1205 | 1213 | 1020 => (Fault::StoreBusy, true),
        // Too many connections, shutting down, killed.
        1040 | 1203 | 1226 | 1053 | 1077 | 1079 | 1317 | 1927 | 3169 => (Fault::Connection, true),
        1969 | 3024 => (Fault::Timeout, true),
        // A replica, which may be promoted any moment.
        1290 | 1792 | 1836 => (Fault::ReadOnly, true),
        1045 | 1698 | 1862 | 3118 => (Fault::Auth, false),
        1044 | 1142 | 1143 | 1227 => (Fault::Denied, false),
        1021 | 1114 => (Fault::Disk, true),
        1037 | 1038 | 1041 => (Fault::OutOfMemory, true),
        1034 | 1035 | 1194 | 1195 => (Fault::Corrupt, false),
        _ => (Fault::Protocol, false),
    }
}
