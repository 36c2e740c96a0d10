//! Fences for local files: an atomic replacement that refuses a stale writer.
//!
//! ```
//! use tenure::Token;
//! use tenure::fence::file::FencedFile;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("state.json");
//! let file = FencedFile::new(path)?;
//! file.write(b"{\"by\": \"the new holder\"}", &Token::new(9))?; // or &guard
//! let late = file.write(b"{\"by\": \"the old one\"}", &Token::new(5));
//! assert_eq!(late.unwrap_err().stale().unwrap().seen, Token::new(9));
//! # Ok(())
//! # }
//! ```
//!
//! All of it blocks: on disks, and on other writers for as long as [`patience`](FencedFile::patience) says. From async code:
//!
//! ```
//! # use std::sync::Arc;
//! # use tenure::fence::file::FencedFile;
//! # async fn example(file: FencedFile, locker: tenure::Locker) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! let guard = Arc::new(locker.mutex("state").lock().await?);
//! let pass = Arc::clone(&guard);
//! tokio::task::spawn_blocking(move || file.write(b"{}", &*pass)).await??;
//! # Ok(())
//! # }
//! ```
//!
//! # How
//! The content goes to a file of its own, `.NAME.0.part`, and to disk. Then the fence `.NAME.fence` beside it is locked, its token is
//! compared and raised on disk, the new file takes the place of the old one, and the directory goes to disk. Whenever the process
//! dies, the file is the old or the new one as a whole, and the fence has not gone down; the next write removes what is left of a `.part`.
//! A writer that stands still with the fence locked keeps the others waiting until they give up ([`Trouble::Busy`]).
//!
//! # What it takes
//! A file system with locks (`flock`) and hard links, which all writers see as one: a local one. Only writers that use
//! the fence are fenced, and **to delete `.NAME.fence` deletes the mark**. The permissions of the file are kept; its
//! owner is its last writer, and its other names (hard links) keep the old content.
//!
//! **A directory that only the writers may write to**: another user could put anything there, also a fence with the largest token. What is
//! not a regular file is neither opened nor followed nor waited for: a file that is a symbolic link, a pipe or a device is refused, a
//! fence that is one is [damaged](Trouble::Damaged), a `.part` that is one is left where it is. A new fence can be read, and so locked,
//! only by users that may write the file.

mod part;
mod sidecar;

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::OFlags;

use self::part::Part;
use self::sidecar::Sidecar;
use super::{FenceCounters, FenceStats, Pass, decimal};

/// Why a fenced write to a file did not happen.
pub type Error = super::Error<Trouble>;

/// What can be wrong with files.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Trouble {
    /// The system refused.
    #[error("{doing} {path:?} failed: {source}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// With which file.
        path: PathBuf,
        /// The system's own words.
        source: io::Error,
    },
    /// Others have kept the file's fence locked for longer than this writer is patient. Nothing was written.
    #[error("writing {path:?} was given up, because others are at it for more than {patience:?}")]
    Busy {
        /// What was to be written.
        path: PathBuf,
        /// How long was waited.
        patience: Duration,
    },
    /// The fence holds no token. Nothing was written, and nothing will be until it is repaired.
    #[error(
        "the fence {path:?} is damaged: {problem}; allowed: what FencedFile writes, or no file if no writer can be late any more"
    )]
    Damaged {
        /// The fence.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
}

impl Trouble {
    /// For `map_err`: what was being done with which file.
    fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::Store(Self::Io { doing, path: path.to_owned(), source })
    }
}

/// A file that is replaced as a whole, unless a larger token has written it.
///
/// Clones count together.
#[derive(Debug, Clone)]
pub struct FencedFile {
    dir: PathBuf,
    name: OsString,
    patience: Duration,
    counters: FenceCounters,
}

impl FencedFile {
    /// The longest name in bytes: there must be room for what is beside it.
    pub const MAX_NAME: usize = 200;

