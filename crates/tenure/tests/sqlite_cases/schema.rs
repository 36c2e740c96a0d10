//! A file is ours if its tables are ours, to the letter; and no file keeps a client busy forever.

use std::os::unix::fs::FileExt;
use std::time::Duration;

use rusqlite::Connection;
use tenure::{Fault, Locker};

use super::common::*;
use tenure_testkit::player::Player;
use tenure_testkit::within;

const ENDLESS: &str = "SELECT count(*) FROM (WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n)";

/// A file with all of it in one place.
fn made(prepare: impl FnOnce(&Connection)) -> tempfile::TempDir {
    let dir = dir();
    block_on(async { client(&dir).await.close().await }).expect("closed");
    let file = rows(&dir);
    // One that has run out, which the next client sweeps.
    file.execute("INSERT INTO holds VALUES (?1, 'x:1', 0, 0, 'x', 'another boot', 1, 1, 1, NULL, NULL)", [b"old"]).expect("held");
    prepare(&file);
    file.close().expect("closed");
    dir
}

fn refused(dir: &tempfile::TempDir) {
    let before = tree(dir.path());
    let error = refusal(&url(&dir.path().join("locks.db")));
    assert_eq!((error.fault(), error.is_transient()), (Some(Fault::ForeignFormat), false), "{error}");
    assert!(error.to_string().contains("allowed: "), "{error}");
    assert_eq!(tree(dir.path()), before);
}

pub(crate) fn a_schema_that_is_not_ours_to_the_letter_is_refused_and_left_alone() {
    for change in [
        format!("CREATE TRIGGER t BEFORE DELETE ON holds BEGIN {ENDLESS}; END"),
        format!("DROP TABLE permits; CREATE VIEW permits AS {ENDLESS}"),
        "CREATE TABLE mine (a)".to_owned(),
        "CREATE INDEX more ON holds (length(hex(zeroblob(1000000))))".to_owned(),
        "DROP INDEX waiters_once".to_owned(),
        "DROP TABLE latches".to_owned(),
        "ALTER TABLE holds ADD COLUMN more TEXT".to_owned(),
        "DROP TABLE latches; CREATE TABLE latches (name BLOB PRIMARY KEY, count INTEGER NOT NULL CHECK (count > 1)) STRICT, WITHOUT ROWID".to_owned(),
        "CREATE TABLE leases (lease INTEGER PRIMARY KEY)".to_owned(),
    ] {
        let dir = made(|file| file.execute_batch(&change).expect("changed"));
        refused(&dir);
    }
}

pub(crate) fn what_sqlite_adds_by_itself_is_no_other_schema() {
    let dir = made(|file| file.execute_batch("ANALYZE; VACUUM").expect("analyzed"));
    assert!(rows(&dir).table_exists(None, "sqlite_stat1").expect("asked"));
    block_on(async { client(&dir).await.mutex("x").lock().await?.release().await }).expect("locked");
}

pub(crate) fn a_file_that_was_a_node_of_a_quorum_is_still_ours() {
    let dir = dir();
    let nodes = ["a", "b", "c"].map(|name| url(&dir.path().join(name)));
    let quorum = format!("quorum:{}?lease=2s&quarantine=off", nodes.join("|"));
    block_on(async { Locker::connect(&quorum).await?.mutex("x").lock().await?.release().await }).expect("locked");
    for node in nodes {
        block_on(async { Locker::connect(&node).await?.mutex("x").lock().await?.release().await }).expect("locked");
    }
}

pub(crate) fn a_trigger_or_view_that_comes_later_does_nothing() {
    let dir = dir();
    let locker = block_on(client(&dir));
    let file = rows(&dir);
    file.execute_batch(&format!("CREATE TRIGGER t AFTER INSERT ON holds BEGIN {ENDLESS}; END")).expect("made");
    block_on(async { locker.mutex("x").lock().await?.release().await }).expect("locked");
    file.execute_batch(&format!("DROP TRIGGER t; DROP TABLE latches; CREATE VIEW latches AS {ENDLESS}")).expect("made");
    let error = block_on(locker.latch("x").count_down()).expect_err("refused");
    assert_eq!((error.fault(), error.is_transient()), (Some(Fault::Corrupt), false), "{error}");
}

/// A page of a table's tree all of whose hundred children are the same.
fn hundredfold(child: u32) -> Vec<u8> {
    let mut page = vec![0_u8; 1024];
    let content = 1024 - 5 * 100_usize;
    page[0] = 5;
    page[3..5].copy_from_slice(&100_u16.to_be_bytes());
    page[5..7].copy_from_slice(&u16::try_from(content).expect("small").to_be_bytes());
    page[8..12].copy_from_slice(&child.to_be_bytes());
    for n in 0..100 {
        let at = content + 5 * n;
        page[12 + 2 * n..14 + 2 * n].copy_from_slice(&u16::try_from(at).expect("small").to_be_bytes());
        page[at..at + 4].copy_from_slice(&child.to_be_bytes());
        page[at + 4] = u8::try_from(n).expect("small");
    }
    page
}

pub(crate) fn a_tree_without_an_end_is_given_up() {
    let mut root = 0_u32;
    let dir = made(|file| {
        add_waiter(file, "x", NOBODY, 0);
        root = file.query_row("SELECT rootpage FROM sqlite_schema WHERE name = 'waiters'", [], |row| row.get(0)).expect("there");
    });
    // Ten thousand million ways lead to the one row.
    let file = std::fs::OpenOptions::new().read(true).write(true).open(dir.path().join("locks.db")).expect("opened");
    let pages = u32::try_from(file.metadata().expect("there").len() / 1024).expect("few");
    let at = |page: u32| u64::from(page - 1) * 1024;
    let mut leaf = vec![0_u8; 1024];
    file.read_exact_at(&mut leaf, at(root)).expect("read");
    file.write_all_at(&leaf, at(pages + 1)).expect("written");
    for level in 1..5 {
        file.write_all_at(&hundredfold(pages + level), at(pages + level + 1)).expect("written");
    }
    file.write_all_at(&hundredfold(pages + 5), at(root)).expect("written");
    file.write_all_at(&(pages + 5).to_be_bytes(), 28).expect("written");

    let mut player = Player::start("open", &format!("{}?timeout=2s", url(&dir.path().join("locks.db"))), &[]);
    assert_eq!(player.line(), "Some(Timeout) true");
    assert_eq!(player.line(), "rests");
}

/// Says how opening went, and whether the thread that tried has come to its end.
pub(crate) async fn open(url: &str) {
    let Ok(opened) = tokio::time::timeout(Duration::from_secs(30), Locker::connect(url)).await else {
        return println!("never answered");
    };
    let error = opened.expect_err("refused");
    println!("{:?} {}", error.fault(), error.is_transient());
    let is_ours = |thread: std::io::Result<std::fs::DirEntry>| {
        thread
            .and_then(|thread| std::fs::read_to_string(thread.path().join("comm")))
            .is_ok_and(|name| name.trim() == "tenure-sqlite")
    };
    let rests = || (!std::fs::read_dir("/proc/self/task").expect("read").any(is_ours)).then_some("rests");
    println!("{}", within(Duration::from_secs(20), rests).unwrap_or("spins"));
}
