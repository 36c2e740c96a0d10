//! The embedded store among hostile users, files and directories.

mod sqlite_cases {
    pub(crate) mod common;
    pub(crate) mod filesystems;
    pub(crate) mod foreign;
    pub(crate) mod modes;
    pub(crate) mod names;
    pub(crate) mod pipes;
    pub(crate) mod places;
    pub(crate) mod removed;
    pub(crate) mod schema;
}

use sqlite_cases::filesystems::*;
use sqlite_cases::foreign::*;
use sqlite_cases::modes::*;
use sqlite_cases::names::*;
use sqlite_cases::pipes::*;
use sqlite_cases::places::*;
use sqlite_cases::removed::*;
use sqlite_cases::schema::*;
use tenure_testkit::player;

fn main() {
    if let Some(role) = player::role() {
        let url = std::env::args().nth(1).expect("a URL");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        return match &*role {
            "open" => runtime.block_on(open(&url)),
            "why" => runtime.block_on(why(&url)),
            "try" => runtime.block_on(try_lock(&url)),
            "believe" => runtime.block_on(believe(&url)),
            "again" => runtime.block_on(hold_when_told(&url)),
            _ => runtime.block_on(async { hold(&tenure::Locker::connect(&url).await.expect("connected")).await }),
        };
    }
    tenure_testkit::run(tenure_testkit::tests! {
        Nothing:
            a_link_in_place_of_the_directory_of_clients_is_not_followed
            what_is_no_pipe_of_a_client_is_left_alone
            a_client_that_is_a_path_leads_nowhere
            a_directory_of_clients_that_was_made_anew_is_found_again
            pipes_that_were_removed_are_made_again
            a_holder_that_makes_its_pipes_again_never_looks_dead
            no_client_in_a_row_touches_a_file
            no_name_in_the_directory_of_clients_but_its_own_is_removed
            a_directory_that_others_may_write_to_is_refused
            a_directory_below_one_that_others_may_write_to_is_refused
            what_is_no_file_is_refused_in_its_place
            a_link_that_others_may_replace_is_not_followed
            files_are_closed_to_others_whatever_the_umask_is
            files_of_before_are_closed_when_they_are_opened
            the_default_file_works_in_a_directory_made_with_other_modes
            a_schema_that_is_not_ours_to_the_letter_is_refused_and_left_alone
            what_sqlite_adds_by_itself_is_no_other_schema
            a_file_that_was_a_node_of_a_quorum_is_still_ours
            a_trigger_or_view_that_comes_later_does_nothing
            a_tree_without_an_end_is_given_up
            a_file_that_is_no_database_is_left_as_it_is_with_all_beside_it
            a_file_beside_it_that_is_not_sqlites_is_refused_and_left_alone
            what_sqlite_leaves_beside_a_file_is_taken
            another_programs_database_keeps_its_mode_and_its_log
            a_path_is_taken_as_it_is_written
            first_openers_that_are_killed_at_any_moment_are_in_nobodys_way
            a_second_name_of_the_file_is_refused
            a_new_file_has_one_name_at_any_moment
            a_holder_whose_log_was_removed_is_told_so
            clients_of_one_process_find_a_new_log_together;
        Fuse: fuse_is_refused_unless_the_url_takes_any_file_system;
        Root:
            an_idle_pipe_of_another_user_proves_no_death
            a_directory_of_another_user_or_group_is_refused
            a_link_of_another_user_is_not_followed
            a_file_of_another_user_is_refused_and_left_alone
            the_default_directory_is_not_made_where_another_user_leads_it
            a_user_without_rights_has_the_same_under_every_umask
            two_users_share_a_store_by_their_group
            a_holder_whose_files_are_given_to_another_group_is_not_taken_for_dead
            who_is_not_in_the_group_can_neither_open_nor_block_it
            sharing_is_asked_for_and_its_directory_must_fit
            a_mount_of_the_file_alone_is_refused
            another_time_than_the_machines_is_refused;
    });
}
