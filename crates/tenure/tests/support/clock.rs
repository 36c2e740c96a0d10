//! A clock of a server that a test can move while the server runs.

use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use tempfile::NamedTempFile;

const SOURCE: &str = include_str!("../../../tenure-lab/src/clock_shim.c");

/// How wrong the clocks of a server are. Many servers may share it.
#[derive(Debug)]
pub(crate) struct Skew {
    file: NamedTempFile,
}

impl Skew {
    /// Not at all, for now.
    pub(crate) fn none() -> Self {
        let skew = Self { file: NamedTempFile::new().expect("a file") };
        skew.write(0, 0);
        skew.write(8, 0);
        skew
    }

    /// Moves the wall clock to this much ahead of the right time.
    pub(crate) fn ahead(&self, by: Duration) {
        self.write(0, nanos(by));
    }

    /// Moves the wall clock to this much behind the right time.
    pub(crate) fn behind(&self, by: Duration) {
        self.write(0, -nanos(by));
    }

    /// Moves the clock that never jumps, as some virtual machines do when they are moved.
    pub(crate) fn steady_ahead(&self, by: Duration) {
        self.write(8, nanos(by));
    }

    /// What a server needs in its environment to have such a clock.
    pub(crate) fn environment(&self) -> [(&'static str, PathBuf); 2] {
        static SHIM: LazyLock<PathBuf> = LazyLock::new(build);
        [("LD_PRELOAD", SHIM.clone()), ("TENURE_TEST_SKEW", self.file.path().to_owned())]
    }

    fn write(&self, at: u64, nanos: i64) {
        self.file.as_file().write_all_at(&nanos.to_ne_bytes(), at).expect("written");
    }
}

fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).expect("less than 292 years")
}

fn build() -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let new = tempfile::Builder::new().prefix("clock_shim").tempfile_in(dir).expect("a file").into_temp_path();
    let mut command = Command::new("cc");
    command.args(["-O1", "-shared", "-fPIC", "-x", "c", "-", "-o"]).arg(&new).stdin(Stdio::piped());
    let mut compiler = command.spawn().expect("cc runs");
    compiler.stdin.take().expect("a pipe").write_all(SOURCE.as_bytes()).expect("written");
    assert!(compiler.wait().expect("waited").success(), "cc does not compile the clock shim");
    // Other test programs may make the same at the same time.
    let shim = dir.join("clock_shim.so");
    new.persist(&shim).expect("renamed");
    shim
}
