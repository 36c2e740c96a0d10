//! What a lock of the embedded store costs beside the bare transactions, and beside `flock(2)` on tokio's threads for what blocks.
//! `cargo bench -p tenure --bench sqlite -- [--check] [--only one|own|shared|processes]`; with `--check` a missed bar fails.
//!
//! Contenders take turns in short rounds; a ratio is taken within a round (see `benches/engine.rs`).

#[path = "sqlite/bare.rs"]
mod bare;
#[path = "engine/heap.rs"]
mod heap;
#[allow(dead_code, reason = "the bench of the engine judges more")]
#[path = "engine/measure.rs"]
mod measure;

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;

use bare::Bare;
use measure::{Bar, Contender, Report, Section, crowd, one_thread, threads};
use tempfile::TempDir;
use tenure::{Locker, Mutex};
use tokio::runtime::Runtime;

/// Tasks on names of their own, tasks on one name, and processes with tasks each on one name.
const OWN: usize = 64;
const SHARED: usize = 16;
const PROCESSES: usize = 4;
const TASKS: usize = 4;
/// Says to a process of the crowd which way it goes.
const WAY: &str = "TENURE_BENCH_WAY";

fn main() -> ExitCode {
    if let Some(way) = std::env::var_os(WAY) {
        run_in_crowd(way == "flock");
        return ExitCode::SUCCESS;
    }
    let sections: [Section; 4] = [("one", one), ("own", own), ("shared", shared), ("processes", processes)];
    measure::run(&sections)
}

fn dir() -> TempDir {
    tempfile::tempdir().expect("a directory")
}

fn url(dir: &Path) -> String {
    format!("sqlite:{}", dir.join("locks.db").display())
}

/// Tasks that lock and release.
fn locks<'a>(name: &'static str, runtime: &'a Runtime, mutexes: Vec<Mutex>) -> Contender<'a> {
    Contender::new(name, move || {
        crowd(runtime, mutexes.len(), |n, mut laps| {
            let mutex = mutexes[n].clone();
            async move {
                while laps.go_on() {
                    mutex.lock().await.expect("locked").release().await.expect("given back");
                }
                laps.done()
            }
        })
    })
}

/// Tasks that do the bare transactions, one after the other: there is one connection.
fn bare<'a>(dir: &Path, runtime: &'a Runtime) -> Contender<'a> {
    let conn = Arc::new(std::sync::Mutex::new(bare::open(&dir.join("bare.db"))));
    Contender::new("bare rusqlite", move || {
        crowd(runtime, 1, |_, mut laps| {
            let conn = Arc::clone(&conn);
            async move {
                let conn = conn.lock().expect("whole");
                let mut bare = Bare::new(&conn);
                while laps.go_on() {
                    bare.cycle("name:00");
                }
                laps.done()
            }
        })
    })
}

/// Tasks that lock files by `flock(2)`. Each opens its file itself, or they would have it together.
fn flocks<'a>(dir: &Path, runtime: &'a Runtime, tasks: usize, files: usize) -> Contender<'a> {
    let open = |n| Arc::new(File::create(dir.join(format!("flock{}", n % files))).expect("made"));
    let files: Vec<Arc<File>> = (0..tasks).map(open).collect();
    Contender::new("flock", move || {
        crowd(runtime, tasks, |n, mut laps| {
            let file = Arc::clone(&files[n]);
            async move {
                while laps.go_on() {
                    let locked = Arc::clone(&file);
                    tokio::task::spawn_blocking(move || locked.lock()).await.expect("run").expect("locked");
                    file.unlock().expect("given back");
                }
                laps.done()
            }
        })
    })
}

fn one(report: &mut Report) {
    for (title, runtime) in [("one thread", one_thread()), ("two workers", threads(2))] {
        let (dir, title) = (dir(), format!("one task locks and releases one name, {title}"));
        let locker = runtime.block_on(Locker::connect(&url(dir.path()))).expect("connected");
        let ours = locks("tenure", &runtime, vec![locker.mutex("name:00")]);
        let contenders = [bare(dir.path(), &runtime), flocks(dir.path(), &runtime, 1, 1), ours];
        let [bare, _, ours] = report.rounds(&title, ["", ""], contenders);
        report.judge("its rate beside bare rusqlite", &bare.times(&ours), Bar::AtLeast(0.6));
        runtime.block_on(locker.close()).expect("closed");
    }
}

