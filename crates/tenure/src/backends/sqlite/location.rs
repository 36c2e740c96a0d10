//! Where the file is: a directory that is kept open, a name in it, and the files that SQLite makes beside it.

use std::ffi::{OsStr, OsString};
use std::fs::Permissions;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, FileType, Mode, OFlags, Stat, access, fstat, fstatfs, mknodat, openat, statat, unlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::calm::Stamp;
use super::fault::{io_error, shown};
use super::filesystem;
use super::groups;
use super::names;
use super::resolve::{Resolved, resolve};
use super::terms::Terms;
use super::trust::{Seen, Sharing, distrusted};
use crate::error::{Error, Result};
use crate::name::ClientId;

/// What SQLite keeps beside the file.
pub(super) const BESIDE: [&str; 3] = ["-journal", "-wal", "-shm"];
const NOT_FOLLOWED: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The device, and the number on it.
pub(super) type Inode = (u64, u64);

/// A location that was checked, and may be used.
#[derive(Debug)]
pub(super) struct Location {
    dir: OwnedFd,
    name: OsString,
    /// Without symbolic links: all clients must derive the same names from it.
    pub(super) path: PathBuf,
    pub(super) sharing: Sharing,
    pub(super) user: u32,
    /// Whose the directory is.
    pub(super) group: u32,
}

impl Location {
    /// Looks at the directory. The file need not be there yet, see `check_files` and `claim`.
    pub(super) fn find(terms: &Terms) -> Result<Self> {
        let Resolved { path, links } = resolve(&terms.path)?;
        let a_directory = || Error::config(shown(&path), "is a directory", "a file");
        let (parent, name) = path.parent().zip(path.file_name()).filter(|_| !path.is_dir()).ok_or_else(a_directory)?;
        let failed = |e: Errno| io_error(parent, "opening", e.into());
        let dir = openat(rustix::fs::CWD, parent, NOT_FOLLOWED | OFlags::DIRECTORY, Mode::empty()).map_err(failed)?;
        let (user, stat) = (geteuid().as_raw(), fstat(&dir).map_err(failed)?);
        if terms.own_directory && stat.st_uid == user {
            set_mode(&dir, stat.st_mode, 0o700).map_err(|e| io_error(parent, "closing to others", e))?;
        }
        let location = Self { name: name.to_owned(), sharing: terms.sharing, user, group: stat.st_gid, dir, path: path.clone() };
        let own = directory(parent, &fstat(&location.dir).map_err(failed)?);
        check_directories((user, location.sharing), (parent, own), parent.parent(), &links)?;
        if !terms.any_filesystem {
            filesystem::check(&shown(&path), fstatfs(&location.dir).map_err(failed)?.f_type.into())?;
        }
        Ok(location)
    }

    /// Whether the file and what is beside it may be used, as far as that can be seen from outside. Nothing is changed.
    pub(super) fn check_files(&self, terms: &Terms) -> Result<()> {
        BESIDE.iter().chain(&[""]).try_for_each(|end| self.check_file(end, terms))
    }

    /// Closes to others what is open to them, and makes the file if there is none.
    pub(super) fn claim(&self) -> Result<()> {
        for end in BESIDE {
            self.close_to_others(end)?;
        }
        if !self.close_to_others("")? {
            let parent = self.path.parent().unwrap_or(&self.path);
            access(parent, Access::WRITE_OK).map_err(|e| io_error(parent, "opening", e.into()))?;
            self.make_file().map_err(|e| io_error(&self.path, "creating", e.into()))?;
        }
        access(&self.path, Access::WRITE_OK).map_err(|e| io_error(&self.path, "opening", e.into()))
    }

    /// Which directory it is.
    pub(super) fn directory(&self) -> Option<Inode> {
        fstat(&self.dir).ok().map(|dir| (dir.st_dev, dir.st_ino))
    }

    /// The directory, and a name that begins with that of the file.
    pub(super) fn beside(&self, end: &str) -> (&OwnedFd, OsString) {
        let mut name = self.name.clone();
        name.push(end);
        (&self.dir, name)
    }

