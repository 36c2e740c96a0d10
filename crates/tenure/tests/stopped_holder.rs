//! A holder that is stopped after its last look at the lock, for longer than its lease, and then writes without another check: two
//! hundred times in a row. Each write goes to a fenced row and to one without a fence, so that one run shows both.

use std::io::BufRead;
use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;
use tenure::fence::sql::{Effect, Update};
use tenure::fence::{Pass, sqlite};
use tenure::{Guard, Locker, Token};
use tenure_testkit::player::{self, Player};
use tenure_testkit::{Needs, RedisServer, Signal, Test, signal, stop};

const ROUNDS: usize = 200;
/// How many are stopped at the same time.
const HOLDERS: usize = 4;
const LEASE: Duration = Duration::from_millis(150);

fn main() {
    if player::role().is_some() {
        return hold_and_write();
    }
    let run = |url: fn() -> (String, Option<RedisServer>)| {
        move || {
            let (url, _server) = url();
            two_hundred_late_writes(&url);
        }
    };
    let dir = || {
        let dir = tempfile::tempdir().expect("a directory").keep();
        (format!("sqlite:{}", dir.join("locks.db").display()), None)
    };
    let redis = || {
        let server = RedisServer::start();
        (server.url(), Some(server))
    };
    tenure_testkit::run(vec![
        Test::new("redis::two_hundred_late_writes_are_all_refused", Needs::Redis, run(redis)),
        Test::new("sqlite::two_hundred_late_writes_are_all_refused", Needs::Nothing, run(dir)),
    ])
}

/// As several holders of names of their own: each round is little but waiting for a lease.
fn two_hundred_late_writes(url: &str) {
    let holders = (0..HOLDERS).map(|n| {
        let url = url.to_owned();
        std::thread::spawn(move || late_writes(&url, &format!("L{n}"), ROUNDS / HOLDERS))
    });
    for holder in holders.collect::<Vec<_>>() {
        holder.join().expect("no panic");
    }
    println!(
        "{ROUNDS} late writes on {}: 0 accepted with the fence, {ROUNDS} without",
        url.split(':').next().unwrap_or_default()
    );
}

fn late_writes(url: &str, name: &str, rounds: usize) {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("shop.db");
    let shop = Shop::open(&file);
    shop.0.execute_batch(SCHEMA).expect("created");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let locker = runtime.block_on(Locker::connect(url)).expect("connected");
    let mut late = Player::start("late", url, &[file.to_str().expect("text"), name]);
    let (mut refused, mut knew) = (0, 0);
    for _ in 0..rounds {
        late.tell("lock");
        let token = Token::new(late.line().parse().expect("a token"));
        stop(late.child.id());
        let guard = runtime.block_on(locker.mutex(name).lock()).expect("granted when the lease has ended");
        assert!(guard.token() > token);
        assert!(shop.write("next", &guard), "the holder writes");
        runtime.block_on(guard.release()).expect("given back");
        signal(late.child.id(), Signal::CONT);
        late.tell("write");
        let said = late.line();
        refused += usize::from(said.starts_with("refused"));
        knew += usize::from(said.ends_with("knew"));
    }
    assert_eq!(shop.stale_writes("fenced_log"), 0, "accepted stale writes with the fence");
    assert_eq!(shop.stale_writes("plain_log"), rounds, "accepted stale writes without it");
    assert_eq!((refused, knew), (rounds, rounds), "each was refused, and each guard knew that it was lost");
}

/// The role: it looks at its lock, is stopped there by the test, and writes what it meant to write.
fn hold_and_write() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let shop = Shop::open(Path::new(&args[1]));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let locker = runtime.block_on(Locker::connect(&args[0])).expect("connected");
    let mut held: Option<Guard> = None;
    for line in std::io::stdin().lock().lines() {
        match &*line.expect("told") {
            "lock" => {
                drop(held.take());
                let lock = || runtime.block_on(locker.mutex(&args[2]).lease(LEASE).lock()).expect("granted");
                let mut guard = lock();
                // On a slow machine the lease may have ended by now: then it is not the one to be stopped.
                while guard.check().is_err() {
                    guard = lock();
                }
                println!("{}", guard.token());
                held = Some(guard);
            }
            _ => {
                let guard = held.as_ref().expect("told to lock first");
                let written = if shop.write("late", guard) { "written" } else { "refused" };
                println!("{written}, and {}", if guard.is_valid() { "did not know" } else { "knew" });
            }
        }
    }
}

const SCHEMA: &str = "PRAGMA journal_mode = WAL;
    CREATE TABLE fenced (id INTEGER PRIMARY KEY, who TEXT, fence INTEGER NOT NULL DEFAULT 0);
    CREATE TABLE plain (id INTEGER PRIMARY KEY, who TEXT, token INTEGER);
    CREATE TABLE fenced_log (n INTEGER PRIMARY KEY, token INTEGER NOT NULL);
    CREATE TABLE plain_log (n INTEGER PRIMARY KEY, token INTEGER NOT NULL);
    CREATE TRIGGER fenced_write AFTER UPDATE ON fenced BEGIN INSERT INTO fenced_log (token) VALUES (new.fence); END;
    CREATE TRIGGER plain_write AFTER UPDATE ON plain BEGIN INSERT INTO plain_log (token) VALUES (new.token); END;
    INSERT INTO fenced (id) VALUES (1);
    INSERT INTO plain (id) VALUES (1);";

/// What the lock protects. Every accepted write is logged by the database itself.
struct Shop(Connection);

impl Shop {
    fn open(file: &Path) -> Self {
        let db = Connection::open(file).expect("opened");
        db.busy_timeout(Duration::from_secs(10)).expect("set");
        Self(db)
    }

    /// Whether the fence let it through. The row without a fence takes anything.
    fn write(&self, who: &str, pass: &dyn Pass) -> bool {
        let token = i64::try_from(pass.token().get()).expect("small");
        self.0.execute("UPDATE plain SET who = ?1, token = ?2 WHERE id = 1", (who, token)).expect("written");
        match sqlite::update(&self.0, &Update::of("fenced").set("who = ?", [who]).key("id = ?", [1]).fenced("fence", pass)) {
            Ok(effect) => effect == Effect::Written,
            Err(error) => {
                let stale = error.stale().expect("refused for being late, and for nothing else");
                assert!(stale.seen > stale.token);
                false
            }
        }
    }

    /// Writes that came after one with a larger token.
    fn stale_writes(&self, log: &str) -> usize {
        let mut rows = self.0.prepare(&format!("SELECT token FROM {log} ORDER BY n")).expect("prepared");
        let tokens = rows.query_map([], |row| row.get::<_, i64>(0)).expect("read").map(|token| token.expect("a number"));
        let (mut largest, mut stale) = (0, 0);
        for token in tokens {
            stale += usize::from(token < largest);
            largest = largest.max(token);
        }
        stale
    }
}
