//! Where the file is: a directory that is kept open, a name in it, and the files that SQLite makes beside it.

use std::ffi::{OsStr, OsString};
use std::fs::Permissions;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, FileType, Mode, OFlags, Stat, access, fstat, fstatfs, linkat, mknodat, openat, unlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::fault::{io_error, shown};
use super::filesystem;
use super::groups;
use super::resolve::{Resolved, resolve};
use super::trust::{Seen, Sharing, distrusted};
use crate::connect::{Options, decode};
use crate::error::{Error, Result};
use crate::name::ClientId;

/// What SQLite keeps beside the file.
const BESIDE: [&str; 3] = ["-journal", "-wal", "-shm"];
const NOT_FOLLOWED: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// What a URL says of its file.
#[derive(Debug, Clone)]
pub(super) struct Terms {
    path: PathBuf,
    sharing: Sharing,
    any_filesystem: bool,
    /// Whether the directory is there for this file alone.
    own_directory: bool,
}

impl Terms {
    /// Of a URL without its scheme. Makes the directory of the default file.
    pub(super) fn read(rest: &str, options: &mut Options) -> Result<Self> {
        let sharing = options.one_of("share", &[("none", Sharing::None), ("group", Sharing::Group)])?.unwrap_or_default();
        let any_filesystem = options.one_of("filesystem", &[("local", false), ("any", true)])?.unwrap_or(false);
        let path = locate(rest)?;
        Ok(Self { path, sharing, any_filesystem, own_directory: rest.is_empty() && sharing == Sharing::None })
    }

    #[cfg(test)]
    pub(super) fn of(path: PathBuf) -> Self {
        Self { path, sharing: Sharing::None, any_filesystem: false, own_directory: false }
    }
}

/// The file that a URL names.
fn locate(rest: &str) -> Result<PathBuf> {
    let refuse = |problem: &str| {
        Error::config(format!("the URL sqlite:{rest}"), problem, "sqlite: alone, sqlite:/absolute/path or sqlite:relative/path")
    };
    if rest.is_empty() {
        return default_file(std::env::var_os("XDG_STATE_HOME"), std::env::var_os("HOME"));
    }
    if rest.starts_with("//") && !rest.starts_with("///") {
        return Err(refuse("names a host"));
    }
    let path = decode(rest).ok_or_else(|| refuse("is not UTF-8"))?;
    if path.contains('\0') {
        return Err(refuse("has a NUL in its path"));
    }
    // Absolute, so that neither a later chdir nor SQLite's special name ":memory:" changes its meaning.
    std::path::absolute(&path).map_err(|e| refuse(&format!("has no absolute path: {e}")))
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

/// Makes what is missing of a directory, where nobody else could lead that elsewhere.
fn make_directory(dir: &Path) -> Result<()> {
    let failed = |e| io_error(dir, "creating", &e);
    let Some(there) = dir.ancestors().find(|dir| dir.exists()).filter(|there| *there != dir) else { return Ok(()) };
    let Resolved { path, links } = resolve(there)?;
    let user = geteuid().as_raw();
    let own = closed(user);
    check_directories((user, Sharing::None), (dir, own), Some(&path), &links)?;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed)
}

/// A place that was looked at, and may be used.
#[derive(Debug)]
pub(super) struct Place {
    dir: OwnedFd,
    name: OsString,
    /// Without symbolic links: all clients must derive the same names from it.
    pub(super) path: PathBuf,
    pub(super) sharing: Sharing,
    pub(super) user: u32,
    /// Whose the directory is.
    pub(super) group: u32,
}

