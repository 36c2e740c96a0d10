//! Where a test keeps its records, and under which locks it works.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use mysql_async::Pool;
use mysql_async::prelude::Queryable;
use sqlx::{MySqlPool, PgPool};
use tempfile::TempDir;
use tenure::Locker;
use tenure::fence::sql::{Ddl, Dialect};
use tenure::once::{
    Ledger, MemoryRecords, MysqlRecords, OnceTable, PostgresRecords, Records, RedisRecords, SqliteRecords, SqlxRecords,
};
use tokio_postgres::NoTls;

use tenure_testkit::locker::connect;
use tenure_testkit::{Needs, RedisServer, database, mariadb, postgres};

/// A kind of record store.
#[derive(Clone, Copy)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) needs: Needs,
    open: fn() -> Address,
}

/// Over the drivers of each database, then over sqlx.
pub(crate) const KINDS: [Kind; 7] = [
    Kind { name: "memory", needs: Needs::Nothing, open: || Address::Memory(Arc::default()) },
    Kind { name: "redis", needs: Needs::Redis, open: || Address::Redis(redis().url()) },
    Kind { name: "sqlite", needs: Needs::Nothing, open: || Address::Sql(Dialect::Sqlite, database::file()) },
    Kind { name: "postgres", needs: Needs::Postgres, open: || Address::Sql(Dialect::Postgres, shared_postgres().to_owned()) },
    Kind { name: "mariadb", needs: Needs::Mariadb, open: || Address::Sql(Dialect::Mysql, shared_mariadb().to_owned()) },
    Kind {
        name: "sqlx_postgres",
        needs: Needs::Postgres,
        open: || Address::Sqlx(Dialect::Postgres, shared_postgres().to_owned()),
    },
    Kind { name: "sqlx_mysql", needs: Needs::Mariadb, open: || Address::Sqlx(Dialect::Mysql, shared_mariadb().to_owned()) },
];

fn redis() -> &'static RedisServer {
    static SERVER: OnceLock<RedisServer> = OnceLock::new();
    SERVER.get_or_init(RedisServer::start)
}

/// One database for all, as in life: tests find the rows of others there.
fn shared_postgres() -> &'static str {
    static URL: OnceLock<String> = OnceLock::new();
    URL.get_or_init(postgres::database)
}

fn shared_mariadb() -> &'static str {
    static URL: OnceLock<String> = OnceLock::new();
    URL.get_or_init(mariadb::database)
}

/// Where records are.
#[derive(Debug, Clone)]
pub(crate) enum Address {
    Memory(Arc<MemoryRecords>),
    Redis(String),
    Sql(Dialect, String),
    Sqlx(Dialect, String),
}

impl Address {
    /// As a process of another kind is told.
    pub(crate) fn in_words(&self) -> [String; 2] {
        match self {
            Self::Memory(_) => panic!("another process does not see it"),
            Self::Redis(url) => ["redis".to_owned(), url.clone()],
            Self::Sql(dialect, url) => [dialect.to_string(), url.clone()],
            Self::Sqlx(dialect, url) => [format!("sqlx_{dialect}"), url.clone()],
        }
    }

    pub(crate) fn from_words(kind: &str, url: &str) -> Self {
        match kind {
            "redis" => Self::Redis(url.to_owned()),
            kind => match kind.strip_prefix("sqlx_") {
                Some(dialect) => Self::Sqlx(dialect.parse().expect("a dialect"), url.to_owned()),
                None => Self::Sql(kind.parse().expect("a dialect"), url.to_owned()),
            },
        }
    }

    pub(crate) async fn open(&self) -> Arc<dyn Records> {
        let table = OnceTable::default();
        match self {
            Self::Memory(records) => Arc::clone(records) as Arc<dyn Records>,
            Self::Redis(url) => {
                let client = redis::Client::open(url.as_str()).expect("a URL");
                Arc::new(RedisRecords::new(client.get_multiplexed_async_connection().await.expect("connected")))
            }
            Self::Sql(Dialect::Sqlite, path) => Arc::new(SqliteRecords::open(path, table).await.expect("opened")),
            Self::Sql(dialect @ Dialect::Postgres, url) => {
                let client = postgres::connect(url).await;
                // Two who make the same table at once are not expected there.
                let alone = format!("SELECT pg_advisory_xact_lock(1); {}", Ddl(*dialect).once(&table));
                client.batch_execute(&alone).await.expect("a table");
                Arc::new(PostgresRecords::new(url.parse().expect("a URL"), NoTls, table))
            }
            Self::Sql(dialect @ Dialect::Mysql, url) => {
                mariadb::connect(url).await.query_drop(Ddl(*dialect).once(&table)).await.expect("a table");
                Arc::new(MysqlRecords::new(Pool::from_url(url).expect("a URL"), table))
            }
            Self::Sqlx(dialect, url) => {
                // Its table is made over the database's own driver.
                drop(Box::pin(Self::Sql(*dialect, url.clone()).open()).await);
                records_over_sqlx(*dialect, url, table)
            }
        }
    }
}

/// In a table that exists.
pub(crate) fn records_over_sqlx(dialect: Dialect, url: &str, table: OnceTable) -> Arc<dyn Records> {
    match dialect {
        Dialect::Postgres => Arc::new(SqlxRecords::new(PgPool::connect_lazy(url).expect("a URL"), table).expect("known")),
        Dialect::Mysql => Arc::new(SqlxRecords::new(MySqlPool::connect_lazy(url).expect("a URL"), table).expect("known")),
        Dialect::Sqlite => unreachable!("tested by examples/drivers"),
    }
}

/// The records of one test, and its locks.
pub(crate) struct Shelf {
    pub(crate) records: Address,
    dir: TempDir,
    /// Tests share servers, and so they have keys of their own.
    unique: String,
}

impl Shelf {
    pub(crate) fn new(kind: Kind) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let unique = tenure::ClientId::random().expect("random bits").to_string();
        Self { records: (kind.open)(), dir, unique }
    }

    pub(crate) fn key(&self, name: &str) -> String {
        format!("{}/{name}", self.unique)
    }

    /// A new way to the records.
    pub(crate) async fn records(&self) -> Arc<dyn Records> {
        self.records.open().await
    }

    /// A client of the locks that all of this test share.
    pub(crate) async fn locker(&self) -> Locker {
        connect(&self.lock_url()).await
    }

    /// A store that notices at once when a process dies.
    pub(crate) fn lock_url(&self) -> String {
        format!("sqlite:{}?timeout=30s", self.dir.path().join("locks.db").display())
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    pub(crate) async fn ledger(&self) -> Ledger {
        Ledger::new(&self.locker().await, self.records().await).lease(Duration::from_secs(30))
    }
}
