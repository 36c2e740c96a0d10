//! The store touches its own pipes, and nothing else.

use std::io::{ErrorKind, Read};
use std::os::unix::fs::symlink;
use std::process::Command;

use proptest::prelude::*;

use super::common::*;
use tenure_testkit::player::Player;

pub(crate) fn a_link_in_place_of_the_directory_of_clients_is_not_followed() {
    let (dir, outside) = (dir(), dir());
    std::fs::write(outside.path().join("empty.file"), "").expect("written");
    mkfifo(&outside.path().join(format!("{NOBODY}.alive")));
    mkfifo(&outside.path().join(format!("{NOBODY}.wake")));
    symlink(outside.path(), clients(&dir)).expect("linked");
    let before = tree(outside.path());
    block_on(async {
        let (a, b) = (client(&dir).await, client(&dir).await);
        let held = a.mutex("x").lock().await.expect("locked");
        assert!(b.mutex("x").try_lock().await.expect("asked").is_none());
        assert_eq!(tree(outside.path()), before);
        held.release().await.expect("given back");
        a.close().await.expect("closed");
    });
    assert_eq!(tree(outside.path()), before);
}

pub(crate) fn what_is_no_pipe_of_a_client_is_left_alone() {
    let (dir, outside) = (dir(), dir());
    block_on(async { client(&dir).await.close().await }).expect("closed");
    let at = |name: &str| clients(&dir).join(name);
    let victim = outside.path().join("victim.txt");
    std::fs::write(&victim, "").expect("written");
    for name in ["notes.txt", "no_dot", &format!("{NOBODY}.alive"), &format!("{NOBODY}.wake"), &format!("{NOBODY}.alive.old")] {
        std::fs::write(at(name), "").expect("written");
    }
    let other = NOBODY.replace('8', "9");
    for name in
        ["dead.alive".to_owned(), "dead.alive.new".to_owned(), format!("{other}.wakeful"), format!("{other}.alive.new.new")]
    {
        mkfifo(&at(&name));
    }
    symlink(&victim, at(&format!("{}.alive.new", NOBODY.replace('8', "a")))).expect("linked");
    std::fs::create_dir(at(&format!("{}.wake", NOBODY.replace('8', "b")))).expect("made");
    let before = tree(&clients(&dir));
    block_on(async { client(&dir).await.close().await }).expect("closed");
    assert_eq!(tree(&clients(&dir)), before);
    assert!(victim.exists());
}

pub(crate) fn a_client_that_is_a_path_leads_nowhere() {
    let dir = dir();
    let locker = block_on(client(&dir));
    let (dead, written) = (dir.path().join("victim.alive"), dir.path().join("victim.wake"));
    mkfifo(&dead);
    std::fs::write(&written, "a file of somebody else").expect("written");
    let file = rows(&dir);
    let absolute = dir.path().join("victim").display().to_string();
    for (n, path) in ["../victim", &absolute].into_iter().enumerate() {
        for kind in 0..=4 {
            let name = format!("{n}.{kind}");
            add_hold(&file, &name, path);
            add_waiter(&file, &name, path, kind);
            block_on(async {
                assert!(locker.mutex(&name).try_lock().await.expect("asked").is_none(), "nothing says that it is dead");
                let state = locker.mutex(&name).inspect().await.expect("inspected");
                assert_eq!(state.holders.len(), 1);
                locker.mutex(&name).break_hold().await.expect("asked").expect("broken");
            });
        }
    }
    assert!(dead.exists());
    assert_eq!(std::fs::read_to_string(&written).expect("read"), "a file of somebody else");
}

pub(crate) fn an_idle_pipe_of_another_user_proves_no_death() {
    let dir = dir();
    block_on(async {
        let (a, b) = (client(&dir).await, client(&dir).await);
        let held = a.mutex("x").lock().await.expect("locked");
        let pipe = clients(&dir).join(format!("{}.alive", a.client_id()));
        std::fs::remove_file(&pipe).expect("removed");
        mkfifo(&pipe);
        chown(&pipe, ALICE, ALICE);
        assert!(b.mutex("x").try_lock().await.expect("asked").is_none());
        let c = client(&dir).await;
        assert!(c.mutex("x").try_lock().await.expect("asked").is_none());
        assert!(pipe.exists());
        held.release().await.expect("it was never buried");
    });
}

pub(crate) fn a_directory_of_clients_that_was_made_anew_is_found_again() {
    let dir = dir();
    block_on(async {
        let a = client(&dir).await;
        std::fs::remove_dir_all(clients(&dir)).expect("removed");
        let _b = client(&dir).await;
        mkfifo(&clients(&dir).join(format!("{NOBODY}.alive")));
        add_hold(&rows(&dir), "x", NOBODY);
        assert!(a.mutex("x").try_lock().await.expect("asked").is_some(), "its pipe says that it is dead");
    });
}

