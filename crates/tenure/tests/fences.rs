//! Fences at the storage: no late write is accepted, on any storage.

mod fence_cases {
    pub(crate) mod file;
    pub(crate) mod file_planted;
    pub(crate) mod file_processes;
    pub(crate) mod http;
    pub(crate) mod http_bounds;
    pub(crate) mod http_client;
    pub(crate) mod object;
    pub(crate) mod odd_store;
    pub(crate) mod redis;
    pub(crate) mod redis_cluster;
    pub(crate) mod redis_races;
}

use fence_cases::{file, file_planted, file_processes, http, http_bounds, object, redis, redis_cluster, redis_races};

fn main() {
    if let Some(role) = tenure_testkit::player::role() {
        return file_processes::play(&role);
    }
    tenure_testkit::run(tenure_testkit::tests! {
        Redis in redis:
            what_is_not_smaller_writes_and_what_is_smaller_is_stale
            a_stale_write_leaves_the_value_and_its_end_alone
            deleting_a_key_keeps_its_fence
            a_value_that_ends_by_itself_keeps_its_fence
            tokens_beyond_two_to_the_53_are_told_apart
            a_decrement_takes_all_or_nothing
            numbers_beyond_two_to_the_53_are_decremented_exactly
            what_is_no_number_is_not_decremented
            a_key_of_another_type_is_refused_and_left_alone
            a_fence_that_holds_no_token_lets_nobody_through
            a_key_that_has_no_fence_is_refused_before_anything_is_written
            a_fence_is_forgotten_only_where_that_was_asked_for
            a_script_that_the_server_lost_is_sent_again
            a_stale_write_under_a_guard_is_counted_by_its_locker
            the_documented_rights_are_enough_and_no_more
            marks_only_rise_and_are_no_fences_of_keys
            marks_say_what_is_wrong_with_their_store;
        Redis in redis_races:
            no_lower_token_overwrites_a_higher_one
            many_who_decrement_take_no_more_than_there_is;
        Redis in redis_cluster:
            keys_of_all_kinds_are_fenced_in_a_cluster
            a_fence_moves_with_its_slot;
        Nothing in http:
            a_request_with_a_smaller_token_is_refused_with_both
            a_request_without_a_token_is_asked_for_one
            what_is_no_token_is_a_bad_request
            the_resource_is_what_the_service_says_it_is
            the_sender_learns_of_it_and_its_locker_counts
            who_is_overtaken_behind_the_door_is_refused_by_the_storage
            only_a_service_that_was_ready_is_called
            the_answer_is_json_of_this_form;
        Nothing in http_bounds:
            a_token_far_ahead_of_the_clock_is_refused_and_closes_nothing
            marks_in_memory_that_are_full_refuse_new_names_and_forget_no_old_one;
        Redis in http_bounds:
            marks_for_which_redis_has_no_room_let_nobody_in
            a_resource_that_is_no_name_of_a_lock_is_a_bad_request_whatever_keeps_the_marks;
        Redis in http:
            processes_share_their_marks_in_redis
            marks_that_cannot_be_asked_let_nobody_in
            of_a_hundred_in_any_order_those_let_in_write_in_order;
        Nothing in object:
            what_is_not_smaller_is_written_and_what_is_smaller_is_stale
            deleting_an_object_keeps_its_fence
            a_stale_object_under_a_guard_is_counted_by_its_locker
            of_many_writers_the_one_with_the_largest_token_has_the_last_word
            of_two_who_write_first_the_larger_token_has_the_last_word
            a_store_that_breaks_a_promise_is_refused
            what_was_not_written_through_the_fence_is_left_alone
            attributes_of_the_user_stay_beside_the_token
            conflicts_without_end_are_an_error
            versions_are_named_in_order_and_all_but_the_last_two_are_pruned;
        Nothing in file_planted:
            a_fence_that_is_no_file_is_told_and_lets_nobody_through
            a_part_that_is_no_file_is_left_where_it_is
            no_room_for_a_part_is_told_in_time
            a_target_that_is_no_file_is_refused_and_left_alone
            only_who_may_write_the_file_can_lock_its_fence;
        Nothing in file:
            a_file_is_replaced_unless_a_larger_token_was_there
            removing_a_file_keeps_its_fence
            who_raised_the_fence_and_died_can_write_again
            a_damaged_fence_lets_nobody_through
            permissions_are_kept
            waiting_for_other_writers_has_an_end
            what_the_dead_have_left_goes_and_what_the_living_write_stays
            names_may_be_odd
            what_cannot_be_fenced_is_refused_with_what_can
            a_stale_file_under_a_guard_is_counted_by_its_locker
            of_many_threads_the_largest_token_has_the_last_word
            writers_do_not_take_each_other_for_dead;
        Nothing in file_processes:
            writers_killed_at_any_moment_leave_whole_files_and_fences_that_stand
            of_two_processes_no_lower_token_overwrites_a_higher_one
            a_writer_that_was_stopped_is_stale_when_it_wakes_up
            writers_stopped_at_any_moment_do_not_overwrite
            a_directory_that_may_not_be_written_is_named;
    })
}
