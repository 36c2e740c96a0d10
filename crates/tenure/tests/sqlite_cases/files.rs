//! What the file may be, and what becomes of it.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tempfile::TempDir;
use tenure::{Error, Fault, Locker, RetryPolicy};

use super::opening::*;

async fn refusal(path: &Path) -> Error {
    let retry = RetryPolicy { attempts: 1, ..RetryPolicy::default() };
    Locker::builder().retry(retry).timeout(std::time::Duration::from_millis(300)).connect(&url(path)).await.unwrap_err()
}

#[tokio::test]
async fn tokens_grow_across_released_rows_and_reopened_files() {
    let dir = dir();
    let mut last = None;
    for name in ["x", "y", "x"] {
        let locker = client(&dir).await;
        for _ in 0..20 {
            let guard = locker.mutex(name).lock().await.unwrap();
            assert!(Some(guard.token()) > last);
            last = Some(guard.token());
            guard.release().await.unwrap();
        }
        locker.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_client_that_is_closed_has_closed_its_file() {
    let dir = dir();
    let open = || {
        let links = std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok());
        links.filter(|link| link.starts_with(dir.path())).collect::<Vec<_>>()
    };
    for _ in 0..50 {
        let locker = client(&dir).await;
        assert_ne!(open(), Vec::<std::path::PathBuf>::new());
        locker.close().await.unwrap();
        let files: Vec<_> = open()
            .into_iter()
            .filter(|file| file.to_string_lossy().contains("locks.db-") || file.ends_with("locks.db"))
            .collect();
        assert_eq!(files, Vec::<std::path::PathBuf>::new());
    }
}

#[tokio::test]
async fn tokens_that_are_used_up_are_an_error_and_not_a_panic() {
    let dir = dir();
    let locker = client(&dir).await;
    let file = rusqlite::Connection::open(dir.path().join("locks.db")).unwrap();
    file.execute("INSERT OR REPLACE INTO counter VALUES (1, ?1)", [i64::MAX]).unwrap();
    let error = locker.mutex("x").lock().await.unwrap_err();
    assert_eq!((error.fault(), error.is_transient()), (Some(Fault::TokenExhausted), false));
    assert!(locker.mutex("x").inspect().await.unwrap().holders.is_empty());
}

#[tokio::test]
async fn every_name_is_a_name_of_its_own_and_prefixes_are_literal() {
    let dir = dir();
    let (a, b) = (client(&dir).await, client(&dir).await);
    let names = ["%", "_", "a", "a%b", "a_b", "aXb", "a\0", "a\0b", "ä", "日本", "' OR 1=1 --", " ", "A"];
    let mut guards = Vec::new();
    for name in names {
        guards.push(a.mutex(name).lock().await.unwrap());
    }
    for name in names {
        assert!(b.mutex(name).try_lock().await.unwrap().is_none(), "{name:?}");
    }
    let list = async |prefix: &str| -> Vec<String> {
        b.list(prefix).await.unwrap().into_iter().map(|state| state.resource.to_string()).collect()
    };
    let mut sorted = names.map(String::from).to_vec();
    sorted.sort();
    assert_eq!(list("").await, sorted);
    assert_eq!(list("a%").await, ["a%b"]);
    assert_eq!(list("a_").await, ["a_b"]);
    assert_eq!(list("a\0").await, ["a\0", "a\0b"]);
    assert_eq!(list("日").await, ["日本"]);
    assert!(list("zz").await.is_empty());
    let long = "n".repeat(512);
    guards.push(a.mutex(&long).lock().await.unwrap());
    assert_eq!(list("nnn").await, [long]);
}

/// A file with a great many holds of one client, of which none is void yet.
async fn filled(dir: &TempDir, holds: u32) -> rusqlite::Connection {
    let locker = client(dir).await;
    let guard = locker.mutex("first").lock().await.unwrap();
    let file = rusqlite::Connection::open(dir.path().join("locks.db")).unwrap();
    file.busy_timeout(LIMIT).unwrap();
    file.execute(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
         INSERT INTO holds SELECT CAST('n' || i AS BLOB), owner, kind, take, client, boot, until + 600000000000, token, last, note, since
         FROM holds, n",
        [holds],
    )
    .unwrap();
    // Closed, and not dead.
    guard.release().await.unwrap();
    locker.close().await.unwrap();
    file
}

/// One who lets no statement work for longer than a tenth of a second.
async fn impatient(dir: &TempDir) -> Locker {
    let url = format!("{}?timeout=100ms", url(&dir.path().join("locks.db")));
    Locker::connect(&url).await.unwrap()
}

#[tokio::test]
async fn a_list_may_take_longer_than_a_statement() {
    let dir = dir();
    let locker = impatient(&dir).await;
    let file = filled(&dir, 200_000).await;
    assert_eq!(locker.list("").await.unwrap().len(), 200_000);
    drop(file);
}

#[tokio::test]
async fn a_file_full_of_what_is_void_is_opened() {
    let dir = dir();
    let file = filled(&dir, 200_000).await;
    file.execute("UPDATE holds SET boot = 'before'", []).unwrap();
    let locker = impatient(&dir).await;
    assert!(locker.list("").await.unwrap().is_empty());
    assert_eq!(file.query_row("SELECT count(*) FROM holds", [], |row| row.get::<_, i64>(0)).unwrap(), 0);
}

#[tokio::test]
async fn a_file_that_was_removed_loses_its_locks_and_is_made_anew() {
    let dir = dir();
    let (a, b) = (client(&dir).await, client(&dir).await);
    let held = a.mutex("x").lock().await.unwrap();
    for end in ["", "-wal", "-shm"] {
        std::fs::remove_file(dir.path().join(format!("locks.db{end}"))).unwrap();
    }
    let next = b.mutex("x").try_lock().await.unwrap().unwrap();
    assert!(next.token() > held.token());
    assert!(held.release().await.is_err());
    assert!(a.mutex("x").try_lock().await.unwrap().is_none());
}

#[tokio::test]
async fn a_file_that_another_program_keeps_locked_is_busy_and_usable_later() {
    let dir = dir();
    let path = dir.path().join("locks.db");
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let error = refusal(&path).await;
    assert_eq!((error.fault(), error.is_transient()), (Some(Fault::StoreBusy), true), "{error}");
    assert!(error.to_string().contains("locks.db"), "{error}");
    other.execute_batch("COMMIT").unwrap();
    let retry = RetryPolicy { attempts: 1, ..RetryPolicy::default() };
    let locker = Locker::builder().retry(retry).connect(&format!("{}?timeout=300ms", url(&path))).await.unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = locker.mutex("x").lock().await.unwrap_err();
    assert_eq!((error.fault(), error.is_transient()), (Some(Fault::StoreBusy), true), "{error}");
    other.execute_batch("COMMIT").unwrap();
    locker.mutex("x").lock().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused_and_left_alone() {
    let dir = dir();
    let path = dir.path().join("garbage");
    let garbage = "neither SQLite nor anything else. ".repeat(100);
    std::fs::write(&path, &garbage).unwrap();
    let error = refusal(&path).await;
    assert_eq!((error.fault(), error.is_transient()), (Some(Fault::Corrupt), false), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), garbage);
}

#[tokio::test]
async fn a_database_of_another_program_is_refused_and_left_alone() {
    let dir = dir();
    let path = dir.path().join("foreign.db");
    rusqlite::Connection::open(&path).unwrap().execute_batch("CREATE TABLE holds (a)").unwrap();
    let before = std::fs::read(&path).unwrap();
    let error = refusal(&path).await;
    assert_eq!((error.fault(), error.is_transient()), (Some(Fault::ForeignFormat), false), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn a_file_of_a_later_version_is_refused() {
    let dir = dir();
    client(&dir).await.close().await.unwrap();
    let path = dir.path().join("locks.db");
    rusqlite::Connection::open(&path).unwrap().execute_batch("PRAGMA user_version = 3").unwrap();
    let error = refusal(&path).await;
    assert_eq!(error.fault(), Some(Fault::ForeignFormat));
    assert!(error.to_string().contains("has format 3; allowed: 1 or 2"), "{error}");
}

#[tokio::test]
async fn a_file_with_tables_missing_is_damaged() {
    let dir = dir();
    let locker = client(&dir).await;
    let file = rusqlite::Connection::open(dir.path().join("locks.db")).unwrap();
    file.execute_batch("DROP TABLE holds").unwrap();
    let error = locker.mutex("x").try_lock().await.unwrap_err();
    assert_eq!((error.fault(), error.is_transient()), (Some(Fault::Corrupt), false), "{error}");
}

#[tokio::test]
async fn a_place_that_cannot_be_written_is_refused() {
    // Not even root writes here.
    let error = refusal(Path::new("/proc/locks.db")).await;
    assert!(!error.is_transient(), "{error}");
    let dir = dir();
    let closed = dir.path().join("closed");
    std::fs::create_dir(&closed).unwrap();
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o500)).unwrap();
    if std::fs::write(closed.join("probe"), "").is_ok() {
        eprintln!("skipped: permission bits do not bind this user");
        return;
    }
    let error = refusal(&closed.join("locks.db")).await;
    assert_eq!((error.fault(), error.is_transient()), (Some(Fault::Denied), false), "{error}");
}

#[tokio::test]
async fn a_wrong_place_is_a_wrong_request() {
    let dir = dir();
    for path in [dir.path().to_owned(), dir.path().join("no/such/directory")] {
        let error = refusal(&path).await;
        assert!(matches!(error, Error::Config { .. }), "{error}");
        assert!(error.to_string().contains("allowed: a file"), "{error}");
    }
}

#[tokio::test]
async fn a_symbolic_link_leads_to_the_same_locks_and_pipes() {
    let dir = dir();
    let a = client(&dir).await;
    let link = dir.path().join("link.db");
    std::os::unix::fs::symlink(dir.path().join("locks.db"), &link).unwrap();
    let b = Locker::connect(&url(&link)).await.unwrap();
    let held = a.mutex("x").lock().await.unwrap();
    let waiter = tokio::spawn(async move { b.mutex("x").lock().await.unwrap().token() });
    until_waiting(&a, "x", 1).await;
    held.release().await.unwrap();
    tokio::time::timeout(LIMIT, waiter).await.unwrap().unwrap();
    assert!(!dir.path().join("link.db.clients").exists());
}

#[tokio::test]
async fn many_first_openers_at_once_do_not_disturb_each_other() {
    let dir = dir();
    let path = url(&dir.path().join("locks.db"));
    let mut opening = tokio::task::JoinSet::new();
    for _ in 0..32 {
        let path = path.clone();
        opening.spawn(async move {
            let locker = Locker::connect(&path).await.unwrap();
            locker.mutex("x").lock().await.unwrap().release().await.unwrap();
            locker.close().await.unwrap();
        });
    }
    while let Some(done) = opening.join_next().await {
        done.unwrap();
    }
}
