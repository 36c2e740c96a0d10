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

/// A client of another process, of which there is nothing but its rows and the pipe that tells its death.
struct Stranger {
    id: String,
    dir: std::path::PathBuf,
    alive: Option<std::fs::File>,
}

const FAIR: i64 = 1;
const READ: i64 = 2;
const WRITE: i64 = 3;
const PERMITS: i64 = 4;

impl Stranger {
    fn new(dir: &TempDir, number: u32) -> Self {
        let id = format!("00000000-0000-4000-8000-{number:012}");
        let pipe = dir.path().join(format!("locks.db.clients/{id}.alive"));
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let alive = std::fs::OpenOptions::new().read(true).write(true).open(pipe).unwrap();
        Self { id, dir: dir.path().to_owned(), alive: Some(alive) }
    }

    fn file(&self) -> rusqlite::Connection {
        let file = rusqlite::Connection::open(self.dir.join("locks.db")).unwrap();
        file.busy_timeout(LIMIT).unwrap();
        file
    }

    /// Leases of a century: only the pipe can tell.
    fn holds(&self, name: &str, kind: i64, take: i64) {
        let sql = "INSERT INTO holds VALUES (?1, ?2 || ':1', ?3, ?4, ?2, ?5, ?6, 1, 1, NULL)";
        let params = rusqlite::params![name.as_bytes(), self.id, kind, take, boot(), i64::MAX / 2];
        self.file().execute(sql, params).unwrap();
    }

    fn waits(&self, name: &str, kind: i64) {
        let sql = "INSERT INTO waiters VALUES (NULL, ?1, ?2 || ':1', ?3, 0, ?2, ?4, ?5)";
        self.file().execute(sql, rusqlite::params![name.as_bytes(), self.id, kind, boot(), i64::MAX / 2]).unwrap();
    }

    fn dies(&mut self) {
        self.alive = None;
    }
}

fn boot() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap().trim().to_owned()
}

/// Whether it took less than a poll at least once: a busy machine may be late, but not always.
async fn at_once(mut round: impl AsyncFnMut(u32) -> Duration) {
    let mut waits = Vec::new();
    for n in 0..4 {
        waits.push(round(n).await);
        if waits[waits.len() - 1] < Duration::from_millis(300) {
            return;
        }
    }
    panic!("each time as late as a poll: {waits:?}");
}

async fn within_limit<T>(task: tokio::task::JoinHandle<tenure::Result<T>>) -> T {
    tokio::time::timeout(LIMIT, task).await.unwrap().unwrap().unwrap()
}

#[tokio::test]
async fn a_dead_head_of_a_fair_line_lets_the_next_one_in_at_once() {
    let dir = dir();
    let (a, b) = (client(&dir).await, client(&dir).await);
    at_once(async |n| {
        let name = format!("x{n}");
        let held = a.mutex(&name).fair().lock().await.unwrap();
        let mut head = Stranger::new(&dir, n);
        head.waits(&name, FAIR);
        let next = tokio::spawn(b.mutex(&name).fair().lock());
        until_waiting(&a, &name, 2).await;
        held.release().await.unwrap();
        assert!(a.mutex(&name).fair().try_lock().await.unwrap().is_none(), "it is the turn of another one");
        assert!(!next.is_finished());
        assert_eq!(a.mutex(&name).inspect().await.unwrap().line.len(), 2);
        let died = Instant::now();
        head.dies();
        let guard = within_limit(next).await;
        let took = died.elapsed();
        guard.release().await.unwrap();
        took
    })
    .await;
}

#[tokio::test]
async fn the_death_of_the_last_reader_lets_the_writer_in_at_once() {
    let dir = dir();
    let (a, b) = (client(&dir).await, client(&dir).await);
    at_once(async |n| {
        let name = format!("x{n}");
        let (mut one, mut other) = (Stranger::new(&dir, 2 * n), Stranger::new(&dir, 2 * n + 1));
        one.holds(&name, READ, 0);
        other.holds(&name, READ, 0);
        let writer = tokio::spawn(a.rwlock(&name).write());
        until_waiting(&b, &name, 1).await;
        assert!(b.rwlock(&name).try_read().await.unwrap().is_none(), "a writer waits");
        one.dies();
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(!writer.is_finished());
        let died = Instant::now();
        other.dies();
        drop(within_limit(writer).await);
        died.elapsed()
    })
    .await;
}

