//! The directory beside the file, and the pipes in it. Touches only pipes with the name of a client's pipe that belong to a user of the
//! file; the rest is not ours.

use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat, mkdirat, mkfifoat, openat, renameat, statat, unlinkat};
use rustix::io::Errno;

use super::calm::Stamp;
use super::location::{Location, seen, set_mode};
use super::terms::Terms;
use crate::name::ClientId;

/// The end of the directory's name.
const CLIENTS: &str = ".clients";
/// The end of a pipe's name that is still being made.
const HIDDEN: &str = ".new";

/// What a pipe is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PipeKind {
    /// Open for as long as its client lives.
    Alive,
    /// Read by its client.
    Wake,
}

/// The name of a pipe, which is all of a path that is ever made of what rows and directories say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PipeName {
    pub(super) client: ClientId,
    pub(super) kind: PipeKind,
    /// Still being made.
    pub(super) hidden: bool,
}

impl PipeName {
    pub(super) fn of(client: ClientId, kind: PipeKind) -> Self {
        Self { client, kind, hidden: false }
    }

    fn parse(name: &[u8]) -> Option<Self> {
        let (client, kind) = std::str::from_utf8(name).ok()?.split_once('.')?;
        let (kind, hidden) = kind.strip_suffix(HIDDEN).map_or((kind, false), |kind| (kind, true));
        let kind = match kind {
            "alive" => PipeKind::Alive,
            "wake" => PipeKind::Wake,
            _ => return None,
        };
        Some(Self { client: client.parse().ok()?, kind, hidden })
    }

    fn text(self) -> String {
        let kind = if self.kind == PipeKind::Alive { "alive" } else { "wake" };
        format!("{}.{kind}{}", self.client, if self.hidden { HIDDEN } else { "" })
    }
}

/// The directory of one file's pipes.
#[derive(Debug)]
pub(super) struct Pipes {
    terms: Terms,
    opened: Mutex<Option<Arc<PipeDir>>>,
}

#[derive(Debug)]
struct PipeDir {
    dir: OwnedFd,
    location: Arc<Location>,
}

impl Pipes {
    /// Makes the directory if there is none. Without one, and with one that is not ours, there are no pipes.
    pub(super) fn new(terms: Terms, location: &Arc<Location>) -> (Self, std::io::Result<()>) {
        let (opened, result) = match PipeDir::new(Arc::clone(location)) {
            Ok(opened) => (Some(Arc::new(opened)), Ok(())),
            Err(e) => (None, Err(e)),
        };
        (Self { terms, opened: Mutex::new(opened) }, result)
    }

    /// Opens a pipe without waiting for its other end.
    pub(super) fn open(&self, name: PipeName, how: OFlags) -> std::io::Result<File> {
        self.with(|opened| opened.open(name, how))
    }

    /// Makes a pipe that is open for reading and writing before others can see it, so that it never looks dead.
    pub(super) fn make(&self, name: PipeName) -> std::io::Result<File> {
        let hidden = PipeName { hidden: true, ..name };
        let once = || self.with(|opened| opened.make(hidden, name));
        // A sweep may have taken it for that of a dead client before it was open.
        let mut made = once();
        for _ in 0..8 {
            match &made {
                Err(e) if e.kind() == ErrorKind::NotFound => made = once(),
                _ => break,
            }
        }
        made.inspect_err(|_| self.remove(hidden))
    }

    pub(super) fn remove(&self, name: PipeName) {
        drop(self.with(|opened| {
            let stat = statat(&opened.dir, name.text(), AtFlags::SYMLINK_NOFOLLOW)?;
            opened.check(&stat)?;
            Ok(unlinkat(&opened.dir, name.text(), AtFlags::empty())?)
        }));
    }

    /// Whether there are pipes of these names where others look for them. Looks only where they were made: there their client removes them.
    pub(super) fn are_there(&self, names: &[PipeName]) -> bool {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner).clone();
        opened.is_some_and(|opened| {
            let stat = |name: &PipeName| statat(&opened.dir, name.text(), AtFlags::SYMLINK_NOFOLLOW);
            opened.is_in_place() && names.iter().all(|name| stat(name).is_ok_and(|stat| opened.check(&stat).is_ok()))
        })
    }

    /// What the directory looks like that they were made in.
    pub(super) fn stamp(&self) -> Option<Stamp> {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        Some(Stamp::of(&fstat(&opened.as_ref()?.dir).ok()?))
    }

    /// The names of pipes. Whether they are any is another question.
    pub(super) fn list(&self) -> Vec<PipeName> {
        let read = self.with(|opened| Ok(Dir::read_from(&opened.dir)?));
        read.into_iter().flatten().flatten().filter_map(|entry| PipeName::parse(entry.file_name().to_bytes())).collect()
    }

    fn with<T>(&self, work: impl Fn(&PipeDir) -> std::io::Result<T>) -> std::io::Result<T> {
        let lock = || self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let opened = lock().clone().ok_or(ErrorKind::NotFound)?;
        match work(&opened) {
            // Removed, and perhaps made anew by others: those are to be found.
            Err(e) if e.kind() == ErrorKind::NotFound && opened.is_removed() => {
                let location = Location::find(&self.terms).map_err(|_| ErrorKind::NotFound)?;
                let again = Arc::new(PipeDir::existing(Arc::new(location))?);
                *lock() = Some(Arc::clone(&again));
                work(&again)
            }
            done => done,
        }
    }
}

