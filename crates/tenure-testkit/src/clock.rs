//! Clocks of a server that a test can move while the server runs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempPath;
use tenure_lab::clock::Clock;

/// How wrong the clocks of a server are. Many servers may share it.
#[derive(Debug)]
pub struct Skew {
    clock: Clock,
    _file: TempPath,
}

impl Skew {
    /// Clocks that are right, until they are moved.
    pub fn none() -> Self {
        let file = tempfile::NamedTempFile::new().expect("a file").into_temp_path();
        Self { clock: Clock::new(file.to_path_buf(), &shim_dir()).expect("a clock"), _file: file }
    }

    /// Moves the wall clock to this much ahead of the right time.
    pub fn ahead(&self, by: Duration) {
        self.clock.ahead(by).expect("moved");
    }

    /// Moves the wall clock to this much behind the right time.
    pub fn behind(&self, by: Duration) {
        self.clock.behind(by).expect("moved");
    }

    /// Moves the monotonic clock, as some virtual machines do when they are migrated.
    pub fn steady_ahead(&self, by: Duration) {
        self.clock.monotonic_ahead(by).expect("moved");
    }

    /// For the setup of a server.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }
}

/// All test programs share the library.
fn shim_dir() -> PathBuf {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tmp");
    std::fs::create_dir_all(&dir).expect("a directory");
    dir.canonicalize().expect("a directory")
}