pub(crate) fn pipes_that_were_removed_are_made_again() {
    type Remove = fn(&tempfile::TempDir);
    let removals: [(&str, Remove); 4] = [
        ("the pipes", |dir| clients_in(dir).iter().for_each(|pipe| std::fs::remove_file(pipe).expect("removed"))),
        ("their directory", |dir| std::fs::remove_dir_all(clients(dir)).expect("removed")),
        ("all", |dir| {
            std::fs::remove_dir_all(dir.path()).expect("removed");
            std::fs::create_dir(dir.path()).expect("made");
            chmod(dir.path(), 0o700);
        }),
        ("all, but kept elsewhere", |dir| {
            std::fs::rename(dir.path(), dir.path().with_extension("old")).expect("moved");
            std::fs::create_dir(dir.path()).expect("made");
            chmod(dir.path(), 0o700);
        }),
    ];
    for (what, remove) in removals {
        let dir = dir();
        let mut holder = Player::start_under(&mut Command::new("env"), "again", &url(&dir.path().join("locks.db")));
        assert_eq!(holder.line(), "open");
        remove(&dir);
        holder.tell("lock");
        holder.line().parse::<u64>().expect("a token");
        block_on(async {
            let c = client(&dir).await;
            assert!(c.mutex("L").try_lock().await.expect("asked").is_none(), "{what}");
            holder.kill();
            // Its lease is of no account, so nothing has to be waited for.
            assert!(c.mutex("L").try_lock().await.expect("asked").is_some(), "without {what} its death is not seen");
        });
        drop(std::fs::remove_dir_all(dir.path().with_extension("old")));
    }
}

pub(crate) fn a_holder_that_makes_its_pipes_again_never_looks_dead() {
    let dir = dir();
    block_on(async {
        let a = client(&dir).await;
        let held = a.mutex("x").lock().await.expect("locked");
        let pipe = |kind: &str| clients(&dir).join(format!("{}.{kind}", a.client_id()));
        // As one who looks whether it lives, and is slow between its two steps.
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK;
        let opened = rustix::fs::open(pipe("alive"), flags, rustix::fs::Mode::empty()).expect("opened");
        std::fs::remove_file(pipe("wake")).expect("removed");
        drop(a.mutex("y").try_lock().await.expect("asked"));
        assert!(pipe("wake").exists(), "made again");
        let read = std::fs::File::from(opened).read(&mut [0_u8; 8]);
        assert!(read.as_ref().is_err_and(|e| e.kind() == ErrorKind::WouldBlock), "{read:?} says that it is dead");
        held.release().await.expect("given back");
    });
}

/// Opens a file, and locks when it is told.
pub(crate) async fn hold_when_told(url: &str) {
    let locker = tenure::Locker::connect(url).await.expect("connected");
    println!("open");
    std::io::stdin().read_line(&mut String::new()).expect("told");
    super::modes::hold(&locker).await;
}

fn clients_in(dir: &tempfile::TempDir) -> Vec<std::path::PathBuf> {
    std::fs::read_dir(clients(dir)).expect("read").map(|entry| entry.expect("there").path()).collect()
}

pub(crate) fn no_client_in_a_row_touches_a_file() {
    let dir = dir();
    let locker = block_on(client(&dir));
    // One that is written to, and two that look dead.
    std::fs::write(dir.path().join("victim.wake"), "a file").expect("written");
    mkfifo(&dir.path().join("victim.alive"));
    std::fs::create_dir(dir.path().join("sub")).expect("made");
    mkfifo(&dir.path().join("sub/victim.alive"));
    let file = rows(&dir);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let absolute = format!("{}/", dir.path().display());
    let way = prop::sample::select(vec!["../".to_owned(), "../sub/".to_owned(), "./../".to_owned(), absolute, String::new()]);
    let name = prop_oneof![3 => Just("victim".to_owned()), 1 => Just(NOBODY.to_owned()), 1 => "[a-z./\\PC]{0,20}"];
    let text = (way, name).prop_map(|(way, name)| way + &name);
    let files = || {
        let mut found = tree(dir.path());
        found.retain(|(path, ..)| !path.to_string_lossy().contains("locks.db"));
        found
    };
    let before = files();
    let pipes = tree(&clients(&dir));
    proptest!(ProptestConfig::with_cases(96), |(client in text, kind in 0_i64..=5)| {
        add_hold(&file, "x", &client);
        add_waiter(&file, "x", &client, kind);
        runtime.block_on(async {
            drop(locker.mutex("x").try_lock().await);
            drop(locker.mutex("x").inspect().await);
            drop(locker.mutex("x").break_hold().await);
        });
        file.execute_batch("DELETE FROM holds; DELETE FROM waiters").expect("emptied");
        prop_assert_eq!(files(), before.clone());
        prop_assert_eq!(tree(&clients(&dir)), pipes.clone());
    });
}

pub(crate) fn no_name_in_the_directory_of_clients_but_its_own_is_removed() {
    let dir = dir();
    block_on(async { client(&dir).await.close().await }).expect("closed");
    let parts = prop::sample::select(vec![NOBODY, ".", "alive", "wake", "new", "a", "-", " ", "A", "0"]);
    let ours = ["alive", "wake", "alive.new", "wake.new"].map(|kind| format!("{NOBODY}.{kind}"));
    proptest!(ProptestConfig::with_cases(96), |(name in prop::collection::vec(parts, 1..6).prop_map(|parts| parts.concat()), pipe: bool)| {
        prop_assume!(name != "." && name != ".." && name.len() < 255);
        let path = clients(&dir).join(&name);
        if pipe { mkfifo(&path) } else { std::fs::write(&path, "").expect("written") }
        block_on(async { client(&dir).await.close().await }).expect("closed");
        let (there, is_ours) = (path.exists(), ours.contains(&name) && pipe);
        if there {
            std::fs::remove_file(&path).expect("removed");
        }
        prop_assert_eq!(there, !is_ours, "{}", name);
    });
}
