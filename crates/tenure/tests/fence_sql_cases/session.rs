//! One way to talk to all databases, over all drivers.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ::sqlx::mysql::MySqlPoolOptions;
use ::sqlx::postgres::PgPoolOptions;
use ::sqlx::{Executor, Row};
use mysql_async::prelude::Queryable;
use tenure::Token;
use tenure::fence::marks::Marks;
use tenure::fence::sql::{Ddl, Dialect, Effect, FenceTable, Update};
use tenure::fence::{Pass, mysql, postgres, sqlite, sqlx};
use tokio_postgres::NoTls;

pub(crate) use crate::sql_session::{Error, Session, Tx};
use crate::sql_session::{one, plain, raw};
use tenure_testkit::{Needs, database, mariadb};

/// A database, and a driver.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) needs: Needs,
    dialect: Dialect,
    sqlx: bool,
}

/// sqlx's SQLite is not among them: it links another version than the library's store. `examples/drivers` tests it.
pub(crate) const KINDS: [Kind; 5] = [
    Kind { name: "postgres", needs: Needs::Postgres, dialect: Dialect::Postgres, sqlx: false },
    Kind { name: "mysql", needs: Needs::Mariadb, dialect: Dialect::Mysql, sqlx: false },
    Kind { name: "sqlite", needs: Needs::Nothing, dialect: Dialect::Sqlite, sqlx: false },
    Kind { name: "sqlx_postgres", needs: Needs::Postgres, dialect: Dialect::Postgres, sqlx: true },
    Kind { name: "sqlx_mysql", needs: Needs::Mariadb, dialect: Dialect::Mysql, sqlx: true },
];

/// A database of a test's own.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) dialect: Dialect,
    sqlx: bool,
    pub(crate) url: String,
}

impl Place {
    /// With a table of marks, and a table with a row that has both columns: `stock (id, units, fence, lease)` = `(1, 10, 0, 0)`.
    pub(crate) async fn new(Kind { dialect, sqlx, .. }: Kind) -> Self {
        let url = match dialect {
            Dialect::Postgres => tenure_testkit::postgres::database(),
            Dialect::Mysql => mariadb::database(),
            Dialect::Sqlite => database::file(),
        };
        let place = Self { dialect, sqlx, url };
        let mut session = place.open().await;
        let ddl = Ddl(dialect);
        session.run(&ddl.table(&FenceTable::default())).await;
        session.run("CREATE TABLE stock (id bigint PRIMARY KEY, units bigint NOT NULL)").await;
        session.run("INSERT INTO stock VALUES (1, 10)").await;
        for column in ["fence", "lease"] {
            session.run(&ddl.column("stock", column).expect("a column")).await;
        }
        place
    }

    /// Marks in the table that is there.
    pub(crate) async fn marks(&self) -> Arc<dyn Marks> {
        self.marks_in(FenceTable::default()).await
    }

    pub(crate) async fn marks_in(&self, table: FenceTable) -> Arc<dyn Marks> {
        // A server that refuses connections is asked again for as long.
        const ACQUIRE: Duration = Duration::from_secs(2);
        match self.dialect {
            Dialect::Postgres if self.sqlx => {
                let pool = PgPoolOptions::new().acquire_timeout(ACQUIRE).connect_lazy(&self.url).expect("a URL");
                Arc::new(sqlx::SqlxMarks::new(pool, table).expect("a dialect"))
            }
            Dialect::Mysql if self.sqlx => {
                let pool = MySqlPoolOptions::new().acquire_timeout(ACQUIRE).connect_lazy(&self.url).expect("a URL");
                Arc::new(sqlx::SqlxMarks::new(pool, table).expect("a dialect"))
            }
            Dialect::Postgres => Arc::new(postgres::PostgresMarks::new(self.url.parse().expect("a URL"), NoTls, table)),
            Dialect::Mysql => Arc::new(mysql::MysqlMarks::new(mysql_async::Pool::new(self.url.as_str()), table)),
            Dialect::Sqlite => Arc::new(sqlite::SqliteMarks::open(&self.url, table).await.expect("opened")),
        }
    }

