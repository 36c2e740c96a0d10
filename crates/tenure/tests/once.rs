//! Work that is done once, on every store of records.

mod sql_session;

mod once_cases {
    pub(crate) mod exact;
    pub(crate) mod faulty;
    pub(crate) mod in_redis;
    pub(crate) mod kills;
    pub(crate) mod requests;
    pub(crate) mod runs;
    pub(crate) mod session;
    pub(crate) mod shelf;
    pub(crate) mod verbs;
}

use once_cases::shelf::{KINDS, Shelf};
use once_cases::{exact, in_redis, kills, requests, runs, verbs};
use tenure_testkit::locker::block_on;
use tenure_testkit::server::keys_for_ever;
use tenure_testkit::{Test, player};

/// On all kinds but as many as are to be left out.
macro_rules! on_kinds {
    ($skip:literal, $($module:ident: $($name:ident)*;)*) => {{
        let mut tests = Vec::new();
        for kind in KINDS.into_iter().skip($skip) {
            $($(tests.push(Test::new(
                format!("{}::{}::{}", kind.name, stringify!($module), stringify!($name)),
                kind.needs,
                move || block_on($module::$name(Shelf::new(kind))),
            ));)*)*
        }
        tests
    }};
}

fn main() {
    if let Some(role) = player::role() {
        let args: Vec<String> = std::env::args().skip(1).collect();
        return match role.as_str() {
            "once" => kills::play(&args),
            "exactly once" => exact::play(&args),
            other => panic!("no such role: {other}"),
        };
    }
    let mut tests = on_kinds! {
        0,
        verbs:
            what_is_finished_is_done_for_all
            repeated_questions_have_the_same_answers
            who_was_overtaken_can_neither_begin_nor_record
            what_is_unfinished_is_begun_again_only_if_asked_to
            records_and_marks_end_by_age
            a_result_is_kept_from_when_it_was_recorded
            sweeping_leaves_what_is_kept
            sweeping_is_in_nobodys_way
            keys_of_all_kinds_are_kept_apart
            large_results_and_tokens_come_back_whole
            of_many_who_begin_at_once_the_largest_token_has_it;
        runs:
            a_second_call_returns_what_the_first_recorded
            twenty_who_ask_at_once_have_it_done_once
            an_owner_that_asks_twice_at_once_has_it_done_once
            failed_work_is_not_recorded_and_the_next_one_is_told
            a_dropped_future_frees_the_lock_and_leaves_its_mark
            who_waits_in_vain_is_told_that_it_is_under_way
            a_result_of_another_type_is_an_error_and_runs_nothing
            at_most_once_refuses_until_the_attempt_is_forgotten
            lost_replies_are_asked_for_again
            what_cannot_be_begun_is_not_run
            what_cannot_be_recorded_says_so_and_has_the_value
            work_is_stopped_when_the_lock_is_lost_and_the_next_one_is_told
            who_was_overtaken_is_told_that_it_was_done_by_two
            results_are_forgotten_by_age_and_old_ones_deleted_by_the_way;
    };
    // Not of one process's memory.
    tests.extend(on_kinds! {
        1,
        kills:
            a_process_killed_between_any_two_steps_is_told_of;
    });
    // In databases.
    tests.extend(on_kinds! {
        2,
        exact:
            what_is_committed_is_done_and_what_is_rolled_back_is_not
            twenty_transactions_at_once_have_it_done_once
            a_process_killed_between_any_two_steps_has_done_it_wholly_or_not_at_all
            who_waits_for_a_killed_process_takes_over
            a_claim_under_a_lock_is_fenced
            both_forms_see_each_other
            results_in_transactions_end_by_age
            a_claim_sees_what_was_done_after_the_transaction_began
            sweeping_deletes_rows_whose_time_is_up
            a_ticket_is_good_for_its_own_transaction
            a_missing_table_says_how_to_make_it;
    });
    tests.extend(tenure_testkit::tests! {
        Nothing in requests:
            wrong_requests_are_refused_with_a_reason
            any_executor_will_do
            the_first_of_many_calls_sweeps_so_that_nobody_has_to
            threads_have_a_form_of_their_own
            values_are_in_no_debug_output;
        Redis in in_redis:
            a_run_costs_two_commands_and_a_replay_one
            a_key_that_is_something_else_is_a_typed_error
            a_script_that_the_server_lost_is_sent_again;
    });
    tenure_testkit::run_then(tests, || assert_eq!(keys_for_ever(), Vec::<String>::new(), "all records end some day"))
}
