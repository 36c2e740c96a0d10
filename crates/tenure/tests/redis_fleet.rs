//! Many Redis servers: sentinels, clusters, replicas; failovers and moving slots under held and awaited locks.

mod fleet_cases {
    pub(crate) mod cluster;
    pub(crate) mod crowd;
    pub(crate) mod deaf;
    pub(crate) mod moving;
    pub(crate) mod options;
    pub(crate) mod replicas;
    pub(crate) mod sentinel;
}

use fleet_cases::{cluster, deaf, moving, options, replicas, sentinel};

fn main() {
    tenure_testkit::run(tenure_testkit::tests! {
        Redis in sentinel:
            a_killed_master_costs_no_hold_and_no_waiter
            a_hung_master_is_left_as_soon_as_another_is_named
            a_dial_to_a_hung_master_keeps_nobody_from_the_next
            a_relieved_master_costs_nothing
            an_acquire_in_flight_is_resolved_by_its_owner_on_the_new_master
            a_sentinel_that_names_a_replica_is_not_believed
            closing_gives_all_connections_back
            one_living_sentinel_is_enough
            wrong_words_to_sentinels_are_named;
        Redis in cluster:
            a_killed_node_costs_no_hold_and_no_waiter
            calls_that_begin_while_a_hung_node_is_replaced_are_answered
            a_hung_node_is_left_as_soon_as_another_takes_over
            an_acquire_in_flight_is_resolved_by_its_owner_on_the_new_master
            a_relieved_node_costs_nothing
            a_dead_part_costs_no_hold_elsewhere
            a_hung_part_delays_no_lock_elsewhere
            a_slot_that_moves_under_load_loses_nothing
            a_channel_that_moves_away_is_not_taken_for_an_answer
            a_channel_that_moves_away_while_we_leave_it_is_not_taken_for_an_answer
            a_server_that_has_not_joined_is_not_believed
            closing_gives_all_connections_back
            names_that_would_be_in_several_slots_are_refused
            a_release_is_told_on_the_channel_that_java_listens_to
            a_java_release_wakes_us_over_the_shards_channel
            holds_of_one_slot_are_renewed_together;
        Redis in moving:
            a_slot_that_is_long_on_its_way_costs_no_hold_of_any_kind
            a_hold_whose_keys_are_at_two_servers_is_renewed_and_given_back
            a_reader_of_a_slot_on_its_way_is_not_taken_for_dead_by_another
            who_stops_waiting_in_a_slot_on_its_way_is_forgotten;
        Redis in options:
            sentinels_in_code_have_a_login_of_their_own
            a_cluster_in_code_is_that_of_a_url;
        Redis in deaf:
            a_channel_connection_that_breaks_while_one_subscribes_deafens_nobody
            a_channel_connection_that_went_dead_goes_with_that_of_the_commands
            a_subscription_that_comes_late_is_not_left_behind_in_a_cluster
            a_server_that_was_slow_once_is_soon_beyond_suspicion
            a_call_that_is_cut_off_in_a_cluster_deafens_nobody
            who_waits_is_told_when_a_cluster_serves_again
            a_cluster_that_has_moved_as_a_whole_is_found_by_its_url;
        Redis in replicas:
            no_replica_is_no_success_and_no_lock
            a_grant_counts_once_enough_replicas_have_it
            replicas_are_asked_over_the_connection_that_wrote
            many_grants_wait_for_replicas_together
            a_wait_that_ends_with_the_masters_office_may_be_asked_again
            attempts_are_not_made_in_a_burst
            a_hold_that_replicas_do_not_confirm_is_told_by_the_deadline
            an_unreplicated_lock_is_granted_again_with_a_larger_token_and_the_first_is_told
            a_downgrade_that_replicas_do_not_confirm_gives_nothing_away
            a_sync_that_says_nothing_is_refused;
    })
}