#[tokio::test]
async fn the_death_of_a_waiting_writer_lets_readers_in_at_once() {
    let dir = dir();
    let (a, b) = (client(&dir).await, client(&dir).await);
    at_once(async |n| {
        let name = format!("x{n}");
        let reader = a.rwlock(&name).read().await.unwrap();
        let mut writer = Stranger::new(&dir, n);
        writer.waits(&name, WRITE);
        let readers = [&a, &b, &b].map(|locker| tokio::spawn(locker.rwlock(&name).read()));
        // Those of one client ask one after another.
        until_waiting(&b, &name, 3).await;
        let died = Instant::now();
        writer.dies();
        for waiting in readers {
            drop(within_limit(waiting).await);
        }
        reader.release().await.unwrap();
        died.elapsed()
    })
    .await;
}

#[tokio::test]
async fn the_permits_of_a_dead_client_come_back_at_once() {
    let dir = dir();
    let (a, b) = (client(&dir).await, client(&dir).await);
    at_once(async |n| {
        let name = format!("x{n}");
        a.semaphore(&name, 3).resize(3).await.unwrap();
        let mut holder = Stranger::new(&dir, n);
        holder.holds(&name, PERMITS, 2);
        let kept = a.semaphore(&name, 3).acquire().await.unwrap();
        let waiting = [&a, &b].map(|locker| tokio::spawn(locker.semaphore(&name, 3).acquire()));
        until_waiting(&b, &name, 2).await;
        let died = Instant::now();
        holder.dies();
        let mut permits = vec![kept];
        for waiting in waiting {
            permits.push(within_limit(waiting).await);
        }
        let took = died.elapsed();
        assert!(b.semaphore(&name, 3).try_acquire().await.unwrap().is_none());
        took
    })
    .await;
}

#[tokio::test]
async fn all_modes_work_by_polling_where_no_pipes_can_be_made() {
    let dir = dir();
    std::fs::write(dir.path().join("locks.db.clients"), "").unwrap();
    let (a, b) = (client(&dir).await, client(&dir).await);
    let held = a.mutex("fair").fair().lock().await.unwrap();
    let writer = a.rwlock("rw").write().await.unwrap();
    let permit = a.semaphore("permits", 1).acquire().await.unwrap();
    assert!(a.latch("latch").set(1).await.unwrap());
    let fair = tokio::spawn(b.mutex("fair").fair().lock());
    let reader = tokio::spawn(b.rwlock("rw").read());
    let second = tokio::spawn(b.semaphore("permits", 1).acquire());
    let open = tokio::spawn(b.latch("latch").wait());
    until_waiting(&a, "fair", 1).await;
    held.release().await.unwrap();
    writer.release().await.unwrap();
    permit.release().await.unwrap();
    assert_eq!(a.latch("latch").count_down().await.unwrap(), 0);
    drop((within_limit(fair).await, within_limit(reader).await, within_limit(second).await));
    within_limit(open).await;
}

#[tokio::test]
async fn what_nobody_uses_any_more_leaves_no_rows() {
    let dir = dir();
    let (a, b) = (client(&dir).await, client(&dir).await);
    let file = rusqlite::Connection::open(dir.path().join("locks.db")).unwrap();
    let count = |table: &str| file.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get::<_, i64>(0)).unwrap();
    assert!(a.latch("l").set(1).await.unwrap());
    for _ in 0..3 {
        assert!(!b.latch("l").wait_within(Duration::from_millis(300)).await.unwrap());
    }
    assert_eq!(count("waiters"), 1, "one per client, however often it asks");
    a.latch("l").count_down().await.unwrap();
    assert_eq!((count("latches"), count("waiters"), count("counted")), (0, 0, 2), "both calls are remembered");
    let permit = a.semaphore("used", 1).acquire().await.unwrap();
    a.semaphore("unused", 1).acquire().await.unwrap().release().await.unwrap();
    a.semaphore("lately", 1).acquire().await.unwrap().release().await.unwrap();
    file.execute("UPDATE permits SET used = used - 8 * 86400 WHERE name <> CAST('lately' AS BLOB)", []).unwrap();
    file.execute("UPDATE counted SET until = 1", []).unwrap();
    client(&dir).await.close().await.unwrap();
    assert_eq!((count("permits"), count("counted")), (2, 0));
    assert_eq!(a.semaphore("used", 0).inspect().await.unwrap().permits.map(|p| (p.of, p.free)), Some((1, 0)));
    assert_eq!(a.semaphore("unused", 0).inspect().await.unwrap().permits, None);
    permit.release().await.unwrap();
}

