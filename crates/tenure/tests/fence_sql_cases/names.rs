//! Names of tables and columns: any text in them is a name, never SQL.

use std::collections::BTreeSet;

use mysql_async::prelude::Queryable;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use tenure::Token;
use tenure::fence::sql::{Ddl, Dialect, Effect, FenceTable, Update};
use tenure::once::OnceTable;

use super::session::{Error, Place, Session};

/// How many names are tried on each database.
const CASES: usize = 120;

/// What somebody would have done who takes a name for SQL.
const ATTACKS: [&str; 7] = [
    "x; DROP TABLE stock; --",
    "x (a int); DROP TABLE stock; --",
    "` (a int); DROP TABLE stock; --",
    "\" (a int); DROP TABLE stock; --",
    "x' OR '1'='1",
    // Placeholders of one driver or another.
    "a:b",
    "a?b$1",
];

/// A name as it is given, and what the table is called then, if that is known.
type Named = (String, Option<String>);

fn in_quotes(inner: &str, quote: &str) -> Named {
    (format!("{quote}{}{quote}", inner.replace(quote, &quote.repeat(2))), Some(inner.to_owned()))
}

fn any_name() -> impl Strategy<Value = Named> {
    let inner = "[ab.\"`;' \\-(:?$%\\[\\]é]{1,9}|\\PC{1,12}|.{0,6}";
    prop_oneof![
        "[A-Za-z_][A-Za-z0-9_$]{0,9}".prop_map(|word| (word.clone(), Some(word))),
        (inner, prop_oneof!["\"", "`"]).prop_map(|(inner, quote)| in_quotes(&inner, &quote)),
        "[ab.\"`;' \\\\\\-(]{1,8}|\\PC{1,12}|.{0,12}".prop_map(|text| (text, None)),
    ]
}

fn names() -> Vec<Named> {
    let mut runner = TestRunner::default();
    let any = any_name();
    let some = (0..CASES).map(|_| any.new_tree(&mut runner).expect("a name").current());
    let attacks =
        ATTACKS.iter().flat_map(|attack| [in_quotes(attack, "\""), in_quotes(attack, "`"), ((*attack).to_owned(), None)]);
    attacks.chain(some).collect()
}

impl Session {
    /// All tables, and the columns of `stock`.
    async fn catalog(&mut self) -> BTreeSet<(String, String)> {
        let columns = "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema =";
        match self {
            Self::Postgres(client) => {
                let sql = format!("{columns} 'public'");
                client.query(&sql, &[]).await.expect("read").iter().map(|row| (row.get(0), row.get(1))).collect()
            }
            Self::Mysql(conn) => {
                let rows: Vec<(String, String)> = conn.query(format!("{columns} database()")).await.expect("read");
                rows.into_iter().collect()
            }
            Self::Sqlite(conn) => {
                let sql = "SELECT t.name, c.name FROM sqlite_schema t, pragma_table_info(t.name) c WHERE t.type = 'table'";
                let mut rows = conn.prepare(sql).expect("prepared");
                let rows = rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).expect("read");
                rows.map(|row| row.expect("read")).collect()
            }
            Self::SqlxPostgres(_) | Self::SqlxMysql(_) => unreachable!("names are the library's, not a driver's"),
        }
    }

    /// Whether it was taken.
    async fn try_out(&mut self, sql: &str) -> bool {
        match self {
            Self::Postgres(client) => client.batch_execute(sql).await.is_ok(),
            Self::Mysql(conn) => conn.query_drop(sql).await.is_ok(),
            Self::Sqlite(conn) => conn.execute_batch(sql).is_ok(),
            Self::SqlxPostgres(_) | Self::SqlxMysql(_) => unreachable!("names are the library's, not a driver's"),
        }
    }
}

/// What a server calls it.
fn called(dialect: Dialect, (given, inner): &Named) -> Option<String> {
    let word = given.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    inner.clone().map(|name| if word && dialect == Dialect::Postgres { name.to_lowercase() } else { name })
}

pub(crate) async fn a_name_makes_one_table_of_that_name_or_none(place: Place) {
    let mut session = place.open().await;
    let mut used = 0;
    for named in names() {
        let name = &named.0;
        let before = session.catalog().await;
        let Ok(fences) = FenceTable::named(name) else { continue };
        let made = session.try_out(&Ddl(place.dialect).table(&fences)).await;
        let after = session.catalog().await;
        assert!(after.is_superset(&before), "{name:?} took something away");
        let new: BTreeSet<_> = after.difference(&before).map(|(table, _)| table.clone()).collect();
        if !made {
            assert!(new.is_empty(), "{name:?} was refused and made {new:?}");
            continue;
        }
        // None is new if the database takes the name for that of a table that is there, in other letters.
        assert!(new.len() <= 1, "{name:?} made {new:?}");
        if let (Some(new), Some(expected)) = (new.first(), called(place.dialect, &named)) {
            assert_eq!(*new, expected, "{name:?}");
        }
        let Some(table) = new.first() else { continue };
        used += 1;
        session.sell(&fences, "R", &Token::new(7)).await.unwrap_or_else(|e| panic!("{name:?}, which made {table:?}: {e}"));
        session.sell(&fences, "R", &Token::new(6)).await.expect_err("refused");
        session.run("UPDATE stock SET units = 10").await;
    }
    assert!(used > CASES / 4, "too few names were good for anything: {used}");
}

