//! What a URL says of the file, and where the default one is.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

use super::fault::{NAME, io_error};
use super::location::{check_directories, closed};
use super::resolve::{Resolved, resolve};
use super::trust::Sharing;
use crate::error::{Error, Result};
use crate::store::{Context, Opening, Options, Sealed, StoreOptions, decode};

/// What a URL says of its file.
#[derive(Debug, Clone)]
pub(super) struct Terms {
    pub(super) path: PathBuf,
    pub(super) sharing: Sharing,
    pub(super) any_filesystem: bool,
    /// Whether the directory is there for this file alone.
    pub(super) own_directory: bool,
}

/// A file of SQLite, for the processes of one machine.
///
/// ```
/// # async fn example() -> tenure::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("locks.db");
/// let locker = tenure::Locker::builder().connect_with(tenure::options::SqliteOptions::file(path)).await?;
/// # locker.close().await
/// # }
/// # fn main() -> tenure::Result<()> { tokio::runtime::Runtime::new().unwrap().block_on(example()) }
/// ```
#[derive(Debug, Clone, Default)]
#[must_use = "options do nothing until a locker connects with them"]
pub struct SqliteOptions {
    path: Option<PathBuf>,
    sharing: Sharing,
    any_filesystem: bool,
}

impl SqliteOptions {
    /// The user's file in the state directory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Another file. It is made if it is not there.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self { path: Some(path.into()), ..Self::default() }
    }

    /// The file is the group's, whose directory it is in; otherwise it is this user's alone.
    pub fn share_with_group(mut self) -> Self {
        self.sharing = Sharing::Group;
        self
    }

    /// Takes file systems that are not known to be local. Locks are wrong on one that several machines mount.
    pub fn any_filesystem(mut self) -> Self {
        self.any_filesystem = true;
        self
    }

    /// Of a URL without its scheme.
    pub(super) fn read(rest: &str, options: &mut Options) -> Result<Self> {
        let sharing = options.one_of("share", &[("none", Sharing::None), ("group", Sharing::Group)])?.unwrap_or_default();
        let any_filesystem = options.one_of("filesystem", &[("local", false), ("any", true)])?.unwrap_or(false);
        let path = if rest.is_empty() { None } else { Some(locate(rest)?) };
        Ok(Self { path, sharing, any_filesystem })
    }

    /// Where the file is to be. Makes the directory of the default one.
    pub(super) fn terms(&self) -> Result<Terms> {
        let Self { sharing, any_filesystem, .. } = *self;
        let own_directory = self.path.is_none() && sharing == Sharing::None;
        let path = match &self.path {
            Some(path) if path.as_os_str().as_bytes().contains(&0) => return Err(refuse("has a NUL in its path")),
            // Absolute, so that neither a later chdir nor SQLite's special name ":memory:" changes its meaning.
            Some(path) => std::path::absolute(path).map_err(|e| refuse(&format!("has no absolute path: {e}")))?,
            None => default_file(std::env::var_os("XDG_STATE_HOME"), std::env::var_os("HOME"))?,
        };
        Ok(Terms { path, sharing, any_filesystem, own_directory })
    }
}

impl Sealed for SqliteOptions {}

impl StoreOptions for SqliteOptions {
    fn scheme(&self) -> &'static str {
        NAME
    }

    fn place(&self) -> Option<String> {
        Some(self.path.as_ref().map(|path| path.display().to_string()).unwrap_or_default())
    }

    fn open(&self, context: Context) -> Opening {
        super::open_file(self.clone(), context)
    }
}

impl Terms {
    #[cfg(test)]
    pub(super) fn of(path: PathBuf) -> Self {
        Self { path, sharing: Sharing::None, any_filesystem: false, own_directory: false }
    }
}

/// Not a word of a URL is repeated: it may be another store's, with a password in it.
fn refuse(problem: &str) -> Error {
    Error::config("the sqlite: URL", problem, "sqlite: alone, sqlite:/absolute/path or sqlite:relative/path")
}

/// The file that a URL names.
fn locate(rest: &str) -> Result<PathBuf> {
    if rest.starts_with("//") && !rest.starts_with("///") {
        return Err(refuse("names a host"));
    }
    let path = decode(rest).ok_or_else(|| refuse("is not UTF-8"))?;
    if path.contains("://") {
        return Err(refuse("has another URL in place of its path"));
    }
    Ok(path.into())
}

fn default_file(state: Option<OsString>, home: Option<OsString>) -> Result<PathBuf> {
    // Relative values are void by the XDG rules.
    let absolute = |dir: Option<OsString>| dir.map(PathBuf::from).filter(|dir| dir.is_absolute());
    let dir = absolute(state).or_else(|| absolute(home).map(|home| home.join(".local/state"))).ok_or_else(|| {
        let fix = "XDG_STATE_HOME or HOME set to an absolute path, or a file as in sqlite:/path/to/file";
        Error::config("the URL sqlite:", "has no state directory to put its file in", fix)
    })?;
    let dir = dir.join("tenure");
    make_directory(&dir)?;
    Ok(dir.join("locks.db"))
}

/// Makes what is missing of a directory, where no other user could lead that elsewhere.
fn make_directory(dir: &Path) -> Result<()> {
    let failed = |e| io_error(dir, "creating", e);
    let Some(there) = dir.ancestors().find(|dir| dir.exists()).filter(|there| *there != dir) else { return Ok(()) };
    let Resolved { path, links } = resolve(there)?;
    let user = geteuid().as_raw();
    let own = closed(user);
    check_directories((user, Sharing::None), (dir, own), Some(&path), &links)?;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn the_default_file_needs_an_absolute_state_directory() {
        let dir = tempfile::tempdir().unwrap();
        let (state, home) = (dir.path().join("state"), dir.path().join("home"));
        assert_eq!(default_file(Some(state.clone().into()), None).unwrap(), state.join("tenure/locks.db"));
        assert_eq!(
            default_file(Some("relative".into()), Some(home.clone().into())).unwrap(),
            home.join(".local/state/tenure/locks.db")
        );
        let mode = std::fs::metadata(state.join("tenure")).unwrap().mode();
        assert_eq!(mode & 0o777, 0o700);
        assert!(matches!(default_file(None, None), Err(Error::Config { .. })));
        assert!(matches!(default_file(Some("".into()), None), Err(Error::Config { .. })));
    }

    #[test]
    fn paths_are_decoded_and_hosts_refused() {
        let path =
            |rest: &str| SqliteOptions::read(rest, &mut Options::default()).and_then(|options| options.terms()).map(|t| t.path);
        assert_eq!(path("/a%20b/c%3Fd").unwrap(), Path::new("/a b/c?d"));
        assert_eq!(path("///a").unwrap(), Path::new("/a"));
        assert!(path(":memory:").unwrap().is_absolute());
        for bad in ["//host/a", "/a%00b", "/%ff", "redis://h/a", "redis:%2F%2Fh/a", "/redis%3A//h"] {
            assert!(matches!(path(bad), Err(Error::Config { .. })), "{bad}");
        }
    }
}
