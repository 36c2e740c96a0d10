//! A connection that is made anew when it breaks, and what its errors mean.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::sync::Mutex;
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{Client, Config, Socket};

use crate::engine::background;
use crate::error::{Error, Fault, Result};
use crate::fence::drivers::Doing;
use crate::fence::marks::PATIENCE;
use crate::fence::sql::Dialect;

const NAME: &str = "postgres";

type Connect = dyn Fn() -> BoxFuture<'static, Result<Client, tokio_postgres::Error>> + Send + Sync;

/// The connection, and the way to the next one.
pub(crate) struct Link {
    connect: Box<Connect>,
    client: Mutex<Option<Arc<Client>>>,
}

impl Link {
    /// It connects when it is first used.
    pub(crate) fn new<T>(config: Config, tls: T) -> Arc<Self>
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
                // One connection serves all: who waits for a row must not keep the others waiting for ever, nor outlive its caller.
                client.batch_execute("SET lock_timeout = '3s'").await?;
                Ok(client)
            })
        };
        Arc::new(Self { connect: Box::new(connect), client: Mutex::new(None) })
    }

    async fn client(&self) -> Result<Arc<Client>, tokio_postgres::Error> {
        let mut client = self.client.lock().await;
        match &*client {
            Some(client) if !client.is_closed() => Ok(Arc::clone(client)),
            _ => Ok(Arc::clone(client.insert(Arc::new((self.connect)().await?)))),
        }
    }

    /// Asks on the library's own thread: the connection must outlive the caller's runtime.
    pub(crate) async fn ask<A, F, Fut>(self: &Arc<Self>, doing: Doing<'_>, call: F) -> Result<A>
    where
        A: Send + 'static,
        F: FnOnce(Arc<Client>) -> Fut + Send + 'static,
        Fut: Future<Output = Result<A, tokio_postgres::Error>> + Send,
    {
        let link = Arc::clone(self);
        let task = background::handle()?.spawn(async move {
            let answer = tokio::time::timeout(PATIENCE, async { call(link.client().await?).await }).await;
            if answer.is_err() {
                // It may be half open, and would be asked again and again.
                *link.client.lock().await = None;
            }
            answer
        });
        match task.await {
            Ok(Ok(answer)) => answer.map_err(|e| sort(doing, &e).with_source(e)),
            Ok(Err(_)) => Err(Error::unavailable(NAME, doing.what, Fault::Timeout, format!("waited {PATIENCE:?}"))),
            Err(e) => Err(Error::unavailable(NAME, doing.what, Fault::Connection, e.to_string()).with_source(e)),
        }
    }
}

fn sort(Doing { what, table }: Doing<'_>, e: &tokio_postgres::Error) -> Error {
    let Some(answer) = e.as_db_error() else {
        let detail = std::error::Error::source(e).map_or_else(|| e.to_string(), |source| format!("{e}: {source}"));
        // The kind is not public, its words are.
        return match e.to_string() {
            words if words.contains("TLS") => Error::backend(NAME, what, Fault::Tls, detail),
            words if words.contains("authentication") || words.contains("configuration") => {
                Error::backend(NAME, what, Fault::Auth, detail)
            }
            words if ["parameter", "column", "rows", "pars", "unexpected"].iter().any(|word| words.contains(word)) => {
                Error::backend(NAME, what, Fault::Protocol, detail)
            }
            _ => Error::unavailable(NAME, what, Fault::Connection, detail),
        };
    };
    let detail = answer.message();
    let code = answer.code();
    if [SqlState::UNDEFINED_TABLE, SqlState::UNDEFINED_COLUMN, SqlState::INVALID_COLUMN_REFERENCE].contains(code) {
        return table.missing(Dialect::Postgres, detail);
    }
    let (fault, transient) = kind(code);
    if transient { Error::unavailable(NAME, what, fault, detail) } else { Error::backend(NAME, what, fault, detail) }
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
