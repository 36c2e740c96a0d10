//! One way to talk to all three databases, and to have something done once there.

use std::time::Duration;

use mysql_async::TxOpts;
use mysql_async::prelude::Queryable;
use tenure::fence;
use tenure::fence::sql::Dialect;
use tenure::once::{Claimed, Done, OnceClaim, OnceTable, Ticket, mysql, postgres, sqlite};

use super::shelf::Address;
use tenure_testkit::{mariadb, postgres as server};

/// A connection.
pub(crate) enum Session {
    Postgres(tokio_postgres::Client),
    Mysql(mysql_async::Conn),
    Sqlite(rusqlite::Connection),
}

/// A transaction.
pub(crate) enum Tx<'a> {
    Postgres(tokio_postgres::Transaction<'a>),
    Mysql(mysql_async::Transaction<'a>),
    Sqlite(rusqlite::Transaction<'a>),
}

pub(crate) type Error = fence::Error<String>;

pub(crate) fn plain<E: std::fmt::Debug>(error: fence::Error<E>) -> Error {
    match error {
        fence::Error::Stale(stale) => Error::Stale(stale),
        fence::Error::Request(error) => Error::Request(error),
        fence::Error::Store(error) => Error::Store(format!("{error:?}")),
        error => panic!("not for records: {error:?}"),
    }
}

/// Another one has to be waited for, or was in the way: the transaction is to be repeated.
fn is_conflict(error: &Error) -> bool {
    matches!(error, Error::Store(words) if words.contains("40001") || words.contains("1213"))
}

impl Session {
    pub(crate) async fn open(address: &Address) -> Self {
        let Address::Sql(dialect, url) = address else { panic!("not a database") };
        drop(address.open().await);
        let mut session = match dialect {
            Dialect::Postgres => Self::Postgres(server::connect(url).await),
            Dialect::Mysql => Self::Mysql(mariadb::connect(url).await),
            Dialect::Sqlite => {
                let conn = rusqlite::Connection::open(url).expect("opened");
                conn.busy_timeout(Duration::from_secs(60)).expect("set");
                Self::Sqlite(conn)
            }
        };
        let effects = "CREATE TABLE IF NOT EXISTS effects (who varchar(200) NOT NULL)";
        match dialect {
            // Two who make the same table at once are not expected there.
            Dialect::Postgres => {
                session.run(&format!("SELECT pg_advisory_xact_lock(1); {effects}")).await;
            }
            Dialect::Mysql | Dialect::Sqlite => session.run(effects).await,
        }
        session
    }

    pub(crate) async fn begin(&mut self) -> Tx<'_> {
        match self {
            Self::Postgres(client) => Tx::Postgres(client.transaction().await.expect("begun")),
            Self::Mysql(conn) => Tx::Mysql(conn.start_transaction(TxOpts::default()).await.expect("begun")),
            Self::Sqlite(conn) => Tx::Sqlite(conn.transaction().expect("begun")),
        }
    }

    pub(crate) async fn effects(&mut self, key: &str) -> i64 {
        self.number(&format!("SELECT count(*) FROM effects WHERE who = '{key}'")).await
    }

    pub(crate) async fn number(&mut self, sql: &str) -> i64 {
        match self {
            Self::Postgres(client) => client.query_one(sql, &[]).await.expect("read").get(0),
            Self::Mysql(conn) => conn.query_first(sql).await.expect("read").expect("a row"),
            Self::Sqlite(conn) => conn.query_row(sql, [], |row| row.get(0)).expect("read"),
        }
    }

    pub(crate) async fn run(&mut self, sql: &str) {
        match self {
            Self::Postgres(client) => client.batch_execute(sql).await.expect("done"),
            Self::Mysql(conn) => conn.query_drop(sql).await.expect("done"),
            Self::Sqlite(conn) => conn.execute_batch(sql).expect("done"),
        }
    }

    pub(crate) fn dialect(&self) -> Dialect {
        match self {
            Self::Postgres(_) => Dialect::Postgres,
            Self::Mysql(_) => Dialect::Mysql,
            Self::Sqlite(_) => Dialect::Sqlite,
        }
    }

    pub(crate) async fn sweep(&mut self, table: &OnceTable) -> u64 {
        match self {
            Self::Postgres(client) => postgres::sweep(client, table).await.expect("swept"),
            Self::Mysql(conn) => mysql::sweep(conn, table).await.expect("swept"),
            Self::Sqlite(conn) => sqlite::sweep(conn, table).expect("swept"),
        }
    }

    /// All of it: claims, works, records and commits, and does so again if others were in the way.
    pub(crate) async fn once(&mut self, key: &str, value: u32) -> Done<u32> {
        loop {
            match self.try_once(key, value).await {
                Err(e) if is_conflict(&e) => {}
                done => return done.expect("done"),
            }
        }
    }

    async fn try_once(&mut self, key: &str, value: u32) -> Result<Done<u32>, Error> {
        let table = OnceTable::default();
        let mut tx = self.begin().await;
        let done = match tx.claim(&table.claim(key).expect("a key")).await? {
            Claimed::Done(done) => done,
            Claimed::Yours(ticket) => {
                tx.work(key).await?;
                tx.finish(ticket, value).await?
            }
        };
        tx.commit().await?;
        Ok(done)
    }
}

impl Tx<'_> {
    pub(crate) async fn claim(&mut self, claim: &OnceClaim<'_>) -> Result<Claimed<u32>, Error> {
        match self {
            Self::Postgres(tx) => postgres::claim(tx, claim).await.map_err(plain),
            Self::Mysql(tx) => mysql::claim(tx, claim).await.map_err(plain),
            Self::Sqlite(tx) => sqlite::claim(tx, claim).map_err(plain),
        }
    }

    pub(crate) async fn finish(&mut self, ticket: Ticket, value: u32) -> Result<Done<u32>, Error> {
        match self {
            Self::Postgres(tx) => postgres::finish(tx, ticket, value).await.map_err(plain),
            Self::Mysql(tx) => mysql::finish(tx, ticket, value).await.map_err(plain),
            Self::Sqlite(tx) => sqlite::finish(tx, ticket, value).map_err(plain),
        }
    }

    pub(crate) async fn work(&mut self, key: &str) -> Result<(), Error> {
        self.run(&format!("INSERT INTO effects VALUES ('{key}')")).await
    }

    pub(crate) async fn run(&mut self, sql: &str) -> Result<(), Error> {
        match self {
            Self::Postgres(tx) => tx.batch_execute(sql).await.map_err(|e| Error::Store(format!("{e:?}"))),
            Self::Mysql(tx) => tx.query_drop(sql).await.map_err(|e| Error::Store(format!("{e:?}"))),
            Self::Sqlite(tx) => tx.execute_batch(sql).map_err(|e| Error::Store(format!("{e:?}"))),
        }
    }

    /// At once: when it is dropped, MySQL's driver waits until the connection is used again.
    pub(crate) async fn rollback(self) {
        match self {
            Self::Postgres(tx) => tx.rollback().await.expect("rolled back"),
            Self::Mysql(tx) => tx.rollback().await.expect("rolled back"),
            Self::Sqlite(tx) => tx.rollback().expect("rolled back"),
        }
    }

    pub(crate) async fn commit(self) -> Result<(), Error> {
        match self {
            Self::Postgres(tx) => tx.commit().await.map_err(|e| Error::Store(format!("{e:?}"))),
            Self::Mysql(tx) => tx.commit().await.map_err(|e| Error::Store(format!("{e:?}"))),
            Self::Sqlite(tx) => tx.commit().map_err(|e| Error::Store(format!("{e:?}"))),
        }
    }
}
