//! What is made of several locks: all or none, stripes, leaders, partitions, keys in order. On every kind of store.

mod group_cases {
    pub(crate) mod election;
    pub(crate) mod multi;
    pub(crate) mod partitions;
    pub(crate) mod serial;
    pub(crate) mod store;
    pub(crate) mod striped;
}

use group_cases::store::Store;
use group_cases::{election, multi, partitions, serial, striped};
use tenure_testkit::locker::block_on;
use tenure_testkit::{Needs, Test};

macro_rules! on_all_stores {
    ($($module:ident: $($name:ident)*;)*) => {{
        let mut tests = Vec::new();
        for (store, needs, make) in Store::ALL {
            $($(tests.push(Test::new(
                format!("{store}::{}::{}", stringify!($module), stringify!($name)),
                needs,
                move || block_on($module::$name(make())),
            ));)*)*
        }
        tests
    }};
}

fn main() {
    let mut tests = on_all_stores! {
        multi:
            overlapping_sets_neither_deadlock_nor_lose_updates
            all_or_none
            an_error_gives_back_all
            a_lost_part_is_the_loss_of_all
            a_part_that_is_lost_while_another_is_waited_for_ends_the_wait
            a_dropped_future_leaves_nothing
            duplicates_are_one;
        striped:
            five_hundred_are_sold_once_each
            any_free_stripe_is_found
            whoever_waits_for_any_gets_the_first_and_nothing_else;
        election:
            leaders_follow_each_other_and_terms_grow
            who_loses_the_office_campaigns_again
            changes_are_seen
            a_leader_that_dies_is_followed;
        partitions:
            partitions_move_evenly_and_never_have_two_owners
            a_member_that_leaves_gives_all_back
            a_lost_partition_is_taken_anew;
        serial:
            the_work_of_a_key_runs_in_order
            keys_do_not_wait_for_each_other
            work_is_refused_elsewhere_and_stopped_when_its_partition_goes
            the_order_of_a_key_survives_a_rebalance;
    };
    tests.push(Test::new("all_are_asked_for_at_once", Needs::Nothing, multi::all_are_asked_for_at_once));
    tests.push(Test::new("wrong_requests_are_refused_with_a_reason", Needs::Nothing, || block_on(multi::wrong_requests())));
    tests.push(Test::new("any_executor_will_do", Needs::Nothing, striped::any_executor_will_do));
    tenure_testkit::run(tests)
}
