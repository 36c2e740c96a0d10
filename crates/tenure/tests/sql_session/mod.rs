//! A session with any database over any driver, for the tests of fences and of records.

use ::sqlx::{AssertSqlSafe, Connection, Executor, MySql, MySqlConnection, PgConnection, Row};
use mysql_async::TxOpts;
use mysql_async::prelude::Queryable;
use tenure::fence;
use tenure::fence::sql::Dialect;

use tenure_testkit::{mariadb, postgres};

/// A database's own words.
#[derive(Debug)]
pub(crate) struct Words(pub(crate) String);

impl std::error::Error for Words {}

impl std::fmt::Display for Words {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

pub(crate) type Error = fence::Error<Words>;

pub(crate) fn plain<E: std::fmt::Debug>(error: fence::Error<E>) -> Error {
    match error {
        fence::Error::Stale(stale) => Error::Stale(stale),
        fence::Error::Overtaken(overtaken) => Error::Overtaken(overtaken),
        fence::Error::Request(error) => Error::Request(error),
        fence::Error::Store(error) => store(error),
        error => panic!("a new kind: {error:?}"),
    }
}

fn store(error: impl std::fmt::Debug) -> Error {
    Error::Store(Words(format!("{error:?}")))
}

/// A connection.
pub(crate) enum Session {
    Postgres(tokio_postgres::Client),
    Mysql(mysql_async::Conn),
    Sqlite(rusqlite::Connection),
    SqlxPostgres(PgConnection),
    SqlxMysql(MySqlConnection),
}

/// A transaction. Rolls back when it is dropped.
pub(crate) enum Tx<'a> {
    Postgres(tokio_postgres::Transaction<'a>),
    Mysql(mysql_async::Transaction<'a>),
    Sqlite(rusqlite::Transaction<'a>),
    SqlxPostgres(::sqlx::Transaction<'a, ::sqlx::Postgres>),
    SqlxMysql(::sqlx::Transaction<'a, MySql>),
}

impl Session {
    /// Over sqlx, or over the database's own driver. sqlx's SQLite is tested by `examples/drivers`: it links another version than
    /// the library's store.
    pub(crate) async fn connect(dialect: Dialect, sqlx: bool, url: &str) -> Self {
        match (dialect, sqlx) {
            (Dialect::Postgres, true) => Self::SqlxPostgres(PgConnection::connect(url).await.expect("connected")),
            (Dialect::Mysql, true) => Self::SqlxMysql(MySqlConnection::connect(url).await.expect("connected")),
            (Dialect::Postgres, false) => Self::Postgres(postgres::connect(url).await),
            (Dialect::Mysql, false) => Self::Mysql(mariadb::connect(url).await),
            (Dialect::Sqlite, _) => Self::Sqlite(rusqlite::Connection::open(url).expect("opened")),
        }
    }

    pub(crate) async fn begin(&mut self) -> Tx<'_> {
        match self {
            Self::Postgres(client) => Tx::Postgres(client.transaction().await.expect("begun")),
            Self::Mysql(conn) => Tx::Mysql(conn.start_transaction(TxOpts::default()).await.expect("begun")),
            Self::Sqlite(conn) => Tx::Sqlite(conn.transaction().expect("begun")),
            Self::SqlxPostgres(conn) => Tx::SqlxPostgres(conn.begin().await.expect("begun")),
            Self::SqlxMysql(conn) => Tx::SqlxMysql(conn.begin().await.expect("begun")),
        }
    }

    pub(crate) async fn run(&mut self, sql: &str) {
        match self {
            Self::Postgres(client) => client.batch_execute(sql).await.expect("done"),
            Self::Mysql(conn) => conn.query_drop(sql).await.expect("done"),
            Self::Sqlite(conn) => conn.execute_batch(sql).expect("done"),
            Self::SqlxPostgres(conn) => drop(conn.execute(raw(sql)).await.expect("done")),
            Self::SqlxMysql(conn) => drop(conn.execute(raw(sql)).await.expect("done")),
        }
    }

    /// The first number of the first row.
    pub(crate) async fn number(&mut self, sql: &str) -> Option<i64> {
        match self {
            Self::Postgres(client) => client.query_opt(sql, &[]).await.expect("read").map(|row| row.get(0)),
            Self::Mysql(conn) => conn.query_first(sql).await.expect("read"),
            Self::Sqlite(conn) => one(conn, sql),
            Self::SqlxPostgres(conn) => conn.fetch_optional(raw(sql)).await.expect("read").map(|row| row.get(0)),
            Self::SqlxMysql(conn) => conn.fetch_optional(raw(sql)).await.expect("read").map(|row| row.get(0)),
        }
    }
}

impl Tx<'_> {
    pub(crate) async fn run(&mut self, sql: &str) -> Result<(), Error> {
        match self {
            Self::Postgres(tx) => tx.batch_execute(sql).await.map_err(store),
            Self::Mysql(tx) => tx.query_drop(sql).await.map_err(store),
            Self::Sqlite(tx) => tx.execute_batch(sql).map_err(store),
            Self::SqlxPostgres(tx) => tx.execute(raw(sql)).await.map(drop).map_err(store),
            Self::SqlxMysql(tx) => tx.execute(raw(sql)).await.map(drop).map_err(store),
        }
    }

    pub(crate) async fn commit(self) -> Result<(), Error> {
        match self {
            Self::Postgres(tx) => tx.commit().await.map_err(store),
            Self::Mysql(tx) => tx.commit().await.map_err(store),
            Self::Sqlite(tx) => tx.commit().map_err(store),
            Self::SqlxPostgres(tx) => tx.commit().await.map_err(store),
            Self::SqlxMysql(tx) => tx.commit().await.map_err(store),
        }
    }
}

pub(crate) fn raw(sql: &str) -> AssertSqlSafe<String> {
    AssertSqlSafe(sql.to_owned())
}

pub(crate) fn one(conn: &rusqlite::Connection, sql: &str) -> Option<i64> {
    let mut statement = conn.prepare(sql).expect("prepared");
    let mut rows = statement.query([]).expect("read");
    // A pragma may answer in words.
    rows.next().expect("read").and_then(|row| row.get(0).ok())
}