pub(crate) async fn a_name_makes_one_table_of_records_or_none(place: Place) {
    let mut session = place.open().await;
    for (name, _) in names() {
        let before = session.catalog().await;
        let Ok(table) = OnceTable::named(&name) else { continue };
        let made = session.try_out(&Ddl(place.dialect).once(&table)).await;
        let after = session.catalog().await;
        assert!(after.is_superset(&before), "{name:?} took something away");
        let new: BTreeSet<_> = after.difference(&before).map(|(table, _)| table).collect();
        assert!(new.len() <= usize::from(made), "{name:?} made {new:?}");
        if made {
            session.run(&table.sweep(place.dialect).text).await;
        }
    }
}

pub(crate) async fn a_name_makes_one_column_of_that_name_or_none(place: Place) {
    let mut session = place.open().await;
    session.run("CREATE TABLE wide (id int PRIMARY KEY)").await;
    session.run("INSERT INTO wide VALUES (1)").await;
    for named in names() {
        let name = &named.0;
        let before = session.catalog().await;
        let Ok(definition) = Ddl(place.dialect).column("wide", name) else { continue };
        let made = session.try_out(&definition).await;
        let after = session.catalog().await;
        assert!(after.is_superset(&before), "{name:?} took something away");
        let new: Vec<_> = after.difference(&before).collect();
        assert_eq!(new.len(), usize::from(made), "{name:?} made {new:?}");
        let Some((table, column)) = new.first() else { continue };
        assert_eq!(table, "wide");
        if let Some(expected) = called(place.dialect, &named) {
            assert_eq!(*column, expected, "{name:?}");
        }
        let pass = Token::new(7);
        let row = || Update::of("wide").key("id = ?", [1]);
        assert_eq!(session.update(&row().fenced(name, &pass)).await.expect(name), Effect::Written);
        assert!(matches!(session.update(&row().fenced(name, &Token::new(6))).await, Err(Error::Stale(_))), "{name:?}");
        assert_eq!(session.read_lease(&row(), name).await.expect(name), Some(7));
        // A table has room for so many columns.
        session
            .run(
                &definition
                    .replace(" ADD COLUMN ", " DROP COLUMN ")
                    .replace(" bigint NOT NULL DEFAULT 0", "")
                    .replace(" INTEGER NOT NULL DEFAULT 0", ""),
            )
            .await;
    }
}

pub(crate) async fn a_word_means_the_table_that_it_means_in_a_statement(place: Place) {
    let mut session = place.open().await;
    session.run("CREATE TABLE Marks_Of_Ours (Resource varchar(99) PRIMARY KEY, Token bigint)").await;
    session.run("CREATE TABLE Things (Id int PRIMARY KEY, Fence bigint)").await;
    session.run("INSERT INTO Things VALUES (1, 0)").await;
    session.sell(&FenceTable::named("Marks_Of_Ours").expect("a name"), "R", &Token::new(7)).await.expect("passed");
    assert_eq!(session.number("SELECT Token FROM Marks_Of_Ours").await, Some(7));
    let update = Update::of("Things").key("Id = ?", [1]);
    assert_eq!(session.update(&update.fenced("Fence", &Token::new(7))).await.expect("passed"), Effect::Written);
    assert_eq!(session.number("SELECT Fence FROM Things").await, Some(7));
}

pub(crate) async fn words_of_sql_are_names_too(place: Place) {
    let mut session = place.open().await;
    for word in ["order", "select", "user", "table", "Group"] {
        let fences = FenceTable::named(word).expect("a name");
        session.run(&Ddl(place.dialect).table(&fences)).await;
        session.sell(&fences, "R", &Token::new(7)).await.expect("passed");
        session.run(&Ddl(place.dialect).column("stock", word).expect("a column")).await;
        let pass = Token::new(7);
        let update = Update::of("stock").key("id = ?", [1]).fenced(word, &pass);
        assert_eq!(session.update(&update).await.expect("passed"), Effect::Written);
    }
}

pub(crate) async fn a_column_that_is_missing_is_an_error_and_no_text(place: Place) {
    let mut session = place.open().await;
    for name in ["missing", "\"missing\"", "`missing`"] {
        let row = Update::of("stock").key("id = ?", [1]);
        let read = session.read_lease(&row, name).await;
        assert!(matches!(read, Err(Error::Store(_))), "{name}: {read:?}");
    }
}

pub(crate) async fn of_names_that_are_longer_than_a_server_keeps_none_is_taken_for_another(place: Place) {
    let mut session = place.open().await;
    let name = |n: usize, last: &str| "n".repeat(n) + last;
    assert!(FenceTable::named(&name(63, "a")).is_err() && FenceTable::named(&format!("\"{}\"", "é".repeat(32))).is_err());
    assert!(OnceTable::named(&name(52, "a")).is_err());
    for last in ["a", "b"] {
        let fences = FenceTable::named(&name(62, last)).expect("a name");
        session.run(&Ddl(place.dialect).table(&fences)).await;
        session.sell(&fences, "R", &Token::new(if last == "a" { 7 } else { 6 })).await.expect("another table");
        let table = OnceTable::named(&name(51, last)).expect("a name");
        session.run(&Ddl(place.dialect).once(&table)).await;
    }
    let indexes = match place.dialect {
        Dialect::Postgres => "SELECT count(*) FROM pg_indexes WHERE indexname LIKE 'nnn%_expires_at'",
        Dialect::Mysql => {
            "SELECT count(*) FROM information_schema.statistics WHERE table_schema = database() AND index_name LIKE 'nnn%_expires_at'"
        }
        Dialect::Sqlite => "SELECT count(*) FROM sqlite_schema WHERE type = 'index' AND name LIKE 'nnn%_expires_at'",
    };
    assert_eq!(session.number(indexes).await, Some(2), "each has an index of its own");
}