impl PipeDir {
    fn new(location: Arc<Location>) -> std::io::Result<Self> {
        let (beside, name) = location.beside(CLIENTS);
        match mkdirat(beside, &name, Mode::from_raw_mode(location.sharing.directory() & 0o777)) {
            Ok(()) | Err(Errno::EXIST) => Self::existing(location),
            Err(e) => Err(e.into()),
        }
    }

    fn existing(location: Arc<Location>) -> std::io::Result<Self> {
        let (beside, name) = location.beside(CLIENTS);
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let path = openat(beside, &name, flags | OFlags::PATH, Mode::empty())?;
        let stat = fstat(&path)?;
        if !location.sharing.owns(seen(&stat), location.user, location.group) {
            let whose = format!("its directory belongs to user {} and group {}", stat.st_uid, stat.st_gid);
            return Err(std::io::Error::new(ErrorKind::PermissionDenied, whose));
        }
        if stat.st_uid == location.user {
            set_mode(&path, stat.st_mode, location.sharing.directory())?;
        } else if stat.st_mode & 0o002 != 0 {
            return Err(std::io::Error::new(ErrorKind::PermissionDenied, "its directory may be written to by everybody"));
        }
        let dir = openat(beside, &name, flags, Mode::empty())?;
        Ok(Self { dir, location })
    }

    fn is_removed(&self) -> bool {
        fstat(&self.dir).is_ok_and(|stat| stat.st_nlink == 0)
    }

    /// Whether its name still leads to it.
    fn is_in_place(&self) -> bool {
        let (beside, name) = self.location.beside(CLIENTS);
        let named = statat(beside, &name, AtFlags::SYMLINK_NOFOLLOW);
        named.is_ok_and(|named| fstat(&self.dir).is_ok_and(|open| (named.st_dev, named.st_ino) == (open.st_dev, open.st_ino)))
    }

    /// Whether it is a pipe of a user of the file.
    fn check(&self, stat: &Stat) -> std::io::Result<()> {
        let is_pipe = FileType::from_raw_mode(stat.st_mode) == FileType::Fifo;
        let is_ours = is_pipe && self.location.sharing.owns(seen(stat), self.location.user, self.location.group);
        if is_ours { Ok(()) } else { Err(ErrorKind::PermissionDenied.into()) }
    }

    fn open(&self, name: PipeName, how: OFlags) -> std::io::Result<File> {
        let flags = how | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.dir, name.text(), flags, Mode::empty())?;
        self.check(&fstat(&file)?)?;
        Ok(file.into())
    }

    fn make(&self, hidden: PipeName, name: PipeName) -> std::io::Result<File> {
        let sharing = self.location.sharing;
        mkfifoat(&self.dir, hidden.text(), Mode::from_raw_mode(0o600))?;
        let path = openat(&self.dir, hidden.text(), OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        let stat = fstat(&path)?;
        self.check(&stat)?;
        set_mode(&path, stat.st_mode, if name.kind == PipeKind::Alive { sharing.life() } else { sharing.file() })?;
        let file = self.open(hidden, OFlags::RDWR)?;
        renameat(&self.dir, hidden.text(), &self.dir, name.text())?;
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_name_that_is_taken_for_a_pipes_is_written_the_same_way(
            name in prop_oneof![
                "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\\.(alive|wake)(\\.new)?",
                "[0-9a-fA-F./-]{0,40}\\.(alive|wake|new|\\.\\.)?",
                ".{0,60}",
            ]
        ) {
            if let Some(parsed) = PipeName::parse(name.as_bytes()) {
                prop_assert_eq!(parsed.text(), name);
            } else {
                prop_assert!(!(name.len() == 42 && name.ends_with(".alive") && !name.contains(['/', '.', 'A', 'B', 'C', 'D', 'E', 'F'])));
            }
        }

        #[test]
        fn no_bytes_become_a_path(name in prop::collection::vec(any::<u8>(), 0..64)) {
            if let Some(parsed) = PipeName::parse(&name) {
                prop_assert!(!parsed.text().contains('/') && parsed.text().len() <= 46);
            }
        }
    }

    #[test]
    fn every_pipe_has_a_name_that_is_understood() {
        let client = ClientId::random().unwrap();
        for kind in [PipeKind::Alive, PipeKind::Wake] {
            for hidden in [false, true] {
                let name = PipeName { client, kind, hidden };
                assert_eq!(PipeName::parse(name.text().as_bytes()), Some(name));
            }
        }
    }
}
