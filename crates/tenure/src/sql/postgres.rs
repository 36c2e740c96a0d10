//! PostgreSQL over `tokio_postgres`.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::BytesMut;
use futures_util::future::{BoxFuture, try_join_all};
use tokio::sync::Mutex;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::types::{Format, IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{Client, Config, GenericClient, Socket};

use super::driver::TIMEOUT;
use super::fault::{self, Meaning};
use super::{Columns, Dialect, Driver, Operation, Session, Statement, Value};
use crate::engine::background;
use crate::error::{Error, Fault, Result};

const DIALECT: Dialect = Dialect::Postgres;

/// A connection or a transaction.
pub(crate) struct PgSession<'a, C>(pub(crate) &'a C);

impl<C: GenericClient + Sync> Session for PgSession<'_, C> {
    type Error = tokio_postgres::Error;

    fn dialect(&self) -> Dialect {
        DIALECT
    }

    async fn read(&mut self, statements: &[Statement]) -> Result<Option<Columns>, tokio_postgres::Error> {
        // In one round trip: all are sent before the first answer is read.
        let run = statements.iter().map(async |statement| self.0.query_typed_opt(&statement.text, &typed(statement)).await);
        let last = try_join_all(run).await?.pop().flatten();
        last.map(|row| (0..row.len()).map(|at| column(&row, at)).collect()).transpose()
    }

    async fn write(&mut self, statement: &Statement) -> Result<u64, tokio_postgres::Error> {
        self.0.execute_typed(&statement.text, &typed(statement)).await
    }
}

fn column(row: &tokio_postgres::Row, at: usize) -> Result<Value, tokio_postgres::Error> {
    if *row.columns()[at].type_() == Type::BYTEA {
        return row.try_get::<_, Option<Vec<u8>>>(at).map(Value::from);
    }
    row.try_get::<_, Option<i64>>(at).map(Value::from)
}

/// Without types, which the server infers: one round trip, and no prepared statement to keep.
fn typed(statement: &Statement) -> Vec<(&(dyn ToSql + Sync), Type)> {
    statement.binds.iter().map(|bind| (bind as &(dyn ToSql + Sync), Type::UNKNOWN)).collect()
}

/// As text, which the server converts to the type that it expects. It refuses what does not fit. Bytes are sent as they are.
impl ToSql for Value {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        let counts = matches!(*ty, Type::INT2 | Type::INT4 | Type::INT8 | Type::NUMERIC);
        match self {
            Self::Null => return Ok(IsNull::Yes),
            Self::Bool(yes) if counts => out.extend_from_slice(if *yes { b"1" } else { b"0" }),
            Self::Bool(yes) => out.extend_from_slice(if *yes { b"true" } else { b"false" }),
            Self::Int(n) => out.extend_from_slice(n.to_string().as_bytes()),
            Self::Float(n) => out.extend_from_slice(n.to_string().as_bytes()),
            Self::Text(text) => out.extend_from_slice(text.as_bytes()),
            Self::Bytes(bytes) => out.extend_from_slice(bytes),
        }
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, _: &Type) -> Format {
        match self {
            Self::Bytes(_) => Format::Binary,
            _ => Format::Text,
        }
    }

    to_sql_checked!();
}

/// TLS of a connection: [`NoTls`](tokio_postgres::NoTls), or a connector of another crate. Implemented for all that can be used.
pub trait Tls:
    MakeTlsConnect<Socket, Stream: Send + 'static, TlsConnect: TlsConnect<Socket, Future: Send> + Send>
    + Clone
    + Send
    + Sync
    + 'static
{
}

impl<T> Tls for T where
    T: MakeTlsConnect<Socket, Stream: Send + 'static, TlsConnect: TlsConnect<Socket, Future: Send> + Send>
        + Clone
        + Send
        + Sync
        + 'static
{
}

type Connect = dyn Fn() -> BoxFuture<'static, Result<Client, tokio_postgres::Error>> + Send + Sync;

/// A PostgreSQL server, over one connection that is made again when it breaks.
pub struct Postgres(Arc<Link>);

struct Link {
    connect: Box<Connect>,
    client: Mutex<Option<Arc<Client>>>,
}

impl Postgres {
    /// It connects when it is first used.
    pub(crate) fn new(config: Config, tls: impl Tls) -> Self {
        let connect = move || -> BoxFuture<'static, _> {
            let (config, tls) = (config.clone(), tls.clone());
            Box::pin(async move {
                let (client, connection) = config.connect(tls).await?;
                tokio::spawn(connection);
                // One connection serves all calls: a wait for a row must end, and must not outlive its caller.
                client.batch_execute("SET lock_timeout = '3s'").await?;
                Ok(client)
            })
        };
        Self(Arc::new(Link { connect: Box::new(connect), client: Mutex::new(None) }))
    }

    /// Asks on the library's own thread: the connection must outlive the caller's runtime.
    async fn ask<A, F, Fut>(&self, operation: Operation<'_>, call: F) -> Result<A>
    where
        A: Send + 'static,
        F: FnOnce(Arc<Client>) -> Fut + Send + 'static,
        Fut: Future<Output = Result<A, tokio_postgres::Error>> + Send,
    {
        let link = Arc::clone(&self.0);
        let task = background::handle()?.spawn(async move {
            let answer = tokio::time::timeout(TIMEOUT, async { call(link.client().await?).await }).await;
            if answer.is_err() {
                // It may be half open, and every later call would wait in vain too.
                *link.client.lock().await = None;
            }
            answer
        });
        match task.await {
            Ok(Ok(answer)) => answer.map_err(|e| error(operation, &e).with_source(e)),
            Ok(Err(_)) => Err(Meaning::Transient(Fault::Timeout).error(DIALECT, operation, format!("waited {TIMEOUT:?}"))),
            Err(e) => Err(Meaning::Transient(Fault::Connection).error(DIALECT, operation, e.to_string()).with_source(e)),
        }
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
}

#[async_trait]
impl Driver for Postgres {
    fn dialect(&self) -> Dialect {
        DIALECT
    }

    async fn read(&self, operation: Operation<'_>, statements: Vec<Statement>) -> Result<Option<Columns>> {
        self.ask(operation, async move |client: Arc<Client>| PgSession(&*client).read(&statements).await).await
    }

    async fn write(&self, operation: Operation<'_>, statement: Statement) -> Result<u64> {
        self.ask(operation, async move |client: Arc<Client>| PgSession(&*client).write(&statement).await).await
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Postgres")
    }
}

fn error(operation: Operation<'_>, e: &tokio_postgres::Error) -> Error {
    if let Some(answer) = e.as_db_error() {
        return fault::postgres(answer.code().code()).error(DIALECT, operation, answer.message());
    }
    let detail = e.source().map_or_else(|| e.to_string(), |source| format!("{e}: {source}"));
    // The kind is private, its text is not.
    let text = e.to_string();
    let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
    let meaning = if has(&["TLS"]) {
        Meaning::Permanent(Fault::Tls)
    } else if has(&["authentication", "configuration"]) {
        Meaning::Permanent(Fault::Auth)
    } else if has(&["parameter", "column", "rows", "pars", "unexpected"]) {
        Meaning::Permanent(Fault::Protocol)
    } else {
        Meaning::Transient(Fault::Connection)
    };
    meaning.error(DIALECT, operation, detail)
}
