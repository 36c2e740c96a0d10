//! Marks in PostgreSQL.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{Config, Socket};

use super::link::Link;
use super::typed;
use crate::error::Result;
use crate::fence::drivers::{Doing, Table};
use crate::fence::marks::Marks;
use crate::fence::sql::{Dialect, FenceTable, token};
use crate::name::Token;

/// [`Marks`] in a table of a PostgreSQL server.
///
/// **In a table of their own**: a handler that lets its transaction [pass](super::pass) at the same row keeps the layer waiting for it.
/// A row that is locked for longer than three seconds is an error, and holds up the others meanwhile: they share a connection.
pub struct PostgresMarks {
    table: FenceTable,
    link: Arc<Link>,
}

impl PostgresMarks {
    /// In that table, which exists already. It connects when it is first used.
    pub fn new<T>(config: Config, tls: T, table: FenceTable) -> Self
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::Stream: Send + 'static,
        T::TlsConnect: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        Self { table, link: Link::new(config, tls) }
    }
}

#[async_trait]
impl Marks for PostgresMarks {
    async fn raise(&self, resource: &str, seen: Token) -> Result<Token> {
        let statements = self.table.raise(Dialect::Postgres, resource, seen)?;
        let doing = Doing { what: "raising a mark", table: Table::Marks(self.table.name()) };
        let call = async move |client: Arc<tokio_postgres::Client>| {
            let mut seen = 0;
            for statement in &statements {
                seen = client.query_typed_one(&statement.text, &typed(statement)).await?.try_get(0)?;
            }
            Ok(seen)
        };
        self.link.ask(doing, call).await.map(token)
    }
}

impl fmt::Debug for PostgresMarks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresMarks").field("table", &self.table.name()).finish_non_exhaustive()
    }
}
