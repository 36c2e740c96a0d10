//! The SQL of records, for each dialect. Times are milliseconds by the database's own clock.

use super::{Key, OnceTable};
use crate::sql::{Ddl, Dialect, Identifier, Statement, Writer};

/// The end of the name of a table's index.
pub(super) const INDEX: &str = "_expires_at";

impl Ddl {
    /// The table of records of [`OnceTable`], and the index of expired records.
    #[must_use]
    pub fn once(self, table: &OnceTable) -> String {
        let (identifier, dialect) = (table.identifier(), self.0);
        let (name, index) = (identifier.quoted(dialect), identifier.last_and(INDEX, dialect));
        let (key, result, number) = match dialect {
            Dialect::Postgres => ("bytea", "bytea", "bigint"),
            Dialect::Mysql => ("varbinary(512)", "longblob", "bigint"),
            Dialect::Sqlite => ("BLOB", "BLOB", "INTEGER"),
        };
        let columns = format!(
            "  job {key} PRIMARY KEY,\n  token {number} NOT NULL,\n  earlier {number},\n  result {result},\n  \
             changed_at {number} NOT NULL,\n  expires_at {number} NOT NULL"
        );
        let create = format!("CREATE TABLE IF NOT EXISTS {name} (\n{columns}");
        match dialect {
            Dialect::Mysql => format!("{create},\n  INDEX {index} (expires_at)\n) ENGINE=InnoDB;\n"),
            Dialect::Postgres => format!("{create}\n);\nCREATE INDEX IF NOT EXISTS {index} ON {name} (expires_at);\n"),
            // SQLite names the schema with the index, and not with its table.
            Dialect::Sqlite => {
                let (schema, plain) = (identifier.schema(dialect), identifier.last_and("", dialect));
                format!("{create}\n) STRICT;\nCREATE INDEX IF NOT EXISTS {schema}{index} ON {plain} (expires_at);\n")
            }
        }
    }
}

/// The most records that one statement deletes.
pub(super) const BATCH: u64 = 1000;

/// The statements for one key in one table, in one dialect.
#[derive(Debug, Clone, Copy)]
pub(super) struct Statements<'a> {
    pub(super) dialect: Dialect,
    pub(super) table: &'a Identifier,
    pub(super) key: &'a Key,
}

/// Whose work it becomes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Taker {
    pub(super) number: i64,
    pub(super) keep: i64,
    pub(super) over: Over,
}

/// Over which unfinished attempts work is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Over {
    Nobody,
    /// Those with a smaller number.
    Smaller,
    /// All, by a number above theirs: the row's lock says that they are over.
    Everybody,
}

fn now(dialect: Dialect) -> &'static str {
    match dialect {
        // Of the statement: that of the transaction may be long ago, and the time of day is another each time it is read.
        Dialect::Postgres => "CAST(extract(epoch FROM statement_timestamp()) * 1000 AS bigint)",
        // Not UNIX_TIMESTAMP of a local time, which has an hour twice a year that means two.
        Dialect::Mysql => "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)",
        Dialect::Sqlite => "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)",
    }
}

