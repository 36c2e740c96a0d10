//! One way to talk to all three databases.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mysql_async::TxOpts;
use mysql_async::prelude::Queryable;
use tenure::Token;
use tenure::fence::marks::Marks;
use tenure::fence::sql::{Ddl, Dialect, Effect, FenceTable, Update};
use tenure::fence::{self, Pass, mysql, postgres, sqlite};
use tokio_postgres::NoTls;

use tenure_testkit::{Needs, database, mariadb};

/// A database's own words.
#[derive(Debug)]
pub(crate) struct Words(String);

impl std::error::Error for Words {}

impl std::fmt::Display for Words {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

pub(crate) type Error = fence::Error<Words>;

fn plain<E: std::fmt::Debug>(error: fence::Error<E>) -> Error {
    match error {
        fence::Error::Stale(stale) => Error::Stale(stale),
        fence::Error::Overtaken(overtaken) => Error::Overtaken(overtaken),
        fence::Error::Request(error) => Error::Request(error),
        fence::Error::Store(error) => Error::Store(Words(format!("{error:?}"))),
        error => panic!("a new kind: {error:?}"),
    }
}

/// A database of a test's own.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) dialect: Dialect,
    pub(crate) url: String,
}

impl Place {
    pub(crate) const ALL: [(Dialect, Needs); 3] =
        [(Dialect::Postgres, Needs::Postgres), (Dialect::Mysql, Needs::Mariadb), (Dialect::Sqlite, Needs::Nothing)];

    /// With a table of marks, and a table with a row that has both columns: `stock (id, units, fence, lease)` = `(1, 10, 0, 0)`.
    pub(crate) async fn new(dialect: Dialect) -> Self {
        let url = match dialect {
            Dialect::Postgres => tenure_testkit::postgres::database(),
            Dialect::Mysql => mariadb::database(),
            Dialect::Sqlite => database::file(),
        };
        let place = Self { dialect, url };
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
        match self.dialect {
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
        }
    }

    pub(crate) async fn open(&self) -> Session {
        match self.dialect {
            Dialect::Postgres => Session::Postgres(tenure_testkit::postgres::connect(&self.url).await),
            Dialect::Mysql => Session::Mysql(mariadb::connect(&self.url).await),
            Dialect::Sqlite => {
                let mut conn = rusqlite::Connection::open(&self.url).expect("opened");
                conn.busy_handler(Some(wait)).expect("set");
                FILE.set(Some(self.url.clone()));
                Session::Sqlite(conn)
            }
        }
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

/// A connection.
pub(crate) enum Session {
    Postgres(tokio_postgres::Client),
    Mysql(mysql_async::Conn),
    Sqlite(rusqlite::Connection),
}

/// A transaction. Rolls back when it is dropped.
pub(crate) enum Tx<'a> {
    Postgres(tokio_postgres::Transaction<'a>),
    Mysql(mysql_async::Transaction<'a>),
    Sqlite(rusqlite::Transaction<'a>),
}

impl Session {
    pub(crate) async fn begin(&mut self) -> Tx<'_> {
        match self {
            Self::Postgres(client) => Tx::Postgres(client.transaction().await.expect("begun")),
            Self::Mysql(conn) => Tx::Mysql(conn.start_transaction(TxOpts::default()).await.expect("begun")),
            Self::Sqlite(conn) => Tx::Sqlite(conn.transaction().expect("begun")),
        }
    }

    /// How transactions begin from now on.
    pub(crate) async fn isolation(&mut self, level: &str) {
        match self {
            Self::Postgres(_) => self.run(&format!("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL {level}")).await,
            Self::Mysql(_) => self.run(&format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}")).await,
            Self::Sqlite(_) => drop(self.number(&format!("PRAGMA journal_mode = {level}")).await),
        }
    }

    pub(crate) async fn run(&mut self, sql: &str) {
        match self {
            Self::Postgres(client) => client.batch_execute(sql).await.expect("done"),
            Self::Mysql(conn) => conn.query_drop(sql).await.expect("done"),
            Self::Sqlite(conn) => conn.execute_batch(sql).expect("done"),
        }
    }

    /// The first number of the first row.
    pub(crate) async fn number(&mut self, sql: &str) -> Option<i64> {
        match self {
            Self::Postgres(client) => client.query_opt(sql, &[]).await.expect("read").map(|row| row.get(0)),
            Self::Mysql(conn) => conn.query_first(sql).await.expect("read"),
            Self::Sqlite(conn) => one(conn, sql),
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
        }
    }

    pub(crate) async fn read_lease(&mut self, update: &Update<'_>, column: &str) -> Result<Option<i64>, Error> {
        match self {
            Self::Postgres(client) => postgres::read_lease(client, update, column).await.map_err(plain),
            Self::Mysql(conn) => mysql::read_lease(conn, update, column).await.map_err(plain),
            Self::Sqlite(conn) => sqlite::read_lease(conn, update, column).map_err(plain),
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
        }
    }

    pub(crate) async fn update(&mut self, update: &Update<'_>) -> Result<Effect, Error> {
        match self {
            Self::Postgres(tx) => postgres::update(tx, update).await.map_err(plain),
            Self::Mysql(tx) => mysql::update(tx, update).await.map_err(plain),
            Self::Sqlite(tx) => sqlite::update(tx, update).map_err(plain),
        }
    }

    pub(crate) async fn run(&mut self, sql: &str) -> Result<(), Error> {
        match self {
            Self::Postgres(tx) => tx.batch_execute(sql).await.map_err(store),
            Self::Mysql(tx) => tx.query_drop(sql).await.map_err(store),
            Self::Sqlite(tx) => tx.execute_batch(sql).map_err(store),
        }
    }

    pub(crate) async fn number(&mut self, sql: &str) -> Option<i64> {
        match self {
            Self::Postgres(tx) => tx.query_opt(sql, &[]).await.expect("read").map(|row| row.get(0)),
            Self::Mysql(tx) => tx.query_first(sql).await.expect("read"),
            Self::Sqlite(tx) => one(tx, sql),
        }
    }

    pub(crate) async fn commit(self) -> Result<(), Error> {
        match self {
            Self::Postgres(tx) => tx.commit().await.map_err(store),
            Self::Mysql(tx) => tx.commit().await.map_err(store),
            Self::Sqlite(tx) => tx.commit().map_err(store),
        }
    }
}

/// An update that takes a unit out of the stock.
pub(crate) fn one_less<'a>() -> Update<'a> {
    Update::of("stock").set("units = units - ?", [1]).key("id = ?", [1])
}

fn store(error: impl std::fmt::Debug) -> Error {
    Error::Store(Words(format!("{error:?}")))
}

fn one(conn: &rusqlite::Connection, sql: &str) -> Option<i64> {
    let mut statement = conn.prepare(sql).expect("prepared");
    let mut rows = statement.query([]).expect("read");
    // A pragma may answer in words.
    rows.next().expect("read").and_then(|row| row.get(0).ok())
}
