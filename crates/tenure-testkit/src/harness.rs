//! The harness of tests on real servers. Where a server is missing, its tests are skipped, and a line says so.

use std::process::{Command, Stdio};

use libtest_mimic::{Arguments, Trial};
use tenure_lab::process::{is_installed, starts};

use crate::peer::Language;
use crate::{database, mariadb, postgres, server};

/// What a test needs, and how to get it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
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
            Self::Redis if is_installed(&server) => None,
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
            Self::Openssl if is_installed(&server) && starts("openssl", "version") => None,
            Self::Openssl => Some(format!("{server} and openssl (apt-get install redis-server openssl)")),
            Self::Root if is_root() && is_installed("setpriv") => None,
            Self::Root => Some("root, and setpriv (apt-get install util-linux)".to_owned()),
            Self::Fuse if is_installed("bindfs") && can_mount() => None,
            Self::Fuse => Some("FUSE: /dev/fuse, the right to mount, and bindfs (apt-get install fuse3 bindfs)".to_owned()),
            Self::Cc if is_installed(&server) && is_installed("cc") => None,
            Self::Cc => Some(format!("{server} and cc (apt-get install redis-server gcc)")),
            Self::Java => Language::Java.missing(&server),
            Self::Python => Language::Python.missing(&server),
            Self::Go => Language::Go.missing(&server),
            Self::Node => Language::Node.missing(&server),
        }
    }
}

fn can_mount() -> bool {
    let dir = tempfile::tempdir().expect("a directory");
    let run = |program: &str, args: &[&std::path::Path]| {
        Command::new(program).args(args).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    };
    run("bindfs", &[dir.path(), dir.path()]) && run("fusermount3", &["-uz".as_ref(), dir.path()])
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// One test of a program without the standard harness.
pub struct Test {
    pub name: String,
    pub needs: Needs,
    pub run: Box<dyn FnOnce() + Send>,
}

impl std::fmt::Debug for Test {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Test").field("name", &self.name).field("needs", &self.needs).finish_non_exhaustive()
    }
}

impl Test {
    pub fn new(name: impl Into<String>, needs: Needs, run: impl FnOnce() + Send + 'static) -> Self {
        Self { name: name.into(), needs, run: Box::new(run) }
    }
}

/// A list of tests from functions.
#[macro_export]
macro_rules! tests {
    ($($needs:ident: $($name:ident)*;)*) => {
        vec![$($($crate::Test::new(stringify!($name), $crate::Needs::$needs, $name),)*)*]
    };
    ($($needs:ident in $module:ident: $($name:ident)*;)*) => {
        vec![$($($crate::Test::new(
            concat!(stringify!($module), "::", stringify!($name)),
            $crate::Needs::$needs,
            $module::$name,
        ),)*)*]
    };
}

/// Runs tests. Where a server is missing its tests count as ignored and a line says so; with `TENURE_TEST_ALL` set, as
/// the project's own test command does, a missing server is a failure.
pub fn run(tests: Vec<Test>) -> ! {
    run_then(tests, || {})
}

/// The same, and then a check of what all of them together have left. It panics if that is not right.
pub fn run_then(tests: Vec<Test>, check: fn()) -> ! {
    // Most of these wait for servers and leases, not for the processor.
    run_at_once(10, tests, check)
}

/// The same with so many tests at the same time.
pub fn run_at_once(threads: usize, tests: Vec<Test>, check: fn()) -> ! {
    // RUST_LOG=tenure=debug shows what the library thinks.
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    let mut arguments = Arguments::from_args();
    arguments.test_threads = arguments.test_threads.or(Some(threads));
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
