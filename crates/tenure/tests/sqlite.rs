//! The embedded store through the public interface, with real files and real time.

#![cfg(feature = "sqlite")]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use tempfile::TempDir;
use tenure::backend::{Modes, Reach, Survival};
use tenure::{Error, Fault, Locker, RetryPolicy};

/// How long a test waits for what must happen.
const LIMIT: Duration = Duration::from_secs(20);

fn dir() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn url(path: &Path) -> String {
    format!("sqlite:{}", path.display())
}

async fn client(dir: &TempDir) -> Locker {
    Locker::connect(&url(&dir.path().join("locks.db"))).await.unwrap()
}

async fn refusal(path: &Path) -> Error {
    let retry = RetryPolicy { attempts: 1, ..RetryPolicy::default() };
    Locker::builder().retry(retry).timeout(Duration::from_millis(300)).connect(&url(path)).await.unwrap_err()
}

/// Waits until the store knows of so many waiters.
async fn until_waiting(locker: &Locker, name: &str, count: u32) {
    let bound = Instant::now() + LIMIT;
    while locker.mutex(name).inspect().await.unwrap().waiting != Some(count) {
        assert!(Instant::now() < bound, "never {count} waiters of {name:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn two_clients_exclude_each_other_and_the_tokens_grow() {
    let dir = dir();
    let (a, b) = (client(&dir).await, client(&dir).await);
    let first = a.mutex("x").lock().await.unwrap();
    assert!(b.mutex("x").try_lock().await.unwrap().is_none());
    assert!(b.mutex("y").try_lock().await.unwrap().is_some());
    let token = first.token();
    first.release().await.unwrap();
    let second = b.mutex("x").try_lock().await.unwrap().unwrap();
    assert!(second.token() > token);
    assert!(a.mutex("x").try_lock().await.unwrap().is_none());
}

#[tokio::test]
async fn it_says_what_it_promises() {
    let dir = dir();
    let locker = client(&dir).await;
    let can = locker.capabilities();
    assert_eq!((can.backend, can.reach), ("sqlite", Reach::Machine));
    assert!(can.token_blocks && can.queues && can.watch_first);
    assert_eq!(can.modes, Modes::ALL);
    assert_eq!(can.safety.power_loss, Survival::Together);
    assert_eq!(can.safety.clock_jump, Survival::Lock);
}

#[tokio::test]
async fn a_release_wakes_the_waiter_of_another_client() {
    let dir = dir();
    let (a, b) = (client(&dir).await, client(&dir).await);
    let mut waits = Vec::new();
    for _ in 0..5 {
        let held = a.mutex("x").lock().await.unwrap();
        let waiter = tokio::spawn(b.mutex("x").lock());
        until_waiting(&a, "x", 1).await;
        let released = Instant::now();
        held.release().await.unwrap();
        let guard = tokio::time::timeout(LIMIT, waiter).await.unwrap().unwrap().unwrap();
        waits.push(released.elapsed());
        guard.release().await.unwrap();
    }
    // It has just polled: without a word from the one who released, each of these would take most of a second.
    assert!(waits.iter().min().unwrap() < &Duration::from_millis(500), "{waits:?}");
}

#[tokio::test]
async fn a_waiter_that_polls_keeps_its_place_and_takes_no_second_one() {
    let dir = dir();
    let (a, b) = (client(&dir).await, client(&dir).await);
    let held = a.mutex("x").lock().await.unwrap();
    let waiter = tokio::spawn(b.mutex("x").lock());
    until_waiting(&a, "x", 1).await;
    // Two more polls of the waiter pass.
    tokio::time::sleep(Duration::from_millis(2200)).await;
    assert_eq!(a.mutex("x").inspect().await.unwrap().waiting, Some(1));
    held.release().await.unwrap();
    let guard = tokio::time::timeout(LIMIT, waiter).await.unwrap().unwrap().unwrap();
    assert_eq!(a.mutex("x").inspect().await.unwrap().waiting, Some(0));
    guard.release().await.unwrap();
}

#[tokio::test]
async fn those_who_wait_are_served_by_and_large_in_order() {
    let dir = dir();
    let holder = client(&dir).await;
    let held = holder.mutex("x").lock().await.unwrap();
    let (served, mut order) = tokio::sync::mpsc::unbounded_channel();
    for n in 0..8_u32 {
        let (locker, served) = (client(&dir).await, served.clone());
        tokio::spawn(async move {
            let guard = locker.mutex("x").lock().await.unwrap();
            served.send((n, locker.clone())).unwrap();
            guard.release().await.unwrap();
        });
        until_waiting(&holder, "x", n + 1).await;
    }
    drop(served);
    held.release().await.unwrap();
    // The lockers stay: the end of a client wakes those who watched it.
    let (mut got, mut lockers) = (Vec::new(), Vec::new());
    while let Some((n, locker)) = order.recv().await {
        got.push(n);
        lockers.push(locker);
    }
    // One may poll in the moment in which it is free.
    assert!(got.windows(2).filter(|w| w[0] > w[1]).count() <= 1, "{got:?}");
    assert_eq!(got.len(), 8);
}

#[tokio::test]
async fn one_who_gives_up_waiting_leaves_the_line_and_the_next_is_woken() {
    let dir = dir();
    let (a, b, c) = (client(&dir).await, client(&dir).await, client(&dir).await);
    let held = a.mutex("x").lock().await.unwrap();
    let impatient = tokio::spawn({
        let b = b.clone();
        async move { b.mutex("x").lock().await }
    });
    until_waiting(&a, "x", 1).await;
    let patient = tokio::spawn(async move { c.mutex("x").lock().await.unwrap().token() });
    until_waiting(&a, "x", 2).await;
    impatient.abort();
    until_waiting(&a, "x", 1).await;
    let token = held.token();
    held.release().await.unwrap();
    assert!(tokio::time::timeout(LIMIT, patient).await.unwrap().unwrap() > token);
}

#[tokio::test]
async fn breaking_a_hold_wakes_the_waiter_and_raises_the_fence() {
    let dir = dir();
    let (a, b, c) = (client(&dir).await, client(&dir).await, client(&dir).await);
    let held = a.mutex("x").lock().await.unwrap();
    let waiter = tokio::spawn(async move {
        let guard = b.mutex("x").lock().await.unwrap();
        let token = guard.token();
        guard.release().await.map(|()| token)
    });
    until_waiting(&a, "x", 1).await;
    let broken = c.mutex("x").break_hold().await.unwrap().unwrap();
    let token = tokio::time::timeout(LIMIT, waiter).await.unwrap().unwrap().unwrap();
    assert!(held.token() < broken.fence && broken.fence < token);
    assert_eq!(broken.holders.len(), 1);
    assert!(held.release().await.is_err());
    assert!(c.mutex("x").break_hold().await.unwrap().is_none());
}

#[tokio::test]
async fn a_lapsed_hold_is_not_renewed_and_somebody_else_gets_in() {
    let dir = dir();
    let (a, b) = (client(&dir).await, client(&dir).await);
    let held = a.mutex("x").lease_fixed(Duration::from_millis(200)).lock().await.unwrap();
    let next = b.mutex("x").lock().await.unwrap();
    assert!(next.token() > held.token());
    assert!(held.release().await.is_err());
    assert!(next.is_valid());
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

#[tokio::test]
async fn inspection_tells_who_holds_since_when_and_for_how_long() {
    let dir = dir();
    let before = SystemTime::now() - Duration::from_millis(1);
    let a = Locker::builder().about("the first").connect(&url(&dir.path().join("locks.db"))).await.unwrap();
    let b = client(&dir).await;
    assert_eq!(b.mutex("x").inspect().await.unwrap().fence, None);
    let held = a.mutex("x").lock().await.unwrap();
    let state = b.mutex("x").inspect().await.unwrap();
    let [holder] = &state.holders[..] else { panic!("{state:?}") };
    assert!(holder.owner.starts_with(&a.client_id().to_string()));
    assert_eq!((holder.token, state.fence, state.waiting), (Some(held.token()), Some(held.token()), Some(0)));
    assert_eq!(holder.note.as_deref(), Some("the first"));
    let since = holder.since.unwrap();
    assert!(before <= since && since <= SystemTime::now());
    let expires = holder.expires_in.unwrap();
    assert!(Duration::from_secs(25) < expires && expires <= Duration::from_secs(30));
    held.release().await.unwrap();
    assert!(b.mutex("x").inspect().await.unwrap().holders.is_empty());
    assert!(b.list("").await.unwrap().is_empty());
}

#[tokio::test]
async fn closing_removes_the_pipes_and_so_does_dropping() {
    let dir = dir();
    let pipes = || std::fs::read_dir(dir.path().join("locks.db.clients")).unwrap().count();
    let (a, b) = (client(&dir).await, client(&dir).await);
    assert_eq!(pipes(), 4);
    a.close().await.unwrap();
    assert_eq!(pipes(), 2);
    a.close().await.unwrap();
    assert!(matches!(a.mutex("x").lock().await, Err(Error::Closed)));
    drop(b);
    let bound = Instant::now() + LIMIT;
    while pipes() > 0 {
        assert!(Instant::now() < bound, "the pipes of a dropped client stay");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn what_dead_clients_left_is_swept_at_connect() {
    let dir = dir();
    client(&dir).await.close().await.unwrap();
    let clients = dir.path().join("locks.db.clients");
    let dead = "00000000-0000-4000-8000-000000000000";
    for name in ["alive", "wake", "alive.new", "wake.new"] {
        let made = std::process::Command::new("mkfifo").arg(clients.join(format!("{dead}.{name}"))).status().unwrap();
        assert!(made.success());
    }
    let file = rusqlite::Connection::open(dir.path().join("locks.db")).unwrap();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let sql = "INSERT INTO holds VALUES (?1, 'x:1', 0, 0, ?2, ?3, ?4, 1, 1, NULL)";
    for (name, client, boot) in [(b"dead".as_slice(), dead, boot.trim()), (b"other boot", "closed", "another")] {
        file.execute(sql, rusqlite::params![name, client, boot, i64::MAX]).unwrap();
    }
    let locker = client(&dir).await;
    assert_eq!(std::fs::read_dir(clients).unwrap().count(), 2);
    assert_eq!(file.query_row("SELECT count(*) FROM holds", [], |row| row.get::<_, i64>(0)).unwrap(), 0);
    assert!(locker.mutex("dead").try_lock().await.unwrap().is_some());
}

#[tokio::test]
async fn a_holder_that_is_dead_does_not_block_and_its_lease_does_not_count() {
    let dir = dir();
    let locker = client(&dir).await;
    let dead = "00000000-0000-4000-8000-000000000000";
    let pipe = dir.path().join(format!("locks.db.clients/{dead}.alive"));
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let file = rusqlite::Connection::open(dir.path().join("locks.db")).unwrap();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    for name in [b"x", b"y"] {
        let sql = "INSERT INTO holds VALUES (?1, 'x:1', 0, 0, ?2, ?3, ?4, 1, 1, NULL)";
        file.execute(sql, rusqlite::params![name.as_slice(), dead, boot.trim(), i64::MAX]).unwrap();
    }
    assert!(locker.list("").await.unwrap().is_empty());
    assert!(locker.mutex("x").try_lock().await.unwrap().is_some());
    assert!(!pipe.exists());
    // Its pipe was the proof of its death: all its rows went with it.
    assert!(locker.mutex("y").try_lock().await.unwrap().is_some());
}

#[tokio::test]
async fn a_holder_without_pipes_keeps_its_lease() {
    let dir = dir();
    let (a, b) = (client(&dir).await, client(&dir).await);
    let held = a.mutex("x").lock().await.unwrap();
    std::fs::remove_dir_all(dir.path().join("locks.db.clients")).unwrap();
    assert!(b.mutex("x").try_lock().await.unwrap().is_none());
    held.release().await.unwrap();
    assert!(b.mutex("x").try_lock().await.unwrap().is_some());
}

#[tokio::test]
async fn where_no_pipes_can_be_made_polling_takes_their_place() {
    let dir = dir();
    // A file in the place of the directory.
    std::fs::write(dir.path().join("locks.db.clients"), "").unwrap();
    let (a, b) = (client(&dir).await, client(&dir).await);
    let held = a.mutex("x").lock().await.unwrap();
    let waiter = tokio::spawn(async move { b.mutex("x").lock().await.unwrap().token() });
    tokio::time::sleep(Duration::from_millis(100)).await;
    let token = held.token();
    held.release().await.unwrap();
    assert!(tokio::time::timeout(LIMIT, waiter).await.unwrap().unwrap() > token);
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
