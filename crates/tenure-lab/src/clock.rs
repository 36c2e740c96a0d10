//! Clocks of a server that can be moved while the server runs.
//!
//! A preloaded library adds to the server's clocks what a file says. It is compiled where it is needed.

use std::ffi::OsString;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::process;

const SHIM: &str = include_str!("clock_shim.c");

/// What the shim reads: the offset of the wall clock, then that of the monotonic clock.
const WALL: u64 = 0;
const MONOTONIC: u64 = 8;

/// The clocks of one or more servers. They are right until they are moved.
#[derive(Debug)]
pub struct Clock {
    file: File,
    path: PathBuf,
    shim: PathBuf,
}

impl Clock {
    /// Clocks that read their offsets from a new file. The preloaded library is in a directory, and is built there if it is missing.
    ///
    /// # Errors
    /// The file cannot be written, or the library cannot be built.
    pub fn new(path: PathBuf, shim_dir: &Path) -> io::Result<Self> {
        let file = File::options().create(true).truncate(true).read(true).write(true).open(&path)?;
        file.set_len(16)?;
        // Named for its source: a directory may have one of another version.
        let mut source = DefaultHasher::new();
        SHIM.hash(&mut source);
        let shim = shim_dir.join(format!("clock_shim-{:016x}.so", source.finish()));
        if !shim.exists() {
            build(&shim)?;
        }
        Ok(Self { file, path, shim })
    }

    /// Moves the wall clock to this much ahead of the right time.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn ahead(&self, by: Duration) -> io::Result<()> {
        self.write(WALL, nanos(by)?)
    }

    /// Moves the wall clock to this much behind the right time.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn behind(&self, by: Duration) -> io::Result<()> {
        self.write(WALL, -nanos(by)?)
    }

    /// Moves the monotonic clock, as some virtual machines do when they are migrated.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn monotonic_ahead(&self, by: Duration) -> io::Result<()> {
        self.write(MONOTONIC, nanos(by)?)
    }

    /// The environment of a process that runs by these clocks.
    pub fn environment(&self) -> [(OsString, OsString); 2] {
        [("LD_PRELOAD".into(), self.shim.clone().into()), ("TENURE_TEST_SKEW".into(), self.path.clone().into())]
    }

    fn write(&self, at: u64, nanos: i64) -> io::Result<()> {
        self.file.write_all_at(&nanos.to_ne_bytes(), at)
    }
}

fn nanos(by: Duration) -> io::Result<i64> {
    i64::try_from(by.as_nanos()).map_err(|error| io::Error::other(format!("moving a clock: {error}")))
}

/// Builds the library beside its place and renames it: other processes may build the same one at the same time.
fn build(shim: &Path) -> io::Result<()> {
    let dir = shim.parent().unwrap_or(Path::new("."));
    let new = tempfile::Builder::new().prefix("clock_shim").tempfile_in(dir)?.into_temp_path();
    let mut command = Command::new("cc");
    command.args(["-O1", "-shared", "-fPIC", "-x", "c", "-", "-o"]).arg(&new);
    let mut compiler = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    if let Some(mut source) = compiler.stdin.take() {
        source.write_all(SHIM.as_bytes())?;
    }
    if !compiler.wait()?.success() {
        return Err(io::Error::other("cc cannot make a clock that can be moved"));
    }
    Ok(new.persist(shim)?)
}

/// Why there can be no such clock on this machine.
pub fn missing() -> Option<&'static str> {
    (!process::is_installed("cc"))
        .then_some("a server's clock is moved by a library that is compiled first, and cc is not there (apt-get install gcc)")
}
