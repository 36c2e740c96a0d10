//! One lock made of several independent Redis servers, under real faults: of servers, of ways to them and of clocks.

mod support;

mod quorum_cases {
    pub(crate) mod supports;
}

use quorum_cases::supports;

fn main() {
    support::run(tests! {
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
    })
}