#[tokio::test]
async fn a_mode_that_nobody_knows_is_damage_and_not_a_panic() {
    let dir = dir();
    let locker = client(&dir).await;
    let stranger = Stranger::new(&dir, 0);
    stranger.holds("kind", 77, 0);
    stranger.holds("take", PERMITS, -1);
    for name in ["kind", "take"] {
        let error = locker.mutex(name).try_lock().await.unwrap_err();
        assert_eq!((error.fault(), error.is_transient()), (Some(Fault::Corrupt), false), "{error}");
    }
    locker.mutex("other").lock().await.unwrap().release().await.unwrap();
}

/// The tables of format 1.
const FORMAT_1: &str = "
PRAGMA journal_mode = WAL;
CREATE TABLE counter (one INTEGER PRIMARY KEY CHECK (one = 1), token INTEGER NOT NULL) STRICT;
CREATE TABLE holds (
    name BLOB PRIMARY KEY, owner TEXT NOT NULL, client TEXT NOT NULL, boot TEXT NOT NULL,
    until INTEGER NOT NULL, token INTEGER NOT NULL, last INTEGER NOT NULL, note TEXT
) STRICT, WITHOUT ROWID;
CREATE TABLE waiters (
    place INTEGER PRIMARY KEY, name BLOB NOT NULL, owner TEXT NOT NULL, client TEXT NOT NULL, boot TEXT NOT NULL
) STRICT;
CREATE INDEX waiters_in_line ON waiters (name);
CREATE UNIQUE INDEX waiters_once ON waiters (owner, name);
PRAGMA application_id = 0x544e5245;
PRAGMA user_version = 1;
";

#[tokio::test]
async fn a_file_of_the_format_before_is_taken_over_with_its_holds_and_tokens() {
    let dir = dir();
    let old = rusqlite::Connection::open(dir.path().join("locks.db")).unwrap();
    old.execute_batch(FORMAT_1).unwrap();
    let last = 1_u64 << 62;
    old.execute("INSERT INTO counter VALUES (1, ?1)", [i64::try_from(last).unwrap()]).unwrap();
    // As programs of that format ask, who have the file open.
    let lock = "INSERT OR REPLACE INTO holds (name, owner, client, boot, until, token, last, note)
                VALUES (?1, 'c:1', 'c', ?2, ?3, 5, 7, 'from before')";
    let mut locks = old.prepare(lock).unwrap();
    locks.execute(rusqlite::params![b"held", boot(), i64::MAX / 2]).unwrap();
    old.execute("INSERT INTO waiters (name, owner, client, boot) VALUES (?1, 'd:1', 'd', ?2)", (b"held", boot())).unwrap();

    let mut opening = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let path = url(&dir.path().join("locks.db"));
        opening.spawn(async move { Locker::connect(&path).await.unwrap() });
    }
    let lockers = opening.join_all().await;
    let locker = &lockers[0];
    assert_eq!(old.query_row("PRAGMA user_version", [], |row| row.get::<_, i64>(0)).unwrap(), 2);
    let state = locker.mutex("held").inspect().await.unwrap();
    assert_eq!((state.holders[0].note.as_deref(), state.holders[0].token.map(|t| t.get())), (Some("from before"), Some(7)));
    assert!(locker.mutex("held").try_lock().await.unwrap().is_none());
    let guard = locker.rwlock("free").read().await.unwrap();
    assert!(guard.token().get() > last);

    // Who has it open goes on with what it holds and gets nothing new.
    let refused = locks.execute(rusqlite::params![b"new", boot(), i64::MAX / 2]).unwrap_err();
    assert!(refused.to_string().contains("NOT NULL"), "{refused}");
    let renewal = "UPDATE holds SET until = ?5 WHERE name = ?1 AND owner = ?2 AND boot = ?3 AND until > ?4";
    assert_eq!(old.execute(renewal, (b"held", "c:1", boot(), 1, i64::MAX / 2)).unwrap(), 1);
    assert_eq!(old.execute("DELETE FROM holds WHERE name = ?1 AND owner = ?2", (b"held", "c:1")).unwrap(), 1);
    assert!(locker.mutex("held").try_lock().await.unwrap().is_some());
}
