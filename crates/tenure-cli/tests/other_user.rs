//! A program that becomes another user cannot be stopped: a message says so, and an option forbids it.
#![cfg(target_os = "linux")]

use rustix::process::{Pid, Signal, kill_process};
use tenure_testkit::command::is_dead;
use tenure_testkit::eventually;
use tenure_testkit::nobody::{NOBODY, break_as_nobody, run, unprivileged};

/// Ends what tenure could not.
struct Ends(i32);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = Pid::from_raw(self.0).map(|pid| kill_process(pid, Signal::KILL));
    }
}

#[test]
fn a_program_that_is_another_user_is_told_of_at_once_and_has_a_code_of_its_own() {
    for command in ["run", "elect"] {
        let Some(store) = unprivileged() else { return };
        let run = run(&store, &[command, "--lease", "3s", "x", "--", "./helper"]);
        let helper = Ends(store.pid("pid"));
        run.says("runs as another user");
        break_as_nobody(&store);
        let (code, stderr) = run.end();
        assert_eq!(code, Some(77), "{stderr}");
        assert!(stderr.contains("lost x") && stderr.contains("runs on as another user"), "{stderr}");
        assert!(!is_dead(helper.0));
    }
}

#[test]
fn a_part_of_the_program_that_is_another_user_is_told_of_when_it_is_left() {
    let Some(store) = unprivileged() else { return };
    let run = run(&store, &["run", "--lease", "3s", "x", "--", "sh", "-c", "./helper & echo $$ > shell; wait"]);
    let (helper, shell) = (Ends(store.pid("pid")), store.pid("shell"));
    break_as_nobody(&store);
    let (code, stderr) = run.end();
    assert_eq!(code, Some(77), "{stderr}");
    assert!(is_dead(shell) && !is_dead(helper.0), "{stderr}");
}

#[test]
fn with_no_new_privs_a_program_stays_who_it_is_and_is_stopped() {
    for command in ["run", "elect"] {
        let Some(store) = unprivileged() else { return };
        let run = run(&store, &[command, "--no-new-privs", "--lease", "3s", "x", "--", "./helper"]);
        let helper = Ends(store.pid("pid"));
        let status = std::fs::read_to_string(format!("/proc/{}/status", helper.0)).expect("it runs");
        assert!(status.contains("NoNewPrivs:\t1") && status.contains(&format!("Uid:\t{NOBODY}\t")), "{status}");
        std::fs::remove_file(store.path("pid")).expect("it is there");
        break_as_nobody(&store);
        eventually("its end", || is_dead(helper.0));
        if command == "run" {
            assert_eq!(run.end().0, Some(76));
        } else {
            run.says("the campaign goes on");
        }
    }
}
