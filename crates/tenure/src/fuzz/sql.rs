//! A user's SQL and names, as they become parts of statements.

use crate::fence::sql::{Ddl, Dialect, FenceTable, Statement, Update};
use crate::name::Token;

/// The first byte says which dialect and how many binds; names and fragments stand between zero bytes.
pub(super) fn texts(data: &[u8]) {
    let Some((choice, rest)) = data.split_first() else { return };
    let Ok(rest) = str::from_utf8(rest) else { return };
    let dialect = Dialect::ALL[usize::from(*choice) % Dialect::ALL.len()];
    let mut parts = rest.split('\0');
    let mut part = || parts.next().unwrap_or_default();
    let (table, column, set, key) = (part(), part(), part(), part());
    let binds = vec![7_i64; usize::from(*choice) / 3 % 4];
    let token = Token::new(5);
    let update = Update::of(table).set(set, binds.clone()).key(key, ()).fenced(column, &token).lease(column, 1);
    for statement in [update.write(dialect), update.probe(dialect)].into_iter().flatten() {
        bound(dialect, &statement);
    }
    if let Ok(column) = Ddl(dialect).column(table, column) {
        statements(dialect, &column, 1);
    }
    if let Ok(marks) = FenceTable::named(table) {
        statements(dialect, &Ddl(dialect).table(&marks), 1);
        let raise = marks.raise(dialect, "r", Token::new(5)).expect("a good name and token");
        raise.iter().for_each(|statement| bound(dialect, statement));
    }
    #[cfg(feature = "once")]
    if let Ok(records) = crate::once::OnceTable::named(table) {
        let count = if dialect == Dialect::Mysql { 1 } else { 2 };
        statements(dialect, &Ddl(dialect).once(&records), count);
    }
}

/// There is a placeholder for each bind.
fn bound(dialect: Dialect, statement: &Statement) {
    let Some(bare) = outside_of_quotes(dialect, &statement.text) else { return };
    let n = statement.binds.len();
    if dialect == Dialect::Postgres {
        assert!((1..=n).all(|i| bare.contains(&format!("${i}"))), "{statement:?}");
    } else {
        // The character itself, which a user may ask for, looks the same here.
        assert!(bare.matches('?').count() >= n, "{statement:?}");
    }
}

/// A name ends where it should: nothing of it is a statement of its own.
fn statements(dialect: Dialect, text: &str, count: usize) {
    let bare = outside_of_quotes(dialect, text).unwrap_or_else(|| panic!("{text:?} has quotes without an end"));
    assert_eq!(bare.matches(';').count(), count, "{text:?} as {dialect} reads it");
    assert!(!bare.contains("--") && !bare.contains("/*") && !bare.contains('#'), "{text:?} as {dialect} reads it");
}

/// What is left without what this dialect takes for quoted; `None` if a quote has no end.
fn outside_of_quotes(dialect: Dialect, text: &str) -> Option<String> {
    let mut bare = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let quotes = match dialect {
            Dialect::Postgres => matches!(c, '\'' | '"'),
            Dialect::Mysql | Dialect::Sqlite => matches!(c, '\'' | '"' | '`'),
        };
        if !quotes {
            bare.push(c);
            continue;
        }
        // A doubled quote opens the next piece at once, which comes to the same.
        chars.find(|end| *end == c)?;
    }
    Some(bare)
}