impl Place {
    /// Looks at the directory and at what is in it, makes the file if there is none, and closes to others what is open to
    /// them. The file is not opened for that: closing it again would end the POSIX locks of other connections.
    pub(super) fn find(terms: &Terms) -> Result<Self> {
        let Resolved { path, links } = resolve(&terms.path)?;
        let a_directory = || Error::config(shown(&path), "is a directory", "a file");
        let (parent, name) = path.parent().zip(path.file_name()).filter(|_| !path.is_dir()).ok_or_else(a_directory)?;
        let failed = |e: Errno| io_error(parent, "opening", &e.into());
        let dir = openat(rustix::fs::CWD, parent, NOT_FOLLOWED | OFlags::DIRECTORY, Mode::empty()).map_err(failed)?;
        let (user, stat) = (geteuid().as_raw(), fstat(&dir).map_err(failed)?);
        if terms.own_directory && stat.st_uid == user {
            set_mode(&dir, stat.st_mode, 0o700).map_err(|e| io_error(parent, "closing to others", &e))?;
        }
        let place = Self { name: name.to_owned(), sharing: terms.sharing, user, group: stat.st_gid, dir, path: path.clone() };
        let own = directory(parent, &fstat(&place.dir).map_err(failed)?);
        check_directories((user, place.sharing), (parent, own), parent.parent(), &links)?;
        if !terms.any_filesystem {
            filesystem::check(&shown(&path), fstatfs(&place.dir).map_err(failed)?.f_type.into())?;
        }
        for end in BESIDE {
            place.check_file(end, terms)?;
        }
        if !place.check_file("", terms)? {
            access(parent, Access::WRITE_OK).map_err(failed)?;
            place.make_file().map_err(|e| io_error(&path, "creating", &e.into()))?;
        }
        access(&path, Access::WRITE_OK).map_err(|e| io_error(&path, "opening", &e.into()))?;
        Ok(place)
    }

    /// The directory, and a name that begins with that of the file.
    pub(super) fn beside(&self, end: &str) -> (&OwnedFd, OsString) {
        let mut name = self.name.clone();
        name.push(end);
        (&self.dir, name)
    }

    /// Which file the name leads to now, in the directory that was looked at, if that still has its path.
    pub(super) fn inode(&self) -> Option<(u64, u64)> {
        let parent = rustix::fs::lstat(self.path.parent()?).ok()?;
        let dir = fstat(&self.dir).ok()?;
        let file = rustix::fs::statat(&self.dir, &self.name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        ((parent.st_dev, parent.st_ino) == (dir.st_dev, dir.st_ino)).then_some((file.st_dev, file.st_ino))
    }

    /// Whether the file is there, and may be used. What is the user's own gets the mode it should have.
    fn check_file(&self, end: &str, terms: &Terms) -> Result<bool> {
        let (dir, name) = self.beside(end);
        let path = self.path.with_file_name(&name);
        let failed = |e: std::io::Error| io_error(&path, "opening", &e);
        let file = match openat(dir, &name, NOT_FOLLOWED, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(false),
            opened => opened.map_err(|e| failed(e.into()))?,
        };
        let stat = fstat(&file).map_err(|e| failed(e.into()))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(Error::config(shown(&path), "is not a regular file", "a file, or none yet"));
        }
        // It may be a mount of its own.
        if !terms.any_filesystem {
            filesystem::check(&shown(&path), fstatfs(&file).map_err(|e| failed(e.into()))?.f_type.into())?;
        }
        if !self.sharing.owns(seen(&stat), self.user, self.group) {
            let problem = match self.sharing {
                Sharing::None => format!("belongs to user {}, and this is user {}", stat.st_uid, self.user),
                Sharing::Group => format!("belongs to group {}, and its directory to group {}", stat.st_gid, self.group),
            };
            return Err(Error::config(
                shown(&path),
                problem,
                "a file of this user, or with share=group of the directory's group",
            ));
        }
        if stat.st_uid == self.user {
            set_mode(&file, stat.st_mode, self.sharing.file()).map_err(failed)?;
        }
        Ok(true)
    }

    /// Under another name first, so that nobody finds it with a mode that the umask has left. Never opened, see above.
    fn make_file(&self) -> rustix::io::Result<()> {
        let unique = ClientId::random().map_err(|_| Errno::IO)?;
        let (dir, hidden) = self.beside(&format!(".{unique}.new"));
        mknodat(dir, &hidden, FileType::RegularFile, Mode::from_raw_mode(0o600), 0)?;
        let made = openat(dir, &hidden, NOT_FOLLOWED, Mode::empty())
            .and_then(|file| set_mode(&file, 0, self.sharing.file()).map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO)))
            .and_then(|()| match linkat(dir, &hidden, dir, &self.name, AtFlags::empty()) {
                // Another process was faster.
                Err(Errno::EXIST) => Ok(()),
                linked => linked,
            });
        unlinkat(dir, &hidden, AtFlags::empty())?;
        made
    }
}

