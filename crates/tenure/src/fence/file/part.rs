//! The new content before it takes its place. Its writer keeps it locked: a part without a lock is left over.

use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::sidecar::Wait;
use super::{Error, FencedFile, There, Trouble};

/// How many may write one file at a time. Few, so that all leftovers are found without reading the directory.
const SLOTS: usize = 64;

pub(super) struct Part {
    pub(super) file: File,
    pub(super) path: PathBuf,
    published: bool,
}

impl Part {
    /// With the permissions of the file whose place it is to take, before there is anything to be read in it.
    pub(super) fn create(target: &FencedFile, mode: Option<Permissions>) -> Result<Self, Error> {
        let mut wait = Wait::new(target);
        loop {
            for path in paths(target) {
                remove_if_left(&path);
                let mut options = OpenOptions::new();
                options.read(true).write(true).create_new(true);
                if mode.is_some() {
                    options.mode(0o600);
                }
                let file = match options.open(&path) {
                    Err(e) if e.kind() == ErrorKind::AlreadyExists => continue,
                    file => file.map_err(Trouble::io("creating", &path))?,
                };
                match file.try_lock() {
                    Ok(()) if is_at(&file, &path) => {}
                    // Another writer has taken it for left over before it was locked.
                    Ok(()) | Err(TryLockError::WouldBlock) => continue,
                    Err(TryLockError::Error(e)) => {
                        let _next_time = fs::remove_file(&path);
                        return Err(Trouble::io("locking", &path)(e));
                    }
                }
                let part = Self { file, path, published: false };
                if let Some(mode) = mode {
                    // Not the bits that lend the owner's rights: the owner may be another one now.
                    let mode = Permissions::from_mode(mode.mode() & 0o777);
                    part.file.set_permissions(mode).map_err(Trouble::io("setting the permissions of", &part.path))?;
                }
                return Ok(part);
            }
            wait.once_more()?;
        }
    }

    /// Takes the place of a file.
    pub(super) fn publish(mut self, path: &Path) -> Result<(), Error> {
        fs::rename(&self.path, path).map_err(Trouble::io("renaming to", path))?;
        self.published = true;
        Ok(())
    }

    /// Removes what the dead have left over.
    pub(super) fn sweep(target: &FencedFile) {
        paths(target).for_each(|path| remove_if_left(&path));
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // Once it has another name, this one may be that of another writer's part.
        if !self.published {
            let _next_time = fs::remove_file(&self.path);
        }
    }
}

fn paths(target: &FencedFile) -> impl Iterator<Item = PathBuf> {
    (0..SLOTS).map(|n| target.beside(&format!(".{n}.part")))
}

/// A part stays where it is while a process has it locked, also to remove it.
fn remove_if_left(path: &Path) {
    let Ok(There::File(file)) = super::open(path, false) else { return };
    match file.try_lock() {
        Ok(()) if is_at(&file, path) => {
            let _next_time = fs::remove_file(path);
        }
        Ok(()) | Err(TryLockError::WouldBlock | TryLockError::Error(_)) => {}
    }
}

/// Whether a file that was opened is the one that has this path now.
pub(super) fn is_at(file: &File, path: &Path) -> bool {
    let id = |there: fs::Metadata| (there.dev(), there.ino());
    file.metadata().is_ok_and(|open| fs::symlink_metadata(path).is_ok_and(|there| id(open) == id(there)))
}
