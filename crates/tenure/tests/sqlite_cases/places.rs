//! Where the file may be: only its user may put files there.

use std::os::unix::fs::symlink;

use tenure::Error;

use super::common::*;

#[track_caller]
fn refused(url: &str, why: &str) {
    let error = refusal(url);
    assert!(matches!(error, Error::Config { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains(why) && text.contains("allowed: "), "{text}");
}

pub(crate) fn a_directory_that_others_may_write_to_is_refused() {
    // The sticky bit keeps others from removing our files, not from putting theirs beside them.
    for bits in [0o777, 0o1777, 0o702] {
        let dir = dir();
        chmod(dir.path(), bits);
        refused(&url(&dir.path().join("locks.db")), "may be written to by everybody");
        assert_eq!(tree(dir.path()), []);
    }
}

pub(crate) fn a_directory_below_one_that_others_may_write_to_is_refused() {
    let dir = dir();
    let inner = dir.path().join("a/b");
    std::fs::create_dir_all(&inner).expect("made");
    chmod(&dir.path().join("a"), 0o777);
    refused(&url(&inner.join("locks.db")), "may be written to by everybody");
    assert_eq!(std::fs::read_dir(&inner).expect("read").count(), 0);
    // As below /tmp: what is there cannot be replaced.
    chmod(&dir.path().join("a"), 0o1777);
    block_on(tenure::Locker::connect(&url(&inner.join("locks.db")))).expect("connected");
}

pub(crate) fn a_directory_of_another_user_or_group_is_refused() {
    let dir = dir();
    let path = url(&dir.path().join("locks.db"));
    chown(dir.path(), ALICE, ALICE);
    refused(&path, &format!("belongs to user {ALICE}"));
    chown(dir.path(), 0, LOCKS);
    chmod(dir.path(), 0o770);
    refused(&path, &format!("may be written to by group {LOCKS}"));
    assert_eq!(tree(dir.path()), []);
    // A group of one, as many systems give each user.
    chown(dir.path(), 0, 0);
    block_on(tenure::Locker::connect(&path)).expect("connected");
}

pub(crate) fn a_file_of_another_user_is_refused_and_left_alone() {
    for end in ["", "-wal", "-shm", "-journal"] {
        let dir = dir();
        block_on(async { client(&dir).await.close().await }).expect("closed");
        let file = dir.path().join(format!("locks.db{end}"));
        if !file.exists() {
            std::fs::write(&file, "").expect("written");
        }
        chown(&file, ALICE, ALICE);
        let before = tree(dir.path());
        refused(&url(&dir.path().join("locks.db")), &format!("belongs to user {ALICE}"));
        assert_eq!(tree(dir.path()), before);
    }
}

pub(crate) fn what_is_no_file_is_refused_in_its_place() {
    let outside = dir();
    let victim = outside.path().join("victim");
    for end in ["-wal", "-shm", "-journal"] {
        let dir = dir();
        symlink(&victim, dir.path().join(format!("locks.db{end}"))).expect("linked");
        refused(&url(&dir.path().join("locks.db")), "is not a regular file");
        assert!(!victim.exists());
    }
    let dir = dir();
    mkfifo(&dir.path().join("locks.db"));
    refused(&url(&dir.path().join("locks.db")), "is not a regular file");
    // A link that leads nowhere yet, by which a file would be made elsewhere.
    let link = dir.path().join("link.db");
    symlink(&victim, &link).expect("linked");
    drop(refusal(&url(&link)));
    assert!(!victim.exists());
}

pub(crate) fn a_link_that_others_may_replace_is_not_followed() {
    let (dir, open) = (dir(), dir());
    block_on(async { client(&dir).await.close().await }).expect("closed");
    let file = dir.path().join("locks.db");
    let link = open.path().join("link.db");
    symlink(&file, &link).expect("linked");
    block_on(tenure::Locker::connect(&url(&link))).expect("connected");
    chmod(open.path(), 0o777);
    refused(&url(&link), "may be written to by everybody");
    // A directory is no better than the file.
    let inner = open.path().join("inner");
    symlink(dir.path(), &inner).expect("linked");
    refused(&url(&inner.join("locks.db")), "may be written to by everybody");
    chmod(open.path(), 0o1777);
    block_on(tenure::Locker::connect(&url(&inner.join("locks.db")))).expect("connected");
}

pub(crate) fn a_link_of_another_user_is_not_followed() {
    let (dir, open) = (dir(), dir());
    block_on(async { client(&dir).await.close().await }).expect("closed");
    chmod(open.path(), 0o1777);
    let link = open.path().join("link.db");
    symlink(dir.path().join("locks.db"), &link).expect("linked");
    chown(&link, ALICE, ALICE);
    refused(&url(&link), &format!("belongs to user {ALICE}"));
}
