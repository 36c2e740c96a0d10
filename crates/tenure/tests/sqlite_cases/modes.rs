//! Who may read and write the file: its user, or a group that the URL shares it with.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tenure::{Error, Locker};

use super::common::*;
use tenure_testkit::eventually;
use tenure_testkit::player::Player;

/// What is there, with its mode, by the ends of names.
fn modes(dir: &Path) -> Vec<(String, u32)> {
    let end = |path: &Path| path.display().to_string().rsplit('.').next().unwrap_or_default().to_owned();
    let mut found: Vec<_> = tree(dir).iter().map(|(path, ..)| (end(path), mode(path))).collect();
    found.sort();
    found
}

fn closed() -> Vec<(String, u32)> {
    let all = [("alive", 0o600), ("clients", 0o700), ("db", 0o600), ("db-shm", 0o600), ("db-wal", 0o600), ("wake", 0o600)];
    all.map(|(end, mode)| (end.to_owned(), mode)).to_vec()
}

pub(crate) fn files_are_closed_to_others_whatever_the_umask_is() {
    for umask in ["000", "022", "002", "077", "777"] {
        let dir = dir();
        let mut player = Player::start_under(
            Command::new("sh").args(["-c", &format!("umask {umask}; exec \"$0\" \"$@\"")]),
            "hold",
            &url(&dir.path().join("locks.db")),
        );
        player.line().parse::<u64>().expect("a token");
        assert_eq!(modes(dir.path()), closed(), "under the umask {umask}");
    }
}

pub(crate) fn a_user_without_rights_has_the_same_under_every_umask() {
    for umask in ["000", "077", "777"] {
        let dir = dir();
        chown(dir.path(), ALICE, ALICE);
        let mut shell = Command::new("sh");
        // Not the shell's own user: the way to this program may be closed to others, as below /root.
        let as_alice = format!("umask {umask}; exec setpriv --reuid {ALICE} --regid {ALICE} --clear-groups -- \"$0\" \"$@\"");
        shell.args(["-c", &as_alice]);
        let mut player = Player::start_under(&mut shell, "hold", &url(&dir.path().join("locks.db")));
        player.line().parse::<u64>().expect("a token");
        assert_eq!(modes(dir.path()), closed(), "under the umask {umask}");
    }
}

pub(crate) fn files_of_before_are_closed_when_they_are_opened() {
    let dir = dir();
    let first = block_on(client(&dir));
    for (path, ..) in tree(dir.path()) {
        chmod(&path, if path.is_dir() { 0o755 } else { 0o644 });
    }
    let held = block_on(first.mutex("x").lock()).expect("locked");
    let second = block_on(client(&dir));
    let open: Vec<_> = modes(dir.path()).into_iter().filter(|(_, mode)| mode & 0o077 != 0).collect();
    // Its own pipes are those of the client of before, which lives; the directory is closed.
    assert!(open.iter().all(|(end, _)| end == "alive" || end == "wake"), "{open:?}");
    assert!(block_on(second.mutex("x").try_lock()).expect("asked").is_none());
    block_on(held.release()).expect("given back");
}

pub(crate) fn the_default_file_works_in_a_directory_made_with_other_modes() {
    for bits in [0o700, 0o755, 0o777, 0o2775] {
        let state = dir();
        let tenure = state.path().join("tenure");
        std::fs::create_dir(&tenure).expect("made");
        chmod(&tenure, bits);
        let mut env = Command::new("env");
        let mut player = Player::start_under(env.arg(format!("XDG_STATE_HOME={}", state.path().display())), "hold", "sqlite:");
        player.line().parse::<u64>().expect("a token");
        assert_eq!(mode(&tenure), 0o700, "{bits:o}");
        assert_eq!(modes(&tenure), closed(), "{bits:o}");
    }
}

pub(crate) fn the_default_directory_is_not_made_where_another_user_leads_it() {
    let (home, outside) = (dir(), dir());
    std::os::unix::fs::symlink(outside.path(), home.path().join("state")).expect("linked");
    chown(home.path(), ALICE, ALICE);
    for state in [home.path().join("new"), home.path().join("state/new")] {
        let mut env = Command::new("env");
        let mut player = Player::start_under(env.arg(format!("XDG_STATE_HOME={}", state.display())), "open", "sqlite:");
        assert_eq!(player.line(), "None false");
    }
    assert_eq!((tree(outside.path()).len(), std::fs::read_dir(home.path()).expect("read").count()), (0, 1));
}

