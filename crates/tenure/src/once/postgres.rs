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

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::try_join_all;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{Client, Config, GenericClient, Socket, Transaction};

use super::attempt::Done;
use super::sql::{Driver, SqlRecords};
use super::table::{Claimed, OnceClaim, OnceTable, Row, TRIES, Ticket};
use crate::error::Result;
use crate::fence::drivers::{Doing, Table};
use crate::fence::postgres::link::Link;
use crate::fence::postgres::{Error, typed};
use crate::fence::sql::{Dialect, Statement};

/// Claims work for this transaction, or returns what was recorded when it was done. Waits for another one that has claimed it. Run
/// it before the work.
pub async fn claim<T: DeserializeOwned>(tx: &Transaction<'_>, claim: &OnceClaim<'_>) -> Result<Claimed<T>, Error> {
    let statements = claim.statements(Dialect::Postgres);
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
pub async fn finish<T: Serialize>(tx: &Transaction<'_>, ticket: Ticket, value: T) -> Result<Done<T>, Error> {
    let statement = ticket.finish(Dialect::Postgres, &value).map_err(Error::Request)?;
    let affected = tx.execute_typed(&statement.text, &typed(&statement)).await.map_err(Error::Store)?;
    ticket.judge(value, affected)
}

/// Deletes up to a thousand records whose time is up. Not in the transaction of any work.
pub async fn sweep(client: &Client, table: &OnceTable) -> Result<u64, tokio_postgres::Error> {
    let statement = table.sweep(Dialect::Postgres);
    client.execute_typed(&statement.text, &typed(&statement)).await
}

/// In one round trip: they go out one after the other, and nobody waits in between.
async fn read(client: &impl GenericClient, statements: &[Statement]) -> Result<Option<Row>, tokio_postgres::Error> {
    let run = statements.iter().map(async |statement| client.query_typed_opt(&statement.text, &typed(statement)).await);
    let mut rows = try_join_all(run).await?;
    let row = rows.pop().flatten();
    row.map(|row| Ok(Row { token: row.try_get(0)?, earlier: row.try_get(1)?, result: row.try_get(2)?, age: row.try_get(3)? }))
        .transpose()
}

/// Records in a PostgreSQL server, over a connection that is made anew when it breaks.
pub type PostgresRecords = SqlRecords<Postgres>;

impl PostgresRecords {
    /// In that table, which exists already. It connects when it is first used.
    pub fn new<T>(config: Config, tls: T, table: OnceTable) -> Self
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::Stream: Send + 'static,
        T::TlsConnect: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        Self::over(Postgres(Link::new(config, tls)), table)
    }
}

/// The way to the server of [`PostgresRecords`].
pub struct Postgres(Arc<Link>);

#[async_trait]
impl Driver for Postgres {
    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    async fn read(&self, what: &'static str, table: &OnceTable, statements: Vec<Statement>) -> Result<Option<Row>> {
        let call = async move |client: Arc<Client>| read(&*client, &statements).await;
        self.0.ask(Doing { what, table: Table::Records(table.name()) }, call).await
    }

    async fn write(&self, what: &'static str, table: &OnceTable, statement: Statement) -> Result<u64> {
        let call = async move |client: Arc<Client>| client.execute_typed(&statement.text, &typed(&statement)).await;
        self.0.ask(Doing { what, table: Table::Records(table.name()) }, call).await
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Postgres")
    }
}