/// Whether nobody but those who may use the file decides what is in its directory, in those above it and in those of the
/// links that lead to it.
fn check_directories(
    (user, sharing): (u32, Sharing),
    (own, own_seen): (&Path, Seen),
    above: Option<&Path>,
    links: &[(PathBuf, u32)],
) -> Result<()> {
    let of_links = links.iter().flat_map(|(link, _)| link.ancestors().skip(1));
    let mut dirs = vec![(own, own_seen)];
    for dir in above.into_iter().flat_map(Path::ancestors).chain(of_links) {
        let stat = rustix::fs::lstat(dir).map_err(|e| io_error(dir, "opening", &e.into()))?;
        dirs.push((dir, directory(dir, &stat)));
    }
    // In a sticky directory a link is its owner's to change.
    dirs.extend(links.iter().map(|(link, user)| (&**link, closed(*user))));
    let (paths, seen): (Vec<&Path>, Vec<Seen>) = dirs.into_iter().unzip();
    let Some((at, why)) = distrusted(user, nobody(), sharing, &seen) else { return Ok(()) };
    let asked = format!("the directory or link {}", paths.get(at).unwrap_or(&own).display());
    let allowed = match sharing {
        // As /tmp.
        Sharing::None if at == 0 && own_seen.mode & 0o1002 == 0o1002 => {
            "those that only this user and root write to, such as a new one in it; share=group for a directory that a group shares"
        }
        Sharing::None => "those that only this user and root write to; share=group for a directory that a group shares",
        Sharing::Group => "with share=group, a directory that a group shares and nobody else writes to (chgrp, chmod 2770)",
    };
    Err(Error::config(asked, why, allowed))
}

pub(super) fn seen(stat: &Stat) -> Seen {
    Seen { user: stat.st_uid, group: stat.st_gid, mode: stat.st_mode, is_private: false, has_acl: false }
}

/// What decides on whether a directory is trusted.
fn directory(path: &Path, stat: &Stat) -> Seen {
    let is_private = stat.st_mode & 0o020 != 0 && groups::is_private(stat.st_uid, stat.st_gid);
    Seen { is_private, has_acl: has_acl(path), ..seen(stat) }
}

/// One that is a user's alone.
fn closed(user: u32) -> Seen {
    Seen { user, group: user, mode: 0o700, is_private: true, has_acl: false }
}

fn has_acl(dir: &Path) -> bool {
    match rustix::fs::lgetxattr(dir, "system.posix_acl_access", &mut [0_u8; 1024]) {
        Ok(bytes) => bytes > 0,
        Err(e) => e == Errno::RANGE,
    }
}

/// Who stands for owners that this user namespace does not know.
fn nobody() -> Option<u32> {
    let map = std::fs::read_to_string("/proc/self/uid_map").ok()?;
    let knows_all = map.split_whitespace().eq(["0", "0", "4294967295"]);
    (!knows_all).then_some(65534)
}

/// Sets the mode of a file or directory that is open as no more than a path.
pub(super) fn set_mode(file: impl AsFd, is: u32, should: u32) -> std::io::Result<()> {
    if is & 0o7777 == should {
        return Ok(());
    }
    let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    std::fs::set_permissions(OsStr::new(&path), Permissions::from_mode(should))
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
    fn a_list_of_rights_counts_however_long_it_is() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!has_acl(dir.path()));
        let (all, group, mask, others) = ((1_u16, 7_u16, u32::MAX), (4, 7, u32::MAX), (16, 7, u32::MAX), (32, 0, u32::MAX));
        for users in [1, 300] {
            let users = (1..=users).map(|user| (2, 7, user));
            let entries = std::iter::once(all).chain(users).chain([group, mask, others]);
            let list =
                entries.flat_map(|(tag, rights, id)| [&tag.to_le_bytes()[..], &rights.to_le_bytes(), &id.to_le_bytes()].concat());
            let list: Vec<u8> = 2_u32.to_le_bytes().into_iter().chain(list).collect();
            match rustix::fs::lsetxattr(dir.path(), "system.posix_acl_access", &list, rustix::fs::XattrFlags::empty()) {
                // Not on this file system.
                Err(Errno::OPNOTSUPP) => return,
                set => set.unwrap(),
            }
            assert!(has_acl(dir.path()));
        }
    }

    #[test]
    fn paths_are_decoded_and_hosts_refused() {
        assert_eq!(locate("/a%20b/c%3Fd").unwrap(), Path::new("/a b/c?d"));
        assert_eq!(locate("///a").unwrap(), Path::new("/a"));
        assert!(locate(":memory:").unwrap().is_absolute());
        for bad in ["//host/a", "/a%00b", "/%ff"] {
            assert!(matches!(locate(bad), Err(Error::Config { .. })), "{bad}");
        }
    }
}