/// A directory that a group shares.
fn shared() -> (tempfile::TempDir, String) {
    let dir = dir();
    chown(dir.path(), 0, LOCKS);
    chmod(dir.path(), 0o2770);
    let url = format!("{}?share=group", url(&dir.path().join("locks.db")));
    (dir, url)
}

fn member(user: u32) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &user.to_string(), "--regid", &user.to_string(), "--groups", &LOCKS.to_string(), "--"]);
    command
}

pub(crate) fn two_users_share_a_store_by_their_group() {
    let (dir, url) = shared();
    let long = format!("{url}&lease=1h&timeout=30s");
    let mut alice = Player::start_under(&mut member(ALICE), "hold", &long);
    let token: u64 = alice.line().parse().expect("a token");
    let found = modes(dir.path());
    let group: Vec<_> = found.iter().map(|(end, mode)| (&**end, *mode)).collect();
    let due = [("alive", 0o640), ("clients", 0o2770), ("db", 0o660), ("db-shm", 0o660), ("db-wal", 0o660), ("wake", 0o660)];
    assert_eq!(group, due);
    let mut bob = Player::start_under(&mut member(BOB), "hold", &long);
    let locker = block_on(Locker::connect(&long)).expect("connected");
    eventually("bob waits", || block_on(locker.mutex("L").inspect()).expect("inspected").waiting == Some(1));
    // With leases of an hour, only the kernel can tell, also of another user's process.
    alice.kill();
    let next: u64 = bob.line().parse().expect("a token");
    assert!(next > token);
    let mut again = Player::start_under(&mut member(ALICE), "hold", &long);
    eventually("alice waits", || block_on(locker.mutex("L").inspect()).expect("inspected").waiting == Some(1));
    bob.tell("release");
    assert!(again.line().parse::<u64>().expect("a token") > next);
    drop(bob);
    eventually("nothing of the dead is left", || {
        drop(block_on(Locker::connect(&long)).expect("connected"));
        std::fs::read_dir(clients(&dir)).expect("read").count() == 4
    });
}

pub(crate) fn a_holder_whose_files_are_given_to_another_group_is_not_taken_for_dead() {
    let (dir, url) = shared();
    let holder = block_on(Locker::connect(&format!("{url}&lease=600ms"))).expect("connected");
    let guard = block_on(holder.mutex("L").lock()).expect("locked");
    for (path, ..) in tree(dir.path()) {
        chown(&path, 0, ALICE);
    }
    chown(dir.path(), 0, ALICE);
    // Longer than it takes until it has tried twice to make its pipes anew.
    std::thread::sleep(Duration::from_millis(2500));
    let newcomer = block_on(Locker::connect(&url)).expect("connected");
    assert!(block_on(newcomer.mutex("L").try_lock()).expect("asked").is_none(), "the holder lives");
    assert!(guard.is_valid());
}

pub(crate) fn who_is_not_in_the_group_can_neither_open_nor_block_it() {
    let (dir, url) = shared();
    let mut alice = Player::start_under(&mut member(ALICE), "hold", &url);
    alice.line().parse::<u64>().expect("a token");
    chmod(dir.path(), 0o2775);
    for end in ["", "-wal", "-shm"] {
        let mut command = Command::new("cat");
        let out = command.arg(dir.path().join(format!("locks.db{end}"))).uid(BOB).gid(BOB).output().expect("cat runs");
        assert!(!out.status.success(), "locks.db{end} can be read");
    }
}

pub(crate) fn sharing_is_asked_for_and_its_directory_must_fit() {
    let (dir, shared) = shared();
    let path = url(&dir.path().join("locks.db"));
    let text = refusal(&path).to_string();
    assert!(text.contains("share=group"), "{text}");
    for bits in [0o770, 0o2750, 0o2777] {
        chmod(dir.path(), bits);
        let error = refusal(&shared);
        assert!(matches!(error, Error::Config { .. }) && error.to_string().contains("chmod 2770"), "{bits:o}: {error}");
    }
    let text = refusal(&format!("{path}?share=everybody")).to_string();
    assert!(text.contains("none, group"), "{text}");
    assert_eq!(tree(dir.path()), []);
}

/// Locks, says so, and gives back when it is told.
pub(crate) async fn hold(locker: &Locker) {
    let guard = locker.mutex("L").lock().await.expect("locked");
    println!("{}", guard.token());
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("read");
    guard.release().await.expect("given back");
    tokio::time::sleep(Duration::from_secs(60)).await;
}