    /// The name of the database.
    pub(crate) fn name(&self) -> &str {
        let path = self.url.rsplit('/').next().unwrap_or_default();
        path.split('?').next().unwrap_or_default()
    }

    /// The same over the database's own driver.
    pub(crate) fn native(&self) -> Self {
        Self { sqlx: false, ..self.clone() }
    }

    /// The same with another part in the URL.
    pub(crate) fn with(&self, part: &str, another: &str) -> Self {
        assert!(self.url.contains(part), "{}", self.url);
        Self { url: self.url.replace(part, another), ..*self }
    }

    /// Ways for a transaction to read that do not keep others from writing.
    pub(crate) fn levels(&self) -> &'static [&'static str] {
        match self.dialect {
            Dialect::Postgres => &["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"],
            Dialect::Mysql => &["READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ"],
            Dialect::Sqlite => &["WAL"],
        }
    }

    /// Whether somebody waits for a lock of another one.
    pub(crate) async fn somebody_waits(&self, session: &mut Session) -> bool {
        match session {
            Session::Postgres(client) => {
                let here = "datname = current_database() AND wait_event_type = 'Lock'";
                !client.query(&format!("SELECT FROM pg_stat_activity WHERE {here}"), &[]).await.expect("asked").is_empty()
            }
            Session::Mysql(conn) => {
                // Not from the tables of transactions, which are as old as the last question of any other test.
                let status: Vec<(String, String, String)> = conn.query("SHOW ENGINE INNODB STATUS").await.expect("asked");
                let table = format!("table `{}`.", self.name());
                status[0].2.lines().any(|line| line.contains(&table) && line.contains("waiting"))
            }
            Session::Sqlite(_) => WAITING.lock().expect("not poisoned").contains(&self.url),
            Session::SqlxPostgres(_) | Session::SqlxMysql(_) => unreachable!("asked over the database's own driver"),
        }
    }

    pub(crate) async fn open(&self) -> Session {
        let mut session = Session::connect(self.dialect, self.sqlx, &self.url).await;
        if let Session::Sqlite(conn) = &mut session {
            conn.busy_handler(Some(wait)).expect("set");
            FILE.set(Some(self.url.clone()));
        }
        session
    }
}

/// Files for which somebody waits: SQLite cannot be asked.
static WAITING: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

thread_local! {
    /// The file of the thread.
    static FILE: RefCell<Option<String>> = const { RefCell::new(None) };
}

fn wait(tries: i32) -> bool {
    WAITING.lock().expect("not poisoned").extend(FILE.with_borrow(Clone::clone));
    std::thread::sleep(Duration::from_millis(5));
    tries < 10_000
}

impl Session {
    /// How transactions begin from now on.
    pub(crate) async fn isolation(&mut self, level: &str) {
        match self {
            Self::Postgres(_) | Self::SqlxPostgres(_) => {
                self.run(&format!("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL {level}")).await
            }
            Self::Mysql(_) | Self::SqlxMysql(_) => self.run(&format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}")).await,
            Self::Sqlite(_) => drop(self.number(&format!("PRAGMA journal_mode = {level}")).await),
        }
    }

    /// One transaction that passes and takes a unit out of the stock.
    pub(crate) async fn sell(&mut self, fences: &FenceTable, resource: &str, pass: &dyn Pass) -> Result<(), Error> {
        let mut tx = self.begin().await;
        tx.pass(fences, resource, pass).await?;
        tx.run("UPDATE stock SET units = units - 1").await?;
        tx.commit().await
    }

