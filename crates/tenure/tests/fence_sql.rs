//! Fences in databases: what holds is the same in PostgreSQL, MariaDB and SQLite.

mod support;

mod fence_sql_cases {
    pub(crate) mod session;
    pub(crate) mod table;
}

use fence_sql_cases::session::Place;
use fence_sql_cases::table;
use support::Test;
use support::locker::block_on;

macro_rules! on_all_databases {
    ($($module:ident: $($name:ident)*;)*) => {{
        let mut tests = Vec::new();
        for (dialect, needs) in Place::ALL {
            $($(tests.push(Test::new(
                format!("{dialect}::{}::{}", stringify!($module), stringify!($name)),
                needs,
                move || block_on(async { $module::$name(Place::new(dialect).await).await }),
            ));)*)*
        }
        tests
    }};
}

fn main() {
    support::run(on_all_databases! {
        table:
            a_larger_token_passes_and_a_smaller_one_is_stale;
    });
}