    /// The file need not be there yet, its directory must. Touches nothing.
    pub fn new(path: impl AsRef<Path>) -> crate::Result<Self> {
        let given = path.as_ref();
        let refuse = |problem: &str, allowed| crate::Error::config(format!("the file {given:?}"), problem, allowed);
        let path = std::path::absolute(given).map_err(|e| refuse(&format!("is no path: {e}"), "the path of a file"))?;
        let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(refuse("has no name", "the path of a file"));
        };
        let bytes = name.as_bytes();
        if bytes.len() > Self::MAX_NAME {
            return Err(refuse(&format!("has a name of {} bytes", bytes.len()), "a name of 1 to 200 bytes"));
        }
        if bytes.starts_with(b".") && (bytes.ends_with(b".fence") || bytes.ends_with(b".part")) {
            return Err(refuse("is what a fence is made of", "names that do not begin with . and end in .fence or .part"));
        }
        Ok(Self {
            dir: dir.to_owned(),
            name: name.to_owned(),
            patience: Duration::from_secs(10),
            counters: FenceCounters::default(),
        })
    }

    /// How long to wait for other writers, instead of ten seconds.
    #[must_use]
    pub fn patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// What it has let through and refused.
    #[must_use]
    pub fn stats(&self) -> FenceStats {
        self.counters.stats()
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.dir.join(&self.name)
    }

    /// Replaces the whole content. May be repeated.
    ///
    /// After [`Trouble::Io`] the file is the old or the new one as a whole, and the fence may be up already.
    pub fn write(&self, content: &[u8], pass: &dyn Pass) -> Result<(), Error> {
        decimal(pass.token()).map_err(Error::Request)?;
        let path = self.path();
        let part = Part::create(self, self.mode()?)?;
        let written = (&part.file).write_all(content).and_then(|()| part.file.sync_all());
        written.map_err(Trouble::io("writing", &part.path))?;
        let fence = Sidecar::lock(self)?;
        fence.admit(self, pass)?;
        part.publish(&path)?;
        self.sync_dir()?;
        drop(fence);
        Part::sweep(self);
        Ok(())
    }

    /// Removes the file and keeps its fence. Says whether there was one, and may be repeated.
    pub fn remove(&self, pass: &dyn Pass) -> Result<bool, Error> {
        decimal(pass.token()).map_err(Error::Request)?;
        let path = self.path();
        self.mode()?;
        let fence = Sidecar::lock(self)?;
        fence.admit(self, pass)?;
        let removed = match fs::remove_file(&path) {
            Err(e) if e.kind() == ErrorKind::NotFound => false,
            removed => removed.map(|()| true).map_err(Trouble::io("removing", &path))?,
        };
        self.sync_dir()?;
        drop(fence);
        Part::sweep(self);
        Ok(removed)
    }

    /// The permissions of the file that is there.
    fn mode(&self) -> Result<Option<fs::Permissions>, Error> {
        let path = self.path();
        let there = match fs::symlink_metadata(&path) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            there => there.map_err(Trouble::io("looking at", &path))?,
        };
        if there.is_file() {
            return Ok(Some(there.permissions()));
        }
        // Another name of the same file would have another fence.
        let problem = format!("is {}", kind(&there));
        Err(Error::Request(crate::Error::config(format!("the file {path:?}"), problem, "the path of a regular file itself")))
    }

    /// A file beside this one.
    fn beside(&self, suffix: &str) -> PathBuf {
        let parts = [OsStr::new("."), &self.name, OsStr::new(suffix)];
        self.dir.join(parts.iter().copied().collect::<OsString>())
    }

    fn sync_dir(&self) -> Result<(), Error> {
        File::open(&self.dir).and_then(|dir| dir.sync_all()).map_err(Trouble::io("syncing", &self.dir))
    }
}

/// What is at a path.
enum There {
    File(File),
    /// Something else: in words.
    Else(&'static str),
}

/// Opens a file, if it is one. A link or a pipe in its place is not followed, nor waited for.
fn open(path: &Path, write: bool) -> io::Result<There> {
    // By its name first: to open a device may do something.
    let there = fs::symlink_metadata(path)?;
    if !there.is_file() {
        return Ok(There::Else(kind(&there)));
    }
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = OpenOptions::new().read(true).write(write).custom_flags(flags.bits().cast_signed()).open(path)?;
    let there = file.metadata()?;
    Ok(if there.is_file() { There::File(file) } else { There::Else(kind(&there)) })
}

fn kind(there: &fs::Metadata) -> &'static str {
    if there.is_symlink() { "a symbolic link" } else { "no regular file" }
}
