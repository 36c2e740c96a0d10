//! The text of every statement, as each dialect has it.

use super::{Ddl, Dialect, FenceTable, Statement, Update, Value};
use crate::name::Token;
use crate::sql::Identifier;

fn on_all<T>(make: impl Fn(Dialect) -> T) -> [T; 3] {
    Dialect::ALL.map(make)
}

fn text(statement: crate::Result<Statement>) -> String {
    statement.expect("a statement").text
}

#[test]
fn a_mark_is_raised() {
    let fences = FenceTable::named("ops.fences").expect("a name");
    let raise = |dialect| fences.raise(dialect, "R", Token::new(7)).expect("statements");
    let texts = on_all(|dialect| raise(dialect).into_iter().map(|statement| text(Ok(statement))).collect::<Vec<_>>());
    assert_eq!(
        texts[0],
        ["INSERT INTO \"ops\".\"fences\" AS f (resource, token) VALUES ($1, $2) \
          ON CONFLICT (resource) DO UPDATE SET token = greatest(f.token, excluded.token) RETURNING token"]
    );
    assert_eq!(
        texts[1],
        [
            "INSERT INTO `ops`.`fences` (resource, token) VALUES (?, ?) ON DUPLICATE KEY UPDATE token = greatest(token, ?)",
            "SELECT token FROM `ops`.`fences` WHERE resource = ? FOR UPDATE"
        ]
    );
    assert_eq!(
        texts[2],
        ["INSERT INTO `ops`.`fences` AS f (resource, token) VALUES (?, ?) \
          ON CONFLICT (resource) DO UPDATE SET token = max(f.token, excluded.token) RETURNING token"]
    );
    let (name, number) = (Value::from("R"), Value::Int(7));
    assert_eq!(raise(Dialect::Postgres)[0].binds, [name.clone(), number.clone()]);
    assert_eq!(raise(Dialect::Mysql)[0].binds, [name.clone(), number.clone(), number]);
    assert_eq!(raise(Dialect::Mysql)[1].binds, [name]);
}

#[test]
fn a_row_is_written_if_nothing_stands_in_the_way() {
    let token = Token::new(7);
    let update = Update::of("shop.stock").set("units = units - ?", [1]).set("seller = ?, note = 'why?'", ["me"]);
    let update = update.key("id = ? OR id = ?", (1, "x")).only_if("units >= ?", [1]).fenced("fence", &token).lease("lease", 3);
    let [postgres, mysql, sqlite] = on_all(|dialect| text(update.write(dialect)));
    assert_eq!(
        postgres,
        "UPDATE \"shop\".\"stock\" SET units = units - $1, seller = $2, note = 'why?', \"fence\" = $3, \"lease\" = $4 \
         WHERE (id = $5 OR id = $6) AND (units >= $7) AND coalesce(\"fence\", 0) <= $8 AND coalesce(\"lease\", 0) = $9"
    );
    assert_eq!(
        mysql,
        "UPDATE `shop`.`stock` SET units = units - ?, seller = ?, note = 'why?', `fence` = ?, `lease` = ? \
         WHERE (id = ? OR id = ?) AND (units >= ?) AND coalesce(`fence`, 0) <= ? AND coalesce(`lease`, 0) = ?"
    );
    assert_eq!(sqlite, mysql);
    let number = |n| Value::Int(n);
    let binds = [number(1), "me".into(), number(7), number(4), number(1), "x".into(), number(1), number(7), number(3)];
    assert_eq!(update.write(Dialect::Sqlite).expect("a statement").binds, binds);
}

#[test]
fn a_row_is_asked_what_stands_in_the_way() {
    let token = Token::new(7);
    let update = Update::of("stock").key("id = ?", [1]).only_if("units >= ?", [1]).fenced("fence", &token);
    let [postgres, mysql, sqlite] = on_all(|dialect| text(update.probe(dialect)));
    assert_eq!(
        postgres,
        "SELECT CAST(coalesce(\"fence\", 0) AS bigint) AS fence, CAST(0 AS bigint) AS lease FROM \"stock\" WHERE (id = $1)"
    );
    assert_eq!(
        mysql,
        "SELECT CAST(coalesce(`fence`, 0) AS signed) AS fence, CAST(0 AS signed) AS lease FROM `stock` WHERE (id = ?) LOCK IN SHARE MODE"
    );
    assert_eq!(
        sqlite,
        "SELECT CAST(coalesce(`fence`, 0) AS bigint) AS fence, CAST(0 AS bigint) AS lease FROM `stock` WHERE (id = ?)"
    );
    let [postgres, mysql, sqlite] = on_all(|dialect| text(update.read_lease(dialect, "lease")));
    assert_eq!(postgres, "SELECT CAST(coalesce(\"lease\", 0) AS bigint) AS lease FROM \"stock\" WHERE (id = $1)");
    assert_eq!(mysql, "SELECT CAST(coalesce(`lease`, 0) AS signed) AS lease FROM `stock` WHERE (id = ?)");
    assert_eq!(sqlite, "SELECT CAST(coalesce(`lease`, 0) AS bigint) AS lease FROM `stock` WHERE (id = ?)");
}

