//! One file has one name: SQLite finds the files beside it by name, so two names would have two logs.

use std::os::unix::fs::MetadataExt;
use std::process::Command;

use tenure::Error;

use super::common::*;
use tenure_testkit::player::Player;

pub(crate) fn a_second_name_of_the_file_is_refused() {
    let (dir, other) = (dir(), dir());
    block_on(async { client(&dir).await.close().await }).expect("closed");
    let (file, link) = (dir.path().join("locks.db"), other.path().join("locks.db"));
    std::fs::hard_link(&file, &link).expect("linked");
    for path in [&file, &link] {
        let error = refusal(&url(path));
        let text = error.to_string();
        assert!(matches!(error, Error::Config { .. }) && text.contains("2 names") && text.contains("allowed: "), "{text}");
    }
    assert_eq!(std::fs::read_dir(other.path()).expect("read").count(), 1);
    std::fs::remove_file(&link).expect("removed");
    block_on(async { client(&dir).await.mutex("x").lock().await?.release().await }).expect("locked");
}

pub(crate) fn a_mount_of_the_file_alone_is_refused() {
    let (dir, other) = (dir(), dir());
    block_on(async { client(&dir).await.close().await }).expect("closed");
    let mounted = other.path().join("locks.db");
    std::fs::write(&mounted, "").expect("made");
    let under = |from: &std::path::Path, to: &std::path::Path| {
        let mut command = Command::new("unshare");
        let script = "mount --bind \"$0\" \"$1\" && shift && exec \"$@\"";
        command.args(["-m", "sh", "-c", script]).args([from, to]);
        command
    };
    for url in [url(&mounted), format!("{}?filesystem=any", url(&mounted))] {
        let mut player = Player::start_under(&mut under(&dir.path().join("locks.db"), &mounted), "why", &url);
        let said = player.line();
        assert!(said.contains("mount") && said.contains("allowed: ") && said.contains("directory"), "{said}");
    }
    assert_eq!(std::fs::metadata(&mounted).expect("there").size(), 0);
    // Its directory may be one: all of it is there.
    let held = block_on(async { client(&dir).await.mutex("L").lock().await }).expect("locked");
    let mut player = Player::start_under(&mut under(dir.path(), other.path()), "try", &url(&mounted));
    assert_eq!(player.line(), "busy");
    block_on(held.release()).expect("given back");
}

pub(crate) fn a_new_file_has_one_name_at_any_moment() {
    let dir = dir();
    let done = std::sync::atomic::AtomicBool::new(false);
    let paths: Vec<_> = (0..200).map(|n| dir.path().join(format!("{n}.db"))).collect();
    std::thread::scope(|scope| {
        let most = scope.spawn(|| {
            let mut most = 0;
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                let entries = std::fs::read_dir(dir.path()).expect("read").flatten();
                let files = entries.filter_map(|entry| entry.metadata().ok()).filter(std::fs::Metadata::is_file);
                most = files.map(|meta| meta.nlink()).chain([most]).max().unwrap_or(0);
            }
            most
        });
        for path in &paths {
            block_on(async { tenure::Locker::connect(&url(path)).await?.close().await }).expect("opened");
            std::fs::remove_file(path).expect("removed");
            for end in ["-wal", "-shm"] {
                std::fs::remove_file(path.with_extension(format!("db{end}"))).expect("removed");
            }
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(most.join().expect("no panic"), 1);
    });
}

pub(crate) fn another_time_than_the_machines_is_refused() {
    let dir = dir();
    let apart = |offset: &str| {
        let mut command = Command::new("unshare");
        command.args(["--time", "--boottime", offset, "--fork"]);
        command
    };
    if !apart("0").arg("true").status().is_ok_and(|status| status.success()) {
        eprintln!("skipped: no time namespaces here");
        return;
    }
    for offset in ["100000", "-1"] {
        let mut player = Player::start_under(&mut apart(offset), "why", &url(&dir.path().join("locks.db")));
        let said = player.line();
        assert!(said.contains("time namespace") && said.contains("allowed: "), "{said}");
    }
    assert_eq!(tree(dir.path()), []);
    let mut player = Player::start_under(&mut apart("0"), "try", &url(&dir.path().join("locks.db")));
    assert_eq!(player.line(), "locked");
}

/// Says why a URL is refused.
pub(crate) async fn why(url: &str) {
    let retry = tenure::RetryPolicy { attempts: 1, ..tenure::RetryPolicy::default() };
    match tenure::Locker::builder().retry(retry).connect(url).await {
        Ok(_) => println!("it is not"),
        Err(e) => println!("{e}"),
    }
}

/// Says whether the lock is free.
pub(crate) async fn try_lock(url: &str) {
    let locker = tenure::Locker::connect(url).await.expect("connected");
    let held = locker.mutex("L").try_lock().await.expect("asked");
    println!("{}", if held.is_some() { "locked" } else { "busy" });
}
