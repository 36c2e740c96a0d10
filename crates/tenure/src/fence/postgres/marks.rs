//! Marks in PostgreSQL, over a connection that is made anew when it breaks.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use tokio::sync::Mutex;
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{Client, Config, Socket};

use super::typed;
use crate::error::{Error, Fault, Result};
use crate::fence::marks::{Marks, PATIENCE, no_such_table};
use crate::fence::sql::{Dialect, FenceTable, Statement, token};
use crate::name::Token;
use crate::runtime::background;

const NAME: &str = "postgres";

type Connect = dyn Fn() -> BoxFuture<'static, Result<Client, tokio_postgres::Error>> + Send + Sync;

/// [`Marks`] in a table of a PostgreSQL server.
pub struct PostgresMarks {
    table: FenceTable,
    link: Arc<Link>,
}

/// The connection, and the way to the next one.
struct Link {
    connect: Box<Connect>,
    client: Mutex<Option<Arc<Client>>>,
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
        let connect = move || -> BoxFuture<'static, _> {
            let (config, tls) = (config.clone(), tls.clone());
            Box::pin(async move {
                let (client, connection) = config.connect(tls).await?;
                tokio::spawn(connection);
                Ok(client)
            })
        };
        Self { table, link: Arc::new(Link { connect: Box::new(connect), client: Mutex::new(None) }) }
    }
}

impl Link {
    async fn client(&self) -> Result<Arc<Client>, tokio_postgres::Error> {
        let mut client = self.client.lock().await;
        match &*client {
            Some(client) if !client.is_closed() => Ok(Arc::clone(client)),
            _ => Ok(Arc::clone(client.insert(Arc::new((self.connect)().await?)))),
        }
    }

    async fn raise(&self, statements: &[Statement]) -> Result<i64, tokio_postgres::Error> {
        let client = self.client().await?;
        let mut seen = 0;
        for statement in statements {
            seen = client.query_typed_one(&statement.text, &typed(statement)).await?.try_get(0)?;
        }
        Ok(seen)
    }
}

#[async_trait]
impl Marks for PostgresMarks {
    async fn raise(&self, resource: &str, seen: Token) -> Result<Token> {
        let statements = self.table.raise(Dialect::Postgres, resource, seen)?;
        let link = Arc::clone(&self.link);
        // On the library's own thread: the connection must outlive the caller's runtime.
        let call = background()?.spawn(async move {
            let answer = tokio::time::timeout(PATIENCE, link.raise(&statements)).await;
            if answer.is_err() {
                // It may be half open, and would be asked again and again.
                *link.client.lock().await = None;
            }
            answer
        });
        match call.await {
            Ok(Ok(Ok(number))) => Ok(token(number)),
            Ok(Ok(Err(e))) => Err(sort(&self.table, &e)),
            Ok(Err(_)) => Err(Error::unavailable(NAME, "raising a mark", Fault::Timeout, format!("waited {PATIENCE:?}"))),
            Err(e) => Err(Error::unavailable(NAME, "raising a mark", Fault::Connection, e.to_string())),
        }
    }
}

impl fmt::Debug for PostgresMarks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresMarks").field("table", &self.table.name()).finish_non_exhaustive()
    }
}

fn sort(table: &FenceTable, e: &tokio_postgres::Error) -> Error {
    let doing = "raising a mark";
    let Some(answer) = e.as_db_error() else {
        let detail = std::error::Error::source(e).map_or_else(|| e.to_string(), |source| format!("{e}: {source}"));
        // The kind is not public, its words are.
        return match e.to_string() {
            words if words.contains("TLS") => Error::backend(NAME, doing, Fault::Tls, detail),
            words if words.contains("authentication") || words.contains("configuration") => {
                Error::backend(NAME, doing, Fault::Auth, detail)
            }
            words if ["parameter", "column", "rows", "pars", "unexpected"].iter().any(|word| words.contains(word)) => {
                Error::backend(NAME, doing, Fault::Protocol, detail)
            }
            _ => Error::unavailable(NAME, doing, Fault::Connection, detail),
        };
    };
    let detail = answer.message();
    let code = answer.code();
    if [SqlState::UNDEFINED_TABLE, SqlState::UNDEFINED_COLUMN, SqlState::INVALID_COLUMN_REFERENCE].contains(code) {
        return no_such_table(table, Dialect::Postgres, detail);
    }
    let (fault, transient) = kind(code);
    if transient { Error::unavailable(NAME, doing, fault, detail) } else { Error::backend(NAME, doing, fault, detail) }
}

fn kind(code: &SqlState) -> (Fault, bool) {
    if *code == SqlState::CANNOT_CONNECT_NOW {
        return (Fault::Loading, true);
    }
    match code.code() {
        // A standby, which may be promoted any moment.
        "25006" => (Fault::ReadOnly, true),
        "42501" => (Fault::Denied, false),
        "57014" => (Fault::Timeout, true),
        "55P03" => (Fault::StoreBusy, true),
        "53100" => (Fault::Disk, true),
        "53200" => (Fault::OutOfMemory, true),
        code if code.starts_with("28") => (Fault::Auth, false),
        code if code.starts_with("40") => (Fault::StoreBusy, true),
        code if ["08", "53", "57"].iter().any(|class| code.starts_with(class)) => (Fault::Connection, true),
        "XX001" | "XX002" => (Fault::Corrupt, false),
        _ => (Fault::Protocol, false),
    }
}
