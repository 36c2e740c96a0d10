//! Fences on any input: any order of writes, any text.

use std::collections::HashMap;

use proptest::prelude::*;
use rusqlite::Connection;
use tenure::Token;
use tenure::fence::sql::{Ddl, Dialect, Effect, FenceTable, Update};
use tenure::fence::{Error, sqlite};

#[derive(Debug, Clone)]
struct Write {
    resource: usize,
    token: u64,
    /// Whether it is seen to its end if it is let through.
    commits: bool,
}

const NAMES: [&str; 4] = ["R", "r", "R ", "√"];

fn writes() -> impl Strategy<Value = Vec<Write>> {
    let token = prop_oneof![0..12_u64, (i64::MAX as u64 - 3)..=i64::MAX as u64];
    let write = (0..NAMES.len(), token, prop::bool::weighted(0.8));
    prop::collection::vec(write.prop_map(|(resource, token, commits)| Write { resource, token, commits }), 0..40)
}

fn database() -> (Connection, FenceTable) {
    let (conn, fences) = (Connection::open_in_memory().expect("opened"), FenceTable::default());
    conn.execute_batch(&Ddl(Dialect::Sqlite).table(&fences)).expect("a table");
    conn.execute_batch("CREATE TABLE thing (id INTEGER PRIMARY KEY, fence INTEGER, writes INTEGER NOT NULL DEFAULT 0)")
        .expect("a table");
    conn.execute_batch("INSERT INTO thing (id) VALUES (0), (1), (2), (3)").expect("rows");
    (conn, fences)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_mark_is_the_largest_token_that_was_accepted(writes in writes()) {
        let (mut conn, fences) = database();
        let mut largest = HashMap::new();
        for Write { resource, token, commits } in writes {
            let mark = largest.get(&resource).copied();
            let tx = conn.transaction().expect("begun");
            let passed = sqlite::pass(&tx, &fences, NAMES[resource], &Token::new(token));
            match (passed, mark) {
                (Err(Error::Stale(stale)), Some(mark)) if token < mark => prop_assert_eq!(stale.seen, Token::new(mark)),
                (Ok(()), mark) if mark.is_none_or(|mark| mark <= token) => {
                    if commits {
                        largest.insert(resource, token);
                    }
                }
                (passed, mark) => prop_assert!(false, "{token} at {mark:?}: {passed:?}"),
            }
            // A stale one that is committed by mistake must not lower the mark either.
            if commits { tx.commit() } else { tx.rollback() }.expect("ended");
            for (n, name) in NAMES.iter().enumerate() {
                let read = "SELECT token FROM tenure_fences WHERE resource = ?";
                let found = conn.query_row(read, [name], |row| row.get::<_, i64>(0)).ok();
                prop_assert_eq!(found.map(i64::cast_unsigned), largest.get(&n).copied());
            }
        }
    }

    #[test]
    fn a_column_is_the_largest_token_that_was_written(writes in writes()) {
        let (conn, _) = database();
        let mut model = [(0_u64, 0_i64); NAMES.len()];
        for Write { resource, token, .. } in writes {
            let pass = Token::new(token);
            let update = Update::of("thing").set("writes = writes + 1", ()).key("id = ?", [resource as i64]).fenced("fence", &pass);
            let (fence, count) = &mut model[resource];
            match sqlite::update(&conn, &update) {
                Ok(Effect::Written) if token >= *fence => (*fence, *count) = (token, *count + 1),
                Err(Error::Stale(stale)) if token < *fence => prop_assert_eq!(stale.seen, Token::new(*fence)),
                other => prop_assert!(false, "{token} at {fence}: {other:?}"),
            }
            let read = "SELECT coalesce(fence, 0), writes FROM thing WHERE id = ?";
            let found = conn.query_row(read, [resource as i64], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)));
            prop_assert_eq!(found.expect("read"), (i64::try_from(*fence).expect("small"), *count));
        }
    }

    #[test]
    fn a_fragment_has_as_many_placeholders_as_binds_or_is_refused(text in "[?'\"` a=$\\\\-]{0,16}", binds in 0..5_usize) {
        for dialect in Dialect::ALL {
            let update = Update::of("thing").set("writes = ?", [0]).key(&text, vec![1; binds]);
            if let Ok(statement) = update.write(dialect) {
                prop_assert_eq!(statement.binds.len(), binds + 1);
            }
        }
    }
}