#[test]
fn a_question_mark_of_the_language_is_written_twice() {
    let update = Update::of("docs").set("seen = ?", [true]).key("doc ?? 'a?' AND id = ?", [1]).lease("\"lease?\"", 0);
    assert_eq!(
        text(update.write(Dialect::Postgres)),
        "UPDATE \"docs\" SET seen = $1, \"lease?\" = $2 WHERE (doc ? 'a?' AND id = $3) AND coalesce(\"lease?\", 0) = $4"
    );
}

#[test]
fn tables_and_columns_are_defined() {
    let [postgres, mysql, sqlite] = on_all(|dialect| Ddl(dialect).table(&FenceTable::default()));
    assert_eq!(
        postgres,
        "CREATE TABLE IF NOT EXISTS \"tenure_fences\" (\n  resource text COLLATE \"C\" PRIMARY KEY,\n  token bigint NOT NULL\n);\n"
    );
    assert_eq!(
        mysql,
        "CREATE TABLE IF NOT EXISTS `tenure_fences` (\n  resource varbinary(512) PRIMARY KEY,\n  token bigint NOT NULL\n) ENGINE=InnoDB;\n"
    );
    assert_eq!(
        sqlite,
        "CREATE TABLE IF NOT EXISTS `tenure_fences` (\n  resource TEXT PRIMARY KEY,\n  token INTEGER NOT NULL\n) STRICT, WITHOUT ROWID;\n"
    );
    let [postgres, mysql, sqlite] = on_all(|dialect| Ddl(dialect).column("shop.stock", "fence").expect("a column"));
    assert_eq!(postgres, "ALTER TABLE \"shop\".\"stock\" ADD COLUMN \"fence\" bigint NOT NULL DEFAULT 0;\n");
    assert_eq!(mysql, "ALTER TABLE `shop`.`stock` ADD COLUMN `fence` bigint NOT NULL DEFAULT 0;\n");
    assert_eq!(sqlite, "ALTER TABLE `shop`.`stock` ADD COLUMN `fence` INTEGER NOT NULL DEFAULT 0;\n");
}

#[test]
fn names_that_would_be_more_than_a_name_are_refused() {
    let long = ["x".repeat(64), format!("\"{}\"", "ü".repeat(32))];
    let wrong = [
        "", "1a", "a b", "a;b", "a--", "a.", ".a", "a..b", "\"\"", "\"a", "\"a\"\"", "a\"b\"", "\"a\\\"", "`a\\`", "`a`b", "a'b",
        "ü", "\"a\nb\"", "\"a\0\"", "[a]", "'a'",
    ];
    for name in wrong.into_iter().chain(long.iter().map(|name| &**name)) {
        let refused = FenceTable::named(name).expect_err(name).to_string();
        assert!(refused.starts_with(&format!("the table {name:?} cannot stand in a statement; allowed: letters")), "{refused}");
    }
    let column = Ddl(Dialect::Postgres).column("a", "b.c").expect_err("not two parts").to_string();
    assert!(column.starts_with("the column \"b.c\""), "{column}");
}

#[test]
fn names_stand_in_the_quotes_of_the_dialect() {
    for (given, postgres, others) in [
        ("a", r#""a""#, "`a`"),
        ("_A$1", r#""_a$1""#, "`_A$1`"),
        ("D.s.a", r#""d"."s"."a""#, "`D`.`s`.`a`"),
        (r#""Or der".A"#, r#""Or der"."a""#, "`Or der`.`A`"),
        ("`Order`", r#""Order""#, "`Order`"),
        (r#""a.b""#, r#""a.b""#, "`a.b`"),
        (r#""it's; ü""#, r#""it's; ü""#, "`it's; ü`"),
        (r#""a""b`c""#, r#""a""b`c""#, r#"`a"b``c`"#),
        (r#"`a"b``c`"#, r#""a""b`c""#, r#"`a"b``c`"#),
        ("`x; DROP TABLE users; --`", r#""x; DROP TABLE users; --""#, "`x; DROP TABLE users; --`"),
    ] {
        let names = on_all(|dialect| Identifier::table(given).expect(given).quoted(dialect));
        assert_eq!(names, [postgres, others, others], "{given}");
    }
}

#[test]
fn what_is_missing_or_too_much_is_said() {
    let words = |update: Update<'_>| update.write(Dialect::Mysql).expect_err("refused").to_string();
    assert_eq!(words(Update::of("t").set("a = 1", ())), "an update of t names no row; allowed: a key, such as id = ?");
    let few = words(Update::of("t").set("a = ?", ()).key("id = ?", [1]));
    assert!(few.starts_with("the SQL \"a = ?\" has 1 placeholders and 0 binds; allowed:"), "{few}");
    let open = words(Update::of("t").set("a = 'b", ()).key("id = ?", [1]));
    assert!(open.starts_with("the SQL \"a = 'b\" has a ' without an end; allowed:"), "{open}");
    let last = words(Update::of("t").key("id = 1", ()).lease("lease", i64::MAX));
    assert!(last.starts_with("the lease 9223372036854775807 is the last"), "{last}");
    let nothing = words(Update::of("t").key("id = 1", ()));
    assert_eq!(nothing, "an update of t sets nothing; allowed: what is set, a fence or a lease");
}