impl Statements<'_> {
    fn now(self) -> &'static str {
        now(self.dialect)
    }

    fn table(self) -> String {
        self.table.quoted(self.dialect)
    }

    fn writer(self) -> Writer {
        Writer::new(self.dialect)
    }

    /// Makes the row if there is none. Waits for another transaction that is making it.
    pub(super) fn insert(self, number: i64, result: Option<&[u8]>, keep: i64) -> Statement {
        let (table, now) = (self.table(), self.now());
        let mut sql = self.writer();
        sql.text(&format!("INSERT INTO {table} (job, token, result, changed_at, expires_at) VALUES (")).bind(self.job());
        sql.text(", ").bind(number).text(", ");
        match result {
            Some(result) => sql.bind(result),
            None => sql.text("NULL"),
        };
        sql.text(&format!(", {now}, {now} + ")).bind(keep).text(match self.dialect {
            Dialect::Postgres | Dialect::Sqlite => ") ON CONFLICT (job) DO NOTHING",
            // IGNORE would share the row with the next one, and both would wait for each other to change it.
            Dialect::Mysql => ") ON DUPLICATE KEY UPDATE token = token",
        });
        sql.done()
    }

    /// Takes work over that is not done, or whose record's time is up.
    pub(super) fn take(self, Taker { number, keep, over }: Taker) -> Statement {
        let (table, now) = (self.table(), self.now());
        let mut sql = self.writer();
        // MySQL assigns from left to right: each line may only read what stands further down.
        sql.text(&format!("UPDATE {table} SET earlier = CASE WHEN expires_at <= {now} THEN NULL ELSE token END, token = "));
        match over {
            Over::Nobody | Over::Smaller => sql.bind(number),
            Over::Everybody => {
                sql.text("CASE WHEN token < ").bind(number).text(" THEN ").bind(number).text(" ELSE token + 1 END")
            }
        };
        sql.text(&format!(", result = NULL, changed_at = {now}, expires_at = {now} + ")).bind(keep);
        sql.text(" WHERE job = ").bind(self.job()).text(&format!(" AND (expires_at <= {now}"));
        match over {
            Over::Nobody => sql.text(")"),
            Over::Smaller => sql.text(" OR (result IS NULL AND token < ").bind(number).text("))"),
            // Not the row that the statement before has made.
            Over::Everybody => sql.text(" OR (result IS NULL AND token <> ").bind(number).text("))"),
        };
        sql.done()
    }

    /// Reads the row: token, earlier, result, and its age. Also one whose time is up, unless only fresh ones are asked for.
    pub(super) fn read(self, only_fresh: bool) -> Statement {
        self.select("result", only_fresh)
    }

    fn select(self, result: &str, only_fresh: bool) -> Statement {
        let (table, now) = (self.table(), self.now());
        let mut sql = self.writer();
        sql.text(&format!("SELECT token, earlier, {result}, {now} - changed_at FROM {table} WHERE job = ")).bind(self.job());
        if only_fresh {
            sql.text(&format!(" AND expires_at > {now}"));
        } else if self.dialect == Dialect::Mysql {
            // Locking, because a plain read may come from a snapshot that is older than the row.
            sql.text(" FOR UPDATE");
        }
        sql.done()
    }

    /// Records a result over a mark of this number, a smaller one, or one whose time is up.
    pub(super) fn record(self, number: i64, result: &[u8], keep: i64) -> Statement {
        let (table, now) = (self.table(), self.now());
        let mut sql = self.writer();
        sql.text(&format!("UPDATE {table} SET earlier = CASE WHEN token = ")).bind(number);
        sql.text(&format!(" AND expires_at > {now} THEN earlier END, token = ")).bind(number).text(", result = ").bind(result);
        sql.text(&format!(", changed_at = {now}, expires_at = {now} + ")).bind(keep).text(" WHERE job = ").bind(self.job());
        sql.text(&format!(" AND (expires_at <= {now} OR token < ")).bind(number);
        sql.text(" OR (token = ").bind(number).text(" AND result IS NULL))");
        sql.done()
    }

    /// Records a result over the mark that this transaction has made.
    pub(super) fn complete(self, number: i64, result: &[u8], keep: i64) -> Statement {
        let (table, now) = (self.table(), self.now());
        let mut sql = self.writer();
        sql.text(&format!("UPDATE {table} SET result = "))
            .bind(result)
            .text(&format!(", changed_at = {now}, expires_at = {now} + "));
        sql.bind(keep).text(" WHERE job = ").bind(self.job()).text(" AND token = ").bind(number).text(" AND result IS NULL");
        sql.done()
    }

    /// Reads the row without its result, which may be large.
    pub(super) fn token(self, only_fresh: bool) -> Statement {
        self.select("CASE WHEN 1 = 0 THEN result END", only_fresh)
    }

    /// Deletes the record of a token.
    pub(super) fn delete(self, number: i64) -> Statement {
        let mut sql = self.writer();
        sql.text(&format!("DELETE FROM {} WHERE job = ", self.table())).bind(self.job()).text(" AND token = ").bind(number);
        sql.done()
    }

    /// As bytes: PostgreSQL's text cannot carry all characters, and others take different texts for equal.
    fn job(self) -> Vec<u8> {
        self.key.as_str().as_bytes().to_vec()
    }
}

/// Deletes up to [`BATCH`] expired records. Locked ones are skipped: a wait for them could be a deadlock.
pub(super) fn sweep(dialect: Dialect, table: &Identifier) -> Statement {
    let (table, now) = (table.quoted(dialect), now(dialect));
    let old = format!("SELECT job FROM {table} WHERE expires_at <= {now} ORDER BY expires_at LIMIT {BATCH}");
    let mut sql = Writer::new(dialect);
    match dialect {
        Dialect::Postgres => sql.text(&format!("DELETE FROM {table} WHERE job IN ({old} FOR UPDATE SKIP LOCKED)")),
        // In this order: the other way round it would lock all that there are.
        Dialect::Mysql => {
            sql.text(&format!("DELETE r FROM ({old} FOR UPDATE SKIP LOCKED) AS o STRAIGHT_JOIN {table} AS r ON r.job = o.job"))
        }
        Dialect::Sqlite => sql.text(&format!("DELETE FROM {table} WHERE job IN ({old})")),
    };
    sql.done()
}
