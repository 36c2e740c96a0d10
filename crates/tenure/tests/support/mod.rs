//! Real servers for tests: started on free loopback ports, stopped on drop. What is not installed is skipped visibly.
#![allow(dead_code, reason = "each test program uses its own part")]

pub(crate) mod acl;
pub(crate) mod bare;
pub(crate) mod cable;
pub(crate) mod clock;
pub(crate) mod cluster;
pub(crate) mod database;
pub(crate) mod fenced;
pub(crate) mod locker;
pub(crate) mod mariadb;
pub(crate) mod peer;
pub(crate) mod player;
pub(crate) mod postgres;
pub(crate) mod quorum;
pub(crate) mod sentinel;
pub(crate) mod server;
pub(crate) mod tls;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Trial};
use peer::Language;
pub(crate) use server::RedisServer;

/// Sends a signal by name to a process.
pub(crate) fn signal(pid: u32, name: &str) {
    let status = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).stderr(Stdio::null()).status();
    status.expect("kill runs");
}

/// Stops a process, and waits until all of its threads stand still: those that the signal does not reach go on for a moment.
pub(crate) fn stop(pid: u32) {
    signal(pid, "STOP");
    let stands = |thread: std::io::Result<std::fs::DirEntry>| {
        let stat = thread.and_then(|thread| std::fs::read_to_string(thread.path().join("stat"))).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" T "))
    };
    eventually("it stands still", || std::fs::read_dir(format!("/proc/{pid}/task")).expect("it lives").all(stands));
}

/// Waits until something is true; panics after a long time.
#[track_caller]
pub(crate) fn eventually(what: &str, mut check: impl FnMut() -> bool) {
    until(what, || check().then_some(()));
}

/// Waits until something is there; panics after a long time.
#[track_caller]
pub(crate) fn until<T>(what: &str, check: impl FnMut() -> Option<T>) -> T {
    within(Duration::from_secs(30), check).unwrap_or_else(|| panic!("never came true: {what}"))
}

