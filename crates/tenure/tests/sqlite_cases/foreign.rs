//! Files of other programs, and the files beside them, are not changed.

use std::path::{Path, PathBuf};

use rusqlite::Connection;
use tempfile::TempDir;
use tenure::{Error, Fault, Locker};

use super::common::*;
use tenure_testkit::player::Player;

/// A directory with files that everybody may read.
fn with(files: &[(&str, &[u8])]) -> TempDir {
    let dir = dir();
    for (name, content) in files {
        let path = dir.path().join(name);
        std::fs::write(&path, content).expect("written");
        chmod(&path, 0o644);
    }
    dir
}

#[track_caller]
fn is_left_alone(dir: &TempDir, name: &str) -> Error {
    let before = tree(dir.path());
    let error = refusal(&url(&dir.path().join(name)));
    assert!(!error.is_transient(), "{error}");
    assert!(tree(dir.path()) == before, "something has changed: {error}");
    error
}

pub(crate) fn a_file_that_is_no_database_is_left_as_it_is_with_all_beside_it() {
    let notes = b"notes of mine, and not SQLite's";
    let dir = with(&[("report", b"a report"), ("report-wal", notes), ("report-shm", notes), ("report-journal", notes)]);
    is_left_alone(&dir, "report");
    for end in ["-wal", "-shm", "-journal"] {
        std::fs::remove_file(dir.path().join(format!("report{end}"))).expect("removed");
    }
    let error = is_left_alone(&dir, "report");
    assert_eq!(error.fault(), Some(Fault::Corrupt), "{error}");
}

pub(crate) fn a_file_beside_it_that_is_not_sqlites_is_refused_and_left_alone() {
    for (end, content) in [
        ("-wal", &b"notes"[..]),
        ("-wal", b"7"),
        ("-shm", b"notes"),
        ("-shm", &[0; 4095]),
        ("-journal", b"notes"),
        ("-journal", b"\xd9\xd5\x05\xf9\x20\xa1\x63notes"),
    ] {
        for is_there in [false, true] {
            let beside = format!("locks.db{end}");
            let dir = with(&[(&beside, content)]);
            if is_there {
                std::fs::write(dir.path().join("locks.db"), "").expect("made");
                chmod(&dir.path().join("locks.db"), 0o644);
            }
            let error = is_left_alone(&dir, "locks.db");
            let text = error.to_string();
            assert!(matches!(error, Error::Config { .. }) && text.contains(&beside) && text.contains("allowed: "), "{text}");
        }
    }
}

pub(crate) fn what_sqlite_leaves_beside_a_file_is_taken() {
    // Of a store that was removed; of one whose power was cut; of one that was just being made.
    let dir = dir();
    block_on(async { client(&dir).await.close().await }).expect("closed");
    std::fs::remove_file(dir.path().join("locks.db")).expect("removed");
    assert!(dir.path().join("locks.db-wal").exists() && dir.path().join("locks.db-shm").exists());
    let zeros = with(&[("locks.db-wal", &[0; 4096]), ("locks.db-journal", &[0; 512]), ("locks.db-shm", &[0; 8192])]);
    let fresh = with(&[("locks.db", b""), ("locks.db-wal", b""), ("locks.db-journal", b""), ("locks.db-shm", &[0; 3])]);
    for dir in [dir, zeros, fresh] {
        block_on(async { client(&dir).await.mutex("x").lock().await?.release().await }).expect("locked");
    }
}

/// Another program's database, as it lies there while that program has it open or has crashed.
fn of_another_program(prepare: &str) -> (TempDir, PathBuf) {
    let (from, to) = (dir(), dir());
    let other = Connection::open(from.path().join("shop.db")).expect("opened");
    other.execute_batch(prepare).expect("prepared");
    for end in ["", "-wal", "-shm"] {
        let (from, to) = (from.path().join(format!("shop.db{end}")), to.path().join(format!("shop.db{end}")));
        if std::fs::copy(from, &to).is_ok() {
            chmod(&to, 0o664);
        }
    }
    drop(other);
    let path = to.path().join("shop.db");
    (to, path)
}

fn beside(path: &Path, end: &str) -> PathBuf {
    path.with_file_name(format!("shop.db{end}"))
}

pub(crate) fn another_programs_database_keeps_its_mode_and_its_log() {
    let table = "CREATE TABLE goods (name); INSERT INTO goods VALUES ('apple')";
    for prepare in [
        table.to_owned(),
        "PRAGMA user_version = 7".to_owned(),
        format!("{table}; PRAGMA journal_mode = WAL; INSERT INTO goods VALUES ('pear')"),
    ] {
        let (dir, path) = of_another_program(&prepare);
        let error = is_left_alone(&dir, "shop.db");
        assert_eq!(error.fault(), Some(Fault::ForeignFormat), "{error}");
        drop(path);
    }
    // All of it is still in its log, and the file itself looks new. Only SQLite's index of the log may be made again.
    let (dir, path) = of_another_program(&format!("PRAGMA journal_mode = WAL; {table}"));
    let seen = || ["", "-wal"].map(|end| (mode(&beside(&path, end)), std::fs::read(beside(&path, end)).expect("read")));
    let before = seen();
    let error = refusal(&url(&path));
    assert_eq!((error.fault(), error.is_transient()), (Some(Fault::ForeignFormat), false), "{error}");
    assert!(seen() == before, "something has changed: {error}");
    assert_eq!(mode(&beside(&path, "-shm")), 0o664);
    assert!(!dir.path().join("shop.db.clients").exists());
}

pub(crate) fn a_path_is_taken_as_it_is_written() {
    // What means something in a URI of SQLite's.
    for name in ["a?mode=memory", "a#b", "a%41", "file:a", "ä b", "a&immutable=1"] {
        let dir = dir();
        let encoded: String = name.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let url = format!("sqlite:{}/{encoded}", dir.path().display());
        for _ in 0..2 {
            let locked = block_on(async {
                let locker = Locker::connect(&url).await?;
                locker.mutex("x").lock().await?.release().await?;
                locker.close().await
            });
            locked.unwrap_or_else(|e| panic!("{name}: {e}"));
            // Else all is in the log, and nothing in the file.
            Connection::open(dir.path().join(name)).expect("opened").execute_batch("PRAGMA wal_checkpoint").expect("written");
        }
        std::fs::write(dir.path().join(name), "no database at all, whatever its name is").expect("written");
        is_left_alone(&dir, &encoded);
    }
}

pub(crate) fn first_openers_that_are_killed_at_any_moment_are_in_nobodys_way() {
    for round in 0..30_u32 {
        let dir = dir();
        let path = url(&dir.path().join("locks.db"));
        let mut killed: Vec<_> = (0..2).map(|_| Player::start("hold", &path, &[])).collect();
        let mut stays = Player::start("hold", &path, &[]);
        // The moment is what differs from round to round.
        std::thread::sleep(std::time::Duration::from_micros(u64::from(round) * 700));
        killed.iter_mut().for_each(Player::kill);
        stays.line().parse::<u64>().expect("a token");
        drop(stays);
        block_on(async { client(&dir).await.mutex("L").lock().await?.release().await }).expect("locked");
    }
}