    pub(crate) async fn update(&mut self, update: &Update<'_>) -> Result<Effect, Error> {
        match self {
            Self::Postgres(client) => postgres::update(client, update).await.map_err(plain),
            Self::Mysql(conn) => mysql::update(conn, update).await.map_err(plain),
            Self::Sqlite(conn) => sqlite::update(conn, update).map_err(plain),
            Self::SqlxPostgres(conn) => sqlx::update(conn, update).await.map_err(plain),
            Self::SqlxMysql(conn) => sqlx::update(conn, update).await.map_err(plain),
        }
    }

    pub(crate) async fn read_lease(&mut self, update: &Update<'_>, column: &str) -> Result<Option<i64>, Error> {
        match self {
            Self::Postgres(client) => postgres::read_lease(client, update, column).await.map_err(plain),
            Self::Mysql(conn) => mysql::read_lease(conn, update, column).await.map_err(plain),
            Self::Sqlite(conn) => sqlite::read_lease(conn, update, column).map_err(plain),
            Self::SqlxPostgres(conn) => sqlx::read_lease(conn, update, column).await.map_err(plain),
            Self::SqlxMysql(conn) => sqlx::read_lease(conn, update, column).await.map_err(plain),
        }
    }

    /// Takes a unit out of the row with the columns.
    pub(crate) async fn sell_one(&mut self, token: u64) -> Result<Effect, Error> {
        self.update(&one_less().fenced("fence", &Token::new(token))).await
    }

    pub(crate) async fn units(&mut self) -> i64 {
        self.number("SELECT units FROM stock WHERE id = 1").await.expect("a row")
    }

    /// The mark of a resource that needs no quotes.
    pub(crate) async fn mark(&mut self, resource: &str) -> Option<i64> {
        self.number(&format!("SELECT token FROM tenure_fences WHERE resource = '{resource}'")).await
    }
}

impl Tx<'_> {
    pub(crate) async fn pass(&mut self, fences: &FenceTable, resource: &str, pass: &dyn Pass) -> Result<(), Error> {
        match self {
            Self::Postgres(tx) => postgres::pass(tx, fences, resource, pass).await.map_err(plain),
            Self::Mysql(tx) => mysql::pass(tx, fences, resource, pass).await.map_err(plain),
            Self::Sqlite(tx) => sqlite::pass(tx, fences, resource, pass).map_err(plain),
            Self::SqlxPostgres(tx) => sqlx::pass(tx, fences, resource, pass).await.map_err(plain),
            Self::SqlxMysql(tx) => sqlx::pass(tx, fences, resource, pass).await.map_err(plain),
        }
    }

    pub(crate) async fn update(&mut self, update: &Update<'_>) -> Result<Effect, Error> {
        match self {
            Self::Postgres(tx) => postgres::update(tx, update).await.map_err(plain),
            Self::Mysql(tx) => mysql::update(tx, update).await.map_err(plain),
            Self::Sqlite(tx) => sqlite::update(tx, update).map_err(plain),
            Self::SqlxPostgres(tx) => sqlx::update(&mut **tx, update).await.map_err(plain),
            Self::SqlxMysql(tx) => sqlx::update(&mut **tx, update).await.map_err(plain),
        }
    }

    pub(crate) async fn number(&mut self, sql: &str) -> Option<i64> {
        match self {
            Self::Postgres(tx) => tx.query_opt(sql, &[]).await.expect("read").map(|row| row.get(0)),
            Self::Mysql(tx) => tx.query_first(sql).await.expect("read"),
            Self::Sqlite(tx) => one(tx, sql),
            Self::SqlxPostgres(tx) => tx.fetch_optional(raw(sql)).await.expect("read").and_then(|row| row.get(0)),
            Self::SqlxMysql(tx) => tx.fetch_optional(raw(sql)).await.expect("read").and_then(|row| row.get(0)),
        }
    }
}

/// An update that takes a unit out of the stock.
pub(crate) fn one_less<'a>() -> Update<'a> {
    Update::of("stock").set("units = units - ?", [1]).key("id = ?", [1])
}
