//! What SQLite keeps beside the file is removed while it is in use: every client notices.

use std::time::{Duration, Instant};

use tempfile::TempDir;
use tenure::Locker;

use super::common::*;
use tenure_testkit::eventually;
use tenure_testkit::player::Player;

const LEASE: &str = "lease=1s";

fn remove(dir: &TempDir, ends: &[&str]) {
    for end in ends {
        std::fs::remove_file(dir.path().join(format!("locks.db{end}"))).expect("removed");
    }
}

fn short(dir: &TempDir) -> String {
    format!("{}?{LEASE}", url(&dir.path().join("locks.db")))
}

pub(crate) fn a_holder_whose_log_was_removed_is_told_so() {
    for ends in [&["-wal", "-shm"][..], &["-shm"], &["-wal"]] {
        let dir = dir();
        let mut first = Player::start("believe", &short(&dir), &[]);
        assert_eq!(first.line(), "holds");
        remove(&dir, ends);
        let mut second = Player::start("believe", &short(&dir), &[]);
        // Whoever comes second has it only once the first knows that it has not.
        if ends.contains(&"-wal") {
            assert_eq!(first.line(), "lost", "{ends:?}");
            assert_eq!(second.line(), "holds", "{ends:?}");
        } else {
            eventually("the second waits", || {
                let locker = block_on(Locker::connect(&short(&dir))).expect("connected");
                block_on(locker.mutex("L").inspect()).expect("inspected").waiting == Some(1)
            });
            first.tell("release");
            assert_eq!(first.line(), "released", "{ends:?}");
            assert_eq!(second.line(), "holds", "{ends:?}");
        }
    }
}

pub(crate) fn clients_of_one_process_find_a_new_log_together() {
    for ends in [&["-wal", "-shm"][..], &["-shm"], &["-wal"]] {
        let dir = dir();
        // One holds, one never asks for anything, one comes afterwards.
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let (holder, idle) = runtime.block_on(async {
            let holder = Locker::connect(&short(&dir)).await.expect("connected");
            (holder.mutex("L").lock().await.expect("locked"), client(&dir).await)
        });
        remove(&dir, ends);
        let mut other = Player::start("believe", &short(&dir), &[]);
        if ends.contains(&"-wal") {
            let told = async { tokio::time::timeout(Duration::from_secs(30), holder.lost()).await };
            runtime.block_on(told).expect("told");
            assert_eq!(other.line(), "holds", "{ends:?}");
        }
        eventually("all see the same", || {
            let seen = runtime.block_on(async { client(&dir).await.mutex("L").try_lock().await });
            matches!(seen, Ok(None))
        });
        assert!(runtime.block_on(idle.mutex("L").try_lock()).expect("asked").is_none(), "{ends:?}");
        assert_eq!(holder.is_valid(), !ends.contains(&"-wal"), "{ends:?}");
    }
}

/// Says when it holds the lock, and when it knows that it has lost it.
pub(crate) async fn believe(url: &str) {
    let give_up = Instant::now() + Duration::from_secs(20);
    let locker = loop {
        match Locker::connect(url).await {
            Ok(locker) => break locker,
            // Without the log that the others have open, their index makes no sense.
            Err(e) if e.is_transient() && Instant::now() < give_up => tokio::time::sleep(Duration::from_millis(20)).await,
            Err(e) => panic!("{e}"),
        }
    };
    let guard = locker.mutex("L").lock().await.expect("locked");
    println!("holds");
    let told = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()));
    tokio::select! {
        () = tokio::time::sleep(Duration::from_secs(30)) => println!("believes"),
        _ = guard.lost() => println!("lost"),
        _ = told => {
            guard.release().await.expect("given back");
            println!("released");
        }
    }
    std::process::exit(0);
}
