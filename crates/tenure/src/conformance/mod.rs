//! The suite that every backend passes: one property per test, named as a sentence.
//!
//! A store joins with a [`Subject`]: how to make a new client of it, on which clock, with which lease. Each property of
//! [`properties`] is run on it, and again through [`Faulty`](crate::backends::faulty::Faulty):
//!
//! ```
//! # use tenure::conformance::{Subject, properties};
//! for property in properties() {
//!     println!("{}", property.name);
//!     property.run_paused(Subject::memory);
//! #   break;
//! }
//! ```

mod claims;
mod family;
mod holds;
mod queues;
mod shared;
mod subject;
mod tokens;
mod turns;
mod waiting;
mod waking;

use std::fmt;

use futures_util::future::BoxFuture;
use tokio::runtime::Builder;

pub use self::subject::Subject;
use self::subject::{Peer, sure, sure_or_refused};

/// One property.
pub struct Property {
    /// A sentence with underscores.
    pub name: &'static str,
    run: fn(Subject) -> BoxFuture<'static, ()>,
}

impl fmt::Debug for Property {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Property {
    /// Checks the property in real time. Panics if it does not hold.
    pub fn run(&self, subject: &Subject) {
        Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime")
            .block_on((self.run)(subject.fresh()));
    }

    /// Checks the property on a paused clock, which makes all waiting immediate. For stores without I/O.
    pub fn run_paused(&self, subject: impl FnOnce() -> Subject) {
        let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime");
        runtime.block_on(async { (self.run)(subject().fresh()).await });
    }
}

macro_rules! properties {
    ($($module:ident: $($name:ident)*;)*) => {
        /// All properties.
        #[must_use]
        pub fn properties() -> Vec<Property> {
            vec![$($(Property { name: stringify!($name), run: |subject| Box::pin($module::$name(subject)) },)*)*]
        }
    };
}

properties! {
    claims:
        a_free_lock_is_granted
        a_held_lock_is_busy_for_others
        a_retry_keeps_its_token
        never_leaves_no_queue_position
        a_release_frees_the_lock
        releasing_twice_is_not_an_error
        a_stranger_cannot_release
        a_lapsed_hold_is_gone_and_is_not_made_again
        a_late_release_leaves_the_next_holder_alone
        renewal_extends_a_hold
        renewals_are_answered_in_order
        tokens_grow_in_grant_order
        a_block_of_tokens_is_skipped_by_the_next_grant
        a_release_fires_the_signal
        a_break_ends_the_hold_and_raises_the_fence
        breaking_a_free_lock_breaks_nothing
        inspect_shows_holder_token_note_and_time_left
        inspect_lists_held_names_under_a_literal_prefix
        names_of_all_kinds_are_kept_apart
        a_given_up_claim_leaves_nothing;
    tokens:
        a_token_is_at_least_what_was_asked_for
        a_hold_that_goes_on_is_raised_to_a_larger_token
        raising_one_of_many_takes_no_token_back
        a_break_raises_the_fence_also_where_nobody_holds
        an_identification_tells_who_answers;
    holds:
        a_lock_is_kept_alive_past_its_lease
        a_fixed_lease_ends_and_says_so
        max_hold_ends_a_forgotten_guard
        a_broken_hold_is_told
        a_broken_hold_is_told_long_before_its_next_renewal
        a_lost_hold_is_never_valid_again
        run_drops_its_future_on_loss
        a_dropped_guard_gives_the_lock_back
        an_owner_reenters_with_the_same_token
        a_scope_reenters_without_being_named
        closing_gives_everything_back
        a_grant_that_comes_too_late_is_not_taken;
    waiting:
        a_waiter_is_woken_by_a_release
        lock_within_gives_up_with_none
        try_lock_reports_busy_at_once
        a_cancelled_wait_leaves_nothing
        an_acquire_dropped_at_any_moment_leaves_nothing
        tasks_of_one_client_are_served_in_order
        a_hold_is_handed_over_with_a_larger_token
        a_missed_notification_is_made_up_for
        many_of_one_client_do_not_starve_one_of_another
        no_update_is_lost_among_clients;
    waking:
        who_waits_for_a_lock_hears_of_a_break_after_a_renewal
        who_stands_in_the_queue_hears_of_a_break_after_a_renewal
        who_wants_to_read_hears_of_a_break_after_a_renewal
        who_wants_to_write_hears_of_other_readers_after_its_own
        who_wants_to_read_hears_of_other_writers_after_its_own
        who_wants_a_permit_hears_of_others_after_a_renewal
        who_wants_permits_hears_of_others_after_its_own_client_took_one
        who_waits_for_a_latch_hears_of_others_after_its_own_client_counted;
    shared:
        readers_share_and_a_writer_is_alone
        a_waiting_writer_stops_new_readers
        a_writer_that_gives_up_lets_readers_in
        a_dead_reader_ends_alone
        a_writer_becomes_a_reader_under_the_same_token
        a_downgrade_is_never_granted_anew
        a_read_release_fires_the_writers_signal
        a_break_ends_all_readers
        permits_never_exceed_the_number
        a_lapsed_permit_comes_back
        resizing_never_admits_above_the_new_number
        a_permit_that_comes_back_fires_the_signal
        a_break_takes_all_permits_back;
    turns:
        a_free_lock_is_left_to_a_writer_that_waits
        a_dead_writer_in_the_queue_costs_readers_a_grace_each_time
        who_reads_or_has_written_leaves_nothing_to_a_writer_in_the_queue
        readers_have_a_turn_between_writers
        a_release_wakes_the_writer_behind_readers_in_the_queue
        near_readers_leave_a_turn_to_a_far_writer;
    queues:
        a_fair_queue_is_served_in_order
        a_release_wakes_the_first_in_the_queue_alone
        leaving_the_queue_lets_the_next_one_in
        the_dead_in_the_queue_end_with_one_waiters_lease
        a_latch_opens_at_zero
        a_removed_latch_wakes_all
        asking_a_latch_again_changes_nothing;
    family:
        readers_of_one_process_hold_together
        a_downgraded_hold_is_kept_alive_and_given_back
        an_upgrade_is_refused_at_once
        a_fair_lock_is_served_in_order_across_clients
        a_cancelled_fair_wait_leaves_the_queue
        a_crowd_never_holds_more_than_the_permits
        permits_are_kept_alive
        a_latch_lets_all_go_on
        an_open_latch_is_open_to_all_who_ask_at_once;
}
