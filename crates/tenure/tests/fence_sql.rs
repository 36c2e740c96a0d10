//! Fences in databases: the same cases on PostgreSQL, MariaDB and SQLite, over every driver.

mod sql_session;

mod fence_sql_cases {
    pub(crate) mod column;
    pub(crate) mod marks;
    pub(crate) mod names;
    pub(crate) mod own;
    pub(crate) mod races;
    pub(crate) mod session;
    pub(crate) mod table;
}

#[path = "../examples/fence_mysql_async.rs"]
#[allow(dead_code, reason = "the tests give the URL")]
mod fence_mysql_async;
#[path = "../examples/fence_rusqlite.rs"]
mod fence_rusqlite;
#[path = "../examples/fence_tokio_postgres.rs"]
#[allow(dead_code, reason = "the tests give the URL")]
mod fence_tokio_postgres;

use fence_sql_cases::session::{KINDS, Place};
use fence_sql_cases::{column, marks, names, own, races, table};
use tenure_testkit::locker::block_on;
use tenure_testkit::{Needs, Test, mariadb, postgres};

/// Cases on some kinds of databases and drivers.
macro_rules! on {
    ($([$($kind:literal)*] $module:ident: $($case:ident)*;)*) => {{
        let mut tests = Vec::new();
        $(for kind in KINDS.into_iter().filter(|kind| [$($kind),*].contains(&kind.name)) {
            $(tests.push(Test::new(
                format!("{}::{}::{}", kind.name, stringify!($module), stringify!($case)),
                kind.needs,
                move || block_on(async { $module::$case(Place::new(kind).await).await }),
            ));)*
        })*
        tests
    }};
}

fn main() {
    let mut tests = on! {
        ["postgres" "mysql" "sqlite" "sqlx_postgres" "sqlx_mysql"] table:
            a_larger_token_passes_and_a_smaller_one_is_stale
            the_same_token_passes_again
            the_mark_stays_also_if_a_stale_transaction_is_committed
            a_stale_transaction_leaves_nothing_behind
            a_mark_that_is_rolled_back_refuses_nobody
            names_that_differ_a_little_are_different
            names_of_any_length_and_characters_have_marks
            the_largest_token_fits_and_a_larger_one_is_a_wrong_request
            a_table_may_have_any_name_and_a_schema
            the_locker_of_a_guard_hears_that_it_was_stale;
        ["postgres" "mysql" "sqlite" "sqlx_postgres" "sqlx_mysql"] column:
            a_row_keeps_the_largest_token_and_refuses_smaller_ones
            an_unmet_condition_and_a_missing_row_are_values
            an_update_of_two_rows_is_a_mistake_that_can_be_rolled_back
            a_write_that_changes_nothing_is_written
            a_column_without_a_number_is_one_that_nobody_wrote_to
            a_token_and_a_lease_both_must_hold
            the_locker_of_a_guard_hears_that_a_row_was_ahead
            values_of_all_kinds_arrive_as_they_are;
        ["postgres" "mysql" "sqlite"] names:
            a_name_makes_one_table_of_that_name_or_none
            a_name_makes_one_table_of_records_or_none
            a_name_makes_one_column_of_that_name_or_none
            a_word_means_the_table_that_it_means_in_a_statement
            words_of_sql_are_names_too
            a_column_that_is_missing_is_an_error_and_no_text
            of_names_that_are_longer_than_a_server_keeps_none_is_taken_for_another;
        ["postgres" "mysql" "sqlite" "sqlx_postgres" "sqlx_mysql"] races:
            a_later_holder_waits_for_a_write_that_was_let_through
            an_earlier_holder_that_waited_is_stale
            of_two_first_writers_the_earlier_is_stale
            a_read_from_before_the_mark_lets_no_stale_write_pass
            a_read_from_before_the_first_mark_lets_no_stale_write_pass
            a_read_from_before_a_column_was_raised_lets_no_stale_write_pass
            a_lease_from_a_snapshot_is_overtaken
            a_column_is_compared_with_what_was_waited_for
            of_two_who_have_read_the_same_lease_one_wins
            many_writers_at_once_are_accepted_in_the_order_of_their_tokens;
        ["postgres" "mysql" "sqlite" "sqlx_postgres" "sqlx_mysql"] marks:
            a_mark_only_rises_and_is_told
            marks_are_shared_by_all_who_use_the_table
            of_many_who_raise_at_once_the_largest_stays;
        ["postgres" "mysql" "sqlx_postgres" "sqlx_mysql"] marks:
            a_table_that_is_missing_is_told_with_the_way_to_make_it
            a_server_that_is_away_is_unavailable
            a_connection_that_broke_is_made_anew
            who_may_not_write_is_told_so;
        ["postgres" "mysql" "sqlx_postgres"] marks:
            a_server_that_takes_no_writes_may_take_them_later;
        ["mysql"] marks:
            marks_stay_also_where_nothing_is_committed_by_itself;
        ["sqlite"] marks:
            a_file_that_cannot_be_used_is_told_with_the_reason;
        ["postgres"] own:
            text_becomes_what_the_column_is
            a_number_that_does_not_fit_is_refused_and_not_cut;
        ["postgres" "sqlx_postgres"] own:
            operators_with_a_question_mark_can_be_used;
        ["mysql"] own:
            rows_that_are_found_count_also_if_the_client_asks_for_them;
        ["sqlite"] own:
            a_pass_outside_of_a_transaction_is_refused
            a_savepoint_is_a_transaction;
    };
    let examples: [(Needs, &str, fn()); 3] = [
        (Needs::Postgres, "postgres", || block_on(fence_tokio_postgres::run(&postgres::database())).expect("it runs")),
        (Needs::Mariadb, "mysql", || block_on(fence_mysql_async::run(&mariadb::database())).expect("it runs")),
        (Needs::Nothing, "sqlite", || fence_rusqlite::main().expect("it runs")),
    ];
    tests.extend(examples.map(|(needs, name, run)| Test::new(format!("{name}::the_example_runs"), needs, run)));
    let drivers: [(&str, fn()); 2] = [
        ("sqlx_has_fences_and_records", own::sqlx_has_fences_and_records),
        ("diesel_runs_the_statements", own::diesel_runs_the_statements),
    ];
    tests.extend(drivers.map(|(name, run)| Test::new(format!("drivers::{name}"), Needs::Drivers, run)));
    tenure_testkit::run(tests);
}
