//! One file, one name: SQLite derives the names of its log and its index from that of the file. By a second name a process would use
//! others, and know nothing of the rest.

use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{AtFlags, Dir, Mode, OFlags, fstat, linkat, openat, statat, unlinkat};
use rustix::io::Errno;

use super::fault::{io_error, shown};
use crate::error::{Error, Result};
use crate::name::ClientId;

/// How often, and after what pauses, a file is looked at that has two names: where it cannot be renamed, it has for a moment.
const LOOKS: (u32, Duration) = (100, Duration::from_millis(5));

/// Refuses a file that can be reached by another name, as far as the system says.
pub(super) fn check(path: &Path, dir: &OwnedFd, file: &OwnedFd) -> Result<()> {
    if let (Some(of_dir), Some(of_file)) = (mount(dir), mount(file))
        && of_dir != of_file
    {
        let problem = "is a mount of its own: what SQLite keeps beside it would be elsewhere for others";
        return Err(Error::config(shown(path), problem, "a mount of the whole directory of the file"));
    }
    let (looks, pause) = LOOKS;
    let mut names = links(path, file)?;
    for _ in 1..looks {
        if names <= 1 {
            break;
        }
        std::thread::sleep(pause);
        names = links(path, file)?;
    }
    if names > 1 {
        remove_hidden(path, dir, file);
        names = links(path, file)?;
    }
    if names > 1 {
        let problem = format!("has {names} names (hard links): each would have a log and locks of its own");
        return Err(Error::config(shown(path), problem, "a file with one name; symbolic links may lead to it"));
    }
    Ok(())
}

/// Takes away the second name that a process left behind which was killed while it gave the file its own.
fn remove_hidden(path: &Path, dir: &OwnedFd, file: &OwnedFd) {
    let (Some(name), Ok(ours)) = (path.file_name(), fstat(file)) else { return };
    let is_hidden = |entry: &[u8]| {
        let between = entry.strip_prefix(name.as_bytes()).and_then(|end| end.strip_prefix(b".")?.strip_suffix(b".new"));
        between.is_some_and(|id| std::str::from_utf8(id).is_ok_and(|id| id.parse::<ClientId>().is_ok()))
    };
    let Ok(entries) = openat(dir, ".", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).and_then(Dir::new) else { return };
    for entry in entries.flatten().filter(|entry| is_hidden(entry.file_name().to_bytes())) {
        let seen = statat(dir, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW);
        if seen.is_ok_and(|seen| (seen.st_dev, seen.st_ino) == (ours.st_dev, ours.st_ino)) {
            let _ = unlinkat(dir, entry.file_name(), AtFlags::empty());
        }
    }
}

fn links(path: &Path, file: &OwnedFd) -> Result<u64> {
    let stat = fstat(file).map_err(|e| io_error(path, "opening", e.into()))?;
    #[allow(clippy::useless_conversion, reason = "not as wide on all systems")]
    Ok(stat.st_nlink.into())
}

/// Which mount a file is seen through, if the system says so.
#[cfg(target_os = "linux")]
fn mount(file: &OwnedFd) -> Option<u64> {
    use rustix::fs::{StatxFlags, statx};
    let asked = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).ok();
    let told = asked.filter(|stat| stat.stx_mask & StatxFlags::MNT_ID.bits() != 0).map(|stat| stat.stx_mnt_id);
    told.or_else(|| mount_in(&std::fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).ok()?))
}

#[cfg(not(target_os = "linux"))]
fn mount(_: &OwnedFd) -> Option<u64> {
    None
}

/// Before Linux 5.8.
fn mount_in(info: &str) -> Option<u64> {
    info.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim().parse().ok()
}

/// Gives a file its name if that is free, and takes the other: in one step where the file system can, so that a killed process leaves no
/// second name.
pub(super) fn give<P: rustix::path::Arg + Copy>(dir: &OwnedFd, hidden: P, name: P) -> rustix::io::Result<()> {
    let given = match rename(dir, hidden, name) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => linkat(dir, hidden, dir, name, AtFlags::empty()),
        done => done,
    };
    match (given, unlinkat(dir, hidden, AtFlags::empty())) {
        (Ok(()), Err(Errno::NOENT)) => Ok(()),
        // Another process was faster.
        (Ok(()) | Err(Errno::EXIST), removed) => removed,
        (failed, _) => failed,
    }
}

#[cfg(target_os = "linux")]
fn rename<P: rustix::path::Arg>(dir: &OwnedFd, from: P, to: P) -> rustix::io::Result<()> {
    rustix::fs::renameat_with(dir, from, dir, to, rustix::fs::RenameFlags::NOREPLACE)
}

#[cfg(not(target_os = "linux"))]
fn rename<P: rustix::path::Arg>(_: &OwnedFd, _: P, _: P) -> rustix::io::Result<()> {
    Err(Errno::NOSYS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_told_apart_by_descriptors_too() {
        assert_eq!(mount_in("pos:\t0\nflags:\t012100000\nmnt_id:\t29\nino:\t5\n"), Some(29));
        for info in ["", "pos:\t0\n", "mnt_id:\n", "mnt_id:\tx\n"] {
            assert_eq!(mount_in(info), None, "{info:?}");
        }
        let open = |path: &str| OwnedFd::from(std::fs::File::open(path).unwrap());
        let (a, b, other) = (open("/"), open("/"), open("/proc"));
        let info = |fd: &OwnedFd| mount_in(&std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd())).unwrap());
        assert_eq!((mount(&a), info(&a)), (mount(&b), info(&b)));
        assert_ne!((mount(&a), info(&a)), (mount(&other), info(&other)));
    }

    #[test]
    fn a_name_that_a_killed_process_left_is_taken_away_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let (fd, path) = (OwnedFd::from(std::fs::File::open(dir.path()).unwrap()), dir.path().join("locks.db"));
        std::fs::write(&path, "").unwrap();
        let file = openat(&fd, "locks.db", OFlags::PATH, Mode::empty()).unwrap();
        let hidden = dir.path().join(format!("locks.db.{}.new", ClientId::random().unwrap()));
        std::fs::hard_link(&path, &hidden).unwrap();
        check(&path, &fd, &file).unwrap();
        assert!(!hidden.exists() && path.exists());
        // Those are other files, or somebody else's names.
        let other = dir.path().join(format!("locks.db.{}.new", ClientId::random().unwrap()));
        std::fs::write(&other, "").unwrap();
        std::fs::hard_link(&path, dir.path().join("locks.db.mine.new")).unwrap();
        assert!(check(&path, &fd, &file).is_err());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3);
    }

    #[test]
    fn a_name_that_is_taken_stays_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let fd = OwnedFd::from(std::fs::File::open(dir.path()).unwrap());
        for (content, due) in [("first", "first"), ("second", "first")] {
            std::fs::write(dir.path().join("hidden"), content).unwrap();
            give(&fd, "hidden", "name").unwrap();
            assert_eq!(std::fs::read_to_string(dir.path().join("name")).unwrap(), due);
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        }
    }
}
