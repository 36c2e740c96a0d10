//! What only Redis has: its layout, its errors, its failures, and what a lock costs there.

mod redis_cases {
    pub(crate) mod cost;
    pub(crate) mod counts;
    pub(crate) mod fair;
    pub(crate) mod faults;
    pub(crate) mod full;
    pub(crate) mod golden_fair;
    pub(crate) mod golden_permits;
    pub(crate) mod golden_rw;
    pub(crate) mod handed_over;
    pub(crate) mod hostile;
    pub(crate) mod identify;
    pub(crate) mod java;
    pub(crate) mod layout;
    pub(crate) mod lingering;
    pub(crate) mod names;
    pub(crate) mod near;
    pub(crate) mod no_scripts;
    pub(crate) mod options;
    pub(crate) mod outages;
    pub(crate) mod peer_fair;
    pub(crate) mod peer_locks;
    pub(crate) mod peer_shared;
    pub(crate) mod pushed;
    pub(crate) mod tenants;
    pub(crate) mod tls;
    pub(crate) mod tracking;
    pub(crate) mod turns;
}

use redis_cases::cost::*;
use redis_cases::counts::*;
use redis_cases::fair::*;
use redis_cases::faults::*;
use redis_cases::full::*;
use redis_cases::golden_fair::*;
use redis_cases::golden_permits::*;
use redis_cases::golden_rw::*;
use redis_cases::handed_over::*;
use redis_cases::hostile::*;
use redis_cases::identify::*;
use redis_cases::layout::*;
use redis_cases::lingering::*;
use redis_cases::names::*;
use redis_cases::near::*;
use redis_cases::no_scripts::*;
use redis_cases::options::*;
use redis_cases::outages::*;
use redis_cases::peer_fair::*;
use redis_cases::peer_locks::*;
use redis_cases::peer_shared::*;
use redis_cases::pushed::*;
use redis_cases::tenants::*;
use redis_cases::tls::*;
use redis_cases::tracking::*;
use redis_cases::turns::*;

