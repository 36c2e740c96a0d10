//! One way to talk to all databases, over all drivers, and to have something done once there.

use std::time::Duration;

use tenure::fence::sql::Dialect;
use tenure::once::{Claimed, Done, OnceClaim, OnceTable, Ticket, mysql, postgres, sqlite, sqlx};

use super::shelf::Address;
pub(crate) use crate::sql_session::{Error, Session, Tx, plain};

/// Another one has to be waited for, or was in the way: the transaction is to be repeated.
fn is_conflict(error: &Error) -> bool {
    matches!(error, Error::Store(words) if words.0.contains("40001") || words.0.contains("1213"))
}

impl Session {
    pub(crate) async fn open(address: &Address) -> Self {
        let (dialect, url, over_sqlx) = match address {
            Address::Sql(dialect, url) => (dialect, url, false),
            Address::Sqlx(dialect, url) => (dialect, url, true),
            _ => panic!("not a database"),
        };
        drop(address.open().await);
        let mut session = Self::connect(*dialect, over_sqlx, url).await;
        if let Self::Sqlite(conn) = &session {
            conn.busy_timeout(Duration::from_secs(60)).expect("set");
        }
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

    pub(crate) async fn effects(&mut self, key: &str) -> i64 {
        self.number(&format!("SELECT count(*) FROM effects WHERE who = '{key}'")).await.expect("a number")
    }

    pub(crate) fn dialect(&self) -> Dialect {
        match self {
            Self::Postgres(_) | Self::SqlxPostgres(_) => Dialect::Postgres,
            Self::Mysql(_) | Self::SqlxMysql(_) => Dialect::Mysql,
            Self::Sqlite(_) => Dialect::Sqlite,
        }
    }

    pub(crate) async fn sweep(&mut self, table: &OnceTable) -> u64 {
        match self {
            Self::Postgres(client) => postgres::sweep(client, table).await.expect("swept"),
            Self::Mysql(conn) => mysql::sweep(conn, table).await.expect("swept"),
            Self::Sqlite(conn) => sqlite::sweep(conn, table).expect("swept"),
            Self::SqlxPostgres(conn) => sqlx::sweep(conn, table).await.expect("swept"),
            Self::SqlxMysql(conn) => sqlx::sweep(conn, table).await.expect("swept"),
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
            Self::SqlxPostgres(tx) => sqlx::claim(tx, claim).await.map_err(plain),
            Self::SqlxMysql(tx) => sqlx::claim(tx, claim).await.map_err(plain),
        }
    }

    pub(crate) async fn finish(&mut self, ticket: Ticket, value: u32) -> Result<Done<u32>, Error> {
        match self {
            Self::Postgres(tx) => postgres::finish(tx, ticket, value).await.map_err(plain),
            Self::Mysql(tx) => mysql::finish(tx, ticket, value).await.map_err(plain),
            Self::Sqlite(tx) => sqlite::finish(tx, ticket, value).map_err(plain),
            Self::SqlxPostgres(tx) => sqlx::finish(tx, ticket, value).await.map_err(plain),
            Self::SqlxMysql(tx) => sqlx::finish(tx, ticket, value).await.map_err(plain),
        }
    }

    pub(crate) async fn work(&mut self, key: &str) -> Result<(), Error> {
        self.run(&format!("INSERT INTO effects VALUES ('{key}')")).await
    }

    /// At once: when it is dropped, MySQL's driver waits until the connection is used again.
    pub(crate) async fn rollback(self) {
        match self {
            Self::Postgres(tx) => tx.rollback().await.expect("rolled back"),
            Self::Mysql(tx) => tx.rollback().await.expect("rolled back"),
            Self::Sqlite(tx) => tx.rollback().expect("rolled back"),
            Self::SqlxPostgres(tx) => tx.rollback().await.expect("rolled back"),
            Self::SqlxMysql(tx) => tx.rollback().await.expect("rolled back"),
        }
    }
}