/// Waits for a while until something is there.
pub(crate) fn within<T>(limit: Duration, mut check: impl FnMut() -> Option<T>) -> Option<T> {
    let give_up = Instant::now() + limit;
    loop {
        let found = check();
        if found.is_some() || Instant::now() >= give_up {
            return found;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a program is on the path.
pub(crate) fn installed(program: &str) -> bool {
    Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

/// What a test needs, and how to get it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    Nothing,
    Redis,
    Postgres,
    RedisAndPostgres,
    Mariadb,
    /// Both, and the programs of `examples/drivers`.
    Drivers,
    Openssl,
    /// The rights to act as other users.
    Root,
    /// A file system that is a program.
    Fuse,
    /// A server whose clock can be moved.
    Cc,
    /// A server, and the peer in that language.
    Java,
    Python,
    Go,
    Node,
}

impl Needs {
    fn missing(self) -> Option<String> {
        let server = server::program();
        match self {
            Self::Nothing => None,
            Self::Redis if installed(&server) => None,
            Self::Redis => Some(format!("{server} (apt-get install redis-server)")),
            Self::Postgres if postgres::program("postgres").is_some() => None,
            Self::Postgres => Some("PostgreSQL (apt-get install postgresql)".to_owned()),
            Self::RedisAndPostgres => Self::Redis.missing().or_else(|| Self::Postgres.missing()),
            Self::Mariadb if mariadb::program().is_some() => None,
            Self::Mariadb => Some("MariaDB (apt-get install mariadb-server)".to_owned()),
            Self::Drivers if !database::driver("sqlx").exists() => {
                Some("examples/drivers (examples/drivers/run builds it)".to_owned())
            }
            Self::Drivers => Self::Postgres.missing().or_else(|| Self::Mariadb.missing()),
            Self::Openssl if installed(&server) && installed_openssl() => None,
            Self::Openssl => Some(format!("{server} and openssl (apt-get install redis-server openssl)")),
            Self::Root if is_root() && installed("setpriv") => None,
            Self::Root => Some("root, and setpriv (apt-get install util-linux)".to_owned()),
            Self::Fuse if installed("bindfs") && can_mount() => None,
            Self::Fuse => Some("FUSE: /dev/fuse, the right to mount, and bindfs (apt-get install fuse3 bindfs)".to_owned()),
            Self::Cc if installed(&server) && installed("cc") => None,
            Self::Cc => Some(format!("{server} and cc (apt-get install redis-server gcc)")),
            Self::Java => Language::Java.missing(&server),
            Self::Python => Language::Python.missing(&server),
            Self::Go => Language::Go.missing(&server),
            Self::Node => Language::Node.missing(&server),
        }
    }
}

fn installed_openssl() -> bool {
    Command::new("openssl").arg("version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

fn can_mount() -> bool {
    let dir = tempfile::tempdir().expect("a directory");
    let run = |program: &str, args: &[&std::path::Path]| {
        Command::new(program).args(args).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    };
    run("bindfs", &[dir.path(), dir.path()]) && run("fusermount3", &["-uz".as_ref(), dir.path()])
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|out| out.stdout == b"0\n")
}

/// One test of a program without the standard harness.
pub(crate) struct Test {
    pub(crate) name: String,
    pub(crate) needs: Needs,
    pub(crate) run: Box<dyn FnOnce() + Send>,
}

impl Test {
    pub(crate) fn new(name: impl Into<String>, needs: Needs, run: impl FnOnce() + Send + 'static) -> Self {
        Self { name: name.into(), needs, run: Box::new(run) }
    }
}

/// A list of tests from functions.
#[macro_export]
macro_rules! tests {
    ($($needs:ident: $($name:ident)*;)*) => {
        vec![$($($crate::support::Test::new(stringify!($name), $crate::support::Needs::$needs, $name),)*)*]
    };
    ($($needs:ident in $module:ident: $($name:ident)*;)*) => {
        vec![$($($crate::support::Test::new(
            concat!(stringify!($module), "::", stringify!($name)),
            $crate::support::Needs::$needs,
            $module::$name,
        ),)*)*]
    };
}

/// Runs tests. Where a server is missing its tests count as ignored and a line says so; with `TENURE_TEST_ALL` set, as
/// the project's own test command does, a missing server is a failure.
pub(crate) fn run(tests: Vec<Test>) -> ! {
    run_then(tests, || {})
}

/// The same, and then a check of what all of them together have left. It panics if that is not right.
pub(crate) fn run_then(tests: Vec<Test>, check: fn()) -> ! {
    // RUST_LOG=tenure=debug shows what the library thinks.
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    let mut arguments = Arguments::from_args();
    // Most of these wait for servers and leases, not for the processor.
    arguments.test_threads = arguments.test_threads.or(Some(10));
    let strict = std::env::var_os("TENURE_TEST_ALL").is_some();
    let mut skipped = std::collections::BTreeMap::<String, usize>::new();
    let mut missing = std::collections::HashMap::new();
    let mut trials = Vec::new();
    for Test { name, needs, run } in tests {
        let missing = missing.entry(needs as u8).or_insert_with(|| needs.missing()).clone();
        let skip = !strict && missing.is_some();
        if let Some(what) = missing.clone().filter(|_| skip) {
            *skipped.entry(what).or_default() += 1;
        }
        let trial = Trial::test(name, move || {
            assert!(missing.is_none(), "not installed: {}", missing.unwrap_or_default());
            run();
            Ok(())
        });
        trials.push(trial.with_ignored_flag(skip));
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    let left = std::panic::catch_unwind(check);
    server::end_all();
    database::end_all();
    if left.is_err() {
        std::process::exit(101);
    }
    for (what, n) in skipped {
        println!("SKIPPED {n} tests: they need {what}");
    }
    conclusion.exit()
}