fn own(report: &mut Report) {
    for (title, runtime) in [("one thread", one_thread()), ("two workers", threads(2))] {
        let (dir, title) = (dir(), format!("{OWN} tasks, each on a name of its own, {title}"));
        let locker = runtime.block_on(Locker::connect(&url(dir.path()))).expect("connected");
        let mutexes = (0..OWN).map(|n| locker.mutex(format!("name:{n:02}"))).collect();
        let contenders = [bare(dir.path(), &runtime), flocks(dir.path(), &runtime, OWN, OWN), locks("tenure", &runtime, mutexes)];
        let [bare, _, ours] = report.rounds(&title, ["", ""], contenders);
        // Those that wait share a transaction.
        report.judge("its rate beside bare rusqlite", &bare.times(&ours), Bar::AtLeast(1.0));
        runtime.block_on(locker.close()).expect("closed");
    }
}

fn shared(report: &mut Report) {
    let (dir, runtime) = (dir(), threads(2));
    let locker = runtime.block_on(Locker::connect(&url(dir.path()))).expect("connected");
    let ours = locks("tenure", &runtime, vec![locker.mutex("name:00"); SHARED]);
    let contenders = [bare(dir.path(), &runtime), flocks(dir.path(), &runtime, SHARED, 1), ours];
    let [bare, _, ours] = report.rounds(&format!("{SHARED} tasks on one name, two workers"), ["", ""], contenders);
    // Most of them have it from the task before, without a transaction.
    report.judge("its rate beside bare rusqlite", &bare.times(&ours), Bar::AtLeast(1.0));
    runtime.block_on(locker.close()).expect("closed");
}

/// A process of the crowd, which runs a round when it is told to and says how many cycles that were.
struct Player(Child, BufReader<std::process::ChildStdout>);

impl Player {
    fn start(way: &str, dir: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("a program"));
        let mut child = command.arg(dir).env(WAY, way).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("started");
        let mut lines = BufReader::new(child.stdout.take().expect("piped"));
        lines.read_line(&mut String::new()).expect("ready");
        Self(child, lines)
    }

    fn tell(&mut self) {
        writeln!(self.0.stdin.as_mut().expect("piped"), "go").expect("told");
    }

    fn cycles(&mut self) -> u64 {
        let mut line = String::new();
        self.1.read_line(&mut line).expect("an answer");
        line.trim().parse().expect("a number")
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        drop(self.0.wait());
    }
}

fn run_in_crowd(by_flock: bool) {
    let (dir, runtime) = (std::env::args_os().nth(1).expect("a directory"), one_thread());
    let dir = Path::new(&dir);
    let locker = runtime.block_on(Locker::connect(&url(dir))).expect("connected");
    let mut contender =
        if by_flock { flocks(dir, &runtime, TASKS, 1) } else { locks("tenure", &runtime, vec![locker.mutex("L"); TASKS]) };
    println!("ready");
    for _ in std::io::stdin().lines() {
        println!("{}", contender.run());
    }
    runtime.block_on(locker.close()).expect("closed");
}

fn processes(report: &mut Report) {
    let (dir, runtime) = (dir(), one_thread());
    let crowd = |name: &'static str| {
        let mut players: Vec<Player> = (0..PROCESSES).map(|_| Player::start(name, dir.path())).collect();
        Contender::new(name, move || {
            players.iter_mut().for_each(Player::tell);
            players.iter_mut().map(Player::cycles).sum()
        })
    };
    let title = format!("{PROCESSES} processes with {TASKS} tasks each on one name");
    let contenders = [bare(dir.path(), &runtime), crowd("flock"), crowd("tenure")];
    let [bare, _, ours] = report.rounds(&title, ["", ""], contenders);
    report.judge("its rate beside bare rusqlite of one task", &bare.times(&ours), Bar::AtLeast(0.5));
}
