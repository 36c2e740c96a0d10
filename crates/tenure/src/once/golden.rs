//! The text of a claim, as each dialect has it: for programs that run it by themselves.

use crate::name::Token;
use crate::once::{Claimed, Done, OnceTable, Row};
use crate::sql::{Ddl, Dialect, Statement, Value};

fn texts(statements: &[Statement]) -> Vec<&str> {
    statements.iter().map(|statement| &*statement.text).collect()
}

#[test]
fn work_is_claimed_under_a_lock() {
    let (table, token) = (OnceTable::default(), Token::new(7));
    let claim = table.claim_under("k", &token).expect("a key");
    let statements = claim.statements(Dialect::Mysql);
    assert_eq!(
        texts(&statements),
        [
            "INSERT INTO `tenure_once` (job, token, result, changed_at, expires_at) VALUES (?, ?, NULL, \
             (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000), \
             (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000) + ?) ON DUPLICATE KEY UPDATE token = token",
            "UPDATE `tenure_once` SET earlier = CASE WHEN expires_at <= (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', \
             UTC_TIMESTAMP(3)) DIV 1000) THEN NULL ELSE token END, token = ?, result = NULL, changed_at = \
             (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000), expires_at = \
             (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000) + ? WHERE job = ? AND (expires_at <= \
             (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000) OR (result IS NULL AND token < ?))",
            "SELECT token, earlier, result, (TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000) - changed_at \
             FROM `tenure_once` WHERE job = ? FOR UPDATE",
        ]
    );
    let (key, number, week) = (Value::Bytes(b"k".to_vec()), Value::Int(7), Value::Int(7 * 86_400_000));
    assert_eq!(statements[0].binds, [key.clone(), number.clone(), week.clone()]);
    assert_eq!(statements[1].binds, [number.clone(), week, key.clone(), number]);
    assert_eq!(statements[2].binds, [key]);
}

#[test]
fn work_is_claimed_without_a_lock() {
    let table = OnceTable::named("ops.once").expect("a name");
    let claim = table.claim("k").expect("a key");
    let now = "CAST(extract(epoch FROM statement_timestamp()) * 1000 AS bigint)";
    let [_, take, read] = &claim.statements(Dialect::Postgres)[..] else { panic!("three") };
    let above = "CASE WHEN token < $1 THEN $2 ELSE token + 1 END";
    assert_eq!(
        take.text,
        format!(
            "UPDATE \"ops\".\"once\" SET earlier = CASE WHEN expires_at <= {now} THEN NULL ELSE token END, token = {above}, result = NULL, \
             changed_at = {now}, expires_at = {now} + $3 WHERE job = $4 AND (expires_at <= {now} OR (result IS NULL AND token <> $5))"
        )
    );
    assert_eq!(read.text, format!("SELECT token, earlier, result, {now} - changed_at FROM \"ops\".\"once\" WHERE job = $1"));
    let row = |result: Option<&str>| Row { token: 3, earlier: Some(2), result: result.map(Into::into), age: 0 };
    let checked = |row| claim.check::<u32, String>(row);
    assert!(matches!(checked(Some(row(Some("5")))), Ok(Claimed::Done(Done { value: 5, replayed: true, .. }))));
    assert!(checked(None).is_err() && checked(Some(row(Some("\"text\"")))).is_err());
    let Ok(Claimed::Yours(ticket)) = checked(Some(row(None))) else { panic!("it is ours") };
    assert_eq!((ticket.token(), ticket.unfinished()), (Token::new(3), Some(Token::new(2))));
    let finish = ticket.finish(Dialect::Postgres, &5).expect("JSON");
    assert_eq!(
        finish.text,
        format!(
            "UPDATE \"ops\".\"once\" SET result = $1, changed_at = {now}, expires_at = {now} + $2 \
             WHERE job = $3 AND token = $4 AND result IS NULL"
        )
    );
    assert_eq!(finish.binds[0], Value::Bytes(b"5".to_vec()));
    assert!(ticket.check::<_, String>(5, 0).is_err());
}

#[test]
fn tables_are_defined() {
    let [postgres, mysql, sqlite] =
        Dialect::ALL.map(|dialect| Ddl(dialect).once(&OnceTable::named("ops.\"a.b\"").expect("a name")));
    let columns = |bytes: &str, result: &str, number: &str| {
        format!(
            "(\n  job {bytes} PRIMARY KEY,\n  token {number} NOT NULL,\n  earlier {number},\n  result {result},\n  \
             changed_at {number} NOT NULL,\n  expires_at {number} NOT NULL"
        )
    };
    let (made, indexed) = ("CREATE TABLE IF NOT EXISTS", "CREATE INDEX IF NOT EXISTS");
    let name = r#""ops"."a.b""#;
    let bytea = columns("bytea", "bytea", "bigint");
    assert_eq!(postgres, format!("{made} {name} {bytea}\n);\n{indexed} \"a.b_expires_at\" ON {name} (expires_at);\n"));
    let binary = columns("varbinary(512)", "longblob", "bigint");
    assert_eq!(mysql, format!("{made} `ops`.`a.b` {binary},\n  INDEX `a.b_expires_at` (expires_at)\n) ENGINE=InnoDB;\n"));
    let blob = columns("BLOB", "BLOB", "INTEGER");
    assert_eq!(
        sqlite,
        format!("{made} `ops`.`a.b` {blob}\n) STRICT;\n{indexed} `ops`.`a.b_expires_at` ON `a.b` (expires_at);\n")
    );
}
