//! One lock made of several independent Redis servers, under real faults: of servers, of networks and of clocks.

mod quorum_cases {
    pub(crate) mod away;
    pub(crate) mod bad_day;
    pub(crate) mod clocks;
    pub(crate) mod common;
    pub(crate) mod pauses;
    pub(crate) mod refusals;
    pub(crate) mod restarts;
    pub(crate) mod supports;
}

use quorum_cases::{away, bad_day, clocks, pauses, refusals, restarts, supports};

fn main() {
    if let Some(role) = tenure_testkit::player::role() {
        return pauses::play(&role);
    }
    let mut tests = tenure_testkit::tests! {
        Cc in clocks:
            a_clock_a_minute_ahead_makes_no_second_holder
            a_clock_an_hour_behind_makes_no_second_holder
            a_young_node_whose_clock_is_set_back_is_one_that_does_not_count_yet
            two_who_hold_because_a_clock_has_jumped_are_told_apart_by_their_tokens
            one_clock_moves_no_token
            a_clock_that_differs_is_reported_once_and_once_when_it_no_longer_does;
        Cc in restarts:
            a_node_that_has_forgotten_makes_no_second_majority
            a_node_that_has_forgotten_makes_no_second_majority_for_a_newcomer
            a_node_that_has_forgotten_and_whose_clock_has_jumped_is_no_danger_to_what_is_fenced
            without_the_quarantine_only_the_tokens_tell_two_holders_apart
            a_node_that_restarts_with_all_that_it_knew_is_quarantined_too
            a_young_node_is_not_taken_for_older_than_it_is
            a_majority_of_young_nodes_says_for_how_long_it_does_not_count
            a_restarted_node_gets_the_lock_again_from_a_holder_with_a_majority
            a_hold_that_a_majority_has_forgotten_is_lost_and_not_written_again;
        Cc in pauses:
            who_stands_still_before_the_votes_are_counted_is_not_granted
            who_stands_still_with_the_lock_knows_before_its_next_statement
            votes_that_come_too_late_are_given_back
            stragglers_give_their_votes_back_after_the_release
            requests_that_come_after_the_release_leave_nothing
            a_straggler_keeps_the_vote_of_a_hold_that_goes_on
            who_goes_away_while_the_votes_come_in_leaves_nothing;
        Cc in bad_day:
            a_crowd_leaves_no_vote_behind
            nobody_holds_what_another_holds
            tokens_are_in_the_order_of_grants;
        Redis in refusals:
            a_number_of_nodes_that_makes_no_sense_is_refused
            a_node_that_fails_over_is_refused_before_it_is_reached
            the_same_server_twice_is_refused
            a_replica_in_the_list_is_refused
            what_is_a_quorum_itself_or_moves_is_no_node
            too_few_nodes_to_connect_to_are_named
            passwords_of_nodes_are_kept_to_oneself;
        Cc in supports:
            the_clock_of_a_server_can_be_moved
            a_clock_that_never_jumps_can_be_moved;
        Redis in supports:
            a_cut_cable_closes_and_refuses
            a_blackholed_cable_swallows_until_it_is_healed
            replies_can_be_held_back
            requests_can_be_held_back
            a_stranded_connection_is_dead_and_a_new_one_is_not
            a_node_can_be_paused_emptied_and_restarted;
        Nothing in supports:
            a_fenced_store_rejects_what_is_stale;
    };
    tests.extend(away::tests());
    tenure_testkit::run(tests)
}