fn main() {
    tenure_testkit::run(tenure_testkit::tests! {
        Redis:
            an_identification_is_forgotten_after_twice_the_longest_lease
            a_lease_that_nobody_comes_with_any_more_is_forgotten
            very_many_leases_are_told_as_longer_ones
            a_replica_says_so_and_writes_nothing
            who_may_not_ask_who_answers_is_told_which_right_is_missing
            golden_vector_1_a_hash_with_one_field_and_a_time_to_live
            golden_vector_2_a_release_publishes_zero_once
            golden_vector_3_breaking_a_free_lock_publishes_nothing
            owners_of_permits_that_are_gone_are_forgotten
            permits_of_which_one_was_taken_for_lapsed_are_gone_as_a_whole
            a_short_wait_to_write_does_not_end_the_mark_of_a_long_one
            whose_turn_it_is_goes_with_the_last_writer_in_the_queue
            a_mark_of_a_version_before_is_heeded_after_one_reader
            a_clock_that_is_set_back_costs_readers_one_grace
            dead_readers_do_not_pile_up_among_many
            a_line_with_other_members_than_its_deadlines_repairs_itself
            a_user_without_rights_ends_nobodys_read_lock
            golden_vector_4_a_queue_of_owners_and_their_deadlines
            golden_vector_5_an_expired_lock_belongs_to_the_first_in_the_queue
            golden_vector_6_a_release_tells_the_first_in_the_queue_alone
            golden_vector_7_who_gives_up_costs_nobody_a_position
            golden_vector_8_a_lost_list_or_set_repairs_itself
            golden_vector_9_readers_share_and_a_writer_waits_for_all
            golden_vector_10_the_last_reader_tells_and_the_others_lower_the_time
            golden_vector_11_a_writer_becomes_a_reader_and_says_so
            golden_vector_12_writing_again_does_not_add_up_the_leases
            golden_vector_13_the_release_of_nothing_says_nothing
            golden_vector_14_the_last_living_reader_sweeps_the_dead
            golden_vector_15_a_reader_that_lapsed_leaves_the_others_alone
            golden_vector_16_a_downgrade_ends_with_its_own_lease
            a_writer_that_reads_by_now_is_renewed_as_a_reader
            golden_vector_17_a_plain_counter_of_permits
            golden_vector_18_a_new_number_keeps_its_time_to_live
            golden_vector_19_permits_are_sixteen_bytes_with_an_end
            golden_vector_20_all_expired_permits_come_back_at_once
            golden_vector_21_a_latch_is_a_number_that_goes_at_zero
            golden_vector_22_a_cluster_tells_those_of_its_own_way_alone;
        Redis:
            a_java_hold_is_respected_and_its_release_wakes_us
            the_plain_layout_is_set_nx_px
            a_foreign_delete_wakes_waiters_of_the_plain_layout
            an_expiry_wakes_waiters
            tokens_are_exact_beyond_two_to_the_53
            used_up_tokens_are_an_error_and_no_lock
            tokens_grow_past_a_flush
            tokens_expire_after_an_idle_time_or_never
            the_clients_record_goes_with_it;
        Redis:
            a_lone_caller_gets_a_connection_of_its_own_runtime_which_ends_when_it_is_idle
            a_runtime_that_has_ended_or_stands_still_costs_no_lock_and_no_call
            a_runtime_without_connections_of_its_own_will_do
            a_near_connection_that_is_killed_costs_no_lock;
        Redis:
            a_claim_of_another_client_is_told_to_the_one_that_lingers
            two_that_linger_take_turns;
        Redis:
            options_in_code_name_the_same_lock_as_a_url
            options_that_do_not_go_together_are_refused_before_any_connection
            credentials_are_asked_for_each_new_connection
            credentials_that_cannot_be_had_are_an_outage_that_says_so
            a_server_that_is_away_costs_no_question_for_credentials
            a_tls_configuration_of_the_users_own_is_used
            a_client_of_redis_rs_says_where_and_who;
        Redis:
            no_subscription_is_left_behind_by_a_crowd
            no_subscription_is_left_behind_by_those_who_give_up
            a_channel_that_is_refused_leaves_no_other_subscription_behind
            the_time_to_live_is_the_lease_and_ends_with_the_release
            a_limited_wait_is_waited_out
            a_stopped_server_is_an_error_and_no_hang
            after_a_restart_new_holds_are_kept_alive
            a_hold_after_a_nested_pair_is_kept_alive
            many_names_of_all_kinds_are_given_back
            a_name_with_a_tag_of_its_own_does_for_all_kinds;
        Redis:
            those_in_the_queue_come_to_their_turn_without_any_release
            a_long_queue_is_served_in_order
            short_waits_leave_the_queue_as_it_was
            a_pause_of_the_server_leaves_no_queue_position
            a_break_calls_the_first_in_the_queue
            a_fair_hold_is_nested_shown_and_taken_again
            a_prefix_is_part_of_the_names_of_a_queue;
        Redis:
            a_writer_waits_for_the_longest_lease_of_the_readers
            readers_come_in_when_a_writers_lease_ends
            a_nested_read_release_keeps_the_write_lock
            all_waiting_readers_come_in_together
            readers_and_writers_lose_no_update
            fifty_readers_are_kept_alive
            several_permits_are_waited_for_until_all_are_there
            two_who_want_two_permits_each_both_get_them
            the_edges_of_numbers_of_permits
            awaiters_of_a_latch_see_zero;
        Redis:
            a_free_lock_costs_two_commands_and_a_reentry_none
            inner_calls_of_a_verb_stay_within_their_number
            inner_calls_of_a_crowd_stay_within_their_number
            a_thousand_tasks_cost_at_most_three_commands_per_hand_over
            waiting_costs_a_command_per_poll_at_most
            several_names_are_locked_in_one_round_trip
            writers_that_wait_do_not_wake_each_other
            a_thousand_in_the_queue_are_served_in_order_for_three_commands_each
            a_head_that_is_dead_is_not_asked_about_all_the_time;
        Redis:
            a_release_hands_the_lock_to_the_first_in_line
            what_was_handed_over_is_kept_alive
            who_needs_more_than_a_place_gives_asks_for_it
            a_dead_one_that_is_handed_the_lock_costs_its_place_and_not_a_lease
            one_that_nobody_hears_of_is_not_handed_the_lock
            a_word_that_fits_no_place_grants_nothing
            who_leaves_with_the_lock_in_hand_hands_it_on
            a_plain_lock_is_given_back_without_a_script_where_the_server_can
            a_user_who_may_call_no_script_has_plain_locks_where_the_server_can;
        Redis:
            a_key_of_another_type_is_named
            a_key_of_another_format_is_named
            the_family_leaves_keys_of_others_alone
            a_lost_script_is_sent_again
            a_replica_is_read_only
            a_loading_server_is_loading
            a_busy_server_is_busy_and_not_the_lock
            a_full_server_refuses_locks_but_not_releases
            missing_rights_are_named_also_inside_of_scripts
            a_wrong_password_is_named_and_not_shown
            a_password_that_the_server_repeats_is_not_shown
            an_unreachable_server_is_unavailable
            unknown_options_are_refused_with_the_known_ones;
        Redis:
            holders_of_every_kind_renew_and_release_on_a_full_server
            a_renewal_that_is_refused_costs_no_other_hold
            an_operators_del_is_told_at_once
            an_emptied_database_is_told_to_all_who_hold
            what_was_deleted_while_the_connection_was_away_is_told_when_it_is_back
            a_hold_that_is_watched_is_not_renewed_all_the_time
            who_gets_what_it_asks_for_leaves_nothing_in_the_tracking_table
            who_waited_leaves_little_in_the_tracking_table
            a_tracking_table_that_is_too_small_wakes_waiters_instead_of_losing_them
            who_may_not_say_what_to_track_is_woken_by_messages
            a_right_that_is_taken_away_costs_a_waiter_nothing
            names_that_share_a_channel_are_told_of_apart
            a_name_that_ends_like_an_owner_is_tracked_too;
        Redis:
            a_restart_wakes_waiters_and_tells_holders
            after_a_restart_holders_are_known_again
            an_outage_shorter_than_the_lease_loses_nothing
            those_who_have_left_a_hung_server_dial_it_no_more
            a_hung_server_is_known_by_the_deadline
            killed_connections_are_made_again
            a_connection_that_went_dead_without_a_word_is_replaced
            names_that_share_a_channel_are_all_woken
            a_connection_that_is_given_up_is_made_anew_for_those_who_only_listen
            who_waits_is_subscribed_again_over_a_new_connection
            a_connection_that_breaks_while_one_subscribes_deafens_nobody
            a_subscription_that_comes_late_is_not_left_behind
            try_lock_survives_a_stale_connection;
        Redis:
            a_second_tenant_reaches_nothing_of_the_first_one
            a_second_tenant_reaches_nothing_of_the_plain_layout
            a_second_tenant_reaches_nothing_of_a_lock_of_several_servers
            a_second_tenant_reaches_no_fence_of_the_first_one
            without_the_rights_that_show_names_of_others_locks_work
            a_client_without_a_prefix_knows_the_holders_of_all_prefixes
            a_list_asks_little_however_many_keys_others_have
            a_list_of_a_cluster_asks_little_too
            too_many_names_for_a_list_are_an_error_that_says_what_helps
            a_list_that_lacks_an_answer_is_an_error
            long_notes_of_very_many_are_left_out
            keys_that_are_kept_beside_locks_are_no_names_for_locks
            a_name_and_the_same_in_braces_are_kept_apart_or_refused
            a_lock_of_very_many_readers_is_not_said_to_be_free;
        Nothing:
            an_endless_text_ends_the_connection
            an_endless_line_ends_the_connection
            an_endless_list_ends_the_connection
            an_endless_push_ends_the_connection
            lists_in_lists_without_end_end_the_connection
            a_greeting_without_end_is_an_error
            a_large_reply_is_read
            a_scan_without_end_is_an_error
            a_flood_of_pushes_is_read_and_forgotten;
        Openssl:
            tls_is_verified
            a_server_that_asks_who_we_are_is_told
            a_tls_server_that_is_killed_is_unavailable
            tls_never_falls_back;
    })
}