    /// Which files the name leads to now, and those of the log and the index, in the directory that was looked at, if that
    /// still has its path.
    pub(super) fn inodes(&self) -> Option<[Option<Inode>; 3]> {
        let parent = rustix::fs::lstat(self.path.parent()?).ok()?;
        let dir = fstat(&self.dir).ok()?;
        let inode = |end| self.stat(end).map(|file| (file.st_dev, file.st_ino));
        ((parent.st_dev, parent.st_ino) == (dir.st_dev, dir.st_ino)).then(|| ["", "-wal", "-shm"].map(inode))
    }

    /// What the directory looks like that the path leads to now.
    pub(super) fn stamp(&self) -> Option<Stamp> {
        Some(Stamp::of(&rustix::fs::lstat(self.path.parent()?).ok()?))
    }

    /// How long a file is, if it is there.
    pub(super) fn size(&self, end: &str) -> Option<u64> {
        self.stat(end).and_then(|stat| u64::try_from(stat.st_size).ok())
    }

    fn stat(&self, end: &str) -> Option<Stat> {
        let (dir, name) = self.beside(end);
        statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).ok()
    }

    /// By a descriptor that is a path only: closing any other would end the POSIX locks of other connections.
    fn open(&self, end: &str) -> Result<Option<(PathBuf, OwnedFd, Stat)>> {
        let (dir, name) = self.beside(end);
        let path = self.path.with_file_name(&name);
        let failed = |e: Errno| io_error(&path, "opening", e.into());
        let file = match openat(dir, &name, NOT_FOLLOWED, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            opened => opened.map_err(failed)?,
        };
        let stat = fstat(&file).map_err(failed)?;
        Ok(Some((path, file, stat)))
    }

    fn check_file(&self, end: &str, terms: &Terms) -> Result<()> {
        let Some((path, file, stat)) = self.open(end)? else { return Ok(()) };
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(Error::config(shown(&path), "is not a regular file", "a file, or none yet"));
        }
        // It may be a mount of its own.
        if !terms.any_filesystem {
            let magic = fstatfs(&file).map_err(|e| io_error(&path, "opening", e.into()))?.f_type;
            filesystem::check(&shown(&path), magic.into())?;
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
        if end.is_empty() { names::check(&path, &self.dir, &file) } else { Ok(()) }
    }

    /// Whether the file is there. What is the user's own gets the mode it should have.
    fn close_to_others(&self, end: &str) -> Result<bool> {
        let Some((path, file, stat)) = self.open(end)? else { return Ok(false) };
        if stat.st_uid == self.user && FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
            set_mode(&file, stat.st_mode, self.sharing.file()).map_err(|e| io_error(&path, "closing to others", e))?;
        }
        Ok(true)
    }

    /// Under another name first, so that it is never found with the mode that the umask leaves. Never opened, see above.
    fn make_file(&self) -> rustix::io::Result<()> {
        let unique = ClientId::random().map_err(|_| Errno::IO)?;
        let (dir, hidden) = self.beside(&format!(".{unique}.new"));
        mknodat(dir, &hidden, FileType::RegularFile, Mode::from_raw_mode(0o600), 0)?;
        let closed = openat(dir, &hidden, NOT_FOLLOWED, Mode::empty())
            .and_then(|file| set_mode(&file, 0, self.sharing.file()).map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO)));
        if closed.is_err() {
            unlinkat(dir, &hidden, AtFlags::empty())?;
            return closed;
        }
        names::give(dir, &hidden, &self.name)
    }
}

/// Refuses a directory of the file, above it or of a link to it that other users can change.
pub(super) fn check_directories(
    (user, sharing): (u32, Sharing),
    (own, own_seen): (&Path, Seen),
    above: Option<&Path>,
    links: &[(PathBuf, u32)],
) -> Result<()> {
    let of_links = links.iter().flat_map(|(link, _)| link.ancestors().skip(1));
    let mut dirs = vec![(own, own_seen)];
    for dir in above.into_iter().flat_map(Path::ancestors).chain(of_links) {
        let stat = rustix::fs::lstat(dir).map_err(|e| io_error(dir, "opening", e.into()))?;
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
pub(super) fn closed(user: u32) -> Seen {
    Seen { user, group: user, mode: 0o700, is_private: true, has_acl: false }
}

fn has_acl(dir: &Path) -> bool {
    match rustix::fs::lgetxattr(dir, "system.posix_acl_access", &mut [0_u8; 1024]) {
        Ok(bytes) => bytes > 0,
        Err(e) => e == Errno::RANGE,
    }
}

/// The user that stands for owners that this user namespace does not know.
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
    use super::*;

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
}
