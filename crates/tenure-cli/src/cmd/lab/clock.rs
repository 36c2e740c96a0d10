//! A wall clock of a server that the lab can move while the server runs.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::server::Setup;
use super::upset::{Played, Upset};

/// Preloaded into a server, it adds to the server's clocks what a file says.
const SHIM: &str = include_str!("clock_shim.c");

#[derive(Debug)]
pub(crate) struct Clock {
    file: File,
    path: PathBuf,
    shim: PathBuf,
}

impl Clock {
    /// A right one, in a new file. `shim` is where the preloaded library is, or is to be.
    pub(crate) fn new(path: PathBuf, shim: &Path) -> Played<Self> {
        let file = File::options().create(true).truncate(true).read(true).write(true).open(&path)?;
        // What the shim reads: the wall clock, and the one that never jumps.
        file.set_len(16)?;
        if !shim.exists() {
            build(shim)?;
        }
        Ok(Self { file, path, shim: shim.to_owned() })
    }

    /// Moves it to this much ahead of the right time.
    pub(crate) fn ahead(&self, by: Duration) -> Played<()> {
        self.write(nanos(by)?)
    }

    /// Moves it to this much behind the right time.
    pub(crate) fn behind(&self, by: Duration) -> Played<()> {
        self.write(-nanos(by)?)
    }

    /// A server with such a clock.
    pub(crate) fn for_server(&self, setup: Setup) -> Setup {
        let environment: [(&str, OsString); 2] =
            [("LD_PRELOAD", self.shim.clone().into()), ("TENURE_TEST_SKEW", self.path.clone().into())];
        environment.into_iter().fold(setup, |setup, (name, value)| setup.environment(name, value))
    }

    fn write(&self, nanos: i64) -> Played<()> {
        Ok(self.file.write_all_at(&nanos.to_ne_bytes(), 0)?)
    }
}

fn nanos(d: Duration) -> Played<i64> {
    i64::try_from(d.as_nanos()).map_err(Upset::while_doing("moving a clock"))
}

fn build(shim: &Path) -> Played<()> {
    let mut command = Command::new("cc");
    command.args(["-O1", "-shared", "-fPIC", "-x", "c", "-", "-o"]).arg(shim);
    let mut compiler = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    if let Some(mut source) = compiler.stdin.take() {
        source.write_all(SHIM.as_bytes())?;
    }
    let done = compiler.wait()?.success();
    if done { Ok(()) } else { Err(Upset::new("cc cannot make a clock that can be moved")) }
}

/// Why there can be no such clock here.
pub(crate) fn missing() -> Option<&'static str> {
    let runs = Command::new("cc").arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    runs.is_err()
        .then_some("a server's clock is moved by a library that is compiled first, and cc is not there (apt-get install gcc)")
}
